"""Work that waits (for a cluster, for DuckDB): in threads, so many at once and no more; and its
results on their way to the browser while it goes on, one JSON document a line.

A page that is left, or a reader who presses Cancel, ends the request; the work sees `Stop` at its
next step.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from ottla.client.errors import KafkaError

T = TypeVar("T")
log = logging.getLogger(__name__)

LINES_QUEUED_MAX = 64  # between the thread that reads and the browser
BYTES_QUEUED_MAX = 4 * 1024 * 1024
TAKEN_LATEST_MS = 60_000  # a browser that takes nothing for so long is gone
STOP_SEEN_MS = 200  # how soon a thread that waits for a slow browser sees that it is gone
BEAT_MS = 10_000  # a line at least so often, so that a connection that died is found
LATE = f"Nothing of this was taken for {TAKEN_LATEST_MS // 1000} s and it ended: start it again."
LINES = "application/x-ndjson"
EVENTS = "text/event-stream"


class Stopped(Exception):
    """Nobody waits for the result any more."""


class Problem(Exception):
    """What is wrong with a request, in a sentence for the one who made it."""


class Stop:
    """Whether the work goes on; `on_stop` is called once, from another thread, when it does not."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._actions: list[Callable[[], object]] = []

    def __bool__(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        with self._lock:
            self._event.set()
            actions, self._actions = self._actions, []
        for action in actions:
            action()

    def on_stop(self, action: Callable[[], object]) -> None:
        with self._lock:
            if not self._event.is_set():
                self._actions.append(action)
                return
        action()

    def check(self) -> None:
        if self._event.is_set():
            raise Stopped

    def wait(self, seconds: float) -> None:
        """Sleep, at most until the stop; raises Stopped then."""
        if self._event.wait(seconds):
            raise Stopped


Emit = Callable[[dict[str, Any]], None]
Put = Callable[[bytes], None]
Work = Callable[[Emit, Stop], None]


class Workers:
    """Threads under one name; a request that finds all of them taken and `waiting` before it is
    refused with 503."""

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=f"console-{name}")
        self._taken_max = threads + waiting
        self._taken = 0
        self._lock = threading.Lock()
        self._name = name

    def _submit(self, function: Callable[[], T]) -> asyncio.Future[T]:
        with self._lock:
            if self._taken >= self._taken_max:
                raise HTTPException(
                    503,
                    f"{self._taken} requests of this kind ({self._name}) run or wait already: "
                    "wait until one has ended, or end one.",
                    {"Retry-After": "2"},
                )
            self._taken += 1
        future = self._executor.submit(function)
        future.add_done_callback(self._given_back)
        return asyncio.wrap_future(future)

    def _given_back(self, future: object) -> None:
        with self._lock:
            self._taken -= 1

    @property
    def taken(self) -> int:
        """How many requests run or wait."""
        return self._taken

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """The function's result, from a thread."""
        return await self._submit(lambda: function(*arguments))

    def streamed(
        self, work: Work, *, media: str = LINES, beat_ms: int = BEAT_MS
    ) -> StreamingResponse:
        """An answer of the documents that `work` emits, from a thread, as they come."""

        def as_lines(put: Put, stop: Stop) -> None:
            def emit(document: dict[str, Any]) -> None:
                put(encoded(document, media))

            work(emit, stop)

        return self.streamed_lines(as_lines, media=media, beat_ms=beat_ms)

    def streamed_lines(
        self, work: Callable[[Put, Stop], None], *, media: str = LINES, beat_ms: int = BEAT_MS
    ) -> StreamingResponse:
        """The same of lines that `work` puts; what goes wrong is the last one."""

        def told(put: Put, stop: Stop) -> None:
            try:
                work(put, stop)
            except (Problem, KafkaError, TimeoutError) as error:
                put(encoded({"error": str(error) or type(error).__name__}, media))
            except Stopped:
                raise
            except Exception:
                log.exception("a request for records failed")
                text = "The console failed at this; its log has the traceback."
                put(encoded({"error": text}, media))

        beat = b": \n\n" if media == EVENTS else b"{}\n"
        late = encoded({"error": LATE}, media)
        return self.streamed_bytes(told, media=media, beat=beat, beat_ms=beat_ms, late=late)

    def streamed_bytes(
        self,
        work: Callable[[Put, Stop], None],
        *,
        media: str,
        headers: Mapping[str, str] | None = None,
        beat: bytes = b"",
        beat_ms: int = BEAT_MS,
        late: bytes = b"",
    ) -> StreamingResponse:
        """An answer of the bytes that `work` puts. If it raises, or nobody takes them (and there
        is no `late` to say), the answer breaks off, so that a browser shows a download that failed
        and not a file that looks whole."""
        stop = Stop()
        pipe = Pipe(asyncio.get_running_loop(), stop)

        def run() -> None:
            try:
                stop.check()
                work(pipe.put, stop)
            except Stopped:
                return
            finally:
                pipe.end()

        future = self._submit(run)
        return StreamingResponse(
            _pieces(pipe, future, stop, beat, beat_ms, late), media_type=media, headers=headers
        )

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)


class Pipe:
    """From a thread that works to the browser: so much may lie in it, and no more."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stop: Stop) -> None:
        self._loop = loop
        self._stop = stop
        self._changed = threading.Condition()  # all below
        self._pieces: deque[bytes] = deque()
        self._bytes = 0
        self._ended = False
        self.late = False  # the browser took nothing for too long
        self._came = asyncio.Event()

    # The thread

    def put(self, piece: bytes) -> None:
        """Waits for space; raises Stopped where nobody takes anything."""
        deadline = Deadline(TAKEN_LATEST_MS)
        with self._changed:
            while self._full(piece):
                self._stop.check()
                if deadline.passed:
                    self.late = True
                    raise Stopped
                self._changed.wait(STOP_SEEN_MS / 1000)
            self._pieces.append(piece)
            self._bytes += len(piece)
        self._tell()

    def _full(self, piece: bytes) -> bool:
        """One piece always fits, however large it is."""
        much = self._bytes + len(piece) > BYTES_QUEUED_MAX
        return bool(self._pieces) and (much or len(self._pieces) >= LINES_QUEUED_MAX)

    def end(self) -> None:
        """Nothing more comes; what lies in it is still taken."""
        with self._changed:
            self._ended = True
        self._tell()

    def _tell(self) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._came.set)

    # The event loop

    async def take(self, wait_ms: int) -> bytes | None:
        """The next piece, None at the end. Raises TimeoutError."""
        while True:
            self._came.clear()
            with self._changed:
                if self._pieces:
                    piece = self._pieces.popleft()
                    self._bytes -= len(piece)
                    self._changed.notify()
                    return piece
                if self._ended:
                    return None
            await asyncio.wait_for(self._came.wait(), wait_ms / 1000)


async def _pieces(
    pipe: Pipe,
    future: asyncio.Future[None],
    stop: Stop,
    beat: bytes,
    beat_ms: int,
    late: bytes,
) -> AsyncIterator[bytes]:
    try:
        while True:
            try:
                piece = await pipe.take(beat_ms)
            except TimeoutError:
                if beat:
                    yield beat
                continue
            if piece is not None:
                yield piece
                continue
            await future  # raises what the work raised
            if pipe.late and not late:
                raise OSError("the browser took nothing for too long: this is not the whole")
            if pipe.late:
                yield late
            return
    finally:
        stop.set()
        future.cancel()  # where it has not begun


def encoded(document: dict[str, Any], media: str) -> bytes:
    line = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "replace"
    )
    return b"data: " + line + b"\n\n" if media == EVENTS else line + b"\n"


class Deadline:
    """How long a piece of work may take."""

    def __init__(self, limit_ms: float) -> None:
        self.limit_ms = limit_ms
        self._end = time.monotonic() + limit_ms / 1000

    @property
    def passed(self) -> bool:
        return time.monotonic() >= self._end

    @property
    def left_ms(self) -> float:
        return max(0.0, (self._end - time.monotonic()) * 1000)

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
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from concurrent.futures import TimeoutError as WaitTimeoutError
from contextlib import suppress
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from ottla.client.errors import KafkaError

T = TypeVar("T")
log = logging.getLogger(__name__)

LINES_QUEUED_MAX = 64  # between the thread that reads and the browser
TAKEN_LATEST_MS = 60_000  # a browser that takes nothing for so long is gone
STOP_SEEN_MS = 200  # how soon a thread that waits for a slow browser sees that it is gone
BEAT_MS = 10_000  # a line at least so often, so that a connection that died is found
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

        def as_bytes(put: Put, stop: Stop) -> None:
            def emit(document: dict[str, Any]) -> None:
                put(encoded(document, media))

            try:
                work(emit, stop)
            except (Problem, KafkaError, TimeoutError) as error:
                emit({"error": str(error) or type(error).__name__})
            except Stopped:
                raise
            except Exception:
                log.exception("a request for records failed")
                emit({"error": "The console failed at this; its log has the traceback."})

        beat = b": \n\n" if media == EVENTS else b"{}\n"
        return self.streamed_bytes(as_bytes, media=media, beat=beat, beat_ms=beat_ms)

    def streamed_bytes(
        self,
        work: Callable[[Put, Stop], None],
        *,
        media: str,
        headers: Mapping[str, str] | None = None,
        beat: bytes = b"",
        beat_ms: int = BEAT_MS,
    ) -> StreamingResponse:
        """An answer of the bytes that `work` puts. If it raises, the answer breaks off, so that a
        browser shows a download that failed and not a file that looks whole."""
        stop = Stop()
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(LINES_QUEUED_MAX)

        def put(piece: bytes | None) -> None:
            waiting = asyncio.run_coroutine_threadsafe(queue.put(piece), loop)
            deadline = Deadline(TAKEN_LATEST_MS)
            while True:
                try:
                    return waiting.result(STOP_SEEN_MS / 1000)
                except WaitTimeoutError:
                    if stop or deadline.passed:
                        waiting.cancel()
                        raise Stopped from None
                except CancelledError:
                    raise Stopped from None

        def run() -> None:
            try:
                stop.check()
                work(put, stop)
            except Stopped:
                return
            finally:
                with suppress(Stopped):
                    put(None)

        future = self._submit(run)
        return StreamingResponse(
            _pieces(queue, future, stop, beat, beat_ms), media_type=media, headers=headers
        )

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)


async def _pieces(
    queue: asyncio.Queue[bytes | None],
    future: asyncio.Future[None],
    stop: Stop,
    beat: bytes,
    beat_ms: int,
) -> AsyncIterator[bytes]:
    try:
        while True:
            try:
                piece = await asyncio.wait_for(queue.get(), beat_ms / 1000)
            except TimeoutError:
                if beat:
                    yield beat
                continue
            if piece is None:
                await future  # raises what the work raised
                return
            yield piece
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

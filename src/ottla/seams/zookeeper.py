"""Connections to a ZooKeeper ensemble, through kazoo (`ottla[zookeeper]`).

kazoo has a thread of its own for a connection and calls back on it. Here everything that it reports
hops to the event loop: answers and watches in the order in which they came, those of one moment in
one turn. kazoo's commands are used in their asynchronous form only, which sends a request once and
retries nothing.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS
from kazoo.handlers.threading import SequentialThreadingHandler

log = logging.getLogger("ottla.zookeeper")

# kazoo has a line for each attempt to connect. What it says goes through `LimitedLines`.
kazoo_log = logging.getLogger("ottla.zookeeper.client")
LINE_EVERY_S = 60.0

# Between two rounds through the hosts of an ensemble while none of them answers.
RETRY_MIN_S = 0.05
RETRY_MAX_S = 1.0


class LimitedLines(logging.Filter):
    """Of the warnings that follow one another passes one in LINE_EVERY_S; errors pass always.

    The first does not: that the connection is lost, and is back, is said by the owner of a session.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen_s = self._passed_s = -LINE_EVERY_S

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return record.levelno > logging.WARNING
        begins = record.created - self._seen_s > LINE_EVERY_S
        passes = not begins and record.created - self._passed_s >= LINE_EVERY_S
        self._seen_s = record.created
        if begins or passes:
            self._passed_s = record.created
        return passes


kazoo_log.addFilter(LimitedLines())


class Answer:
    """What kazoo puts the answer to one request into, on its own thread; `future` is the loop's."""

    __slots__ = ("_error", "_handler", "_then", "_value", "future")

    def __init__(self, handler: LoopHandler) -> None:
        self._handler = handler
        self.future: asyncio.Future[Any] = handler.loop.create_future()
        self._value: Any = None
        self._error: BaseException | None = None
        self._then: Callable[[Answer], object] | None = None

    def set(self, value: Any = None) -> None:
        self._value = value
        self._handler.hop(self._deliver)

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._handler.hop(self._deliver)

    def get(self) -> Any:
        """For kazoo's own continuations, which run after the answer is there."""
        if self._error is not None:
            raise self._error
        return self._value

    def rawlink(self, then: Callable[[Answer], object]) -> None:
        """kazoo continues with a request of several steps; from the loop, before the answer."""
        self._then = then

    def _deliver(self) -> None:
        if self._then is not None:
            self._then(self)
        if self.future.done():
            return  # nobody waits any more
        if self._error is not None:
            self.future.set_exception(self._error)
            if self._then is not None:
                self.future.exception()  # passed on: nobody else looks at this one
        else:
            self.future.set_result(self._value)


class LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler without its threads for callbacks: they run on the event loop."""

    name = "ottla_loop_handler"

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.loop = loop
        self._lock = threading.Lock()
        self._hops: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def async_result(self) -> Answer:
        return Answer(self)

    def dispatch_callback(self, callback: Any) -> None:
        self.hop(callback.func, *callback.args)

    def hop(self, fn: Callable[..., object], *args: Any) -> None:
        """Call on the event loop, after what was given before. From any thread."""
        with self._lock:
            self._hops.append((fn, args))
            if len(self._hops) > 1:
                return  # a turn is on its way
        try:
            self.loop.call_soon_threadsafe(self._run)
        except RuntimeError:
            pass  # the loop was closed first: nobody waits any more

    def _run(self) -> None:
        with self._lock:
            hops, self._hops = self._hops, []
        for fn, args in hops:
            try:
                fn(*args)
            except Exception:
                log.exception("a callback of ZooKeeper's client failed")


class EndSession:
    """ZooKeeper's request that ends a session, answered: kazoo sends its own without waiting."""

    type = -11

    @staticmethod
    def serialize() -> bytes:
        return b""

    @staticmethod
    def deserialize(data: bytes, offset: int) -> bool:
        return True


class ReadMany:
    """ZooKeeper's request that reads many nodes at a time (ZOOKEEPER-1607, from 3.6 on).

    Answered with data, version and number of children of each node in order, or None for one that
    is not there.
    """

    type = 22
    GET_DATA = 4
    NO_NODE = -101
    HEADER = struct.Struct("!iBi")  # type, done, error
    LENGTH = struct.Struct("!i")
    STAT_BYTES = 68
    VERSION_AT = 32  # in a stat, after four numbers of eight bytes
    CHILDREN_AT = 56

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def serialize(self) -> bytes:
        begin, length = self.HEADER.pack(self.GET_DATA, False, -1), self.LENGTH.pack
        parts = []
        for path in self._paths:
            name = path.encode()
            parts += [begin, length(len(name)), name, b"\0"]  # no watch
        return b"".join([*parts, self.HEADER.pack(-1, True, -1)])

    def deserialize(self, data: bytes, offset: int) -> list[tuple[bytes, int, int] | None]:
        header, length = self.HEADER, self.LENGTH
        answers: list[tuple[bytes, int, int] | None] = []
        while True:
            kind, done, error = header.unpack_from(data, offset)
            offset += header.size
            if done:
                return answers
            if kind != self.GET_DATA:
                if error != self.NO_NODE:
                    raise EXCEPTIONS[error]
                offset += length.size  # the error once more
                answers.append(None)
                continue
            (size,) = length.unpack_from(data, offset)
            offset += length.size
            value = bytes(data[offset : offset + size]) if size > 0 else b""
            offset += max(size, 0)
            (version,) = length.unpack_from(data, offset + self.VERSION_AT)
            (children,) = length.unpack_from(data, offset + self.CHILDREN_AT)
            offset += self.STAT_BYTES
            answers.append((value, version, children))


def read_many(client: Any, paths: Sequence[str]) -> Answer:
    """Read many nodes with one request; see `ReadMany`."""
    answer = Answer(client.handler)
    client._call(ReadMany(paths), answer)
    return answer


def end_session(client: Any) -> Answer:
    """End the session of a client that is connected; answered when its nodes are gone."""
    answer = Answer(client.handler)
    client._call(EndSession(), answer)
    return answer


def new_client(hosts: str, session_timeout_s: float, loop: asyncio.AbstractEventLoop) -> Any:
    """A client that is not started. `hosts` are HOST:PORT with commas, without a chroot."""
    return KazooClient(
        hosts,
        timeout=session_timeout_s,
        handler=LoopHandler(loop),
        connection_retry={"max_tries": -1, "delay": RETRY_MIN_S, "max_delay": RETRY_MAX_S},
        logger=kazoo_log,
    )

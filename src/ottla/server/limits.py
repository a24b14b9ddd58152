"""The limits of the server, and the count of bytes that all connections hold together.

A limit never grows a queue: at it, reading pauses until bytes or requests are released, new
connections wait in the kernel or are closed, or the connection closes with a reason (frame size,
idleness). A connection that holds nothing is always served; one that holds something while all
together hold too much waits, except for one at a time that may receive its request to the end, so
that progress is made when all hold parts of requests.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

KiB = 1024
MiB = 1024 * KiB

FRAME_BYTES_MAX = 100 * MiB  # Kafka's socket.request.max.bytes
CONNECTION_HELD_BYTES_MAX = 16 * MiB  # requests waiting and answers unsent of one connection
HELD_BYTES_MAX = 256 * MiB  # the same in all, and the buffers; Kafka's queued.max.request.bytes
UNANSWERED_MAX = 500  # requests of one connection; Kafka's queued.max.requests is for all
REQUESTS_PER_TURN = 64  # of one connection, then the others are served
UNSENT_BYTES = 64 * KiB  # answers of one turn; beyond it each further request checks the limits
# To one connection, then the others are served: an answer with `max.partition.fetch.bytes` of one
# partition, and what is around the records.
SEND_BYTES_PER_TURN = 1 * MiB + 64 * KiB
# Of a file, in one question whether it is cached: what most consumers ask for at most.
CACHE_ASK_BYTES = 10 * SEND_BYTES_PER_TURN
CACHED_S = 1.0  # how long the answer holds for a reader that pauses
# A reader that had to wait for the device is asked for in pieces, until so much was cached: pages
# that are still on their way count as cached, and a piece is what the kernel reads ahead.
DOUBT_BYTES = 64 * MiB
CACHE_PIECE_BYTES = 128 * KiB
SCRATCH_BYTES = 64 * KiB  # one buffer for every connection that has no request under way
OWN_BUFFER_BYTES_MIN = 4 * KiB  # for the start of a request whose end is still under way
PREAD_BYTES_MAX = 16 * KiB  # file ranges up to this size are read and go out with their header
INLINE_BYTES_MAX = 2 * KiB  # an answer's only range, up to this size, is copied into the answer
BUFFERS_PER_SEND = 64
SPARE_BUFFER_S = 5.0  # a connection that has read nothing for so long gives its buffer back
# With part of a request while others wait for bytes, or without a login while others wait to
# connect: the connection closes.
STALLED_S = 10.0
SWEEP_S_MIN = 0.05

CONNECTIONS_MAX = (1 << 31) - 1  # Kafka's max.connections and max.connections.per.ip
# Descriptors that are neither files of the log nor connections: listeners, the metadata database
# and its journal, pipes of a helper process, connections for metrics.
OTHER_DESCRIPTORS_MAX = 64
OTHER_DESCRIPTORS_SHARE = 8  # at most an eighth of a small limit
CLOSING_LATER_MAX = 1_000  # connections of addresses that connect too often
CONNECTIONS_IDLE_MS_MAX = 600_000  # Kafka's connections.max.idle.ms
DRAIN_S_MAX = 5.0  # how long a stopping server waits for answers under way


class ListenerLimits(NamedTuple):
    """Those of one listener, with `listener.name.NAME.` before Kafka's names."""

    connections_max: int = CONNECTIONS_MAX
    connections_per_second_max: int = CONNECTIONS_MAX


NO_LIMITS = ListenerLimits()


class Limits:
    """The limits that an operator may set, with Kafka's names and defaults."""

    __slots__ = (
        "connection_held_bytes_max",
        "connections_idle_ms_max",
        "connections_max",
        "connections_per_ip_max",
        "connections_per_ip_overrides",
        "connections_per_second_max",
        "frame_bytes_max",
        "held_bytes_max",
        "listeners",
        "unanswered_max",
    )

    def __init__(
        self,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        held_bytes_max: int = -1,
        unanswered_max: int = UNANSWERED_MAX,
        connection_held_bytes_max: int = CONNECTION_HELD_BYTES_MAX,
        connections_max: int = CONNECTIONS_MAX,
        connections_per_ip_max: int = CONNECTIONS_MAX,
        connections_per_ip_overrides: Mapping[str, int] | None = None,
        connections_per_second_max: int = CONNECTIONS_MAX,
        connections_idle_ms_max: int = CONNECTIONS_IDLE_MS_MAX,
        listeners: Mapping[str, ListenerLimits] | None = None,
    ) -> None:
        self.frame_bytes_max = frame_bytes_max
        # Kafka's default for queued.max.request.bytes is -1, no limit; here -1 is a generous one.
        self.held_bytes_max = held_bytes_max if held_bytes_max > 0 else HELD_BYTES_MAX
        self.unanswered_max = unanswered_max
        self.connection_held_bytes_max = connection_held_bytes_max
        self.connections_max = connections_max
        self.connections_per_ip_max = connections_per_ip_max
        self.connections_per_ip_overrides = dict(connections_per_ip_overrides or {})
        # A rate of 0 would admit no connection ever again.
        self.connections_per_second_max = max(connections_per_second_max, 1)
        self.connections_idle_ms_max = connections_idle_ms_max
        self.listeners = dict(listeners or {})

    def of_listener(self, name: str) -> ListenerLimits:
        return self.listeners.get(name, NO_LIMITS)

    def per_ip(self, host: str) -> int:
        """How many connections one host may have."""
        return self.connections_per_ip_overrides.get(host, self.connections_per_ip_max)


def connections_that_fit(descriptors: int, files_max: int) -> int:
    """How many connections leave `files_max` of the process's descriptors for the log's files."""
    others = min(OTHER_DESCRIPTORS_MAX, descriptors // OTHER_DESCRIPTORS_SHARE)
    return max(1, descriptors - files_max - others)


class Waiter(Protocol):
    """A connection that waits for bytes to be released."""

    def memory_available(self) -> object: ...


class Held:
    """How many bytes all connections hold together, and which wait for some to be released."""

    __slots__ = ("_later", "_overdraft", "_scheduled", "_waiting", "limit", "spare", "used")

    def __init__(self, limit: int, later: Callable[[Callable[[], object]], object]) -> None:
        self.limit = limit
        self.used = 0
        # Makes all connections release the buffers that they keep for their next large request.
        self.spare: Callable[[], object] = nothing_to_spare
        self._later = later
        self._waiting: dict[Waiter, None] = {}  # in the order of arrival
        self._overdraft: Waiter | None = None
        self._scheduled = False

    @property
    def full(self) -> bool:
        return self.used >= self.limit

    @property
    def crowded(self) -> bool:
        """Whether connections must release what they do not need now."""
        return self.used > self.limit or bool(self._waiting)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def take(self, size: int) -> None:
        self.used += size

    def give(self, size: int) -> None:
        self.used -= size
        if self._waiting and self.used < self.limit:
            self._wake_later()

    def may_grow(self, waiter: Waiter, size: int) -> bool:
        """Whether the waiter may take `size` more for its request; if not, its
        `memory_available` is called later.
        """
        if self.used + size > self.limit:
            self.spare()
        if self.used + size <= self.limit or self._overdraft is waiter:
            return True
        if self._overdraft is None:
            self._overdraft = waiter
            return True
        self.wait(waiter)
        return False

    def wait(self, waiter: Waiter) -> None:
        self._waiting[waiter] = None

    def received(self, waiter: Waiter) -> None:
        """The waiter has its whole request: another may overdraw."""
        if self._overdraft is waiter:
            self._overdraft = None
            if self._waiting:
                self._wake_later()

    def forget(self, waiter: Waiter) -> None:
        """The waiter is closed."""
        self._waiting.pop(waiter, None)
        self.received(waiter)

    def _wake_later(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._later(self._wake)

    def _wake(self) -> None:
        self._scheduled = False
        # Each tries again; those that still may not grow are queued anew in the same order.
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            waiter.memory_available()


def nothing_to_spare() -> None:
    """The `spare` of a server without connections."""

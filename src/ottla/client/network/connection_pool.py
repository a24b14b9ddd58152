"""The connections of a client: one to each broker, a second one where a long wait must not block.

In the loop's thread. `send` finds or makes the connection; `pick` chooses a broker when any will
do. A broker that cannot be reached is tried again after a wait that doubles, with jitter; what is
asked meanwhile waits with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ottla.client.randomness import RANDOM
from ottla.wire.receive_buffers import Buffers

from ..errors import KafkaConnectionError, KafkaError, NodeNotReadyError
from ..typed_config import ClientConfig
from .cluster_metadata import Broker, Cluster
from .connection import Connection, Request
from .io_thread import Loop
from .security import Security

TICK_S = 0.1  # how exactly timeouts are kept
JITTER = 0.2
ANY = -1_000_000
CONTROLLER = -1_000_001


class Wait:
    """How often in a row a broker could not be reached, and when to try again."""

    __slots__ = ("failures", "reason", "until")

    def __init__(self) -> None:
        self.failures = 0
        self.until = 0.0
        self.reason = ""


class Connections:
    """By broker id and channel; ids below 0 are bootstrap servers, which have no other name."""

    def __init__(self, loop: Loop, config: ClientConfig) -> None:
        self.loop = loop
        self.config = config
        self.cluster = Cluster()
        self.bootstrap = {
            -1 - index: Broker(-1 - index, host, port)
            for index, (host, port) in enumerate(config["bootstrap_servers"])
        }
        self.by_key: dict[tuple[int, str], Connection] = {}
        self.waits: dict[int, Wait] = {}
        self.buffers = Buffers()
        self.security = Security.of(config)
        self.features: dict[str, int] = {}
        self.versions: dict[int, dict[int, tuple[int, int]]] = {}
        self.on_ended: Callable[[int, KafkaError], object] = lambda node_id, reason: None
        self.ticking = False
        self.closed = False

    def broker(self, node_id: int) -> Broker | None:
        return self.cluster.brokers.get(node_id) or self.bootstrap.get(node_id)

    def send(self, node_id: int, request: Request, channel: str = "") -> None:
        """Send to this broker, `ANY` or the `CONTROLLER`; the future tells how it went."""
        if self.closed:
            request.future.set_exception(KafkaError("the client is closed"))
            return
        if node_id == CONTROLLER:
            node_id = self.cluster.controller_id
            node_id = node_id if node_id in self.cluster.brokers else ANY
        if node_id == ANY:
            node_id = self.pick()
        broker = self.broker(node_id)
        if broker is None:
            text = f"broker {node_id} is not among the live ones"
            request.future.set_exception(NodeNotReadyError(text))
            return
        connection = self.by_key.get((node_id, channel))
        if connection is not None and connection.address != (broker.host, broker.port):
            connection.close(KafkaConnectionError(f"broker {node_id} has moved"))
            connection = None
        if connection is None:
            connection = self._open(broker, channel)
        connection.send(request)
        if not self.ticking:
            self.ticking = True
            self.loop.call_later(TICK_S, self._tick)

    def _open(self, broker: Broker, channel: str) -> Connection:
        node_id = broker.node_id
        connection = Connection(
            self.loop,
            (broker.host, broker.port),
            self.config,
            lambda ended, reason: self._ended(node_id, channel, ended, reason),
            lambda ready: self._ready(node_id, channel, ready),
            self.buffers,
            self.security,
        )
        self.by_key[node_id, channel] = connection
        wait = self.waits.get(node_id)
        delay_s = 0.0 if wait is None else wait.until - time.monotonic()
        if delay_s > 0:
            self.loop.call_later(delay_s, self._connect_later, connection)
        else:
            connection.connect()
        return connection

    def _connect_later(self, connection: Connection) -> None:
        if not connection.closed:
            connection.connect()

    def _ready(self, node_id: int, channel: str, connection: Connection) -> None:
        self.waits.pop(node_id, None)
        assert connection.versions is not None
        self.versions[node_id] = connection.versions
        self.features = connection.features or self.features
        self._watch_idle(node_id, channel, connection)

    def _watch_idle(self, node_id: int, channel: str, connection: Connection) -> None:
        """Close a connection that was unused for long (0 or less: never)."""
        idle_s_max = self.config["connections_max_idle_ms"] / 1000
        if connection.closed or idle_s_max <= 0:
            return
        idle_s = time.monotonic() - connection.used_at
        if idle_s >= idle_s_max and not connection.open_requests:
            self.by_key.pop((node_id, channel), None)
            connection.ended = lambda ended, reason: None
            connection.close(KafkaConnectionError("closed after a long time without use"))
            return
        self.loop.call_later(
            max(idle_s_max - idle_s, 1.0), self._watch_idle, node_id, channel, connection
        )

    def _ended(
        self, node_id: int, channel: str, connection: Connection, reason: KafkaError
    ) -> None:
        if self.by_key.get((node_id, channel)) is connection:
            del self.by_key[node_id, channel]
        wait = self.waits.setdefault(node_id, Wait())
        base_ms, most_ms = (
            self.config["reconnect_backoff_ms"],
            self.config["reconnect_backoff_max_ms"],
        )
        wait_ms = min(base_ms * 2.0**wait.failures, max(base_ms, most_ms))
        wait_ms *= RANDOM.uniform(1 - JITTER, 1 + JITTER)
        wait.failures = min(wait.failures + 1, 30)
        wait.until = time.monotonic() + wait_ms / 1000
        wait.reason = str(reason)
        self.on_ended(node_id, reason)

    def pick(self) -> int:
        """A broker to ask: the least busy of the connected, else one that has not just failed."""
        ready = [
            (connection.open_requests, RANDOM.random(), node_id)
            for (node_id, channel), connection in self.by_key.items()
            if connection.versions is not None and not channel and self.broker(node_id) is not None
        ]
        if ready:
            return min(ready)[2]
        known = list(self.cluster.brokers)
        if not known or all(self._failing(node_id) for node_id in known):
            known += self.bootstrap
        return min(known, key=lambda node_id: (self._until(node_id), RANDOM.random()))

    def _failing(self, node_id: int) -> bool:
        wait = self.waits.get(node_id)
        return wait is not None and wait.failures > 1

    def _until(self, node_id: int) -> float:
        wait = self.waits.get(node_id)
        return 0.0 if wait is None else wait.until

    def failures(self) -> list[str]:
        """Why the brokers that were tried cannot be reached."""
        return sorted({wait.reason for wait in self.waits.values()})

    def _tick(self) -> None:
        now = time.monotonic()
        for connection in list(self.by_key.values()):
            connection.expire(now)
        self.ticking = any(each.open_requests for each in self.by_key.values())
        if self.ticking:
            self.loop.call_later(TICK_S, self._tick)

    def close(self, reason: KafkaError) -> None:
        self.closed = True
        for connection in list(self.by_key.values()):
            connection.close(reason)

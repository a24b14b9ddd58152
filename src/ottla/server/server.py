"""All listeners and connections of one broker: who is let in, who must go, how it ends.

    open    bind the ports; newcomers wait in the kernel's queue
    accept  let them in
    drain   stop accepting and reading, finish what is under way
    close   end what is left

At `max.connections` newcomers wait until somebody leaves, as in Kafka; only the listener between
brokers, when it is not the only one, lets in one more and the one that has been silent longest
goes. A host beyond `max.connections.per.ip` is turned away. One sweep looks after the idle.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from functools import partial

from ottla.seams.clock import Clock, Timer
from ottla.seams.network import Listener, Network, Stream
from ottla.server.connection import Connection
from ottla.server.limits import (
    DRAIN_S_MAX,
    OWN_BUFFER_BYTES_MIN,
    SPARE_BUFFER_S,
    STALLED_S,
    SWEEP_S_MIN,
    Limits,
)
from ottla.server.listener import Endpoint
from ottla.server.shared import Handle, Shared

log = logging.getLogger("ottla.server")

BACKLOG = 50  # Kafka's socket.listen.backlog.size


class Server:
    """Made stopped; its connections hand their requests to `handle`."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        handle: Handle,
        endpoints: list[Endpoint],
        limits: Limits | None = None,
        *,
        backlog: int = BACKLOG,
        inter_broker_listener: str = "",
    ) -> None:
        self.limits = limits or Limits()
        self.shared = Shared(handle, clock, self.limits)
        self.shared.held.spare = self._spare
        self.endpoints = endpoints
        self.accepted = Counter[str]()  # by listener
        self.turned_away = 0
        self.connections: dict[Connection, None] = {}
        self._network = network
        self._clock = clock
        self._backlog = backlog
        self._protected = inter_broker_listener if len(endpoints) > 1 else ""
        self._doors: dict[str, Listener] = {}
        self._by_host = Counter[str]()
        self._closing = False
        self._full = self._too_fast = False
        self._created = 0  # connections in the second that is running
        self._sweeper: Timer | None = None
        self._second: Timer | None = None

    def open(self) -> None:
        """Binds every listener, and fills in the port where 0 asked for any. Raises OSError."""
        for endpoint in self.endpoints:
            try:
                door = self._network.listen(
                    endpoint.host,
                    endpoint.port,
                    partial(self._admit, endpoint.name),
                    backlog=self._backlog,
                )
            except OSError as error:
                self._shut_doors()
                error.filename = str(endpoint)
                raise
            door.pause()
            endpoint.port = door.port
            self._doors[endpoint.name] = door

    def accept(self) -> None:
        """Opens the doors, with the dispatcher ready to answer."""
        self._move_doors()
        self._sweep_later()

    def change_limits(self, limits: Limits) -> None:
        """What an operator changed while the server runs (KIP-226); it holds for newcomers."""
        self.limits = self.shared.limits = limits
        self._look_for_room()

    async def drain(self, seconds_max: float = DRAIN_S_MAX) -> None:
        """Stops accepting and reading, and waits for the answers that are being worked on.

        Fetches that wait for records are not waited for: their clients ask again elsewhere.
        """
        self._closing = True
        self._shut_doors()
        for connection in list(self.connections):
            connection.drain()
        deadline = self._clock.monotonic() + seconds_max
        while any(connection.working for connection in self.connections):
            if self._clock.monotonic() >= deadline:
                log.warning("stopping with answers unsent after %g s", seconds_max)
                break
            waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._clock.call_later(0.005, waited.set_result, None)
            await waited

    def close(self) -> None:
        """Closes every connection, after a last attempt to send what is ready."""
        self._closing = True
        self._shut_doors()
        for timer in (self._sweeper, self._second):
            if timer is not None:
                timer.cancel()
        self._sweeper = self._second = None
        for connection in list(self.connections):
            connection.flush()
            connection.close("the server is stopping")

    # Who is let in

    def _admit(self, listener_name: str, stream: Stream) -> None:
        host = stream.peer_host
        allowed = self.limits.per_ip(host)
        if self._by_host.get(host, 0) >= allowed:
            self.turned_away += 1
            log.warning("turned away %s: max.connections.per.ip is %d for it", stream.peer, allowed)
            stream.close()
            return
        self._by_host[host] += 1
        self.accepted[listener_name] += 1
        log.debug("%s connected to %s", stream.peer, listener_name)
        connection = Connection(self.shared, stream, listener_name, self._closed)
        self.connections[connection] = None
        self._count_second()
        if len(self.connections) >= self.limits.connections_max:
            self._house_full()

    def _house_full(self) -> None:
        if not self._full:
            self._full = True
            self._move_doors()
            log.warning(
                "there are %d connections, and max.connections is %d: newcomers wait",
                len(self.connections),
                self.limits.connections_max,
            )
        if len(self.connections) > self.limits.connections_max and self._protected:
            others = [c for c in self.connections if c.peer.listener_name != self._protected]
            if others:
                longest_silent = min(others, key=lambda connection: connection.last_active)
                longest_silent.close("another broker needs its place (max.connections)")

    def _count_second(self) -> None:
        """At max.connection.creation.rate newcomers wait for the next second."""
        self._created += 1
        if self._second is None:
            self._second = self._clock.call_later(1.0, self._next_second)
        if self._created >= self.limits.connections_per_second_max and not self._too_fast:
            self._too_fast = True
            self._move_doors()

    def _next_second(self) -> None:
        self._second = None
        self._created = 0
        if self._too_fast:
            self._too_fast = False
            self._move_doors()

    def _closed(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        self._by_host[connection.peer_host] -= 1
        if not self._by_host[connection.peer_host]:
            del self._by_host[connection.peer_host]
        if self._full:
            self._look_for_room()

    def _look_for_room(self) -> None:
        if self._full and len(self.connections) < self.limits.connections_max:
            self._full = False
            self._move_doors()

    def _move_doors(self) -> None:
        """Opens each door, or leaves its newcomers outside for now."""
        for name, door in self._doors.items():
            if self._too_fast or (self._full and name != self._protected):
                door.pause()
            else:
                door.resume()

    def _shut_doors(self) -> None:
        for door in self._doors.values():
            door.close()
        self._doors.clear()

    def _spare(self) -> None:
        for connection in self.connections:
            connection.rest()

    # Who must go

    def _sweep_later(self) -> None:
        idle_s = self.limits.connections_idle_ms_max / 1000
        delay_s = SPARE_BUFFER_S if idle_s < 0 else min(SPARE_BUFFER_S, idle_s / 4)
        self._sweeper = self._clock.call_later(max(delay_s, SWEEP_S_MIN), self._sweep)

    def _sweep(self) -> None:
        now = self._clock.monotonic()
        idle_ms_max = self.limits.connections_idle_ms_max
        idle_since = now - idle_ms_max / 1000 if idle_ms_max >= 0 else float("-inf")
        unused_since = now - SPARE_BUFFER_S
        short_of_room = self.shared.held.waiting > 0
        for connection in list(self.connections):
            silent_since = connection.last_active
            if silent_since > unused_since and silent_since > idle_since:
                continue
            if silent_since <= idle_since and not connection.awaits_answers:
                connection.close(f"idle for connections.max.idle.ms ({idle_ms_max})", logging.INFO)
            elif silent_since <= idle_since and connection.unsent:
                connection.close(
                    f"it took nothing of its answers for connections.max.idle.ms ({idle_ms_max})",
                    logging.INFO,
                )
            elif (
                short_of_room
                and silent_since <= now - STALLED_S
                and connection.received > OWN_BUFFER_BYTES_MIN
            ):
                connection.close(
                    f"half a request for {STALLED_S:g} s, and others wait for room",
                    logging.WARNING,
                )
            else:
                connection.rest()
        if not self._closing:
            self._sweep_later()

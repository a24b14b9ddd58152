"""All listeners and connections of one broker: which are accepted, which are closed, the stop.

    open    bind the ports; new connections wait in the kernel's queue
    accept  accept them
    drain   stop accepting and reading, finish what is under way
    close   close what is left

At `max.connections`, or as many as the descriptors allow, new connections wait in the kernel's
queue until another closes, as in Kafka; only the inter-broker listener, when it is not the only
one, accepts one more, and the connection that has been silent longest is closed. At its own limit
a listener waits too, and for a moment when connections come too fast (connection_rates.py). A
connection of a host beyond `max.connections.per.ip` is closed, and after a moment one of a host
that connects faster than it may. A periodic sweep closes idle connections, and at `max.connections`
those that should log in and do not.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ottla.broker.dispatch import Peer
from ottla.seams.background import Background
from ottla.seams.clock import Clock, Timer
from ottla.seams.network import Listener, Network, Stream
from ottla.security.quotas.client_quotas import AddressRates
from ottla.security.quotas.rates import Windows
from ottla.server.connection import Connection
from ottla.server.connection_rates import ConnectionRates
from ottla.server.limits import (
    CLOSING_LATER_MAX,
    DRAIN_S_MAX,
    OWN_BUFFER_BYTES_MIN,
    SPARE_BUFFER_S,
    STALLED_S,
    SWEEP_S_MIN,
    Limits,
)
from ottla.server.listener import Endpoint
from ottla.server.read_ahead import ReadAhead
from ottla.server.shared import Handle, Shared

if TYPE_CHECKING:
    from ottla.broker.login import Login

log = logging.getLogger("ottla.server")

# Connections that wait in the kernel to be accepted; it allows net.core.somaxconn at most. Kafka's
# socket.listen.backlog.size is 50: of 1,500 connections at a time most then wait for a SYN to be
# repeated (17.5 s until the last was accepted, 0.12 s with this).
BACKLOG = 2_048

NewLogin = Callable[[Peer], "Login"]


class Secure(Protocol):
    """TLS of one listener."""

    def stream(self, line: Stream) -> Stream:
        """A stream of TLS over the one accepted."""
        ...

    def identify(self, stream: Stream, peer: Peer) -> None:
        """Sets the peer's principal when its certificate is known."""
        ...


class Server:
    """Listeners and connections; every request is passed to `handle`. Created stopped."""

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
        background: Background | None = None,
        secure: Mapping[str, Secure] | None = None,
        logins: Mapping[str, NewLogin] | None = None,
        windows: Windows = Windows(),  # noqa: B008
    ) -> None:
        """`background`: where what is not in the page cache is read before it is sent; `secure`:
        the listeners of TLS; `logins`: those of SASL; `windows`: over which rates are measured."""
        self.limits = limits or Limits()
        read_ahead = None if background is None else ReadAhead(background)
        self.shared = Shared(handle, clock, self.limits, read_ahead)
        self.shared.held.spare = self._spare
        self.endpoints = endpoints
        self.accepted = Counter[str]()  # by listener
        self.turned_away = 0
        self.connections: dict[Connection, None] = {}
        self._network = network
        self._clock = clock
        self._backlog = backlog
        self._protected = inter_broker_listener if len(endpoints) > 1 else ""
        self._listeners: dict[str, Listener] = {}  # by name
        self._by_host = Counter[str]()
        self._secure = secure or {}
        self._logins = logins or {}
        self._closing = False
        self._full = False
        self._rates = ConnectionRates(windows)
        self._by_listener = Counter[str]()
        self._resting: dict[str, Timer] = {}  # listeners to which connections came too fast
        self._closing_later: dict[Stream, Timer] = {}
        self._sweeper: Timer | None = None

    def open(self) -> None:
        """Binds every listener, and fills in the port where 0 asked for any. Raises OSError."""
        for endpoint in self.endpoints:
            try:
                listener = self._network.listen(
                    endpoint.host,
                    endpoint.port,
                    partial(self._admit, endpoint.name),
                    backlog=self._backlog,
                )
            except OSError as error:
                self._close_listeners()
                error.filename = str(endpoint)
                raise
            listener.pause()
            endpoint.port = listener.port
            self._listeners[endpoint.name] = listener

    def accept(self) -> None:
        """Begins to accept connections; the dispatcher must be ready."""
        self._update_listeners()
        self._sweep_later()

    def change_limits(self, limits: Limits) -> None:
        """Takes over limits that an operator changed (KIP-226); they hold for new connections."""
        self.limits = self.shared.limits = limits
        self._leave_limit()
        self._update_listeners()

    def change_address_rates(self, rates: AddressRates) -> None:
        """How many connections a second each address may make from now on (KIP-612)."""
        self._rates.allowed = rates

    async def drain(self, seconds_max: float = DRAIN_S_MAX) -> None:
        """Stops accepting and reading, and waits for the answers that are being worked on.

        Fetches that wait for records are not waited for: their clients repeat them elsewhere.
        """
        self._closing = True
        self._close_listeners()
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
        self._close_listeners()
        for timer in (self._sweeper, *self._resting.values(), *self._closing_later.values()):
            if timer is not None:
                timer.cancel()
        self._sweeper = None
        self._resting.clear()
        for stream in self._closing_later:
            stream.close()
        self._closing_later.clear()
        for connection in list(self.connections):
            connection.flush()
            connection.close("the server is stopping")
        self._tell_left_out()

    # New connections

    def _admit(self, listener_name: str, stream: Stream) -> None:
        host = stream.peer_host
        if not self._comes_in_time(listener_name, stream, host):
            return
        allowed = self.limits.per_ip(host)
        if self._by_host.get(host, 0) >= allowed:
            self.turned_away += 1
            if self.shared.may_log(logging.WARNING, host, "max.connections.per.ip"):
                log.warning("closed %s: max.connections.per.ip is %d for it", stream.peer, allowed)
            stream.close()
            return
        self._by_host[host] += 1
        self.accepted[listener_name] += 1
        log.debug("%s connected to %s", stream.peer, listener_name)
        secure = self._secure.get(listener_name)
        if secure is not None:
            stream = secure.stream(stream)
        connection = Connection(self.shared, stream, listener_name, self._closed)
        if secure is not None:
            secure.identify(stream, connection.peer)
        new_login = self._logins.get(listener_name)
        if new_login is not None:
            connection.peer.login = new_login(connection.peer)
        self.connections[connection] = None
        self._by_listener[listener_name] += 1
        if self._is_full(listener_name):
            self._update_listeners()
        if len(self.connections) >= self.limits.connections_max:
            self._reached_limit()

    def _reached_limit(self) -> None:
        if not self._full:
            self._full = True
            self._update_listeners()
            if self.shared.may_log(logging.WARNING, "all addresses", "max.connections"):
                log.warning(
                    "there are %d connections, and the limit is %d (max.connections, or as many as "
                    "the limit of descriptors allows): new ones wait",
                    len(self.connections),
                    self.limits.connections_max,
                )
        if len(self.connections) > self.limits.connections_max and self._protected:
            others = [c for c in self.connections if c.peer.listener_name != self._protected]
            if others:
                longest_silent = min(others, key=lambda connection: connection.last_active)
                longest_silent.close("a broker connects, and max.connections is reached")

    def _comes_in_time(self, listener_name: str, stream: Stream, host: str) -> bool:
        """Whether a connection may stay; its listener rests if they come too fast."""
        now_ms = int(self._clock.monotonic() * 1000)
        protected = listener_name == self._protected
        wait_ms = self._rates.created(self.limits, listener_name, protected, now_ms)
        if wait_ms and listener_name not in self._resting:
            self._resting[listener_name] = self._clock.call_later(
                wait_ms / 1000, self._rested, listener_name
            )
            self._update_listeners()
        close_ms = self._rates.from_address(host, now_ms)
        if not close_ms:
            return True
        self._rates.turned_away(self.limits, listener_name, protected, now_ms)
        self.turned_away += 1
        log.debug("closing %s in %d ms: its address connects too often", stream.peer, close_ms)
        if len(self._closing_later) >= CLOSING_LATER_MAX:
            stream.close()
        else:
            # A client that is closed at once would be back at once.
            stream.pause()
            self._closing_later[stream] = self._clock.call_later(
                close_ms / 1000, self._close_stream, stream
            )
        return False

    def _rested(self, listener_name: str) -> None:
        del self._resting[listener_name]
        self._update_listeners()

    def _close_stream(self, stream: Stream) -> None:
        del self._closing_later[stream]
        stream.close()

    def _is_full(self, listener_name: str) -> bool:
        """Whether a listener has as many connections as it may have itself."""
        allowed = self.limits.of_listener(listener_name).connections_max
        return self._by_listener[listener_name] >= allowed

    def _closed(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        listener_name = connection.peer.listener_name
        was_full = self._is_full(listener_name)
        self._by_listener[listener_name] -= 1
        if was_full:
            self._update_listeners()
        self._by_host[connection.peer_host] -= 1
        if not self._by_host[connection.peer_host]:
            del self._by_host[connection.peer_host]
        if self._full:
            self._leave_limit()

    def _leave_limit(self) -> None:
        if self._full and len(self.connections) < self.limits.connections_max:
            self._full = False
            self._update_listeners()

    def _update_listeners(self) -> None:
        """Each listener accepts, or pauses: its new connections then wait in the kernel."""
        for name, listener in self._listeners.items():
            if (
                name in self._resting
                or self._is_full(name)
                or (self._full and name != self._protected)
            ):
                listener.pause()
            else:
                listener.resume()

    def _close_listeners(self) -> None:
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()

    def _spare(self) -> None:
        for connection in self.connections:
            connection.rest()

    # Idle connections

    def _sweep_later(self) -> None:
        idle_s = self.limits.connections_idle_ms_max / 1000
        delay_s = SPARE_BUFFER_S if idle_s < 0 else min(SPARE_BUFFER_S, idle_s / 4)
        self._sweeper = self._clock.call_later(max(delay_s, SWEEP_S_MIN), self._sweep)

    def _tell_left_out(self) -> None:
        found = self.shared.lines.left_out(self._clock.monotonic())
        if found is not None:
            log.warning(
                "%d more lines about connections were left out in %.0f s, %d of them about %s",
                found.lines,
                found.seconds,
                found.of_source,
                found.source,
            )

    def _sweep(self) -> None:
        self._tell_left_out()
        now = self._clock.monotonic()
        idle_ms_max = self.limits.connections_idle_ms_max
        idle_since = now - idle_ms_max / 1000 if idle_ms_max >= 0 else float("-inf")
        unused_since = now - SPARE_BUFFER_S
        others_wait = self.shared.held.waiting > 0
        full = self._full  # until the first is closed
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
                others_wait
                and silent_since <= now - STALLED_S
                and connection.received > OWN_BUFFER_BYTES_MIN
            ):
                connection.close(
                    f"part of a request for {STALLED_S:g} s, and others wait for bytes",
                    logging.WARNING,
                )
            elif full and silent_since <= now - STALLED_S and connection.unknown:
                # Who takes all connections, and never logs in, keeps nobody out for long.
                connection.close(
                    f"no login for {STALLED_S:g} s, and others wait to connect", logging.WARNING
                )
            else:
                connection.rest()
        if not self._closing:
            self._sweep_later()

"""Requests of this broker to other brokers, over the network.

To each broker there are at most two connections: one for the fetches of a follower, which wait at
the leader, and one for everything else, whose answers must not wait behind them. A connection is
opened with the first request and again with the first one after it was lost. A request that is not
answered in `replica.socket.timeout.ms` ends its connection: what cannot answer is not asked twice.
So does the news that the broker is fenced: it leads and coordinates nothing then, and those who
wait for it can ask the broker that does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from ottla import __version__
from ottla.broker.login_network import logins_of
from ottla.broker.peers import CLIENT_ID, SOFTWARE_NAME, Peers
from ottla.wire.api.fetch import FetchRequest
from ottla.wire.errors import ErrorCode
from ottla.wire.exchange import Exchange, Request, Settled
from ottla.wire.frames import FrameReader
from ottla.wire.malformed import WireError
from ottla.wire.receive_buffers import LastBuffer

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.cluster.image import ClusterImage
    from ottla.seams.clock import Clock, Timer
    from ottla.seams.network import Network, Stream
    from ottla.wire.schema import Struct

log = logging.getLogger("ottla.broker")

# Beyond the records of a fetch: headers and offsets of its partitions.
ANSWER_BYTES_MAX = 100 * 1024 * 1024
# Received in one turn of the event loop: an answer with one partition's `replica.fetch.max.bytes`.
READ_BYTES_PER_TURN = 1024 * 1024 + 64 * 1024
# Between two lines that say the same of one broker: that it refuses this one, and why.
REFUSED_AGAIN_S = 60.0
# A handshake that the other broker just ends: it stops, or its listener speaks no TLS. So many in a
# row are no stop.
ENDED_IN_A_ROW = 5
OPEN_REQUESTS_MAX = 10_000  # on one connection; more are answered with BROKER_NOT_AVAILABLE

SOFTWARE = (SOFTWARE_NAME, __version__)  # what ApiVersions tells the peer

Then = Callable[[Any], object]


class PeerRequest(Request):
    """A request under way and who waits for its answer."""

    __slots__ = ("then",)

    def __init__(self, message: Any, then: Then) -> None:
        super().__init__(message)
        self.then = then


class PeerConnection:
    """One connection to a broker: opened at once, over when `closed` is true."""

    def __init__(
        self, network: Network, address: tuple[str, int], client_id: str, on_close: Then
    ) -> None:
        self.closed = False
        self.reason: object = None  # why it was closed: an OSError, or words
        self.address = address
        self._network = network
        self._on_close = on_close
        self._stream: Stream | None = None
        self._memory = LastBuffer()
        self._exchange: Exchange[PeerRequest] = Exchange(
            FrameReader(ANSWER_BYTES_MAX, self._memory.lend),
            client_id=client_id,
            software=SOFTWARE,
            logins=logins_of(network),
        )
        self._open: dict[PeerRequest, None] = {}
        self._connecting = asyncio.create_task(self._connect())

    def send(self, request: PeerRequest) -> None:
        """Send a request once the connection is there; its `then` is called in any case."""
        if self.closed or len(self._open) >= OPEN_REQUESTS_MAX:
            request.then(ErrorCode.BROKER_NOT_AVAILABLE)
            return
        self._open[request] = None
        self._settle(self._exchange.send(request))
        self._write()

    def close(self, reason: object) -> None:
        """End the connection; its open requests have no answer."""
        if self.closed:
            return
        self.closed = True
        self.reason = reason
        log.debug("connection to the broker at %s:%d ends: %s", *self.address, reason)
        self._connecting.cancel()
        if self._stream is not None:
            self._stream.close()
        self._on_close(self)
        unanswered, self._open = self._open, {}
        for request in unanswered:
            request.then(ErrorCode.BROKER_NOT_AVAILABLE)

    async def _connect(self) -> None:
        try:
            stream = await self._network.connect(*self.address)
        except OSError as error:
            self.close(error)
            return
        if self.closed:
            stream.close()
            return
        self._stream = stream
        stream.on_readable(self._read)
        self._exchange.connected()
        self._write()

    def _write(self) -> None:
        stream, exchange = self._stream, self._exchange
        if stream is None or self.closed:
            return
        try:
            while exchange.outgoing:
                sent = stream.send(exchange.next_parts())
                if not sent:
                    stream.on_writable(self._write)
                    return
                exchange.sent(sent)
            stream.stop_writable()
        except OSError as error:
            self.close(error)

    def _read(self) -> None:
        stream, frames = self._stream, self._exchange.frames
        assert stream is not None
        left = READ_BYTES_PER_TURN
        try:
            while left > 0 and not self.closed:
                size = stream.recv_into(frames.target())
                if size is None:
                    break
                if size == 0:
                    self.close(ConnectionResetError("closed by the peer"))
                    return
                for frame in frames.received(size):
                    if not frame.large:
                        self._memory.give_back()  # a follower has caught up
                    self._settle(self._exchange.answer(frame.data))
                # The rest of a large answer is here or comes soon; of others nothing is known.
                left = left - size if frames.large is not None else 0
            self._write()
        except (OSError, WireError) as error:
            self.close(error)

    def _settle(self, settled: list[Settled[PeerRequest]]) -> None:
        for each in settled:
            self._open.pop(each.request, None)
            if each.error is not None:
                log.error("%s to %s:%d: %s", each.request.name, *self.address, each.error)
                each.request.then(ErrorCode.UNSUPPORTED_VERSION)
            else:
                each.request.then(each.response)


class Connections:
    """Connections of one broker to others, one for each key, opened when first needed."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        node_id: int,
        on_lost: Callable[[Any], object] = lambda key: None,
    ) -> None:
        """`on_lost` is called with the key of a connection that was refused, or that ended."""
        self._network = network
        self._clock = clock
        self._on_lost = on_lost
        self._client_id = CLIENT_ID.format(node_id=node_id)
        self._open: dict[Hashable, PeerConnection] = {}
        self._refused: dict[tuple[str, int], tuple[str, float]] = {}  # what was said, and when
        self._ended: dict[tuple[str, int], int] = {}  # handshakes, in a row
        self._closed = False

    def send(
        self, key: Hashable, address: tuple[str, int], request: Struct, then: Then, timeout_s: float
    ) -> None:
        """Send a request to `address`; without an answer in time its connection ends.

        `then` gets the response or an ErrorCode: REQUEST_TIMED_OUT, BROKER_NOT_AVAILABLE.
        """
        connection = self._connection(key, address)
        if connection is None:
            then(ErrorCode.BROKER_NOT_AVAILABLE)
            return
        timer: Timer | None = None
        timed_out = False

        def answered(response: Any) -> None:
            if timer is not None:
                timer.cancel()
            then(ErrorCode.REQUEST_TIMED_OUT if timed_out else response)

        def time_out() -> None:
            nonlocal timed_out
            timed_out = True
            connection.close("no answer")

        sent = PeerRequest(request, answered)
        timer = self._clock.call_later(timeout_s, time_out)
        connection.send(sent)

    def drop(self, key: Hashable, reason: str) -> None:
        """End a connection; its open requests have no answer."""
        connection = self._open.get(key)
        if connection is not None:
            connection.close(reason)

    @property
    def open(self) -> list[Any]:
        """The keys of connections that are open or being opened."""
        return list(self._open)

    def close(self) -> None:
        """End all connections, for good."""
        self._closed = True
        for connection in tuple(self._open.values()):
            connection.close("the broker stops")

    def _connection(self, key: Hashable, address: tuple[str, int]) -> PeerConnection | None:
        if self._closed:
            return None
        found = self._open.get(key)
        if found is not None and found.address == address:
            return found
        if found is not None:
            found.close(f"the broker is at {address} now")

        def forget(closed: PeerConnection) -> None:
            if self._open.get(key) is closed:
                del self._open[key]
            self._tell_refused(closed)
            if isinstance(closed.reason, OSError):
                self._on_lost(key)

        found = PeerConnection(self._network, address, self._client_id, forget)
        self._open[key] = found
        return found

    def _tell_refused(self, closed: PeerConnection) -> None:
        """A login or a certificate that is not taken is an operator's to mend: it is said here too,
        and not only by the other broker. What is refused by the system is just not there."""
        reason, said = closed.reason, str(closed.reason)
        ended = bool(getattr(reason, "ended", False))
        in_a_row = self._ended[closed.address] = ended * (self._ended.get(closed.address, 0) + 1)
        refused = isinstance(reason, OSError) and reason.errno is None
        if isinstance(reason, ConnectionError) or (ended and in_a_row < ENDED_IN_A_ROW):
            refused = False  # the line ended
        if not refused and not isinstance(reason, WireError):
            return
        if ended:
            said += "; its listener may speak no TLS"
        now = self._clock.monotonic()
        before = self._refused.get(closed.address)
        if before is None or before[0] != said or now - before[1] >= REFUSED_AGAIN_S:
            self._refused[closed.address] = said, now
            log.warning("the broker at %s:%d cannot be asked: %s", *closed.address, said)


class NetworkPeers:
    """All brokers of the cluster; requests to this one go to `local`."""

    def __init__(self, broker: Broker, network: Network, local: Peers) -> None:
        self._broker = broker
        self._local = local
        self._connections = Connections(
            network, broker.clock, broker.node_id, lambda key: broker.lost_brokers.lost(key[0])
        )

    def send(self, node_id: int, request: Struct, then: Then) -> None:
        """Send a request, in the latest version that both brokers have."""
        if node_id == self._broker.node_id:
            self._local.send(node_id, request, then)
            return
        info = self._broker.image.brokers.get(node_id)
        endpoint = info and info.endpoints.get(self._broker.settings.inter_broker_listener)
        if not endpoint:
            then(ErrorCode.BROKER_NOT_AVAILABLE)
            return

        def answered(response: Any) -> None:
            broker = self._broker
            if not isinstance(response, ErrorCode) and broker.lost_brokers.answered(node_id):
                broker.image_waits.changed()
            then(response)

        timeout_s = self._broker.settings.integer("replica.socket.timeout.ms") / 1000
        key = (node_id, isinstance(request, FetchRequest))
        address = (endpoint.host, endpoint.port)
        self._connections.send(key, address, request, answered, timeout_s)

    def follow(self, image: ClusterImage) -> None:
        """End what is open to brokers that are fenced or gone; fetch loops end by themselves."""
        for node_id, fetches in self._connections.open:
            info = image.brokers.get(node_id)
            if not fetches and (info is None or info.fenced):
                self._connections.drop((node_id, False), f"broker {node_id} is fenced")

    def close(self) -> None:
        """End all connections."""
        self._connections.close()

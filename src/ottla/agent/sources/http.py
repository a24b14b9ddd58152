"""The `http` source: events that come with POST, a request a batch.

200 says that the channels have all events of the request: for a file channel that they are on the
disk. A channel that stays full for a few seconds is answered with 503, as Flume does; the client
sends the request again then, and where there are several channels one may have it already.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from http import HTTPStatus

from ..config.options import Options
from ..context import Context
from ..events import EventBatch, Position
from ..http.exchange import Answer, Bodies, Exchange
from ..http.requests import BadRequest, Handler, Request, blob_events, json_events
from ..parts import Output
from .tcp import Peer, TcpServer
from .tls import tls_context

logger = logging.getLogger(__name__)
CONNECTIONS_MAX = 1000  # one more takes the place of one that waits; or is answered with 503
SLOW_S = 5.0  # a request that takes so long may lose its place
IDLE_S = 30.0  # of Jetty: a connection that sends nothing for so long ends
CHANNEL_WAIT_S = 3.0  # of Flume's memory channel: keep-alive
PARSED_HERE_BYTES_MAX = 64 * 1024  # larger requests are parsed in a thread
OK = Answer(HTTPStatus.OK)
TOO_MANY = Answer(
    HTTPStatus.SERVICE_UNAVAILABLE, f"{CONNECTIONS_MAX} connections are open: try later."
)
FULL = Answer(
    HTTPStatus.SERVICE_UNAVAILABLE,
    "Error appending event to channel. Channel might be full: try again later.",
)


class HttpSource:
    replays = False

    def __init__(
        self, name: str, server: TcpServer, events_of: Handler, body_bytes_max: int
    ) -> None:
        self.name = name
        self.server = server
        self.bodies = Bodies()
        self._exchanges: dict[Exchange, Peer] = {}  # those that are served
        self._events_of = events_of
        self._body_bytes_max = body_bytes_max

    async def run(self, output: Output, positions: Mapping[str, Position]) -> None:
        async def handle(request: Request) -> Answer:
            return await self._handle(request, output)

        def exchange(peer: Peer) -> Exchange:
            free = len(self._exchanges) < CONNECTIONS_MAX or self._give_place()
            new = Exchange(
                handle,
                self.bodies,
                self._body_bytes_max,
                refusal=None if free else TOO_MANY,
                waits=self._is_last_again,
                closed=self._forget,
            )
            if free:
                self._exchanges[new] = peer
            return new

        await self.server.run(exchange)

    def _is_last_again(self, exchange: Exchange) -> None:
        """They are in the order in which they began to wait."""
        peer = self._exchanges.pop(exchange, None)
        if peer is not None:
            self._exchanges[exchange] = peer

    def _forget(self, exchange: Exchange) -> None:
        self._exchanges.pop(exchange, None)

    def _give_place(self) -> bool:
        """Ends the connection that waits longest for a request, or else for the rest of one."""
        waiting = [each for each in self._exchanges if each.is_waiting]
        longest = next((each for each in waiting if not each.has_begun), None)
        if longest is None and waiting and time.monotonic() - waiting[0].waits_since_s >= SLOW_S:
            longest = waiting[0]
        if longest is None:
            return False
        self._exchanges.pop(longest).end_late()
        return True

    async def _handle(self, request: Request, output: Output) -> Answer:
        try:
            batch = await self._batch_of(request)
        except BadRequest as problem:
            logger.warning("Source %s: bad request from client: %s", self.name, problem)
            return Answer(HTTPStatus.BAD_REQUEST, f"Bad request from client. {problem}")
        if not batch.bodies:
            return OK
        try:
            await asyncio.wait_for(output.put(batch), CHANNEL_WAIT_S)
        except TimeoutError:
            logger.warning("Source %s: a channel is full; its client tries again", self.name)
            return FULL
        except Exception:
            logger.exception("Source %s: unexpected error appending event to channel", self.name)
            return Answer(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                "Unexpected error while appending event to channel.",
            )
        return OK

    async def _batch_of(self, request: Request) -> EventBatch:
        if len(request.body) <= PARSED_HERE_BYTES_MAX:
            return self._events_of(request)
        return await asyncio.to_thread(self._events_of, request)


def from_options(name: str, options: Options, context: Context) -> HttpSource:
    is_blob = options.text("handler") == "blob"
    mandatory = options.names("handler.mandatoryParameters")
    server = TcpServer(
        name,
        options.text("bind"),
        [options.number("port")],
        tls_context(options),
        idle_s=IDLE_S,
    )
    return HttpSource(
        name,
        server,
        blob_events(mandatory) if is_blob else json_events,
        options.number("handler.maxBlobLength"),
    )

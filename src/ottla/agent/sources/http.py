"""The `http` source: events that come with POST, a request a batch.

200 says that the channels have all events of the request: for a file channel that they are on the
disk. A channel that stays full for a few seconds is answered with 503, as Flume does; the client
sends the request again then, and where there are several channels one may have it already.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from http import HTTPStatus

from ..config.options import Options
from ..context import Context
from ..events import EventBatch, Position
from ..http.exchange import Answer, Bodies, Exchange
from ..http.requests import BadRequest, Handler, Request, blob_events, json_events
from ..parts import Output
from .tcp import TcpServer
from .tls import tls_context

logger = logging.getLogger(__name__)
CONNECTIONS_MAX = 1000  # more are answered with 503
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
        self._events_of = events_of
        self._body_bytes_max = body_bytes_max

    async def run(self, output: Output, positions: Mapping[str, Position]) -> None:
        async def handle(request: Request) -> Answer:
            return await self._handle(request, output)

        def exchange(_: object) -> Exchange:
            refusal = TOO_MANY if len(self.server.open) > CONNECTIONS_MAX else None
            return Exchange(handle, self.bodies, self._body_bytes_max, refusal=refusal)

        await self.server.run(exchange)

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

"""Requests of this broker to brokers of the cluster, by node id: this one itself.

The transaction coordinator writes markers to the leaders of partitions, and a leader verifies
transactions with their coordinator. Both send the request that Kafka has for it to a node id,
whether that is another broker or this one, and get its response. `LocalPeers` serves a cluster of
one broker: it calls the handler of the request, without a connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from ottla.broker.context import Context, Peer, Pending
from ottla.broker.dispatch import BROKER_HANDLERS, HANDLERS
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.cluster.image import ClusterImage
    from ottla.wire.schema import Struct

log = logging.getLogger("ottla.broker")

# The listener and the client id of a broker's own requests.
LISTENER = "INTERNAL"
CLIENT_ID = "broker-{node_id}"
# By this name brokers know each other in ApiVersions: only they are shown what only they may ask.
SOFTWARE_NAME = "ottla-broker"


class Peers(Protocol):
    """The brokers of the cluster."""

    def send(self, node_id: int, request: Struct, then: Callable[[Any], object]) -> None:
        """Send `request`, in its latest version, to a broker.

        `then` is called once, maybe before this returns: with the response, or with an `ErrorCode`
        if there is none. The request may have been executed in that case too.
        """

    def follow(self, image: ClusterImage) -> None:
        """The cluster image has changed: nobody waits any longer for a broker that is fenced."""

    def close(self) -> None:
        """End what is open to other brokers."""


class LocalPeers:
    """A cluster of this broker alone."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._peer = Peer(LISTENER)
        self._client_id = CLIENT_ID.format(node_id=broker.node_id)

    def send(self, node_id: int, request: Struct, then: Callable[[Any], object]) -> None:
        if node_id != self._broker.node_id:
            then(ErrorCode.BROKER_NOT_AVAILABLE)
            return
        schema = type(request).__schema__
        assert schema.key is not None
        assert schema.versions is not None
        context = Context(self._broker, self._peer, schema.versions[1], client_id=self._client_id)
        name = HANDLERS.get(schema.key) or BROKER_HANDLERS[schema.key]
        handler = import_module(f"ottla.broker.handlers.{name}")
        try:
            answer = handler.handle(request, context)
        except Exception:
            log.exception("%s of this broker to itself failed", type(request).__name__)
            then(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        if not isinstance(answer, Pending):
            then(answer)
            return

        def settled(response: Any, error: BaseException | None) -> None:
            if error is not None:
                log.error("%s to this broker failed", type(request).__name__, exc_info=error)
                response = ErrorCode.UNKNOWN_SERVER_ERROR
            then(response)

        answer.on_settled(settled)

    def follow(self, image: ClusterImage) -> None:
        pass

    def close(self) -> None:
        pass

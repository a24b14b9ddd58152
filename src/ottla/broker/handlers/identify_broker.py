"""IdentifyBroker: which process this is, for a controller that lost its connection to one."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.wire.api.identify_broker import IdentifyBrokerRequest, IdentifyBrokerResponse


def handle(request: IdentifyBrokerRequest, context: Context) -> IdentifyBrokerResponse:
    broker = context.broker
    return IdentifyBrokerResponse(
        broker_id=broker.node_id, incarnation_id=broker.incarnation, broker_epoch=broker.epoch
    )

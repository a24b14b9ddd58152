"""Asking the process at a broker's address which one it is: the proof that another one is dead."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ottla.broker.broker_sessions import Dialled
from ottla.broker.network_peers import PeerConnection, PeerRequest
from ottla.broker.peers import CLIENT_ID
from ottla.seams.waiting import within
from ottla.wire.api.identify_broker import IdentifyBrokerRequest, IdentifyBrokerResponse
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.seams.network import Network

DIAL_S_MAX = 1.0  # a broker that has not answered by then is silent


async def dial(
    broker: Broker, network: Network, address: tuple[str, int], broker_id: int, incarnation: bytes
) -> Dialled:
    """Whether the process at the address is that incarnation of the broker, as `broker` sees it."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answered(response: Any) -> None:
        if not future.done():
            future.set_result(response)

    client_id = CLIENT_ID.format(node_id=broker.node_id)
    connection = PeerConnection(network, address, client_id, lambda closed: None)
    connection.send(PeerRequest(IdentifyBrokerRequest(), answered))
    in_time = await within(broker.clock, DIAL_S_MAX, future)
    refused = isinstance(connection.reason, ConnectionRefusedError)
    connection.close("the broker is identified" if in_time else "no answer")
    if refused:
        return Dialled.REFUSED
    response = future.result() if in_time else ErrorCode.REQUEST_TIMED_OUT
    if not isinstance(response, IdentifyBrokerResponse):
        return Dialled.SILENT
    same = (response.broker_id, response.incarnation_id) == (broker_id, incarnation)
    return Dialled.SAME_INCARNATION if same else Dialled.OTHER_INCARNATION

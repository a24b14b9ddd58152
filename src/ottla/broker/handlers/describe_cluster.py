"""DescribeCluster (KIP-700): the cluster's id, its controller and its brokers."""

from __future__ import annotations

from ottla.broker.authorized_operations import NOT_ASKED, cluster_operations
from ottla.broker.context import Context
from ottla.broker.endpoints import nodes
from ottla.wire.api.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.wire.errors import ErrorCode

BROKERS = 1
CONTROLLERS = 2


def handle(request: DescribeClusterRequest, context: Context) -> DescribeClusterResponse:
    """Brokers as the client's listener advertises them. Only controllers list controllers."""
    if request.endpoint_type == CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an "
            "endpoint of type CONTROLLER",
        )
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    image = context.broker.image
    asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=_brokers(context, include_fenced=request.include_fenced_brokers),
        cluster_authorized_operations=cluster_operations(context) if asked else NOT_ASKED,
    )


def _brokers(context: Context, *, include_fenced: bool) -> list[DescribeClusterBroker]:
    image, listener_name = context.broker.image, context.peer.listener_name
    brokers = [
        DescribeClusterBroker(broker_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in nodes(image, listener_name)
    ]
    if include_fenced:
        brokers += [
            DescribeClusterBroker(
                broker_id=broker.id,
                host=broker.endpoints[listener_name].host,
                port=broker.endpoints[listener_name].port,
                rack=broker.rack,
                is_fenced=True,
            )
            for _, broker in sorted(image.brokers.items())
            if broker.fenced and listener_name in broker.endpoints
        ]
    return brokers

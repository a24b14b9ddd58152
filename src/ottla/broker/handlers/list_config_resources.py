"""ListConfigResources (KIP-1142): the resources that can have configs."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.cluster.requests import ResourceType
from ottla.wire.api.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ottla.wire.errors import ErrorCode

# In the order in which Kafka lists them.
LISTED = (
    ResourceType.GROUP,
    ResourceType.CLIENT_METRICS,
    ResourceType.BROKER_LOGGER,
    ResourceType.BROKER,
    ResourceType.TOPIC,
)


def handle(request: ListConfigResourcesRequest, context: Context) -> ListConfigResourcesResponse:
    """Of the types asked for, or of all; version 0 has client metrics only."""
    wanted = frozenset([ResourceType.CLIENT_METRICS])
    if context.api_version > 0:
        unknown = set(request.resource_types) - set(LISTED)
        if unknown:
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        wanted = frozenset(map(ResourceType, request.resource_types)) or frozenset(LISTED)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type in LISTED
            if resource_type in wanted
            for name in _names(resource_type, context)
        ]
    )


def _names(resource_type: ResourceType, context: Context) -> list[str]:
    image = context.broker.image
    if resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(broker_id) for broker_id in sorted(image.brokers)]
    if resource_type == ResourceType.GROUP:
        return list(image.group_configs)
    return list(image.topics) if resource_type == ResourceType.TOPIC else []

"""ApiVersions (KIP-35, KIP-511, KIP-584): what this broker serves, and the cluster's features.

The first thing a client asks, so nothing may make it fail: a version from the future is answered
in version 0 with the range of this API.
"""

from __future__ import annotations

import re

from ottla.broker.context import Context
from ottla.broker.dispatch import API_VERSIONS, BROKER_HANDLERS, HANDLERS
from ottla.broker.peers import SOFTWARE_NAME
from ottla.wire.api.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.wire.apis import EVERY_API
from ottla.wire.errors import ErrorCode

SOFTWARE_FROM = 3
# Clients of older versions fail over a feature whose lowest level is 0 (KAFKA-17011): left out.
LEVEL_ZERO_FROM = 4
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)


def handle(request: ApiVersionsRequest, context: Context) -> ApiVersionsResponse:
    """Everything this broker serves."""
    if context.api_version >= SOFTWARE_FROM:
        name, version = request.client_software_name, request.client_software_version
        if not (SOFTWARE.fullmatch(name) and SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.peer.client_software_name = name
        context.peer.client_software_version = version
    features = context.broker.image.features
    lowest = 0 if context.api_version >= LEVEL_ZERO_FROM else 1
    return ApiVersionsResponse(
        api_keys=[_range(key) for key in _served(context)],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=feature.lowest, max_version=feature.highest)
            for name, feature in context.broker.features.items()
            if feature.lowest >= lowest
        ],
        finalized_features_epoch=features.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in features.levels.items()
        ],
    )


def unsupported_version(request: None, context: Context) -> ApiVersionsResponse:
    """The answer to a version this broker does not know: error 35 and the range it does know."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_range(API_VERSIONS)]
    )


def _served(context: Context) -> list[int]:
    """The APIs that this peer may ask for: clients are not shown what is for brokers."""
    peer, broker = context.peer, context.broker
    if (
        broker.in_cluster
        and peer.listener_name == broker.settings.inter_broker_listener
        and peer.client_software_name == SOFTWARE_NAME
    ):
        return sorted(HANDLERS | BROKER_HANDLERS)
    return sorted(HANDLERS)


def _range(key: int) -> ApiVersion:
    lowest, highest = EVERY_API[key].advertised
    return ApiVersion(api_key=key, min_version=lowest, max_version=highest)

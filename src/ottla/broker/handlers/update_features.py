"""UpdateFeatures (KIP-584): all of the updates, or none and the reason of the first that fails."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.cluster.requests import FeatureUpdate, UpgradeType
from ottla.wire.api.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ottla.wire.errors import ErrorCode

UPGRADE_TYPE_FROM = 1
FAILED = "The update failed for all features since the following feature had an error: "


async def handle(request: UpdateFeaturesRequest, context: Context) -> UpdateFeaturesResponse:
    # Kafka's controller ignores version 0's flag for downgrades: it is always an upgrade.
    typed = context.api_version >= UPGRADE_TYPE_FROM
    # Of a feature that is named twice the last update counts.
    updates = {
        update.feature: FeatureUpdate(
            update.feature,
            update.max_version_level,
            update.upgrade_type if typed else UpgradeType.UPGRADE,
        )
        for update in request.feature_updates
    }
    controller = context.broker.controller
    outcome = await controller.update_features(list(updates.values()), request.validate_only)
    if outcome.error_code != ErrorCode.NONE:
        message = outcome.error_message
        if outcome.error_code == ErrorCode.INVALID_UPDATE_VERSION:
            message = FAILED + (message or "")
        return UpdateFeaturesResponse(error_code=outcome.error_code, error_message=message)
    return UpdateFeaturesResponse(
        error_message=None,
        results=[UpdatableFeatureResult(feature=name, error_message="NONE") for name in updates],
    )

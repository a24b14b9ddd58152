"""Cluster features: what this version supports, and which levels are finalized (KIP-584). Pure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.cluster.image import FeatureImage
from ottla.cluster.requests import FeatureUpdate, Refusal, UpgradeType
from ottla.wire.errors import ErrorCode

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"


class Supported(NamedTuple):
    """The levels that this version can work with, and the one a new cluster begins with."""

    lowest: int
    highest: int
    initial: int


# What Apache Kafka 4.3 supports and finalizes in a new cluster.
SUPPORTED: Mapping[str, Supported] = {
    METADATA_VERSION: Supported(7, 30, 30),
    KRAFT_VERSION: Supported(0, 1, 0),
    "transaction.version": Supported(0, 2, 2),
    "group.version": Supported(0, 1, 1),
    "eligible.leader.replicas.version": Supported(0, 1, 1),
    "share.version": Supported(0, 1, 1),
    "streams.version": Supported(0, 1, 1),
}


def initial_levels(supported: Mapping[str, Supported]) -> dict[str, int]:
    """The finalized levels of a new cluster."""
    return {name: feature.initial for name, feature in supported.items() if feature.initial}


def updated(
    features: FeatureImage,
    supported: Mapping[str, Supported],
    updates: Sequence[FeatureUpdate],
    node_id: int,
) -> dict[str, int] | Refusal:
    """The finalized levels after the updates: all of them, or the refusal of the first bad one."""
    levels = dict(features.levels)
    # Of several updates for one feature Kafka takes the last, and looks at no other.
    for update in {update.name: update for update in updates}.values():
        refusal = update_error(levels, supported, update, node_id)
        if refusal is not None:
            return refusal
        if update.level:
            levels[update.name] = update.level
        else:
            levels.pop(update.name, None)
    return levels


def update_error(
    levels: Mapping[str, int],
    supported: Mapping[str, Supported],
    update: FeatureUpdate,
    node_id: int,
) -> Refusal | None:
    """Why the feature may not get the level, in Kafka's words and order."""
    name, level, upgrade_type = update
    current = levels.get(name, 0)
    if upgrade_type not in (1, 2, 3):
        return invalid(update, "The controller does not support the given upgrade type.")
    if level < 0:
        return invalid(update, "A feature version cannot be less than 0.")
    reason = unsupported(supported.get(name), level, node_id)
    if reason is not None:
        return invalid(update, reason)
    upgrade = upgrade_type == UpgradeType.UPGRADE
    if level < current and upgrade:
        return invalid(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade.",
        )
    if level > current and not upgrade:
        return invalid(update, "Can't downgrade to a newer version.")
    if name == METADATA_VERSION and level < current:
        return metadata_downgrade_error(current, level, upgrade_type)
    return None


def unsupported(feature: Supported | None, level: int, node_id: int) -> str | None:
    """Why this node could not work with the level."""
    if feature is None:
        return f"Local controller {node_id} does not support this feature."
    if not feature.lowest <= level <= feature.highest:
        levels = f"{feature.lowest}-{feature.highest}"
        return f"Local controller {node_id} only supports versions {levels}"
    return None


def metadata_downgrade_error(current: int, level: int, upgrade_type: int) -> Refusal:
    """An older version could not read the metadata, so a downgrade is refused."""
    if upgrade_type == UpgradeType.UNSAFE_DOWNGRADE:
        reason = "Unsafe metadata downgrade is not supported in this version."
    else:
        reason = (
            "Refusing to perform the requested downgrade because it might delete metadata "
            "information."
        )
    return Refusal(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Unsupported metadata.version downgrade from {current} to {level}. {reason}",
    )


def invalid(update: FeatureUpdate, reason: str) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {update.level} for feature {update.name}. {reason}",
    )

"""Cluster features: what this version supports, and which levels are finalized (KIP-584). Pure.

The levels of `ottla.metadata.version` say what a controller may write and send: see
`wire/feed_records.py`. It is a feature of our own, because Kafka's `metadata.version` has Kafka's
levels, which its tools and clients read as releases of Kafka.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ottla.cluster.image import UNDERSTOOD, BrokerInfo, FeatureImage, Levels
from ottla.cluster.nodes import METADATA_LEVEL
from ottla.cluster.requests import FeatureUpdate, Refusal, UpgradeType
from ottla.wire import feed_records
from ottla.wire.errors import ErrorCode

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"


class Supported(NamedTuple):
    """The levels that this version can work with, and the one a new cluster begins with."""

    lowest: int
    highest: int
    initial: int
    # Levels that keep something which those below them do not: a downgrade would lose it.
    kept: Collection[int] = ()


# What Apache Kafka 4.3 supports and finalizes in a new cluster, and our own. Level 2 of that: the
# feed says which levels each broker understands.
SUPPORTED: Mapping[str, Supported] = {
    METADATA_LEVEL: Supported(
        UNDERSTOOD.lowest,
        UNDERSTOOD.highest,
        UNDERSTOOD.highest,
        # Below them brokers would not learn who may log in and do what.
        kept=(feed_records.SECURITY_LEVEL, feed_records.TOKENS_LEVEL),
    ),
    METADATA_VERSION: Supported(7, 30, 30, kept=range(8, 31)),
    KRAFT_VERSION: Supported(0, 1, 0),
    "transaction.version": Supported(0, 2, 2),
    "group.version": Supported(0, 1, 1),
    "eligible.leader.replicas.version": Supported(0, 1, 1),
    "share.version": Supported(0, 2, 1),  # 2 is Kafka 4.4's: dead letters (KIP-1191)
    "streams.version": Supported(0, 1, 1),
}


def initial_levels(supported: Mapping[str, Supported]) -> dict[str, int]:
    """The finalized levels of a new cluster."""
    return {name: feature.initial for name, feature in supported.items() if feature.initial}


def supported_up_to(level: int) -> Mapping[str, Supported]:
    """What a version supports that understands the levels of our own up to `level`."""
    ours = SUPPORTED[METADATA_LEVEL]
    highest = min(level, ours.highest)
    limited = ours._replace(highest=highest, initial=min(ours.initial, highest))
    return {**SUPPORTED, METADATA_LEVEL: limited}


def understood(supported: Mapping[str, Supported]) -> Levels:
    """The levels of our own among what is supported."""
    feature = supported.get(METADATA_LEVEL)
    return Levels() if feature is None else Levels(feature.lowest, feature.highest)


def metadata_level(features: FeatureImage) -> int:
    """The finalized level; the first in a cluster that was made before there were others."""
    return features.levels.get(METADATA_LEVEL, feed_records.FIRST_LEVEL)


def level_error(features: FeatureImage, levels: Levels) -> Refusal | None:
    """Why a broker that understands these levels may not register or follow, in Kafka's words."""
    level = metadata_level(features)
    if level in levels:
        return None
    return Refusal(
        ErrorCode.UNSUPPORTED_VERSION,
        f"Unable to register because the broker does not support finalized version {level} of "
        f"{METADATA_LEVEL}, only {levels.lowest}-{levels.highest}.",
    )


def updated(
    features: FeatureImage,
    supported: Mapping[str, Supported],
    updates: Sequence[FeatureUpdate],
    node_id: int,
    brokers: Mapping[int, BrokerInfo],
) -> dict[str, int] | Refusal:
    """The finalized levels after the updates: all of them, or the refusal of the first bad one.

    Every registered broker must understand them, alive or not: it may come back.
    """
    levels = dict(features.levels)
    # Of several updates for one feature Kafka takes the last, and looks at no other.
    for update in {update.name: update for update in updates}.values():
        refusal = update_error(levels, supported, update, node_id, brokers)
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
    brokers: Mapping[int, BrokerInfo],
) -> Refusal | None:
    """Why the feature may not get the level, in Kafka's words and order."""
    name, level, upgrade_type = update
    ours = name == METADATA_LEVEL
    current = levels.get(name, feed_records.FIRST_LEVEL if ours else 0)
    if upgrade_type not in (1, 2, 3):
        return invalid(update, "The controller does not support the given upgrade type.")
    if level < 0:
        return invalid(update, "A feature version cannot be less than 0.")
    feature = supported.get(name)
    reason = unsupported(feature, level, node_id)
    if reason is None and ours:
        reason = unsupported_by_brokers(level, brokers)
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
    if feature is not None and any(level < each <= current for each in feature.kept):
        return metadata_downgrade_error(name, current, level, upgrade_type)
    return None


def unsupported(feature: Supported | None, level: int, node_id: int) -> str | None:
    """Why this node could not work with the level."""
    if feature is None:
        return f"Local controller {node_id} does not support this feature."
    if not feature.lowest <= level <= feature.highest:
        levels = f"{feature.lowest}-{feature.highest}"
        return f"Local controller {node_id} only supports versions {levels}"
    return None


def unsupported_by_brokers(level: int, brokers: Mapping[int, BrokerInfo]) -> str | None:
    """Why a registered broker could not work with the level of our own."""
    for broker in brokers.values():
        if level not in broker.levels:
            levels = f"{broker.levels.lowest}-{broker.levels.highest}"
            return f"Broker {broker.id} only supports versions {levels}"
    return None


def metadata_downgrade_error(name: str, current: int, level: int, upgrade_type: int) -> Refusal:
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
        f"Unsupported {name} downgrade from {current} to {level}. {reason}",
    )


def invalid(update: FeatureUpdate, reason: str) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {update.level} for feature {update.name}. {reason}",
    )

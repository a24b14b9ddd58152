"""Releases of Kafka and the features that came with them, by levels of `metadata.version`."""

from __future__ import annotations

METADATA = "metadata.version"
FIRST_LEVEL = 7
RELEASES = (
    "3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2",
    "3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0", "4.0-IV0",
    "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0",
    "4.4-IV0",
)  # fmt: skip
LATEST_STABLE = "4.3-IV0"

# Feature, its level, and the level of metadata.version from which a release has it.
FEATURES = (
    ("kraft.version", 1, 21),
    ("transaction.version", 2, 24),
    ("group.version", 1, 22),
    ("eligible.leader.replicas.version", 1, 26),
    ("share.version", 1, 28),
    ("streams.version", 1, 29),
)


def release_name(level: int) -> str:
    """The name of a level of `metadata.version`."""
    index = level - FIRST_LEVEL
    return RELEASES[index] if 0 <= index < len(RELEASES) else f"UNKNOWN [{level}]"


def features_of(level: int) -> dict[str, int]:
    """The levels of all features in the release with this level of `metadata.version`."""
    return {METADATA: level} | {name: own if level >= since else 0 for name, own, since in FEATURES}

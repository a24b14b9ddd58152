"""kafka-features.sh: features of the cluster and the releases they belong to."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ottla.cli.connecting import text_of
from ottla.cli.failure import Failure
from ottla.client.kafka_releases import LATEST_STABLE, METADATA, RELEASES, features_of, release_name

from .commands import Command, Commands
from .options import COMMAND_CONFIG, Given, Option
from .running import admin_of, entry

COMMON = (
    Option("bootstrap-server", "HOST:PORT", "brokers to ask first"),
    Option(
        "bootstrap-controller",
        "HOST:PORT",
        skipped="brokers and controllers are one here; use --bootstrap-server",
    ),
    COMMAND_CONFIG,
)
UPDATE = (
    Option("metadata", "RELEASE", "the older way to say --feature metadata.version=…"),
    Option("release-version", "RELEASE", "all features as a release has them"),
    Option("feature", "NAME=LEVEL", "a feature and its level; may be repeated"),
    Option("dry-run", about="only check"),
    Option("unsafe", about="downgrade even if data is lost"),
)
LEVELS = {
    **dict.fromkeys(("group.version", "share.version", "streams.version", "kraft.version"), 1),
    "eligible.leader.replicas.version": 1,
    "transaction.version": 2,
    METADATA: len(RELEASES) + 6,
}

NEEDS = {("eligible.leader.replicas.version", 1): 23}  # levels of metadata.version


def describe(given: Given) -> None:
    with connected(given) as admin:
        found = admin.describe_features(broker_id=given.value("node-id"))
    epoch = found["epoch"] if found["epoch"] >= 0 else "-"
    for name in sorted(found["features"]):
        low, high = found["features"][name]["supported"] or (0, 0)
        level = found["features"][name]["finalized"]
        if name == METADATA:
            low, high, level = release_name(low), release_name(high), release_name(level)
        print(
            f"Feature: {name:<42}SupportedMinVersion: {low:<17}SupportedMaxVersion: {high:<17}"
            f"FinalizedVersionLevel: {level:<17}Epoch: {epoch}"
        )


def connected(given: Given) -> Any:
    if not given.has("bootstrap-server"):
        given.parser.refuse("You must specify either --bootstrap-controller or --bootstrap-server.")
    return admin_of(given)


def upgrade(given: Given) -> int:
    return update(given, "upgrade", wanted(given, "upgrade"))


def downgrade(given: Given) -> int:
    return update(given, "downgrade", wanted(given, "downgrade"))


def disable(given: Given) -> int:
    features = dict.fromkeys(given.values("feature"), 0)
    if not features:
        given.parser.refuse("You must specify at least one feature to disable")
    return update(given, "disable", features)


def wanted(given: Given, verb: str) -> dict[str, int]:
    features: dict[str, int] = {}
    if given.has("release-version"):
        given.exclude("release-version", ["metadata", "feature"])
        features = features_of(level_of(given.value("release-version")))
    if given.has("metadata"):
        print(" `metadata` flag is deprecated and may be removed in a future release.")
        features[METADATA] = level_of(given.value("metadata"))
    for text in given.values("feature"):
        name, equals, level = text.partition("=")
        if not equals:
            given.parser.refuse(f"Can't parse feature=level string {text}: equals sign not found.")
        try:
            features[name.strip()] = int(level)
        except ValueError:
            given.parser.refuse(f"Can't parse feature=level string {text}: level must be a number")
    if not features:
        given.parser.refuse(f"You must specify at least one feature to {verb}")
    return features


PAST = {"upgrade": "upgraded", "downgrade": "downgraded", "disable": "disabled"}


def update(given: Given, verb: str, features: dict[str, int]) -> int:
    from ottla.client.admin import UpdateFeatureType
    from ottla.client.errors import KafkaError

    kind = UpdateFeatureType.UPGRADE
    if verb != "upgrade":
        kind = UpdateFeatureType.SAFE_DOWNGRADE
        if given.has("unsafe"):
            kind = UpdateFeatureType.UNSAFE_DOWNGRADE
    dry = given.has("dry-run")
    problems: dict[str, str] = {}
    with connected(given) as admin:
        try:
            outcome = admin.update_features(
                {name: (level, kind) for name, level in features.items()}, validate_only=dry
            )
            problems = {name: text for name, text in outcome.items() if text != "OK"}
        except KafkaError as error:
            problems = dict.fromkeys(features, text_of(error))
    for name in sorted(features):
        to = "" if verb == "disable" else f" to {features[name]}"
        if name in problems:
            cannot = "Can not" if dry else "Could not"
            print(f"{cannot} {verb} {name}{to}. {problems[name]}")
        else:
            done = "can be" if dry else "was"
            print(f"{name} {done} {PAST[verb]}{to}.")
    if problems:
        print(f"{len(problems)} out of {len(features)} operation(s) failed.", file=sys.stderr)
    return 1 if problems else 0


def level_of(text: str) -> int:
    """The level of metadata.version that a release's name stands for."""
    matching = [name for name in RELEASES if name == text or name.startswith(f"{text}-")]
    if not matching:
        raise Failure(
            f"Unknown metadata.version '{text}'. Supported metadata.version are: "
            f"{', '.join(RELEASES)}",
            "kafka-features.sh version-mapping --release-version 4.3",
        )
    return RELEASES.index(matching[-1]) + 7


def version_mapping(given: Given) -> None:
    text = given.value("release-version") or LATEST_STABLE
    level = level_of(text)
    print(f"{METADATA}={level} ({text})")
    for name, value in features_of(level).items():
        if name != METADATA:
            print(f"{name}={value}")


def feature_dependencies(given: Given) -> None:
    lines = []
    for text in given.values("feature"):
        name, equals, level = text.partition("=")
        if not equals or not level.isdigit():
            given.parser.refuse(f"Can't parse feature=level string {text}: equals sign not found.")
        if name not in LEVELS:
            raise Failure(f"Unknown feature: {name}", f"one of {', '.join(sorted(LEVELS))}")
        if int(level) > LEVELS[name]:
            raise Failure(f"No feature:{name} with feature level {level}", "a level that exists")
        note = f" ({release_name(int(level))})" if name == METADATA else ""
        needs = NEEDS.get((name, int(level)))
        if needs is None:
            lines.append(f"{name}={level}{note} has no dependencies.")
        else:
            lines.append(f"{name}={level} requires:")
            lines.append(f"    {METADATA}={needs} ({release_name(needs)})")
    print("\n".join(lines))


NODE = (Option("node-id", "ID", "the broker to ask; any one else", kind=int),)
RELEASE = (Option("release-version", "RELEASE", "a release, such as 4.2 or 4.0-IV3"),)
LIST = (Option("feature", "NAME=LEVEL", "a feature; may be repeated", required=True),)


def commands() -> dict[str, Command]:
    names: Sequence[Option] = (Option("feature", "NAME", "a feature; may be repeated"), *UPDATE[3:])
    return {
        "describe": Command("show the features", NODE, describe),
        "upgrade": Command("raise features", UPDATE[:-1], upgrade),
        "downgrade": Command("lower features", UPDATE, downgrade),
        "disable": Command("switch features off", names, disable),
        "version-mapping": Command("show the features of a release", RELEASE, version_mapping),
        "feature-dependencies": Command("show what a feature needs", LIST, feature_dependencies),
    }


TOOL = Commands("kafka-features.sh", "the features of the cluster", COMMON, commands())
run = TOOL.run
main = entry(run)

"""Configs of topics and brokers changed through the controller."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla.cluster.configs import AnyConfig, java_split, parsed_int
from ottla.cluster.features import Supported, updated
from ottla.cluster.image import BrokerInfo, FeatureImage, Levels
from ottla.cluster.nodes import METADATA_LEVEL
from ottla.cluster.requests import (
    FeatureUpdate,
    NewTopic,
    Op,
    Refusal,
    Resource,
    ResourceType,
    UpgradeType,
)
from ottla.wire.errors import ErrorCode
from tests.cluster.harness import ControllerHarness, run_scenario
from tests.simulated import run_simulated

TOPIC = Resource(ResourceType.TOPIC, "t")
BROKER = Resource(ResourceType.BROKER, "1")
ALL = Resource(ResourceType.BROKER, "")


class Rules(AnyConfig):
    """A config named bad is bad; cleanup.policy has a default."""

    def error(
        self, resource_type: int, name: str, configs: Mapping[str, str], old: Mapping[str, str]
    ) -> Refusal | str | None:
        if "policy" in configs:
            return Refusal(ErrorCode.POLICY_VIOLATION, "not here")
        return "bad is not known" if "bad" in configs else None

    def default(self, resource_type: int, config: str) -> str | None:
        return "delete" if config == "cleanup.policy" else None


async def ready(harness: ControllerHarness) -> None:
    harness.controller._state.rules = Rules()
    await harness.create(NewTopic("t", 1, 1, configs=[("a", "1")]))


def test_incremental_changes(tmp_path: Path) -> None:
    """SET, DELETE, APPEND and SUBTRACT; the node and the image have the result."""

    async def scenario(harness: ControllerHarness) -> None:
        await ready(harness)
        alter = harness.controller.incremental_alter_configs
        (done,) = await alter(
            [(TOPIC, [("b", Op.SET, "2"), ("a", Op.DELETE, None), ("none", Op.DELETE, None)])]
        )
        assert done == (TOPIC, ErrorCode.NONE, None)
        assert harness.controller.image.configs_of("t") == {"b": "2"}
        assert json.loads((await harness.nodes())["/config/topics/t"][0])["config"] == {"b": "2"}
        await alter([(TOPIC, [("cleanup.policy", Op.APPEND, "compact")])])
        assert harness.controller.image.configs_of("t")["cleanup.policy"] == "delete,compact"
        await alter([(TOPIC, [("cleanup.policy", Op.APPEND, "compact")])])
        assert harness.controller.image.configs_of("t")["cleanup.policy"] == "delete,compact"
        await alter([(TOPIC, [("cleanup.policy", Op.SUBTRACT, "delete,other")])])
        assert harness.controller.image.configs_of("t")["cleanup.policy"] == "compact"
        await alter([(TOPIC, [("b", Op.DELETE, None), ("cleanup.policy", Op.DELETE, None)])])
        assert harness.controller.image.configs_of("t") == {}
        assert "/config/topics/t" not in await harness.nodes()

    run_scenario(tmp_path, scenario)


def test_alter_replaces_all(tmp_path: Path) -> None:
    """AlterConfigs leaves only what it names."""

    async def scenario(harness: ControllerHarness) -> None:
        await ready(harness)
        (done,) = await harness.controller.alter_configs([(TOPIC, [("c", "3")])])
        assert done.error_code == ErrorCode.NONE
        assert harness.controller.image.configs_of("t") == {"c": "3"}
        await harness.controller.alter_configs([(TOPIC, [])])
        assert harness.controller.image.configs_of("t") == {}

    run_scenario(tmp_path, scenario)


def test_brokers_and_all_brokers(tmp_path: Path) -> None:
    """Broker configs have Kafka's nodes, and outlive the process."""

    async def scenario(harness: ControllerHarness) -> None:
        await ready(harness)
        outcomes = await harness.controller.incremental_alter_configs(
            [(BROKER, [("x", Op.SET, "1")]), (ALL, [("x", Op.SET, "2")])]
        )
        assert [o.error_code for o in outcomes] == [ErrorCode.NONE] * 2
        nodes = await harness.nodes()
        assert json.loads(nodes["/config/brokers/1"][0])["config"] == {"x": "1"}
        assert json.loads(nodes["/config/brokers/<default>"][0])["config"] == {"x": "2"}
        await harness.crash()
        await harness.start()
        assert harness.controller.image.broker_configs == {"1": {"x": "1"}, "": {"x": "2"}}

    run_scenario(tmp_path, scenario)


def test_validate_only_changes_nothing(tmp_path: Path) -> None:
    """The same answers, the tree as it was."""

    async def scenario(harness: ControllerHarness) -> None:
        await ready(harness)
        before = await harness.nodes()
        good, bad = await harness.controller.incremental_alter_configs(
            [(TOPIC, [("b", Op.SET, "2")]), (BROKER, [("bad", Op.SET, "2")])], True
        )
        assert (good.error_code, bad.error_code) == (ErrorCode.NONE, ErrorCode.INVALID_CONFIG)
        assert await harness.nodes() == before
        assert harness.controller.image.configs_of("t") == {"a": "1"}

    run_scenario(tmp_path, scenario)


@pytest.mark.parametrize(
    ("resource", "change", "code", "message"),
    [
        (TOPIC, ("bad", Op.SET, "1"), ErrorCode.INVALID_CONFIG, "bad is not known"),
        (TOPIC, ("policy", Op.SET, "1"), ErrorCode.POLICY_VIOLATION, "not here"),
        (
            TOPIC,
            ("b", Op.APPEND, "1"),
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key b because its type is not LIST.",
        ),
        (
            TOPIC,
            ("b", Op.SUBTRACT, "1"),
            ErrorCode.INVALID_CONFIG,
            "Can't SUBTRACT to key b because its type is not LIST.",
        ),
        (
            Resource(ResourceType.TOPIC, "none"),
            ("b", Op.SET, "1"),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'none' does not exist.",
        ),
        (
            Resource(ResourceType.TOPIC, ""),
            ("b", Op.SET, "1"),
            ErrorCode.INVALID_REQUEST,
            "Default topic resources are not allowed.",
        ),
        (
            Resource(ResourceType.BROKER, "one"),
            ("b", Op.SET, "1"),
            ErrorCode.INVALID_REQUEST,
            "Unable to parse broker name as a base 10 number.",
        ),
        (
            Resource(ResourceType.BROKER, "-1"),
            ("b", Op.SET, "1"),
            ErrorCode.INVALID_REQUEST,
            "Invalid negative broker ID.",
        ),
        (
            Resource(ResourceType.BROKER, "9"),
            ("b", Op.SET, "1"),
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            "No node with id 9 found.",
        ),
        (
            Resource(99, "x"),
            ("b", Op.SET, "1"),
            ErrorCode.INVALID_REQUEST,
            "Unknown resource type UNKNOWN",
        ),
        (
            TOPIC,
            ("b", Op.SET, "v" * 32_768),
            ErrorCode.INVALID_CONFIG,
            (
                "The configuration value cannot be added because it exceeds the maximum value "
                "size of 32767 bytes."
            ),
        ),
        (
            BROKER,
            ("min.insync.replicas", Op.SET, "2"),
            ErrorCode.INVALID_CONFIG,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        ),
        (
            ALL,
            ("min.insync.replicas", Op.DELETE, None),
            ErrorCode.INVALID_CONFIG,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        ),
    ],
)
def test_refusals(
    tmp_path: Path,
    resource: Resource,
    change: tuple[str, int, str | None],
    code: ErrorCode,
    message: str,
) -> None:
    """Each with its code and message; one bad config leaves the whole resource as it was."""

    async def scenario(harness: ControllerHarness) -> None:
        await ready(harness)
        before = await harness.nodes()
        (outcome,) = await harness.controller.incremental_alter_configs(
            [(resource, [("good", Op.SET, "1"), change])]
        )
        assert outcome == (resource, code, message)
        assert await harness.nodes() == before

    run_scenario(tmp_path, scenario)


def test_new_topics_are_checked_too(tmp_path: Path) -> None:
    """A topic with a config that the rules refuse is not created."""

    async def scenario(harness: ControllerHarness) -> None:
        harness.controller._state.decisions._rules = Rules()
        (bad,) = await harness.create(NewTopic("u", 1, 1, configs=[("bad", "1")]))
        assert (bad.error_code, bad.error_message) == (
            ErrorCode.INVALID_CONFIG,
            "bad is not known",
        )

    run_scenario(tmp_path, scenario)


def test_java_ways() -> None:
    """Strings are split and numbers read as Java does it."""
    assert java_split("a, b,,") == ["a", "b"]
    assert java_split("") == [""]
    assert parsed_int("+7") == 7
    assert parsed_int("-7") == -7
    assert [parsed_int(text) for text in ("", "-", "1_0", " 1", "2147483648", "٣")] == [None] * 6


def test_features(tmp_path: Path) -> None:
    """A new cluster has Kafka's levels; they go down and up again, and outlive the process."""

    async def scenario(harness: ControllerHarness) -> None:
        image = harness.controller.image
        assert image.features.levels["metadata.version"] == 30
        assert image.features.levels["group.version"] == 1
        assert "kraft.version" not in image.features.levels
        update = harness.controller.update_features
        down = FeatureUpdate("group.version", 0, UpgradeType.SAFE_DOWNGRADE)
        assert (await update([down], validate_only=True)).error_code == ErrorCode.NONE
        assert harness.controller.image.features == image.features
        assert (await update([down])).error_code == ErrorCode.NONE
        assert "group.version" not in harness.controller.image.features.levels
        assert harness.controller.image.features.epoch == image.features.epoch + 1
        await harness.crash()
        await harness.start()
        assert "group.version" not in harness.controller.image.features.levels
        up = FeatureUpdate("group.version", 1)
        assert (await harness.controller.update_features([up])).error_code == ErrorCode.NONE
        assert harness.controller.image.features.levels["group.version"] == 1

    run_scenario(tmp_path, scenario)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (UpgradeType.SAFE_DOWNGRADE, "because it might delete metadata information."),
        (UpgradeType.UNSAFE_DOWNGRADE, "Unsafe metadata downgrade is not supported"),
    ],
)
def test_a_level_that_keeps_something_is_not_left(kind: UpgradeType, reason: str) -> None:
    """A downgrade is refused where data would be lost, and possible where none would."""
    supported = {METADATA_LEVEL: Supported(1, 4, 4, kept=(3,))}
    broker = BrokerInfo(1, {}, levels=Levels(1, 4))

    def update(current: int, level: int) -> dict[str, int] | Refusal:
        features = FeatureImage({METADATA_LEVEL: current}, 0)
        wanted = [FeatureUpdate(METADATA_LEVEL, level, kind)]
        return updated(features, supported, wanted, 1, {1: broker})

    for level in (1, 2):
        refused = update(4, level)
        assert isinstance(refused, Refusal)
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert f"Unsupported {METADATA_LEVEL} downgrade from 4 to {level}." in str(refused)
        assert reason in str(refused)
    assert update(4, 3) == {METADATA_LEVEL: 3}
    assert update(2, 1) == {METADATA_LEVEL: 1}


def test_eligible_leader_replicas_want_one_min_isr(tmp_path: Path) -> None:
    """When the feature is turned on, min.insync.replicas moves from brokers to the cluster."""

    async def scenario(harness: ControllerHarness) -> None:
        name = "eligible.leader.replicas.version"
        update = harness.controller.update_features
        await update([FeatureUpdate(name, 0, UpgradeType.SAFE_DOWNGRADE)])
        (done,) = await harness.controller.incremental_alter_configs(
            [(BROKER, [("min.insync.replicas", Op.SET, "2"), ("x", Op.SET, "1")])]
        )
        assert done.error_code == ErrorCode.NONE
        assert (await update([FeatureUpdate(name, 1)])).error_code == ErrorCode.NONE
        assert harness.controller.image.broker_configs == {
            "": {"min.insync.replicas": "1"},
            "1": {"x": "1"},
        }

    run_scenario(tmp_path, scenario)


def test_the_last_update_of_a_feature_counts(tmp_path: Path) -> None:
    """A feature named twice is judged by what is said last, as in Kafka."""

    async def scenario(harness: ControllerHarness) -> None:
        down = FeatureUpdate("group.version", 0, UpgradeType.SAFE_DOWNGRADE)
        outcome = await harness.controller.update_features(
            [FeatureUpdate("group.version", 9), down]
        )
        assert outcome.error_code == ErrorCode.NONE
        assert "group.version" not in harness.controller.image.features.levels

    run_scenario(tmp_path, scenario)


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (
            FeatureUpdate("nonsense", 1),
            (
                "Invalid update version 1 for feature nonsense. Local controller 1 does not "
                "support this feature."
            ),
        ),
        (
            FeatureUpdate("group.version", 9),
            (
                "Invalid update version 9 for feature group.version. Local controller 1 only "
                "supports versions 0-1"
            ),
        ),
        (
            FeatureUpdate("group.version", -1),
            (
                "Invalid update version -1 for feature group.version. A feature version cannot "
                "be less than 0."
            ),
        ),
        (
            FeatureUpdate("group.version", 0),
            (
                "Invalid update version 0 for feature group.version. Can't downgrade the "
                "version of this feature without setting the upgrade type to either "
                "safe or unsafe downgrade."
            ),
        ),
        (
            FeatureUpdate("metadata.version", 29, UpgradeType.SAFE_DOWNGRADE),
            (
                "Unsupported metadata.version downgrade from 30 to 29. Refusing to perform "
                "the requested downgrade because it might delete metadata information."
            ),
        ),
        (
            FeatureUpdate("group.version", 1, UpgradeType.UNKNOWN),
            (
                "Invalid update version 1 for feature group.version. The controller does not "
                "support the given upgrade type."
            ),
        ),
    ],
)
def test_features_refused(tmp_path: Path, update: FeatureUpdate, message: str) -> None:
    """INVALID_UPDATE_VERSION with Kafka's message; a good update beside a bad one is not done."""

    async def scenario(harness: ControllerHarness) -> None:
        before = harness.controller.image.features
        good = FeatureUpdate("share.version", 0, UpgradeType.SAFE_DOWNGRADE)
        outcome = await harness.controller.update_features([good, update])
        assert outcome == (ErrorCode.INVALID_UPDATE_VERSION, message)
        assert harness.controller.image.features == before

    run_scenario(tmp_path, scenario)


def test_producer_ids_are_never_handed_out_twice(tmp_path: Path) -> None:
    """Blocks of a thousand that follow on each other, over crashes and to many at once."""

    async def main() -> None:
        harness = ControllerHarness(tmp_path / "tree")
        blocks: list[range] = []
        for _ in range(3):
            controller = await harness.start()
            asked = [controller.allocate_producer_ids(broker_id) for broker_id in (1, 2, 3)]
            for block in await asyncio.gather(*asked):
                assert isinstance(block, range)
                blocks.append(block)
            await harness.crash()
        assert [(b.start, len(b)) for b in blocks] == [(i * 1_000, 1_000) for i in range(9)]

    run_simulated(main())


def test_a_crash_while_allocating_loses_ids_but_gives_none_twice(tmp_path: Path) -> None:
    """The block whose answer was lost is skipped."""

    async def main() -> None:
        harness = ControllerHarness(tmp_path / "tree")
        controller = await harness.start()
        first = await controller.allocate_producer_ids(1)
        harness.tree.writes_left = 1
        await controller.allocate_producer_ids(1)
        lost = await controller.allocate_producer_ids(1)
        assert isinstance(lost, Refusal)
        await harness.crash()
        controller = await harness.start()
        later = await controller.allocate_producer_ids(1)
        assert isinstance(first, range)
        assert isinstance(later, range)
        assert (first[0], later[0]) == (0, 2_000)
        assert json.loads((await harness.nodes())["/latest_producer_id_block"][0]) == {
            "version": 1,
            "broker": 1,
            "block_start": "2000",
            "block_end": "2999",
        }
        await harness.stop()

    run_simulated(main())

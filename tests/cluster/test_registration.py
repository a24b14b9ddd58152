"""Starting: the election, the cluster's id, registration, leader epochs, adopted topics."""

import json
import re
from pathlib import Path

import pytest

from ottla.cluster.controller import Controller
from ottla.cluster.image import ZERO_ID, BrokerInfo, Endpoint
from ottla.cluster.nodes import CorruptNode
from ottla.cluster.requests import AdoptedTopic, NewTopic, Resource, ResourceType
from ottla.cluster.state import NotController, Options
from ottla.metadata_store.local import LocalEngine
from ottla.metadata_store.tree import ConnectionLoss
from ottla.seams.chance import SeededChance
from ottla.seams.disk import RealDisk
from ottla.wire.errors import ErrorCode
from tests.cluster.harness import ControllerHarness, run_scenario
from tests.simulated import loop_clock, node_background, run_simulated


def test_a_new_cluster_has_an_id_and_a_controller(tmp_path: Path) -> None:
    """22 characters of base64url that stay; the controller's node and epoch are Kafka's."""

    async def main() -> None:
        harness = ControllerHarness(tmp_path / "tree")
        controller = await harness.start()
        cluster_id = controller.image.cluster_id
        assert re.fullmatch(r"[A-Za-z0-9_-]{22}", cluster_id)
        nodes = await harness.nodes()
        assert json.loads(nodes["/cluster/id"][0]) == {"version": "1", "id": cluster_id}
        assert json.loads(nodes["/controller"][0])["brokerid"] == 1
        assert nodes["/controller_epoch"][0] == b"1"
        assert (controller.image.controller_id, controller.image.controller_epoch) == (1, 1)
        await harness.crash()
        controller = await harness.start()
        assert controller.image.cluster_id == cluster_id
        assert controller.image.controller_epoch == 2
        await harness.stop()

    run_simulated(main())


def test_a_new_cluster_has_its_own_min_insync_replicas(tmp_path: Path) -> None:
    """With eligible leader replicas it is a dynamic config of the cluster from the start."""

    async def scenario(harness: ControllerHarness) -> None:
        assert harness.controller.image.broker_configs == {"": {"min.insync.replicas": "2"}}
        (refused,) = await harness.controller.alter_configs(
            [(Resource(ResourceType.BROKER, ""), [("log.retention.ms", "1")])]
        )
        assert refused.error_code == ErrorCode.INVALID_CONFIG

    run_scenario(tmp_path, scenario, Options(min_insync_replicas=2))


def test_a_broker_registers(tmp_path: Path) -> None:
    """Its node is Kafka's and ephemeral; its epoch rises from one start to the next."""

    async def main() -> None:
        harness = ControllerHarness(tmp_path / "tree")
        controller = await harness.start(register=False)
        broker = BrokerInfo(
            1,
            {"PLAINTEXT": Endpoint("h", 9092), "INSIDE": Endpoint("i", 9094, "SSL")},
            rack="r1",
        )
        registered = await controller.register_broker(broker)
        assert controller.image.brokers == {1: registered}
        value = json.loads((await harness.nodes())["/brokers/ids/1"][0])
        assert value["endpoints"] == ["PLAINTEXT://h:9092", "INSIDE://i:9094"]
        assert value["listener_security_protocol_map"] == {
            "PLAINTEXT": "PLAINTEXT",
            "INSIDE": "SSL",
        }
        assert (value["host"], value["port"], value["rack"]) == ("h", 9092, "r1")
        assert value["version"] == 5
        again = await controller.register_broker(broker)
        assert again.epoch > registered.epoch > 0
        await controller.unregister_broker(1)
        assert controller.image.brokers == {}
        assert "/brokers/ids/1" not in await harness.nodes()
        await harness.stop()

    run_simulated(main())


def test_leader_epochs_rise_at_every_start(tmp_path: Path) -> None:
    """Of every partition, after a stop and after a crash; the image and the tree agree."""

    async def main() -> None:
        harness = ControllerHarness(tmp_path / "tree")
        await harness.start()
        await harness.create(NewTopic("t", 3, 1), NewTopic("u", 1, 1))
        for starts in (1, 2, 3):
            await (harness.stop() if starts % 2 else harness.crash())
            controller = await harness.start()
            partitions = [p for t in controller.image.topics.values() for p in t.partitions]
            assert [(p.leader, p.leader_epoch) for p in partitions] == [(1, starts)] * 4
            assert [p.partition_epoch for p in partitions] == [starts] * 4
        value, version = (await harness.nodes())["/brokers/topics/t/partitions/2/state"]
        assert json.loads(value)["leader_epoch"] == version == 3
        assert json.loads(value)["controller_epoch"] == 4
        await harness.stop()

    run_simulated(main())


def test_what_another_broker_leads_is_left_alone(tmp_path: Path) -> None:
    """A start concerns only what the broker leads."""

    async def scenario(harness: ControllerHarness) -> None:
        await harness.join(2)
        await harness.create(NewTopic("t", assignments=[(0, [1, 2]), (1, [2, 1])]))
        await harness.join(2)
        partitions = harness.controller.image.topics["t"].partitions
        assert [(p.leader, p.leader_epoch) for p in partitions] == [(1, 0), (1, 1)]
        assert [p.isr for p in partitions] == [(1,), (1,)]

    run_scenario(tmp_path, scenario)


def test_there_is_one_controller(tmp_path: Path) -> None:
    """A second one is refused while the first lives; when it takes over, the first is fenced."""

    async def main() -> None:
        path = str(tmp_path / "tree")
        engine = await LocalEngine.open(RealDisk(), path, node_background())
        trees = [await engine.connect(), await engine.connect()]
        first, second = (
            Controller(tree, loop_clock(), SeededChance(i), Options(node_id=i))
            for i, tree in enumerate(trees)
        )
        await first.start()
        await first.register_broker(BrokerInfo(0, {}))
        with pytest.raises(NotController):
            await second.start()
        # As if the first one's session had run out, and it did not know.
        await trees[1].delete("/controller")
        await second.start()
        (refused,) = await first.create_topics([NewTopic("t", 1, 1)])
        assert refused.error_code == ErrorCode.NOT_CONTROLLER
        assert await trees[1].exists("/brokers/topics/t") is None
        await second.register_broker(BrokerInfo(1, {}))
        (made,) = await second.create_topics([NewTopic("t", 1, 1)])
        assert made.error_code == ErrorCode.NONE
        await first.stop()
        await second.stop()
        await engine.close()

    run_simulated(main())


def test_an_expired_session_ends_the_controller(tmp_path: Path) -> None:
    """It refuses at once, and another can be elected."""

    async def main() -> None:
        path = str(tmp_path / "tree")
        engine = await LocalEngine.open(RealDisk(), path, node_background())
        tree = await engine.connect()
        controller = Controller(tree, loop_clock(), SeededChance(1))
        await controller.start()
        await tree.expire()
        (refused,) = await controller.create_topics([NewTopic("t", 1, 1)])
        assert refused.error_code == ErrorCode.NOT_CONTROLLER
        other = Controller(await engine.connect(), loop_clock(), SeededChance(2))
        await other.start()
        assert other.image.controller_epoch == 2
        await controller.stop()
        await other.stop()
        await engine.close()

    run_simulated(main())


def test_topics_found_on_disk_are_adopted(tmp_path: Path) -> None:
    """With their ids, or a new one; known names and ids are refused; a restart keeps them."""

    async def scenario(harness: ControllerHarness) -> None:
        (there,) = await harness.create(NewTopic("there", 1, 1))
        found_id = b"\x07" * 16
        outcomes = await harness.controller.adopt_topics(
            [
                AdoptedTopic("found", found_id, 3, leader_epoch=7),
                AdoptedTopic("old", ZERO_ID, 1),
                AdoptedTopic("there", b"\x08" * 16, 1),
                AdoptedTopic("moved", there.topic_id, 1),
                AdoptedTopic("found", b"\x09" * 16, 1),
            ]
        )
        assert [o.error_code for o in outcomes] == [
            ErrorCode.NONE,
            ErrorCode.NONE,
            ErrorCode.TOPIC_ALREADY_EXISTS,
            ErrorCode.INCONSISTENT_TOPIC_ID,
            ErrorCode.TOPIC_ALREADY_EXISTS,
        ]
        topics = harness.controller.image.topics
        assert [p.leader_epoch for p in topics["found"].partitions] == [8] * 3
        assert topics["old"].partitions[0].leader_epoch == 0
        await harness.crash()
        await harness.start()
        topics = harness.controller.image.topics
        assert topics["found"].partitions[2].leader_epoch == 9
        assert set(topics) == {"there", "found", "old"}
        assert (topics["found"].id, len(topics["found"].partitions)) == (found_id, 3)
        assert topics["old"].id != ZERO_ID

    run_scenario(tmp_path, scenario)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/brokers/topics/t/partitions/0/state", "rubbish"),
        ("/brokers/topics/t/partitions/0/state", '{"leader":1,"leader_epoch":0,"isr":"12"}'),
        ("/brokers/topics/t/partitions/0/state", '{"leader":1e999,"leader_epoch":0,"isr":[1]}'),
        ("/brokers/topics/t", '{"partitions":{}}'),
        ("/brokers/topics/t", '{"partitions":{"0":[]}}'),
        ("/brokers/topics/t", '{"partitions":{"0":["1"]}}'),
        ("/brokers/topics/t", '{"partitions":{"0":[1]},"adding_replicas":{"0":1}}'),
        ("/brokers/topics/t", "[" * 10_000),
        ("/controller_epoch", "rubbish"),
        ("/feature", '{"features":{"ottla.metadata.version":"x"}}'),
    ],
)
def test_a_node_of_another_form_is_one_sentence(tmp_path: Path, path: str, value: str) -> None:
    """The start is refused with path, what was found, and what to do."""

    async def main() -> None:
        harness = ControllerHarness(tmp_path / "tree")
        await harness.start()
        await harness.create(NewTopic("t", 1, 1))
        await harness.tree.tree.set(path, value.encode())
        await harness.stop()
        with pytest.raises(CorruptNode) as raised:
            await harness.start()
        assert f"node {path}: " in str(raised.value)
        assert value[:100] in str(raised.value)
        await harness.tree.close()

    run_simulated(main())


def test_after_a_failed_write_the_tree_is_read_again(tmp_path: Path) -> None:
    """A write that failed, though it took place, is found there; followers get the image."""

    async def scenario(harness: ControllerHarness) -> None:
        multi = harness.tree.multi
        await harness.create(NewTopic("before", 1, 1))

        async def fail(operations: object) -> object:
            await multi(operations)  # type: ignore[arg-type]
            harness.tree.multi = multi  # type: ignore[method-assign]
            raise ConnectionLoss("/", "no answer")

        harness.tree.multi = fail  # type: ignore[assignment, method-assign]
        (lost,) = await harness.create(NewTopic("t", 1, 1))
        assert lost.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        (again,) = await harness.create(NewTopic("t", 1, 1))
        assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert set(harness.controller.image.topics) == {"before", "t"}
        assert 1 in harness.controller.image.brokers

    run_scenario(tmp_path, scenario)

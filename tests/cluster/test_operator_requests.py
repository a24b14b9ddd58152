"""What an operator writes into the tree by hand is carried out, and removed in the same write."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from ottla.cluster import nodes
from ottla.cluster.requests import NewTopic, QuotaOutcome
from ottla.cluster.state import Options
from ottla.metadata_store.tree import Create, Delete, Operation, Result, Set, Tree
from ottla.security.quotas.entities import Alteration, Entity
from tests.cluster.harness import ControllerHarness, run_scenario
from tests.cluster.three_brokers import fence, part, propose, three
from tests.simulated import pass_time

OTHERS_WRITE = Options(others_write=True)
Scenario = Callable[[ControllerHarness, Tree], Awaitable[None]]


def run(path: Path, scenario: Scenario, options: Options = OTHERS_WRITE) -> None:
    """With another session on the same tree: the operator's."""

    async def main(harness: ControllerHarness) -> None:
        await scenario(harness, await harness.tree.tree._engine.connect())

    run_scenario(path, main, options)


def change_of(entity: str) -> Create:
    value = json.dumps({"version": 2, "entity_path": entity}).encode()
    return Create(f"{nodes.CONFIG_CHANGES}/config_change_", value, sequential=True)


def test_an_empty_node_deletes_the_topic(tmp_path: Path) -> None:
    """/admin/delete_topics/T becomes the controller's note, and goes when all have confirmed."""

    async def scenario(harness: ControllerHarness, operator: Tree) -> None:
        await harness.create(NewTopic("t"), NewTopic("stays"))
        topic_id = harness.controller.image.topics["t"].id
        await operator.create("/admin/delete_topics/t")
        await pass_time(10)
        assert set(harness.controller.image.topics) == {"stays"}
        assert await operator.children(nodes.TOPICS) == ["stays"]
        assert (await operator.get("/admin/delete_topics/t"))[0].startswith(b"{")
        await harness.controller.confirm_deletions(1, [topic_id])
        assert await operator.children(nodes.DELETIONS) == []
        # And again: the watch is set anew each time.
        await operator.create("/admin/delete_topics/stays", b"null")
        await pass_time(10)
        assert not harness.controller.image.topics

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("options", "name"),
    [(OTHERS_WRITE, "unknown"), (OTHERS_WRITE._replace(delete_topic_enable=False), "t")],
)
def test_a_deletion_that_cannot_be_is_removed(tmp_path: Path, options: Options, name: str) -> None:
    """Of a topic that is not there, or when delete.topic.enable is false: as in Kafka."""

    async def scenario(harness: ControllerHarness, operator: Tree) -> None:
        await harness.create(NewTopic("t"))
        await operator.create(f"/admin/delete_topics/{name}")
        await pass_time(10)
        assert await operator.children(nodes.DELETIONS) == []
        assert set(harness.controller.image.topics) == {"t"}

    run(tmp_path, scenario, options)


def test_requests_that_nobody_watched_are_carried_out_at_the_start(tmp_path: Path) -> None:
    """Written while there was no controller."""

    async def scenario(harness: ControllerHarness, operator: Tree) -> None:
        await harness.create(NewTopic("t"))
        await harness.controller.stop()
        await operator.create("/admin/delete_topics/t")
        await operator.close()
        await harness.tree.close()
        controller = await harness.start()
        await pass_time(10)
        assert not controller.image.topics

    run(tmp_path, scenario)


@pytest.mark.parametrize("data", [b"{}", b'{"version":1}', b'{"version":1,"topics":[]}', b"{"])
def test_whatever_is_in_the_node_the_topic_is_deleted(tmp_path: Path, data: bytes) -> None:
    """Kafka reads the name only. What is no note of the controller's must not end the controllers
    that read it at their start."""

    async def scenario(harness: ControllerHarness, operator: Tree) -> None:
        await harness.create(NewTopic("t"), NewTopic("u"))
        await operator.create("/admin/delete_topics/t", data)
        await pass_time(10)
        assert set(harness.controller.image.topics) == {"u"}
        await harness.controller.stop()
        await operator.create("/admin/delete_topics/u", data)
        await operator.close()
        await harness.tree.close()
        controller = await harness.start()
        await pass_time(10)
        assert not controller.image.topics

    run(tmp_path, scenario)


@pytest.mark.parametrize("path", [nodes.DELETIONS, nodes.CONFIG_CHANGES])
def test_a_parent_of_requests_that_was_deleted_is_made_again(tmp_path: Path, path: str) -> None:
    """With zkCli's deleteall, say: the tree is not read again and again, and requests are carried
    out as before."""

    async def scenario(harness: ControllerHarness, operator: Tree) -> None:
        await harness.create(NewTopic("t"))
        number = harness.controller.image.number
        await operator.delete(path)
        await pass_time(2_000)
        assert await operator.exists(path) is not None
        assert harness.controller.image.number == number, "no whole image was published"
        await operator.multi(
            [
                Create(nodes.topic_config_path("t"), nodes.config_value({"retention.ms": "5"})),
                change_of("topics/t"),
            ]
        )
        await pass_time(10)
        assert harness.controller.image.configs_of("t") == {"retention.ms": "5"}
        await operator.create("/admin/delete_topics/t")
        await pass_time(10)
        assert not harness.controller.image.topics

    run(tmp_path, scenario)


def test_preferred_leaders_are_elected(tmp_path: Path) -> None:
    """The node names partitions, and is gone when they are led by their first replica again."""

    async def scenario(harness: ControllerHarness, operator: Tree) -> None:
        await three(harness)
        await fence(harness, 2)
        assert part(harness).leader == 3
        await harness.catch_up(harness.controller.image.brokers[2])
        await propose(harness, 3, 1, 2)
        value = {"version": 1, "partitions": [{"topic": "t", "partition": 1}]}
        await operator.create(nodes.PREFERRED_ELECTION, json.dumps(value).encode())
        await pass_time(10)
        assert await operator.exists(nodes.PREFERRED_ELECTION) is None
        assert part(harness).leader == 2
        await operator.create(nodes.PREFERRED_ELECTION, b"nonsense")
        await pass_time(10)
        assert await operator.exists(nodes.PREFERRED_ELECTION) is None

    run(tmp_path, scenario)


def test_partitions_are_reassigned(tmp_path: Path) -> None:
    """They begin to move when the node is written, and it is removed; what cannot be is left."""

    async def scenario(harness: ControllerHarness, operator: Tree) -> None:
        await three(harness)
        wanted = [
            {"topic": "t", "partition": 1, "replicas": [3, 1]},
            {"topic": "unknown", "partition": 0, "replicas": [1]},
        ]
        value = json.dumps({"version": 1, "partitions": wanted}).encode()
        await operator.create(nodes.REASSIGNMENTS, value)
        await pass_time(10)
        assert await operator.exists(nodes.REASSIGNMENTS) is None
        assert sorted(part(harness, 1).replicas) == [1, 3]
        assert part(harness, 0).replicas == (1, 2, 3)
        await operator.create(nodes.REASSIGNMENTS, b'{"version":1,"partitions":[{}]}')
        await pass_time(10)
        assert await operator.exists(nodes.REASSIGNMENTS) is None

    run(tmp_path, scenario)


def test_a_request_goes_in_the_write_that_carries_it_out(tmp_path: Path) -> None:
    """A controller that dies finds either the request or what came of it, never neither."""

    async def scenario(harness: ControllerHarness, operator: Tree) -> None:
        await three(harness)
        await operator.create(
            nodes.REASSIGNMENTS,
            b'{"version":1,"partitions":[{"topic":"t","partition":1,"replicas":[3,1]}]}',
        )
        writes: list[set[str]] = []
        multi = harness.tree.multi

        async def noted(operations: Sequence[Operation]) -> list[Result]:
            writes.append({operation.path for operation in operations})
            return await multi(operations)

        harness.tree.multi = noted  # type: ignore[method-assign]
        await pass_time(10)
        (first,) = [paths for paths in writes if nodes.REASSIGNMENTS in paths]
        assert first & {nodes.topic_path("t"), f"{nodes.partitions_path('t')}/1/state"}

    run(tmp_path, scenario)


def test_changed_configs_are_taken(tmp_path: Path) -> None:
    """Of a topic and of all brokers, in the order of the notes, which are removed."""

    async def scenario(harness: ControllerHarness, operator: Tree) -> None:
        await harness.create(NewTopic("t"))
        path = nodes.topic_config_path("t")
        await operator.multi(
            [Create(path, nodes.config_value({"retention.ms": "5"})), change_of("topics/t")]
        )
        default = nodes.broker_config_path("")
        await operator.multi(
            [
                Create(default, nodes.config_value({"log.retention.ms": "7"})),
                change_of("brokers/<default>"),
            ]
        )
        await pass_time(10)
        image = harness.controller.image
        assert image.configs_of("t") == {"retention.ms": "5"}
        assert image.broker_configs[""] == {"log.retention.ms": "7"}
        assert await operator.children(nodes.CONFIG_CHANGES) == []
        await operator.multi([Set(path, nodes.config_value({})), change_of("topics/t")])
        await operator.multi([Delete(default), change_of("brokers/<default>")])
        await pass_time(10)
        assert harness.controller.image.configs_of("t") == {}
        assert not harness.controller.image.broker_configs.get("")
        # There is a node only while there are configs: the next change creates it.
        assert await operator.exists(path) is None

    run(tmp_path, scenario)


@pytest.mark.parametrize("entity", ["users/me", "users/", "topics/", "brokers/x", "nonsense"])
def test_a_note_about_nothing_is_removed(tmp_path: Path, entity: str) -> None:
    """A user without configs has none; a note that cannot be read is none."""

    async def scenario(harness: ControllerHarness, operator: Tree) -> None:
        await operator.multi([change_of(entity)])
        await operator.create(f"{nodes.CONFIG_CHANGES}/config_change_x", b"{")
        await pass_time(10)
        assert await operator.children(nodes.CONFIG_CHANGES) == []

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("path", "entity"),
    [
        ("users/me%40here", (("user", "me@here"),)),
        ("users/<default>", (("user", None),)),
        ("users/me/clients/<default>", (("user", "me"), ("client-id", None))),
        ("clients/app", (("client-id", "app"),)),
        ("ips/10.0.0.1", (("ip", "10.0.0.1"),)),
    ],
)
def test_quotas_that_an_operator_writes_are_taken(
    tmp_path: Path, path: str, entity: Entity
) -> None:
    """As Kafka 3 wrote them; wrong ones give way to those that were there."""

    async def scenario(harness: ControllerHarness, operator: Tree) -> None:
        key = "connection_creation_rate" if path.startswith("ips") else "producer_byte_rate"
        steps = path.split("/")
        above = ["/config/" + "/".join(steps[:count]) for count in range(2, len(steps))]
        value = nodes.config_value({key: "5"})
        node = f"/config/{path}"
        await operator.multi([*map(Create, above), Create(node, value), change_of(path)])
        await pass_time(10)
        assert harness.controller.image.entity_configs == {entity: {key: "5"}}
        await operator.multi([Set(node, nodes.config_value({key: "-5"})), change_of(path)])
        await pass_time(10)
        assert harness.controller.image.entity_configs == {entity: {key: "5"}}
        assert (await operator.get(node))[0] == value
        outcomes = await harness.controller.alter_client_quotas([Alteration(entity, [(key, None)])])
        assert outcomes == [QuotaOutcome(entity)]
        assert not harness.controller.image.entity_configs
        # Nothing is left of it, nor of what was made above it.
        assert await operator.exists("/config/" + "/".join(steps[:2])) is None

    run(tmp_path, scenario)


def test_configs_of_a_topic_that_is_not_there_are_refused(tmp_path: Path) -> None:
    """The node is removed: another topic of that name must not begin with them."""

    async def scenario(harness: ControllerHarness, operator: Tree) -> None:
        path = nodes.topic_config_path("unknown")
        await operator.multi(
            [Create(path, nodes.config_value({"retention.ms": "5"})), change_of("topics/unknown")]
        )
        await pass_time(10)
        assert await operator.exists(path) is None

    run(tmp_path, scenario)


def test_a_topic_without_an_id_gets_one(tmp_path: Path) -> None:
    """One that Kafka before 2.8, or an operator, has written; its states are made too."""

    async def scenario(harness: ControllerHarness, operator: Tree) -> None:
        await harness.controller.stop()
        value = {"version": 1, "partitions": {"0": [1], "1": [1]}}
        await operator.create("/brokers/topics/old", json.dumps(value).encode())
        await operator.close()
        await harness.tree.close()
        controller = await harness.start()
        topic = controller.image.topics["old"]
        assert len(topic.partitions) == 2
        data, _ = await harness.tree.get("/brokers/topics/old")
        assert nodes.read_topic("", data).topic_id == topic.id != bytes(16)

    run(tmp_path, scenario)


def test_configs_of_groups_move_to_their_place(tmp_path: Path) -> None:
    """A tree from before has them below /config; nothing is lost."""

    async def scenario(harness: ControllerHarness, operator: Tree) -> None:
        await harness.controller.stop()
        value = nodes.config_value({"consumer.session.timeout.ms": "50000"})
        await operator.multi(
            [Create(nodes.FORMER_GROUP_CONFIGS), Create(f"{nodes.FORMER_GROUP_CONFIGS}/g", value)]
        )
        await operator.close()
        await harness.tree.close()
        for _ in range(2):
            controller = await harness.start()
            assert controller.image.group_configs == {"g": {"consumer.session.timeout.ms": "50000"}}
            assert (await harness.tree.children(nodes.GROUP_CONFIGS)) == ["g"]
            await harness.stop()
        await harness.start()

    run(tmp_path, scenario)


INFINITE = b'{"partitions":[{"topic":"t","partition":1e999,"replicas":[1]}]}'


@pytest.mark.parametrize(
    ("path", "data"),
    [
        (nodes.REASSIGNMENTS, INFINITE),
        (nodes.REASSIGNMENTS, b"[" * 10_000),
        (nodes.PREFERRED_ELECTION, INFINITE),
        *(
            (f"{nodes.CONFIG_CHANGES}/config_change_1", json.dumps(value).encode())
            for value in (
                {"version": 2, "entity_path": "topics//t"},
                {"version": 2, "entity_path": "topics/t/"},
                {"version": 2, "entity_path": "topics/.."},
                {"version": 1, "entity_type": "topics", "entity_name": "/t"},
            )
        ),
    ],
)
def test_a_request_that_nobody_can_read_is_removed(
    tmp_path: Path, path: str, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, with a warning: it does not fail again and again, with the tree read anew each time."""

    async def scenario(harness: ControllerHarness, operator: Tree) -> None:
        await harness.create(NewTopic("t"))
        await operator.create(path, data)
        await pass_time(10)
        assert await operator.exists(path) is None
        assert set(harness.controller.image.topics) == {"t"}

    run(tmp_path, scenario)
    assert [each.levelname for each in caplog.records if each.levelno >= logging.WARNING] == [
        "WARNING"
    ]


@pytest.mark.parametrize("data", [b"{}", b"{", b'{"version":1}'])
def test_a_deletion_is_asked_for_by_whatever_kafka_takes_for_it(
    tmp_path: Path, data: bytes
) -> None:
    """In Kafka the node's name says all; what is no note of ours must not stop the next start."""

    async def scenario(harness: ControllerHarness, operator: Tree) -> None:
        await harness.create(NewTopic("t"), NewTopic("u"))
        await operator.create("/admin/delete_topics/t", data)
        await pass_time(10)
        assert set(harness.controller.image.topics) == {"u"}
        await harness.controller.stop()
        await operator.create("/admin/delete_topics/u", data)
        await operator.close()
        await harness.tree.close()
        controller = await harness.start()
        await pass_time(10)
        assert not controller.image.topics

    run(tmp_path, scenario)

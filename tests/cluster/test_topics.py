"""Topics created, grown and deleted through the controller, with Kafka's codes and messages."""

import asyncio
import json
from pathlib import Path

import pytest

from ottla.cluster import topics
from ottla.cluster.image import ZERO_ID
from ottla.cluster.nodes import topic_value, uuid_text
from ottla.cluster.requests import NewPartitions, NewTopic, Refusal, TopicOutcome, TopicRef
from ottla.cluster.state import Options
from ottla.metadata_store.tree import MULTI_BYTES_MAX
from ottla.wire.errors import ErrorCode
from tests.cluster.harness import ControllerHarness, run_scenario
from tests.simulated import pass_time


def test_a_topic_is_made_with_kafkas_nodes(tmp_path: Path) -> None:
    """Paths and JSON are those that a Kafka on ZooKeeper has; the image has the same."""

    async def scenario(harness: ControllerHarness) -> None:
        (made,) = await harness.create(NewTopic("first", 2, 1, configs=[("retention.ms", "5")]))
        assert made == TopicOutcome(
            "first", ErrorCode.NONE, None, made.topic_id, 2, 1, {"retention.ms": "5"}
        )
        nodes = await harness.nodes()
        assert json.loads(nodes["/brokers/topics/first"][0]) == {
            "version": 3,
            "topic_id": uuid_text(made.topic_id),
            "partitions": {"0": [1], "1": [1]},
            "adding_replicas": {},
            "removing_replicas": {},
        }
        assert json.loads(nodes["/brokers/topics/first/partitions/1/state"][0]) == {
            "controller_epoch": 1,
            "leader": 1,
            "version": 1,
            "leader_epoch": 0,
            "isr": [1],
        }
        assert json.loads(nodes["/config/topics/first"][0]) == {
            "version": 1,
            "config": {"retention.ms": "5"},
        }
        topic = harness.controller.image.topics["first"]
        assert (topic.id, len(topic.partitions)) == (made.topic_id, 2)
        assert topic.partitions[1].leader == 1
        assert harness.controller.image.configs_of("first") == {"retention.ms": "5"}

    run_scenario(tmp_path, scenario)


def test_defaults(tmp_path: Path) -> None:
    """-1 stands for num.partitions and default.replication.factor."""

    async def scenario(harness: ControllerHarness) -> None:
        (made,) = await harness.create(NewTopic("t"))
        assert (made.num_partitions, made.replication_factor) == (3, 1)

    run_scenario(tmp_path, scenario, Options(num_partitions=3))


UNKNOWN_BROKER = (
    "The manual partition assignment includes broker 9, but no such broker is registered."
)


@pytest.mark.parametrize(
    ("new", "code", "message"),
    [
        (
            NewTopic("there", 1, 1),
            ErrorCode.TOPIC_ALREADY_EXISTS,
            "Topic 'there' already exists.",
        ),
        (
            NewTopic("a.b", 1, 1),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic 'a.b' collides with existing topic: a_b",
        ),
        (
            NewTopic("..", 1, 1),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: '..' is not allowed",
        ),
        (
            NewTopic("t", 0, 1),
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            NewTopic("t", 1, 0),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            NewTopic("t", 1, -2),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            NewTopic("t", 1, 2),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            (
                "Unable to replicate the partition 2 time(s): The target replication factor of 2 "
                "cannot be reached because only 1 broker(s) are registered or some brokers have "
                "all their log directories cordoned."
            ),
        ),
        (
            NewTopic("t", 1, -1, [(0, [1])]),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            NewTopic("t", -1, 1, [(0, [1])]),
            ErrorCode.INVALID_REQUEST,
            (
                "A manual partition assignment was specified, but replication factor was not set to"
                " -1."
            ),
        ),
        (NewTopic("t", -1, -1, [(0, [9])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, UNKNOWN_BROKER),
        (
            NewTopic("t", -1, -1, [(0, [1, 1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            NewTopic("t", -1, -1, [(0, [])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            NewTopic("t", -1, -1, [(0, [1]), (0, [1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            NewTopic("t", -1, -1, [(1, [1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            NewTopic("t", 1, 1, configs=[("a", None), ("b", None)]),
            ErrorCode.INVALID_CONFIG,
            "Null value not supported for topic configs: a,b",
        ),
        (
            NewTopic("t", 10_001, 1),
            ErrorCode.POLICY_VIOLATION,
            "Excessively large number of partitions per request.",
        ),
        (
            NewTopic("t", 10_000, 1),
            ErrorCode.POLICY_VIOLATION,
            "Unable to perform excessively large batch operation.",
        ),
        (
            NewTopic("__cluster_metadata", 1, 1),
            ErrorCode.INVALID_REQUEST,
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
    ],
)
def test_refusals(tmp_path: Path, new: NewTopic, code: ErrorCode, message: str) -> None:
    """Each wrong topic has its code and message, and leaves the tree as it was."""

    async def scenario(harness: ControllerHarness) -> None:
        await harness.create(NewTopic("there", 1, 1), NewTopic("a_b", 1, 1))
        before = await harness.nodes()
        (outcome,) = await harness.create(new)
        assert (outcome.name, outcome.error_code, outcome.error_message) == (
            new.name,
            code,
            message,
        )
        assert outcome.topic_id == ZERO_ID
        assert await harness.nodes() == before

    run_scenario(tmp_path, scenario)


def test_good_and_bad_topics_of_one_request(tmp_path: Path) -> None:
    """The good are created; names given twice are answered once, after the others."""

    async def scenario(harness: ControllerHarness) -> None:
        outcomes = await harness.create(
            NewTopic("twice", 1, 1),
            NewTopic("bad", 0, 1),
            NewTopic("good", 1, 1),
            NewTopic("twice", 2, 1),
        )
        assert [(o.name, o.error_code, o.error_message) for o in outcomes] == [
            (
                "bad",
                ErrorCode.INVALID_PARTITIONS,
                "Number of partitions was set to an invalid non-positive value.",
            ),
            ("good", ErrorCode.NONE, None),
            ("twice", ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        ]
        assert set(harness.controller.image.topics) == {"good"}

    run_scenario(tmp_path, scenario)


def test_validate_only_changes_nothing(tmp_path: Path) -> None:
    """The same answers, and no node more."""

    async def scenario(harness: ControllerHarness) -> None:
        before = await harness.nodes()
        outcomes = await harness.create(NewTopic("t", 3, 1), NewTopic("", 1, 1), validate_only=True)
        assert [o.error_code for o in outcomes] == [
            ErrorCode.NONE,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]
        assert outcomes[0].num_partitions == 3
        assert await harness.nodes() == before
        assert not harness.controller.image.topics

    run_scenario(tmp_path, scenario)


def test_manual_assignment_over_brokers(tmp_path: Path) -> None:
    """Replicas as given, the first of them leads; one node of several may be fenced."""

    async def scenario(harness: ControllerHarness) -> None:
        for broker_id in (2, 3):
            await harness.join(broker_id)
        (made,) = await harness.create(NewTopic("t", assignments=[(1, [3, 1]), (0, [2, 3])]))
        assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 2, 2)
        first, second = harness.controller.image.topics["t"].partitions
        assert (first.replicas, first.leader) == ((2, 3), 2)
        assert (second.replicas, second.leader, second.isr) == ((3, 1), 3, (3, 1))
        (uneven,) = await harness.create(NewTopic("u", assignments=[(0, [1]), (1, [2, 3])]))
        assert uneven.error_message == (
            "The manual partition assignment includes a partition with 2 replica(s), but this is "
            "not consistent with previous partitions, which have 1 replica(s)."
        )

    run_scenario(tmp_path, scenario)


def test_a_topic_grows(tmp_path: Path) -> None:
    """The new partitions begin at epoch 0, the old ones stay; the nodes are there."""

    async def scenario(harness: ControllerHarness) -> None:
        await harness.create(NewTopic("t", 2, 1))
        (outcome,) = await harness.controller.create_partitions([NewPartitions("t", 4)])
        assert outcome == ("t", ErrorCode.NONE, None)
        assert [p.index for p in harness.controller.image.topics["t"].partitions] == [0, 1, 2, 3]
        nodes = await harness.nodes()
        assert len(json.loads(nodes["/brokers/topics/t"][0])["partitions"]) == 4
        assert "/brokers/topics/t/partitions/3/state" in nodes
        before = nodes
        (outcome,) = await harness.controller.create_partitions([NewPartitions("t", 9)], True)
        assert outcome.error_code == ErrorCode.NONE
        assert await harness.nodes() == before

    run_scenario(tmp_path, scenario)


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        (NewPartitions("none", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        (
            NewPartitions("t", 2),
            ErrorCode.INVALID_PARTITIONS,
            "Topic already has 2 partition(s).",
        ),
        (
            NewPartitions("t", 1),
            ErrorCode.INVALID_PARTITIONS,
            "The topic t currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            NewPartitions("t", 4, [[1]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (NewPartitions("t", 3, [[9]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, UNKNOWN_BROKER),
        (
            NewPartitions("t", 3, [[]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
    ],
)
def test_refusals_to_grow(
    tmp_path: Path, wanted: NewPartitions, code: ErrorCode, message: str | None
) -> None:
    """Each with its code and message; nothing is changed."""

    async def scenario(harness: ControllerHarness) -> None:
        await harness.create(NewTopic("t", 2, 1))
        before = await harness.nodes()
        (outcome,) = await harness.controller.create_partitions([wanted])
        assert outcome == (wanted.name, code, message)
        assert await harness.nodes() == before

    run_scenario(tmp_path, scenario)


def test_deletion_by_name_and_id(tmp_path: Path) -> None:
    """Both ways; the answer has name and id; nodes are gone but for the note of the deletion."""

    async def scenario(harness: ControllerHarness) -> None:
        empty = await harness.nodes()
        a, b = await harness.create(NewTopic("a", 2, 1), NewTopic("b", 1, 1, configs=[("x", "y")]))
        outcomes = await harness.controller.delete_topics(
            [TopicRef("a"), TopicRef(None, b.topic_id)]
        )
        assert sorted(outcomes) == [("a", a.topic_id, 0, None), ("b", b.topic_id, 0, None)]
        assert not harness.controller.image.topics
        assert harness.controller.image.deletions == {a.topic_id: "a", b.topic_id: "b"}
        left = set(await harness.nodes()) - set(empty)
        assert left == {"/admin/delete_topics/a", "/admin/delete_topics/b"}
        await harness.controller.confirm_deletions(1, [a.topic_id, b.topic_id, bytes(16)])
        assert set(await harness.nodes()) == set(empty)
        assert harness.controller.image.deletions == {}

    run_scenario(tmp_path, scenario)


def test_a_name_is_free_again_at_once(tmp_path: Path) -> None:
    """Created, deleted, created and deleted before any directory is gone: each id is confirmed."""

    async def scenario(harness: ControllerHarness) -> None:
        ids = []
        for _ in range(2):
            (made,) = await harness.create(NewTopic("t", 1, 1))
            assert made.error_code == ErrorCode.NONE
            ids.append(made.topic_id)
            await harness.controller.delete_topics([TopicRef("t")])
        assert set(harness.controller.image.deletions) == set(ids)
        await harness.controller.confirm_deletions(1, ids[:1])
        assert set(harness.controller.image.deletions) == set(ids[1:])
        assert "/admin/delete_topics/t" in await harness.nodes()
        await harness.controller.confirm_deletions(1, ids)
        assert "/admin/delete_topics/t" not in await harness.nodes()

    run_scenario(tmp_path, scenario)


def test_refusals_to_delete(tmp_path: Path) -> None:
    """Unknown, doubled or contradictory references are answered, and delete nothing."""

    async def scenario(harness: ControllerHarness) -> None:
        a, b = await harness.create(NewTopic("a", 1, 1), NewTopic("b", 1, 1))
        other = b"\x01" * 16
        outcomes = await harness.controller.delete_topics(
            [
                TopicRef("none"),
                TopicRef(None, other),
                TopicRef(None),
                TopicRef("a", a.topic_id),
                TopicRef("x"),
                TopicRef("x"),
                TopicRef("b"),
                TopicRef(None, b.topic_id),
            ]
        )
        invalid = ErrorCode.INVALID_REQUEST
        unknown_name = "This server does not host this topic-partition."
        unknown_id = "This server does not host this topic ID."
        found = {(o.name, o.id): o[2:] for o in outcomes}
        assert found == {
            ("none", ZERO_ID): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, unknown_name),
            (None, other): (ErrorCode.UNKNOWN_TOPIC_ID, unknown_id),
            (None, ZERO_ID): (invalid, "Neither topic name nor id were specified."),
            ("a", a.topic_id): (invalid, "You may not specify both topic name and topic id."),
            ("x", ZERO_ID): (invalid, "Duplicate topic name."),
            ("b", b.topic_id): (
                invalid,
                "The provided topic name maps to an ID that was already supplied.",
            ),
        }
        assert set(harness.controller.image.topics) == {"a", "b"}

    run_scenario(tmp_path, scenario)


def test_deletion_can_be_disabled(tmp_path: Path) -> None:
    """delete.topic.enable=false: TOPIC_DELETION_DISABLED for every topic."""

    async def scenario(harness: ControllerHarness) -> None:
        await harness.create(NewTopic("a", 1, 1))
        (outcome,) = await harness.controller.delete_topics([TopicRef("a")])
        assert outcome.error_code == ErrorCode.TOPIC_DELETION_DISABLED
        assert "a" in harness.controller.image.topics

    run_scenario(tmp_path, scenario, Options(delete_topic_enable=False))


def test_a_collision_ends_with_the_topic(tmp_path: Path) -> None:
    """Once 'a_b' is deleted, 'a.b' may be created."""

    async def scenario(harness: ControllerHarness) -> None:
        await harness.create(NewTopic("a_b", 1, 1))
        await harness.controller.delete_topics([TopicRef("a_b")])
        (made,) = await harness.create(NewTopic("a.b", 1, 1))
        assert made.error_code == ErrorCode.NONE

    run_scenario(tmp_path, scenario)


def test_writes_are_answered_after_the_broker_applied_them(tmp_path: Path) -> None:
    """With a follower, the answer waits for it; a refusal of everything does not hang either."""

    async def scenario(harness: ControllerHarness) -> None:
        feed = harness.controller.feed
        feed.follow(1)
        feed.applied(1, feed.image.number)
        creation = asyncio.create_task(harness.create(NewTopic("t", 1, 1)))
        news = await feed.after(feed.image.number, feed.image.controller_epoch)
        await pass_time(10)
        assert not creation.done()
        assert isinstance(news, list)
        feed.applied(1, news[-1].number)
        assert (await creation)[0].error_code == ErrorCode.NONE
        (again,) = await harness.create(NewTopic("t", 1, 1))
        assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        feed.unfollow(1)

    run_scenario(tmp_path, scenario)


def test_a_cancelled_caller_does_not_stop_the_creation(tmp_path: Path) -> None:
    """A client that disconnects leaves a whole topic behind, and a controller that works."""

    async def scenario(harness: ControllerHarness) -> None:
        creation = asyncio.create_task(harness.create(NewTopic("t", 100, 1)))
        await asyncio.sleep(0)
        creation.cancel()
        await asyncio.gather(creation, return_exceptions=True)
        await harness.create(NewTopic("u", 1, 1))
        assert len(harness.controller.image.topics["t"].partitions) == 100

    run_scenario(tmp_path, scenario)


def test_a_topic_fits_into_its_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may grow up to what one node of the tree holds, and is refused beyond."""
    most = topics.TOPIC_NODE_BYTES_MAX // 26
    assert most > 30_000
    value = topic_value(bytes(16), [(1001, 1002, 1003)] * most)
    assert len(value) < MULTI_BYTES_MAX
    monkeypatch.setattr(topics, "TOPIC_NODE_BYTES_MAX", 16 * 10)

    async def scenario(harness: ControllerHarness) -> None:
        await harness.create(NewTopic("t", 9, 1))
        at_limit, beyond, excess = [
            (await harness.controller.create_partitions([NewPartitions("t", count)]))[0].error_code
            for count in (10, 11, 10_011)
        ]
        assert at_limit == ErrorCode.NONE
        assert beyond == ErrorCode.INVALID_PARTITIONS
        assert excess == ErrorCode.POLICY_VIOLATION

    run_scenario(tmp_path, scenario)


def test_after_the_stop_everything_is_refused(tmp_path: Path) -> None:
    """NOT_CONTROLLER, for what waits in the queue too."""

    async def scenario(harness: ControllerHarness) -> None:
        waiting = asyncio.gather(*(harness.create(NewTopic(f"t{i}", 1, 1)) for i in range(5)))
        await asyncio.sleep(0)
        await harness.controller.stop()
        codes = {outcome.error_code for (outcome,) in await waiting}
        assert codes <= {ErrorCode.NONE, ErrorCode.NOT_CONTROLLER}
        (refused,) = await harness.create(NewTopic("late", 1, 1))
        assert refused.error_code == ErrorCode.NOT_CONTROLLER
        ids = await harness.controller.allocate_producer_ids(1)
        assert isinstance(ids, Refusal)

    run_scenario(tmp_path, scenario)

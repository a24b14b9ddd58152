"""Plans of reassignments: what a file may say, and what is proposed for brokers and racks."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from ottla.cli.kafka_scripts.topics import partition_line
from ottla.cli.reassigning import Move, moves, throttled_replicas
from ottla.cli.reassignment_plans import (
    PlanError,
    check,
    plan_text,
    proposed,
    read_brokers,
    read_plan,
    read_topics,
)
from ottla.cli.topic_names import REPORTS, PartitionView, TopicView, reported, with_moves
from ottla.client.structs import TopicPartition

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def text(*partitions: dict[str, object], **more: object) -> str:
    return json.dumps({"version": 1, "partitions": list(partitions), **more})


def test_a_plan_is_read_as_it_was_written() -> None:
    """Replicas, and the directories that are not "any"."""
    replicas = {FIRST: [1, 2], SECOND: [3, 1]}
    written = plan_text(replicas, {(FIRST, 2): "/data"})
    planned = read_plan(written)
    check(planned)
    assert planned.replicas == replicas
    assert planned.log_dirs == {(FIRST, 2): "/data"}
    assert json.loads(written)["partitions"][0]["log_dirs"] == ["any", "/data"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        (text(version=2), "Not supported version field value 2"),
        (text(), "Partition reassignment list cannot be empty"),
        ('{"partitions": 5}', '"partitions" is not a list'),
        ('{"partitions": null}', '"partitions" is not a list'),
        (text({"topic": "t", "partition": 0}), "no partition with replicas"),
        (text({"topic": "t", "partition": 0, "replicas": []}), "Partition replica list cannot be"),
        (
            text(*[{"topic": "t", "partition": 0, "replicas": [1]}] * 2),
            "Partition reassignment contains duplicate topic partitions: t-0",
        ),
        (
            text({"topic": "t", "partition": 0, "replicas": [1, 2, 1]}),
            "may not contain duplicate entries: t-0 contains multiple entries for 1",
        ),
        (
            text({"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["a", "b"]}),
            "Size of replicas list [1] is different from size of log dirs list [a, b] for",
        ),
    ],
)
def test_a_plan_that_cannot_be_executed(given: str, words: str) -> None:
    """It is refused in the words of Kafka's tool."""
    with pytest.raises(PlanError) as refused:
        check(read_plan(given))
    assert words in str(refused.value)


def test_topics_and_brokers_are_named_once() -> None:
    """A list that names one twice is a mistake."""
    assert read_topics('{"topics": [{"topic": "a"}, {"topic": "b"}]}') == ["a", "b"]
    with pytest.raises(PlanError, match=r"duplicate entries: \[a\]"):
        read_topics('{"topics": [{"topic": "a"}, {"topic": "a"}]}')
    with pytest.raises(PlanError, match='"topics" is not a list'):
        read_topics('{"topics": 5}')
    assert read_brokers("3,1") == [3, 1]
    with pytest.raises(PlanError, match=r"Broker list contains duplicate entries: \[1\]"):
        read_brokers("1,2,1")
    with pytest.raises(PlanError, match="numbers with commas"):
        read_brokers("1,x")


class TestProposals:
    def test_replicas_and_leaders_are_spread(self) -> None:
        """Each broker has as many of both, whatever is drawn."""
        current = {TopicPartition("t", index): [9, 8, 7] for index in range(12)}
        for seed in range(20):
            found = proposed(current, dict.fromkeys((1, 2, 3, 4)), random.Random(seed))
            assert all(len(set(replicas)) == 3 for replicas in found.values())
            leaders = Counter(replicas[0] for replicas in found.values())
            assert set(leaders.values()) == {3}
            held = Counter(each for replicas in found.values() for each in replicas)
            assert set(held.values()) == {9}

    def test_racks_come_first(self) -> None:
        """No two replicas in a rack while another has none; all racks lead alike."""
        racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
        current = {TopicPartition("t", index): [1, 2, 3] for index in range(12)}
        for seed in range(20):
            found = proposed(current, racks, random.Random(seed))
            assert all({racks[each] for each in ids} == {"a", "b", "c"} for ids in found.values())
            assert set(Counter(replicas[0] for replicas in found.values()).values()) == {2}

    def test_more_replicas_than_brokers(self) -> None:
        """It is refused in Kafka's words; one broker is enough for one replica."""
        with pytest.raises(PlanError, match="Replication factor: 2 larger than available"):
            proposed({FIRST: [1, 2]}, {1: None}, random.Random(1))
        assert proposed({FIRST: [2]}, {1: None}, random.Random(1)) == {FIRST: [1]}
        with pytest.raises(PlanError, match="Replication factor: 2 larger"):
            proposed({FIRST: [2]}, {1: None}, random.Random(1), 2)

    def test_another_number_of_replicas(self) -> None:
        """More or fewer than there are, where that is asked for."""
        brokers = dict.fromkeys((1, 2, 3))
        more = proposed({FIRST: [1]}, brokers, random.Random(1), 3)
        assert sorted(more[FIRST]) == [1, 2, 3]
        assert len(proposed({FIRST: [1, 2, 3]}, brokers, random.Random(1), 2)[FIRST]) == 2


def test_what_is_throttled() -> None:
    """Leaders are those that have it, followers those that copy it; what is under way counts."""
    ongoing = {FIRST: {"replicas": [3, 1, 2], "adding_replicas": [3], "removing_replicas": [2]}}
    moving = moves(ongoing, {SECOND: [2, 4]}, {SECOND: [2, 1]})  # type: ignore[arg-type]
    assert moving == {FIRST: Move({1, 2}, {3}), SECOND: Move({1, 2}, {4})}
    assert throttled_replicas(moving) == {
        "t": {
            "leader.replication.throttled.replicas": "0:1,0:2,1:1,1:2",
            "follower.replication.throttled.replicas": "0:3,1:4",
        }
    }


def test_a_moving_partition_is_shown_as_kafkas_tool_does() -> None:
    """What comes and goes stands in its line; new replicas do not make it under-replicated."""
    view = PartitionView("t", 0, 1, [3, 2, 1], [1, 2], [], [])
    now = {FIRST: {"replicas": [3, 2, 1], "adding_replicas": [3], "removing_replicas": [1]}}
    moving = with_moves(view, now)  # type: ignore[arg-type]
    assert "\tIsr: 1,2\tAdding Replicas: 3\tRemoving Replicas: 1\tElr: " in partition_line(moving)
    topic = TopicView("t", None, False, [moving], {}, 1)
    assert topic.replication_factor == 2
    assert not reported(REPORTS[0], topic, moving, {1, 2, 3})
    assert reported(REPORTS[0], topic, view, {1, 2, 3})
    done = view._replace(replicas=[3, 2])
    assert with_moves(done, now) == done  # type: ignore[arg-type]
    assert "Adding" not in partition_line(done)

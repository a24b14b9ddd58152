"""Our consumer in one group with confluent-kafka's, kafka-python's and Java's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from tests import needs
from tests.client.group_members import (
    JavaMember,
    Member,
    confluent,
    fill,
    kafka_python,
    ours,
    split,
)
from tests.waiting import eventually

PARTITIONS = 8
KAFKA_PYTHONS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
JAVAS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


@pytest.mark.apache
@pytest.mark.parametrize("strategy", JAVAS)
def test_one_group_of_four_clients(
    any_bootstrap: str,
    topic: str,
    strategy: str,
    make_topic: Callable[..., None],
    members: list[Member],
) -> None:
    """Everybody has an even share, whoever leads; members leave while records flow, and every
    record is read exactly once."""
    needs.apache()
    make_topic(topic, PARTITIONS)
    makers: list[Callable[[], Member]] = [
        lambda: ours(any_bootstrap, topic, partition_assignment_strategy=strategy),
        lambda: JavaMember(any_bootstrap, topic, JAVAS[strategy]),
        lambda: confluent(any_bootstrap, topic, strategy),
        lambda: kafka_python(any_bootstrap, topic, KAFKA_PYTHONS[strategy]),
    ]
    if strategy == "roundrobin":
        makers.reverse()  # then others lead first
    elif strategy == "cooperative-sticky":
        makers[:2] = makers[1::-1]
    for make in makers:
        members.append(make())
        eventually(lambda: bool(members[-1].assigned()), "a share")
    eventually(
        lambda: split(members, PARTITIONS) and {len(each.assigned()) for each in members} == {2},
        "even shares",
    )
    fill(any_bootstrap, topic, PARTITIONS)
    once(members, 20)
    for number, leaving in enumerate(members[:2], 1):  # the leader goes, then the next one
        fill(any_bootstrap, topic, PARTITIONS, start=number * 40 - 20)
        leaving.stop()
        fill(any_bootstrap, topic, PARTITIONS, start=number * 40)
        eventually(lambda: split(members[number:], PARTITIONS), "the others take over")  # noqa: B023
        once(members, number * 40 + 20)
    for each in members[2:]:
        each.stop()


def once(members: list[Member], count: int) -> None:
    """Wait until all records are read, so many of each partition; none may come twice."""
    wanted = [(p, n) for p in range(PARTITIONS) for n in range(count)]
    eventually(lambda: sum(len(each.records) for each in members) >= len(wanted), "all records")
    assert sorted(record for each in members for record in each.records) == wanted

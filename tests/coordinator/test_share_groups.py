"""Share groups in one coordinator partition (KIP-932): epochs, targets, state that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.cluster.image import (
    PartitionImage,
    TopicCreated,
    TopicDeleted,
    TopicImage,
)
from ottla.coordinator.coordinator_partition import CoordinatorPartition
from ottla.coordinator.effects import Effects
from ottla.coordinator.group_options import GroupOptions
from ottla.coordinator.group_shard import GroupShard, OffsetRules
from ottla.coordinator.new_group import Refused
from ottla.coordinator.rebalance import GroupRules
from ottla.coordinator.share_groups import Partitions, ShareAsking
from ottla.coordinator.topics import TopicsView
from ottla.seams.clock import ManualClock
from ottla.settings import Settings
from ottla.wire.api.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from ottla.wire.errors import ErrorCode
from tests.coordinator.fake_partition import FakePartition
from tests.coordinator.group_driver import RecordedReply
from tests.work import counted_calls

GROUP = "workers"
SETTINGS = {"group.share.max.size": 1000, "group.share.assignment.interval.ms": 0}


class Driver:
    """A coordinator partition with the requests to share coordinators that it makes."""

    def __init__(self, **settings: object) -> None:
        self.clock = ManualClock()
        self.topics = TopicsView()
        self.asked: list[dict[bytes, list[int]]] = []
        given = Settings.from_properties(
            {**SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}}
        )
        self.shard = GroupShard(
            GroupRules(), OffsetRules(), GroupOptions(lambda: given, self.topics), self.topics, self
        )
        partition: Any = FakePartition(message_bytes_max=100_000_000)
        self.coordinator = CoordinatorPartition(partition, self.shard, self.clock)
        self.coordinator.activate()
        self.epochs: dict[str, int] = {}
        self.assigned: dict[str, dict[bytes, list[int]]] = {}

    def initialize(self, group_id: str, epoch: int, partitions: Partitions) -> None:
        assert group_id == GROUP
        self.asked.append({topic_id: sorted(each) for topic_id, each in partitions.items()})

    def grant(self) -> None:
        """The share coordinators have begun the state of all that was asked for."""
        asked, self.asked = self.asked, []
        for partitions in asked:
            self.coordinator.run(
                lambda effects, _, partitions=partitions: self.shard.shares.initialized(
                    GROUP, partitions, effects
                )
            )
        self.clock.advance(0)

    def create(self, name: str, count: int, topic_id: bytes) -> None:
        states = tuple(PartitionImage(each, 1, 0, 0, (1,), (1,)) for each in range(count))
        image = self.topics.image
        topic = TopicImage(name, topic_id, states)
        self.topics.image = image.apply(image.number + 1, [TopicCreated(topic, {})])

    def delete(self, name: str) -> None:
        image = self.topics.image
        topic_id, count = image.topics[name].id, len(image.topics[name].partitions)
        gone = TopicDeleted(name, topic_id, count)
        self.topics.image = image.apply(image.number + 1, [gone])
        self.coordinator.run(
            lambda effects, _: self.shard.shares.topics_deleted([topic_id], effects)
        )
        self.clock.advance(0)

    def heartbeat(
        self, member: str, epoch: int | None = None, names: list[str] | None = None
    ) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=member,
            member_epoch=self.epochs.get(member, 0) if epoch is None else epoch,
            subscribed_topic_names=names,
        )
        reply = RecordedReply(member)

        def decide(effects: Effects, now_ms: int) -> None:
            asking = ShareAsking(request, "client", "/127.0.0.1")
            try:
                effects.reply(reply, self.shard.shares.heartbeat(asking, effects, now_ms))
            except Refused as refused:
                effects.records.clear()
                error = ShareGroupHeartbeatResponse(error_code=refused.error)
                effects.reply(reply, error)

        self.coordinator.run(decide)
        self.clock.advance(0)
        response: ShareGroupHeartbeatResponse = reply.answer
        if not response.error_code:
            self.epochs[member] = response.member_epoch
            if response.assignment is not None:
                self.assigned[member] = {
                    each.topic_id: list(each.partitions)
                    for each in response.assignment.topic_partitions
                }
        return response

    def settle(self, members: list[str]) -> None:
        """All join and get to their targets."""
        for member in members:
            self.heartbeat(member, names=["queue"])
        self.grant()
        for _ in range(3):
            for member in members:
                self.heartbeat(member)

    @property
    def covered(self) -> Mapping[bytes, set[int]]:
        found: dict[bytes, set[int]] = {}
        for assigned in self.assigned.values():
            for topic_id, partitions in assigned.items():
                found.setdefault(topic_id, set()).update(partitions)
        return found


ONE, TWO = b"1" * 16, b"2" * 16


def test_a_heartbeat_costs_the_same_in_a_group_of_any_size() -> None:
    """What it calls in a settled group does not follow its members or partitions."""
    costs = []
    for count in (2, 300):
        driver = Driver()
        driver.create("queue", count, ONE)
        driver.settle([f"member {number}" for number in range(count)])
        assert driver.covered == {ONE: set(range(count))}
        with counted_calls() as calls:
            driver.heartbeat("member 1")
        costs.append(calls.count)
    assert costs[1] < costs[0] * 1.2


def test_a_topic_that_is_made_again_is_another_one() -> None:
    """Its state is begun anew and it is assigned under its new id; nobody keeps the old one."""
    driver = Driver()
    driver.create("queue", 4, ONE)
    driver.settle(["a", "b"])
    assert driver.covered == {ONE: {0, 1, 2, 3}}
    driver.delete("queue")
    for member in ("a", "b", "a", "b"):
        driver.heartbeat(member)
    assert driver.covered == {}
    driver.create("queue", 2, TWO)
    driver.heartbeat("a")
    assert driver.asked == [{TWO: [0, 1]}]
    driver.grant()
    for member in ("a", "b", "a", "b"):
        driver.heartbeat(member)
    assert driver.covered == {TWO: {0, 1}}
    state = driver.shard.shares.known_group(GROUP).state
    assert set(state.initialized) == {TWO}
    assert not state.initializing


def test_state_whose_beginning_got_lost_is_asked_for_again() -> None:
    """No answer of a share coordinator: the group asks again after its interval, and not before."""
    driver = Driver(group_share_initialize_retry_interval_ms=5000)
    driver.create("queue", 2, ONE)
    driver.heartbeat("a", names=["queue"])
    assert driver.asked == [{ONE: [0, 1]}]
    driver.clock.advance(4000)
    driver.heartbeat("a")
    assert len(driver.asked) == 1
    driver.clock.advance(2000)
    driver.heartbeat("a")
    assert len(driver.asked) == 2
    driver.grant()
    driver.heartbeat("a")
    driver.heartbeat("a")
    assert driver.covered == {ONE: {0, 1}}
    driver.clock.advance(60_000)
    driver.heartbeat("a", epoch=0, names=["queue"])
    assert driver.asked == []


def test_members_with_wrong_epochs_are_fenced_and_change_nothing() -> None:
    """Too high, too low, negative or unknown: an error, and no record."""
    driver = Driver()
    driver.create("queue", 2, ONE)
    driver.settle(["a", "b"])
    epoch, end = driver.epochs["a"], driver.coordinator.partition.end_offset
    for wrong in (epoch + 1, epoch - 1, 0x7FFFFFFF):
        answer = driver.heartbeat("a", epoch=wrong)
        assert answer.error_code == ErrorCode.FENCED_MEMBER_EPOCH, wrong
    for member, wrong in (("c", 1), ("c", epoch), ("c", -1)):
        assert driver.heartbeat(member, epoch=wrong).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.coordinator.partition.end_offset == end
    assert driver.heartbeat("a", epoch=epoch).error_code == 0
    assert driver.covered == {ONE: {0, 1}}


def test_partitions_that_are_added_are_begun_and_assigned() -> None:
    """Also when a settled group has remembered that all was begun."""
    driver = Driver()
    driver.create("queue", 2, ONE)
    driver.settle(["a", "b"])
    driver.create("queue", 5, ONE)
    driver.heartbeat("a")
    assert driver.asked == [{ONE: [2, 3, 4]}]
    driver.grant()
    for member in ("a", "b", "a", "b"):
        driver.heartbeat(member)
    assert driver.covered == {ONE: {0, 1, 2, 3, 4}}

"""Groups through a whole broker in memory: what was answered is still there after any restart."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.coordinators import offsets_topic, transactions_topic
from ottla.cluster.requests import NewTopic
from ottla.coordinator.coordinator_partition import CoordinatorState
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.settings import Settings
from ottla.wire.api.delete_groups import DeleteGroupsRequest
from ottla.wire.api.delete_topics import DeleteTopicsRequest
from ottla.wire.api.describe_groups import DescribeGroupsRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.api.list_groups import ListGroupsRequest
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.api.offset_fetch import OffsetFetchRequest
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.errors import ErrorCode
from tests import needs
from tests.broker.harness import Answer, BrokerHarness

SEEDS = needs.rounds(12, 200)
EVENTS = 60
GROUPS = ("g", "h", "simple")


def open_harness(disk: SimulatedDisk, **options: Any) -> BrokerHarness:
    settings: dict[str, Any] = {
        "offsets.topic.num.partitions": 2,
        "group.initial.rebalance.delay.ms": 0,
    }
    return BrokerHarness(disk=disk, **{**settings, **options})


class Life:
    """Random members of a few groups; keeps the member ids that it was given."""

    def __init__(self, harness: BrokerHarness, chance: random.Random) -> None:
        self.harness = harness
        self.chance = chance
        self.members: dict[str, list[str]] = {group: [] for group in GROUPS}
        self.joins: list[tuple[str, Answer]] = []

    def step(self) -> None:
        group = self.chance.choice(GROUPS[:2])
        what = self.chance.choice(
            ("join", "join", "join", "sync", "sync", "leave", "commit", "commit", "forget",
             "delete", "time", "simple")
        )  # fmt: skip
        getattr(self, what)(group)
        self.harness.settle()
        self.learn()

    def learn(self) -> None:
        for group, answer in self.joins:
            if answer.ready and answer.response.member_id:
                known = self.members[group]
                if answer.response.member_id not in known:
                    known.append(answer.response.member_id)

    def member(self, group: str) -> str:
        return self.chance.choice([*self.members[group][-3:], ""])

    def join(self, group: str) -> None:
        static = self.chance.random() < 0.3
        request = JoinGroupRequest(
            group_id=group,
            member_id="" if static else self.member(group),
            group_instance_id=self.chance.choice("ab") if static else None,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0")],
        )
        self.joins.append(
            (group, self.harness.post(request, self.chance.choice((3, 9)) if not static else 9))
        )

    def sync(self, group: str) -> None:
        shown = self.describe(group)
        for each in shown.members:
            request = SyncGroupRequest(
                group_id=group,
                generation_id=self.generation(group),
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                assignments=[
                    SyncGroupRequestAssignment(
                        member_id=other.member_id, assignment=self.chance.randbytes(5)
                    )
                    for other in shown.members
                ],
            )
            self.harness.post(request, 4)

    def generation(self, group: str) -> int:
        coordinator = self.harness.broker.coordinators.groups.coordinator_for(group)
        assert not isinstance(coordinator, ErrorCode)
        found = coordinator.shard.groups.get(group)
        return found.generation_id if found is not None else -1

    def leave(self, group: str) -> None:
        identity = MemberIdentity(member_id=self.member(group))
        self.harness.post(LeaveGroupRequest(group_id=group, members=[identity]), 4)

    def commit(self, group: str) -> None:
        request = commit_request(group, self.chance.randrange(4), self.chance.randrange(1000))
        request.member_id = self.member(group)
        request.generation_id_or_member_epoch = self.generation(group) if request.member_id else -1
        self.harness.post(request, 8)

    def simple(self, _: str) -> None:
        index, offset = self.chance.randrange(4), self.chance.randrange(1000)
        self.harness.post(commit_request("simple", index, offset), 9)

    def forget(self, group: str) -> None:
        partition = OffsetDeleteRequestPartition(partition_index=self.chance.randrange(4))
        topic = OffsetDeleteRequestTopic(name="t", partitions=[partition])
        self.harness.post(OffsetDeleteRequest(group_id=group, topics=[topic]), 0)

    def delete(self, group: str) -> None:
        self.harness.post(DeleteGroupsRequest(groups_names=[group]), 2)

    def time(self, group: str) -> None:
        for member in self.members[group][-2:]:
            request = HeartbeatRequest(
                group_id=group, generation_id=self.generation(group), member_id=member
            )
            self.harness.post(request, 4)
        self.harness.advance(self.chance.choice((10, 6000, 12_000)))

    def describe(self, group: str) -> Any:
        return self.harness.ask(DescribeGroupsRequest(groups=[group]), 5).groups[0]


def commit_request(group: str, index: int, offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(
        partition_index=index, committed_offset=offset, committed_metadata=f"at {offset}"
    )
    return OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])]
    )


def lasting(harness: BrokerHarness) -> dict[str, Any]:
    """What must survive: offsets of every group; of settled groups members and assignments."""
    found: dict[str, Any] = {}
    for group in GROUPS:
        offsets = harness.ask(OffsetFetchRequest(group_id=group, topics=None), 7)
        found[f"{group} offsets"] = [
            (each.partition_index, each.committed_offset, each.metadata)
            for topic in offsets.topics
            for each in topic.partitions
        ]
        shown = harness.ask(DescribeGroupsRequest(groups=[group]), 5).groups[0]
        if shown.group_state in ("Stable", "Empty", "Dead"):
            found[group] = (shown.group_state, shown.protocol_type, shown.protocol_data, sorted(
                (each.member_id, each.group_instance_id, each.client_id, each.client_host,
                 bytes(each.member_metadata), bytes(each.member_assignment))
                for each in shown.members
            ))  # fmt: skip
    return found


def wait_until_loaded(harness: BrokerHarness) -> None:
    for _ in range(1000):
        if not harness.ask(ListGroupsRequest(), 4).error_code:
            return
        harness.simulation.step()
    raise AssertionError("loading takes for ever")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_replay_gives_the_same_state(seed: int) -> None:
    """After any order of events, a stop or a kill and a start: nothing answered is missing."""
    chance = random.Random(seed)
    disk = SimulatedDisk()
    harness = open_harness(disk)
    harness.create("t", 4)
    harness.ask(FindCoordinatorRequest(key="g"), 3)
    for _ in range(3):
        life = Life(harness, chance)
        for _ in range(EVENTS):
            life.step()
        before = lasting(harness)
        if chance.random() < 0.5:
            disk.kill()
            harness.kill()
        else:
            harness.close()
        harness = open_harness(disk)
        wait_until_loaded(harness)
        after = lasting(harness)
        for key, value in before.items():
            assert after.get(key) == value, f"seed {seed}: {key}"
    harness.close()


def test_answers_wait_for_the_flush() -> None:
    """With log.flush.before.ack a commit is answered when it is on the disk, and reads wait too."""
    disk = SimulatedDisk()
    harness = open_harness(disk, **{"log.flush.before.ack": "true"})
    harness.create("t", 4)
    harness.ask(FindCoordinatorRequest(key="g"), 3)
    coordinator = harness.broker.coordinators.groups.coordinator_for("g")
    assert not isinstance(coordinator, ErrorCode)
    commit = harness.post(commit_request("g", 0, 7), 8)
    read = harness.post(OffsetFetchRequest(group_id="g", topics=None), 7)
    assert not commit.ready
    assert not read.ready
    harness.settle()
    assert commit.ready
    assert coordinator.partition.log.recovery_point == coordinator.partition.log.end_offset
    assert read.response.topics[0].partitions[0].committed_offset == 7
    disk.crash(1)
    harness.kill()
    harness = open_harness(disk, **{"log.flush.before.ack": "true"})
    wait_until_loaded(harness)
    assert lasting(harness)["g offsets"] == [(0, 7, "at 7")]
    harness.close()


@pytest.mark.parametrize("operation", ["open", "read", "write"])
def test_groups_return_once_descriptors_are_free(operation: str) -> None:
    """A coordinator whose log could not be opened, read or written for want of a descriptor, also
    while it was loaded again, is there again soon after, with what was committed.
    """
    disk = SimulatedDisk()
    harness = open_harness(disk)
    harness.create("t", 4)
    disk.fail(operation, "__consumer_offsets", errno.EMFILE, times=1)
    harness.ask(FindCoordinatorRequest(key="g"), 3)
    harness.advance(1100)
    disk.heal()
    assert harness.ask(commit_request("g", 0, 7), 8).topics[0].partitions[0].error_code == 0
    for each in ("open", "read", "write"):
        disk.fail(each, "__consumer_offsets", errno.EMFILE)
    assert harness.ask(commit_request("g", 0, 8), 8).topics[0].partitions[0].error_code != 0
    harness.advance(5000)
    disk.heal()
    harness.advance(1100)
    assert lasting(harness)["g offsets"] == [(0, 7, "at 7")]
    assert harness.ask(commit_request("g", 0, 9), 8).topics[0].partitions[0].error_code == 0
    harness.close()
    disk.fail("open", "__consumer_offsets", errno.EMFILE)
    harness = open_harness(disk)
    assert harness.ask(commit_request("g", 0, 10), 8).topics[0].partitions[0].error_code != 0
    disk.heal()
    harness.advance(1100)
    assert lasting(harness)["g offsets"] == [(0, 9, "at 9")]
    harness.close()


def test_requests_while_loading_get_a_retriable_error() -> None:
    """COORDINATOR_LOAD_IN_PROGRESS, except for a heartbeat, which has no error."""
    harness = open_harness(SimulatedDisk())
    harness.create("t", 4)
    harness.ask(FindCoordinatorRequest(key="g"), 3)
    coordinators = list(harness.broker.coordinators.groups.runtime.all_active())
    for coordinator in coordinators:
        coordinator.state = CoordinatorState.LOADING
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    answer = harness.post(commit_request("g", 0, 8), 8).response
    assert answer.topics[0].partitions[0].error_code == loading
    assert (
        harness.post(OffsetFetchRequest(group_id="g", topics=None), 7).response.error_code
        == loading
    )
    assert harness.post(ListGroupsRequest(), 4).response.error_code == loading
    assert harness.post(HeartbeatRequest(group_id="g"), 4).response.error_code == 0
    for coordinator in coordinators:
        coordinator.state = CoordinatorState.ACTIVE
    assert harness.ask(commit_request("g", 0, 8), 8).topics[0].partitions[0].error_code == 0
    harness.close()


def test_the_offsets_topic_is_as_kafka_makes_it() -> None:
    """Its name, its number of partitions, one replica here, and its configs."""
    harness = BrokerHarness()
    harness.ask(FindCoordinatorRequest(key="g"), 3)
    topic = harness.broker.image.topics["__consumer_offsets"]
    assert len(topic.partitions) == 50
    assert {len(each.replicas) for each in topic.partitions} == {1}
    assert harness.broker.image.topic_configs["__consumer_offsets"] == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(100 * 1024 * 1024),
    }
    harness.close()


@pytest.mark.parametrize("topic", [offsets_topic, transactions_topic])
def test_internal_topics_have_as_many_replicas_as_their_options_say(
    topic: Callable[[Settings], NewTopic],
) -> None:
    """Where several brokers form a cluster; one that is a cluster of its own has one replica."""
    with open_harness(SimulatedDisk()) as harness:
        for key_type in (0, 1):
            harness.ask(FindCoordinatorRequest(key="g", key_type=key_type), 3)
        name = topic(harness.broker.settings).name
        replicas = {each.replicas for each in harness.broker.image.topics[name].partitions}
        assert replicas == {(harness.broker.node_id,)}
    assert topic(Settings.from_properties({})).replication_factor == 3
    factors = {
        "offsets.topic.replication.factor": 2,
        "transaction.state.log.replication.factor": 2,
    }
    assert topic(Settings.from_properties(factors)).replication_factor == 2


def test_deleted_topics_take_their_offsets_with_them() -> None:
    """A topic made again under the same name does not inherit the old one's offsets."""
    harness = open_harness(SimulatedDisk())
    harness.create("t", 4)
    harness.ask(FindCoordinatorRequest(key="g"), 3)
    harness.ask(commit_request("g", 0, 7), 8)
    harness.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    harness.settle()
    harness.create("t", 4)
    assert lasting(harness)["g offsets"] == []
    harness.close()


def test_groups_and_offsets_are_counted() -> None:
    """Under the names of Kafka's MBeans."""
    harness = open_harness(SimulatedDisk())
    harness.create("t", 4)
    harness.ask(FindCoordinatorRequest(key="g"), 3)
    for index in range(3):
        harness.ask(commit_request("g", index, 7), 8)
    text = harness.broker.metrics.text()
    for line in ("NumGroups 1", "NumGroupsEmpty 1", "NumGroupsStable 0", "NumOffsets 3"):
        assert f"kafka_coordinator_group_GroupMetadataManager_{line}\n" in text
    harness.close()

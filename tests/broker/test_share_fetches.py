"""Share groups on one broker (KIP-932): what members hold, lose and get again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.broker.dispatch import Peer
from ottla.broker.shares.acknowledgements import ACCEPT, RELEASE
from ottla.broker.shares.sessions import SESSION_PARTITIONS_MAX
from ottla.wire.api import share_acknowledge as saying
from ottla.wire.api import share_fetch as fetching
from ottla.wire.api.delete_groups import DeleteGroupsRequest
from ottla.wire.api.delete_topics import DeleteTopicsRequest
from ottla.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.wire.errors import ErrorCode
from tests.broker.harness import Answer, BrokerHarness

GROUP_RESOURCE, SET = 32, 0
LOCK_MS = 1000
SETTINGS: dict[str, object] = {
    "offsets_topic_num_partitions": 1,
    "share_coordinator_state_topic_num_partitions": 1,
    "group_share_min_record_lock_duration_ms": LOCK_MS,
    "group_share_record_lock_duration_ms": LOCK_MS,
    "group_share_assignment_interval_ms": 0,
    "group_share_max_size": 1000,
}
Acquired = list[tuple[int, int, int]]


class Member:
    """One member with its connection and its share session."""

    def __init__(self, harness: BrokerHarness, group: str, name: str, topic: str) -> None:
        self.harness = harness
        self.group = group
        self.id = name.ljust(16, "-")
        self.topic = topic
        self.peer = Peer("PLAINTEXT", f"127.0.0.1:{name}")
        self.member_epoch = 0
        self.epoch = 0

    def heartbeat(self, epoch: int | None = None) -> int:
        asked = self.member_epoch if epoch is None else epoch
        response = self.harness.ask(
            ShareGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.id,
                member_epoch=asked,
                subscribed_topic_names=[self.topic] if not asked else None,
            ),
            1,
        )
        self.member_epoch = response.member_epoch
        self.harness.settle()
        return int(response.error_code)

    def join(self) -> Member:
        for _ in range(3):
            assert not self.heartbeat()
        return self

    def post(self, *partitions: int, topic_id: bytes = b"", **fields: Any) -> Answer:
        """Ask for records of these partitions of the topic, or of those of the session."""
        topic_id = topic_id or self.harness.broker.image.topics[self.topic].id
        wanted = [fetching.FetchPartition(partition_index=each) for each in partitions]
        request = fetching.ShareFetchRequest(
            **{
                "group_id": self.group,
                "member_id": self.id,
                "share_session_epoch": self.epoch,
                "max_records": 500,
                "batch_size": 500,
                "max_bytes": 1 << 20,
                "topics": [fetching.FetchTopic(topic_id=topic_id, partitions=wanted)]
                if wanted
                else [],
                **fields,
            }
        )
        self.epoch += 1
        return self.harness.post(request, 2, peer=self.peer)

    def fetch(self, *partitions: int, **fields: Any) -> Acquired:
        answer = self.post(*partitions, **{"max_wait_ms": 10, **fields})
        if not answer.ready:
            self.harness.advance(10)  # loading its state takes some turns of the loop
        return acquired_in(answer.response)

    def say(self, kind: int, records: Iterable[tuple[int, int]], partition: int = 0) -> int:
        """Say the same of ranges of records; the partition's error."""
        batches = [
            saying.AcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=[kind]
            )
            for first, last in records
        ]
        topic_id = self.harness.broker.image.topics[self.topic].id
        part = saying.AcknowledgePartition(
            partition_index=partition, acknowledgement_batches=batches
        )
        request = saying.ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.id,
            share_session_epoch=self.epoch,
            topics=[saying.AcknowledgeTopic(topic_id=topic_id, partitions=[part])],
        )
        self.epoch += 1
        response = self.harness.ask(request, 2, peer=self.peer)
        assert not response.error_code, ErrorCode(response.error_code)
        return int(response.responses[0].partitions[0].error_code)


def acquired_in(response: Any) -> Acquired:
    assert not response.error_code, ErrorCode(response.error_code)
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in response.responses
        for partition in topic.partitions
        for each in partition.acquired_records
    ]


def errors_in(response: Any) -> set[int]:
    return {part.error_code for topic in response.responses for part in topic.partitions}


def configure(harness: BrokerHarness, group: str, **configs: object) -> None:
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=GROUP_RESOURCE,
                resource_name=group,
                configs=[
                    AlterableConfig(
                        name=name.replace("_", "."), config_operation=SET, value=str(value)
                    )
                    for name, value in configs.items()
                ],
            )
        ]
    )
    response = harness.ask(request, 1)
    assert response.responses[0].error_code == 0, response.responses[0].error_message
    harness.settle()


def a_queue(harness: BrokerHarness, records: int, group: str = "g", topic: str = "queue") -> Member:
    """A topic with so many records in batches of ten, and the first member of its group."""
    for service in (harness.broker.coordinators.groups, harness.broker.coordinators.shares):
        harness.run(service.make_topic())
    harness.settle()
    harness.create(topic)
    for _ in range(0, records, 10):
        harness.produce(topic, 0, *[b"v"] * 10)
    configure(harness, group, share_auto_offset_reset="earliest")
    return Member(harness, group, "a", topic).join()


def test_who_takes_and_never_says_anything_holds_no_more_than_the_limit() -> None:
    """Not in memory either; the records come again until their last attempt, then others follow."""
    with BrokerHarness(**SETTINGS) as harness:
        one = a_queue(harness, 400)
        configure(harness, "g", share_partition_max_record_locks=100)
        assert one.fetch(0, max_records=1000) == [(0, 99, 1)]
        assert one.fetch() == []
        window = next(
            iter(harness.broker.coordinators.share_manager._partitions.values())
        ).in_flight
        seen = 0
        for _ in range(1000):
            harness.advance(LOCK_MS + 1)
            found = one.fetch(max_records=1000)
            assert window.count <= 100
            assert len(window.segments) <= 101
            assert all(1 <= count <= 5 for _, _, count in found)
            seen = max([seen, *(last for _, last, _ in found)])
            if seen == 399:
                break
        assert seen == 399


def test_a_jump_of_the_wall_clock_ends_no_lock() -> None:
    """Locks last as long as they last, whatever the clock on the wall says."""
    with BrokerHarness(**SETTINGS) as harness:
        one = a_queue(harness, 10)
        two = Member(harness, "g", "b", "queue").join()
        assert one.fetch(0) == [(0, 9, 1)]
        for jump_ms in (3_600_000, -7_200_000):
            harness.node.clock.jump_wall(jump_ms)
            harness.advance(LOCK_MS / 4)
            assert two.fetch(0) == [] if not two.epoch else two.fetch() == []
        assert one.say(ACCEPT, [(0, 4)]) == 0
        harness.advance(LOCK_MS)
        assert two.fetch() == [(5, 9, 2)]
        assert one.say(ACCEPT, [(5, 9)]) == ErrorCode.INVALID_RECORD_STATE


def test_limits_that_are_lowered_beneath_a_group_take_nothing_away() -> None:
    """Who has more than is allowed now may say so; nobody gets more until it is little enough."""
    with BrokerHarness(**SETTINGS) as harness:
        one = a_queue(harness, 400)
        two = Member(harness, "g", "b", "queue").join()
        assert one.fetch(0) == [(0, 399, 1)]
        configure(harness, "g", share_partition_max_record_locks=100)
        configure(harness, "g", share_delivery_count_limit=2)
        harness.produce("queue", 0, *[b"v"] * 10)
        assert two.fetch(0) == []
        assert one.say(ACCEPT, [(0, 299)]) == 0
        assert two.fetch() == []
        assert one.say(RELEASE, [(300, 309)]) == 0
        assert two.fetch() == [(300, 309, 2)]
        assert one.say(ACCEPT, [(310, 399)]) == 0
        assert two.say(ACCEPT, [(300, 309)]) == 0
        assert two.fetch() == [(400, 409, 1)]


def test_a_topic_that_is_deleted_beneath_its_members() -> None:
    """A fetch that waits is answered, what is said of the records is refused; a new topic of the
    same name is read from its beginning."""
    with BrokerHarness(**SETTINGS) as harness:
        one = a_queue(harness, 10)
        assert one.fetch(0) == [(0, 9, 1)]
        old = harness.broker.image.topics["queue"].id
        waiting = one.post(max_wait_ms=60_000)
        assert not waiting.ready
        response = harness.ask(DeleteTopicsRequest(topic_names=["queue"], timeout_ms=1000), 5)
        assert response.responses[0].error_code == 0
        harness.settle()
        assert waiting.ready
        assert errors_in(waiting.response) - {0}
        harness.create("queue")
        harness.produce("queue", 0, b"new")
        for _ in range(3):
            assert not one.heartbeat()
        gone = fetching.ForgottenTopic(topic_id=old, partitions=[0])
        assert one.fetch(0, forgotten_topics_data=[gone]) == [(0, 0, 1)]
        assert one.say(ACCEPT, [(0, 0)]) == 0
        assert len(harness.broker.coordinators.share_manager._partitions) == 1


def test_a_group_that_is_deleted_while_somebody_still_reads() -> None:
    """What a left-over session holds is nobody's; the group that comes after it begins anew."""
    with BrokerHarness(**SETTINGS) as harness:
        ghost = a_queue(harness, 20)
        assert ghost.fetch(0, max_records=10) == [(0, 9, 1)]
        assert ghost.say(ACCEPT, [(0, 4)]) == 0
        assert ghost.heartbeat(-1) == 0
        response = harness.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
        assert response.results[0].error_code == 0
        harness.settle()
        # There is nothing any more in which this could be kept.
        assert ghost.say(ACCEPT, [(5, 9)]) != 0
        heir = Member(harness, "g", "b", "queue").join()
        assert heir.fetch(0) == [(0, 19, 1)]
        assert heir.say(ACCEPT, [(0, 19)]) == 0


def test_acknowledgements_that_contradict_themselves_change_nothing() -> None:
    """Overlapping, unordered, empty or endless: an error, and the member has its records."""
    with BrokerHarness(**SETTINGS) as harness:
        one = a_queue(harness, 20)
        assert one.fetch(0) == [(0, 19, 1)]
        for wrong in (
            [(0, 4), (3, 6)],
            [(5, 9), (0, 4)],
            [(9, 5)],
            [(0, 20)],
            [(0, (1 << 63) - 1)],
            [(-5, 3)],
        ):
            assert one.say(ACCEPT, wrong) != 0, wrong
        for kind in (-1, 5, 127):
            assert one.say(kind, [(0, 3)]) == ErrorCode.INVALID_REQUEST
        assert one.say(ACCEPT, [(0, 19)]) == 0
        assert one.say(ACCEPT, [(0, 19)]) == 0  # before the start of the window: said already


def test_a_session_of_partitions_that_never_were() -> None:
    """A client may name what it wants, but not for ever more of it."""
    with BrokerHarness(**SETTINGS) as harness:
        one = a_queue(harness, 10)
        session_of = harness.broker.coordinators.share_manager.sessions.get
        for number in range(200):
            topic_id = number.to_bytes(16, "big")
            answer = one.post(*range(1000), topic_id=topic_id)
            session = session_of("g", one.id)
            assert session is not None
            assert len(session.partitions) <= SESSION_PARTITIONS_MAX
        assert answer.response.error_code == ErrorCode.INVALID_REQUEST
        assert len(session.partitions) == SESSION_PARTITIONS_MAX
        # The session goes on with what it has.
        forgotten = [
            fetching.ForgottenTopic(topic_id=topic_id, partitions=list(range(1000)))
            for topic_id, _ in list(session.partitions)[::1000]
        ]
        assert one.fetch(0, forgotten_topics_data=forgotten) == [(0, 9, 1)]

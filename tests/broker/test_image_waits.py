"""Requests that wait a moment for the feed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ottla.broker.fenced_lately import LISTED_S
from ottla.broker.image_waits import ASKED_AGAIN_S
from ottla.testing.simulation.connection import Connection
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, write_batch
from tests.broker.cluster_harness import (
    Cluster,
    led_by,
    read,
)
from tests.broker.harness import produce_request


def commit_request(group_id: str, offsets: Mapping[bytes, int]) -> OffsetCommitRequest:
    """Of a group without members, by topic id."""
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        topics=[
            OffsetCommitRequestTopic(
                topic_id=topic_id,
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=each)],
            )
            for topic_id, each in offsets.items()
        ],
    )


class TestEarlyRequests:
    """What names something that this broker has not heard of waits for the feed, a moment."""

    def test_a_new_topic_id_is_waited_for(self) -> None:
        """Metadata, Fetch and Produce by an id that reaches the broker after the request."""
        with Cluster(2) as cluster:
            slow = cluster.slow_feed(2, 0.1)
            created = cluster.create("t", 1, 2, through=1, replicas=(2, 1))
            assert "t" not in cluster.image(2).topics
            topic_id = created.topic_id
            batch = write_batch([Record(b"a", timestamp=cluster.client.clock.now_ms())])
            partition = PartitionProduceData(index=0, records=batch)
            produced = ProduceRequest(
                acks=-1,
                timeout_ms=1000,
                topic_data=[TopicProduceData(topic_id=topic_id, partition_data=[partition])],
            )
            answer = cluster.ask(2, produced, 13)
            assert answer.responses[0].partition_responses[0].error_code == 0
            assert slow.delayed, "the request was there before the topic"
            assert read(cluster, 2) == ["a"]

            other = cluster.create("u", 1, 2, through=1, replicas=(2, 1)).topic_id
            assert "u" not in cluster.image(2).topics
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=other)])
            [topic] = cluster.ask(2, asked, 12).topics
            assert (topic.error_code, topic.name) == (0, "u")

            third = cluster.create("v", 1, 2, through=1, replicas=(2, 1)).topic_id
            fetched = FetchRequest(
                topics=[FetchTopic(topic_id=third, partitions=[FetchPartition(partition=0)])]
            )
            assert "v" not in cluster.image(2).topics
            assert cluster.ask(2, fetched, 13).responses[0].partitions[0].error_code == 0

    def test_offsets_of_a_new_topic_id_are_waited_for(self) -> None:
        """OffsetCommit and OffsetFetch by an id that reaches the coordinator after the request."""
        with Cluster(2, offsets_topic_replication_factor=1) as cluster:
            names = [f"g{number}" for number in range(50)]
            asked = FindCoordinatorRequest(key_type=0, coordinator_keys=names)
            found = cluster.ask(1, asked, 4).coordinators
            group_id = next(each.key for each in found if each.node_id == 2)
            cluster.slow_feed(2, 0.1)
            others = cluster.create("known", 1, 2, through=1, replicas=(2, 1)).topic_id
            cluster.wait(lambda: "known" in cluster.image(2).topics)

            def created(name: str) -> bytes:
                topic_id = cluster.create(name, 1, 2, through=1, replicas=(2, 1)).topic_id
                assert name not in cluster.image(2).topics
                return bytes(topic_id)

            topic_id = created("t")
            first = commit_request(group_id, {topic_id: 7, others: 1})
            second = commit_request(group_id, {others: 2})

            async def commit() -> list[Any]:
                connection = await Connection.open(cluster.client, "broker2")
                answers = await asyncio.gather(
                    connection.ask(first, 10), connection.ask(second, 10)
                )
                connection.close()
                return answers

            for answer in cluster.run(cluster.client, commit()):
                assert [topic.partitions[0].error_code for topic in answer.topics] == [0] * len(
                    answer.topics
                )
            topics = [
                OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0])
                for each in (topic_id, others, created("u"))
            ]
            wanted = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)]
            )
            [group] = cluster.ask(2, wanted, 10).groups
            offsets = [topic.partitions[0] for topic in group.topics]
            assert [each.error_code for each in offsets] == [0, 0, 0]
            # In the order of the requests, though the first had to wait.
            assert [each.committed_offset for each in offsets] == [7, 2, -1]

    def test_an_id_that_nobody_has_is_waited_for_in_vain(self) -> None:
        """The answer is Kafka's, after a fraction of a second."""
        with Cluster(2) as cluster:
            before_s = cluster.simulation.now_s
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=b"x" * 16)])
            [topic] = cluster.ask(2, asked, 12).topics
            assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_ID
            assert 0.2 <= cluster.simulation.now_s - before_s < 0.3

    def test_a_new_leader_epoch_is_waited_for(self) -> None:
        """A consumer that has it from another broker gets no error."""
        with Cluster(3) as cluster:
            assert cluster.create("t", 1, 3, through=1, replicas=(2, 3, 1)).error_code == 0
            cluster.wait(lambda: led_by(cluster, 2, seen_by=2))
            cluster.wait(lambda: cluster.images_agree((1, 2, 3)))
            cluster.slow_feed(3, 0.1)
            cluster.brokers[2].crash()
            cluster.wait(lambda: cluster.partition("t").leader in (1, 3))
            assert cluster.partition("t").leader == 3
            epoch = cluster.partition("t").leader_epoch
            assert cluster.partition("t", seen_by=3).leader_epoch < epoch
            wanted = ListOffsetsPartition(
                partition_index=0, current_leader_epoch=epoch, timestamp=-2
            )
            asked = ListOffsetsRequest(
                topics=[ListOffsetsTopic(name="t", partitions=[wanted])], replica_id=-1
            )
            [topic] = cluster.ask(3, asked, 7).topics
            assert topic.partitions[0].error_code == 0

    def test_a_record_for_the_next_leader_waits_until_that_knows_it(self) -> None:
        """Another broker has told the client who leads now: it gets no error, whose pause it would
        have to wait for. Who can become no leader refuses at once."""
        with Cluster(3) as cluster:
            assert cluster.create("t", 1, 3, through=1, replicas=(2, 3, 1)).error_code == 0
            cluster.slow_feed(3, 0.1)  # from the poll after the one under way
            assert cluster.create("u", 1, 2, through=1, replicas=(2, 1)).error_code == 0
            cluster.wait(lambda: "u" in cluster.image(3).topics)
            cluster.simulation.run_for(1)
            cluster.brokers[2].crash()
            cluster.wait(lambda: cluster.partition("t").leader in (1, 3))
            assert cluster.partition("t").leader == 3
            assert led_by(cluster, 2, seen_by=3), "it does not know yet"
            batch = write_batch([Record(b"a", timestamp=cluster.client.clock.now_ms())])
            elsewhere = cluster.ask(3, produce_request("u", 0, batch), 9)
            refused = elsewhere.responses[0].partition_responses[0].error_code
            assert refused == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert led_by(cluster, 2, seen_by=3), "that was refused at once"
            answer = cluster.ask(3, produce_request("t", 0, batch), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
            assert read(cluster, 3) == ["a"]

    def test_metadata_does_not_name_a_leader_that_has_just_died(self) -> None:
        """Who asks a follower of the dead one learns of the next leader, once there is one."""
        with Cluster(3) as cluster:
            assert cluster.create("t", 1, 3, through=1, replicas=(2, 3, 1)).error_code == 0
            cluster.wait(lambda: led_by(cluster, 2, seen_by=3))
            cluster.simulation.run_for(1)
            cluster.brokers[2].crash()
            cluster.simulation.run_for(0.002)
            assert led_by(cluster, 2, seen_by=3), "it does not know yet"
            asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
            [topic] = cluster.ask(3, asked, 9).topics
            assert topic.partitions[0].leader_id in (1, 3)

    def test_who_asks_again_may_know_of_a_death_before_this_broker(self) -> None:
        """A client's second question about the same topic waits for what the broker learns next."""
        with Cluster(3) as cluster:
            assert cluster.create("t", 1, 3, through=1, replicas=(2, 3, 1)).error_code == 0
            cluster.wait(lambda: led_by(cluster, 2, seen_by=3))
            cluster.simulation.run_for(1)
            asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
            connection = cluster.run(cluster.client, Connection.open(cluster.client, "broker3"))
            [topic] = cluster.run(cluster.client, connection.ask(asked, 9)).topics
            assert topic.partitions[0].leader_id == 2
            again = [cluster.client.task(connection.ask(asked, 9)) for _ in range(2)]
            cluster.simulation.run_for(0.0003)  # they are under way, and overtake the news
            cluster.brokers[2].crash()
            before_s = cluster.simulation.now_s
            cluster.wait(lambda: all(each.done() for each in again))
            for each in again:
                assert each.result().topics[0].partitions[0].leader_id in (1, 3)
            assert cluster.simulation.now_s - before_s < 0.1  # no longer than the election

    def test_who_asks_again_is_answered_though_nothing_happens(self) -> None:
        """After a moment, and at once when it asks about something else."""
        with Cluster(2) as cluster:
            assert cluster.create("t", 1, 2, through=1, replicas=(2, 1)).error_code == 0
            cluster.wait(lambda: led_by(cluster, 2, seen_by=1))
            connection = cluster.run(cluster.client, Connection.open(cluster.client, "broker1"))
            taken_s = []
            for name in ("t", "t", "u", "t", "t"):
                asked = MetadataRequest(
                    topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
                )
                before_s = cluster.simulation.now_s
                cluster.run(cluster.client, connection.ask(asked, 9))
                taken_s.append(cluster.simulation.now_s - before_s)
            waited = [seconds >= ASKED_AGAIN_S for seconds in taken_s]
            assert waited == [False, True, False, False, True]
            assert max(taken_s) < 2 * ASKED_AGAIN_S


def test_a_broker_that_died_is_listed_for_a_moment() -> None:
    """Its partitions have other leaders by then: librdkafka moves them before it drops the broker.

    Who has it dropped with its partitions writes nothing for up to a second.
    """
    with Cluster(3) as cluster:
        assert cluster.create("t", 1, 3, through=1, replicas=(2, 3, 1)).error_code == 0
        cluster.wait(lambda: led_by(cluster, 2, seen_by=3))
        cluster.brokers[2].crash()
        cluster.wait(lambda: cluster.image(3).brokers[2].fenced)
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        answer = cluster.ask(3, asked, 9)
        assert {each.node_id for each in answer.brokers} == {1, 2, 3}
        [partition] = answer.topics[0].partitions
        assert partition.leader_id in (1, 3)
        assert partition.offline_replicas == [2]
        cluster.simulation.run_for(LISTED_S)
        assert {each.node_id for each in cluster.ask(3, asked, 9).brokers} == {1, 3}

"""Partitions by their offsets: where they begin and end, what was written when, deletion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..errors import raise_for
from ..structs import OffsetAndTimestamp, TopicPartition
from .base import AdminBase, by_topic
from .types import OffsetSpec, OffsetTimestamp

if TYPE_CHECKING:
    from ottla.wire.api.delete_records import DeleteRecordsResponse
    from ottla.wire.api.list_offsets import ListOffsetsResponse

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
# Kafka's debugging consumer: asks about the replica of the broker that it asks, whoever leads.
ANY_REPLICA = -2


class Records(AdminBase):
    """The part of the admin that knows offsets of partitions."""

    def list_partition_offsets(
        self,
        topic_partition_specs: Mapping[TopicPartition, OffsetSpec | OffsetTimestamp | int],
        isolation_level: int | str = READ_UNCOMMITTED,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """For each partition the offset of a spec (`OffsetSpec.LATEST` …) or a time in ms."""
        from ottla.wire.api.list_offsets import (
            ListOffsetsPartition,
            ListOffsetsRequest,
            ListOffsetsTopic,
        )

        if isinstance(isolation_level, str):
            isolation_level = ("read_uncommitted", "read_committed").index(isolation_level.lower())
        specs = {TopicPartition(*each): int(spec) for each, spec in topic_partition_specs.items()}
        limit_ms = self._timeout(timeout_ms)

        def make(partitions: list[TopicPartition]) -> ListOffsetsRequest:
            return ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(isolation_level),
                topics=[
                    ListOffsetsTopic(
                        name=topic,
                        partitions=[
                            ListOffsetsPartition(
                                partition_index=index, timestamp=specs[TopicPartition(topic, index)]
                            )
                            for index in indexes
                        ],
                    )
                    for topic, indexes in by_topic(partitions).items()
                ],
                timeout_ms=limit_ms,
            )

        return self._ask_leaders(specs, make, _offsets_in, timeout_ms)

    def replica_end_offsets(
        self, broker_id: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Where one broker's replicas end, leaders and followers alike."""
        return self.replica_offsets(broker_id, partitions, OffsetSpec.LATEST)

    def replica_offsets(
        self, broker_id: int, partitions: Iterable[TopicPartition], spec: OffsetSpec
    ) -> dict[TopicPartition, int]:
        """An offset of one broker's replicas, leaders and followers alike.

        Partitions that it cannot tell of (it has no replica, or that is offline) are left out.
        """
        from ottla.wire.api.list_offsets import (
            ListOffsetsPartition,
            ListOffsetsRequest,
            ListOffsetsTopic,
        )

        request = ListOffsetsRequest(
            replica_id=ANY_REPLICA,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=index, timestamp=spec)
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(TopicPartition(*each) for each in partitions).items()
            ],
        )
        return {
            TopicPartition(topic.name, each.partition_index): each.offset
            for topic in self._ask(request, broker_id).topics
            for each in topic.partitions
            if not each.error_code
        }

    def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, int],
        timeout_ms: int | None = None,
        partition_leader_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, int]]:
        """Forget all records below these offsets (-1: all there are); gives the low watermarks."""
        from ottla.wire.api.delete_records import (
            DeleteRecordsPartition,
            DeleteRecordsRequest,
            DeleteRecordsTopic,
        )

        offsets = {TopicPartition(*each): offset for each, offset in records_to_delete.items()}
        limit_ms = self._timeout(timeout_ms)

        def make(partitions: list[TopicPartition]) -> DeleteRecordsRequest:
            return DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name=topic,
                        partitions=[
                            DeleteRecordsPartition(
                                partition_index=index, offset=offsets[TopicPartition(topic, index)]
                            )
                            for index in indexes
                        ],
                    )
                    for topic, indexes in by_topic(partitions).items()
                ],
                timeout_ms=limit_ms,
            )

        if partition_leader_id is not None:
            return _deleted_in(self._ask(make(list(offsets)), partition_leader_id))
        return self._ask_leaders(offsets, make, _deleted_in, timeout_ms)


def _offsets_in(answer: ListOffsetsResponse) -> dict[TopicPartition, OffsetAndTimestamp]:
    found = {}
    for topic in answer.topics:
        for each in topic.partitions:
            raise_for(each.error_code, f"{topic.name}-{each.partition_index}")
            found[TopicPartition(topic.name, each.partition_index)] = OffsetAndTimestamp(
                each.offset, each.timestamp, each.leader_epoch
            )
    return found


def _deleted_in(answer: DeleteRecordsResponse) -> dict[TopicPartition, dict[str, int]]:
    found = {}
    for topic in answer.topics:
        for each in topic.partitions:
            raise_for(each.error_code, f"{topic.name}-{each.partition_index}")
            found[TopicPartition(topic.name, each.partition_index)] = {
                "partition_index": each.partition_index,
                "low_watermark": each.low_watermark,
                "error_code": each.error_code,
            }
    return found

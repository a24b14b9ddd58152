"""What has been delivered to this consumer: opened for the caller, and acknowledged by it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from ottla.wire.api.share_fetch import AcquiredRecords

from ..consumer.deserializers import Deserializers
from ..consumer.fetched_batches import split
from ..errors import SerializationError
from ..structs import ConsumerRecord, TopicPartition
from .structs import GAP, AcknowledgeType, Batch, ShareRecord

READ_VERSION = 12


class Delivered(NamedTuple):
    """Records of one partition as they came, still encoded."""

    partition: TopicPartition
    topic_id: bytes
    records: memoryview
    acquired: Sequence[AcquiredRecords]


class Held:
    """The offsets of one partition that this consumer has, and what it says of them."""

    def __init__(self, partition: TopicPartition, topic_id: bytes) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.offsets: set[int] = set()  # delivered to the caller, nothing said yet
        self.types: dict[int, int] = {}

    def take_batches(self) -> list[Batch]:
        """What is to be sent, as ranges; renewed records stay with the caller."""
        batches: list[Batch] = []
        for offset, kind in sorted(self.types.items()):
            if kind == AcknowledgeType.RENEW:
                self.offsets.add(offset)
            last = batches[-1] if batches else None
            if last is not None and last.last + 1 == offset and last.types == [kind]:
                batches[-1] = last._replace(last=offset)
            else:
                batches.append(Batch(offset, offset, [kind]))
        self.types = {}
        return batches


class Deliveries:
    """Opens what came, in order; belongs to the caller's thread."""

    def __init__(self, deserializers: Deserializers, *, check_crcs: bool) -> None:
        self.held: dict[TopicPartition, Held] = {}
        self._deserializers = deserializers
        self._check_crcs = check_crcs

    def open(self, delivered: Delivered) -> list[ShareRecord]:
        """The records, and notes of the offsets for which there are none.

        A record that cannot be deserialized is rejected: nobody in the group could.
        """
        partition = delivered.partition
        held = self.held.get(partition)
        if held is None or held.topic_id != delivered.topic_id:
            held = self.held[partition] = Held(partition, delivered.topic_id)
        counts: dict[int, int] = {}
        for each in delivered.acquired:
            counts.update(
                dict.fromkeys(range(each.first_offset, each.last_offset + 1), each.delivery_count)
            )
        found: list[ShareRecord] = []
        for record in self._records(delivered, min(counts, default=0)):
            count = counts.pop(record.offset, None)
            if count is None:
                continue
            try:
                record = self._deserializers.applied(record, functions=True)
            except SerializationError:
                held.types[record.offset] = AcknowledgeType.REJECT
                continue
            held.offsets.add(record.offset)
            found.append(ShareRecord(*record, count))
        held.types.update(dict.fromkeys(counts, GAP))
        return found

    def _records(self, delivered: Delivered, first: int) -> Iterator[ConsumerRecord]:
        for batch in split(delivered.records, first, None, READ_VERSION):
            yield from batch.records(
                delivered.partition, first, None, None, check_crc=self._check_crcs
            )

    def acknowledge(self, partition: TopicPartition, offset: int, kind: int) -> bool:
        """Note what the caller says; False if it does not have the record."""
        held = self.held.get(partition)
        if held is None or offset not in held.offsets:
            return False
        held.offsets.discard(offset)
        held.types[offset] = kind
        return True

    def accept_all(self, unseen: Collection[tuple[TopicPartition, int]] = ()) -> None:
        for held in self.held.values():
            kept = {each for each in held.offsets if (held.partition, each) in unseen}
            accepted = held.offsets - kept
            held.types.update(dict.fromkeys(accepted, int(AcknowledgeType.ACCEPT)))
            held.offsets = kept

    def release_all(self) -> None:
        for held in self.held.values():
            held.types.update(dict.fromkeys(held.offsets, int(AcknowledgeType.RELEASE)))
            held.offsets.clear()

    @property
    def has_unsaid(self) -> bool:
        return any(held.offsets for held in self.held.values())

    def take(self) -> list[tuple[Held, list[Batch]]]:
        """All that is to be sent."""
        found = [(held, held.take_batches()) for held in self.held.values() if held.types]
        self.held = {key: held for key, held in self.held.items() if held.offsets or held.types}
        return found

"""Partitions that a Kafka source has of its group, and the offsets that sinks commit for it.

A source reads as a member of a group, which may give its partitions to another agent at any time.
So the offsets are not the agent's: they are committed for the group. A sink that keeps positions
does so in its transactions, as the member that the source is (KIP-447): once the group has given a
partition away its coordinator refuses them, and the transaction fails with its records. The next
owner asks for the offsets and gets no answer while a transaction with them is open.

Each time that a partition comes it is a stream of a new name, a claim; batches of a claim that is
over are dropped, for they are read again by whoever has the partition now.

Behind a file channel a batch has the claim's position beside the channel's own. What the channel
holds when the agent is killed is of claims that are over: it is dropped, and read again.

Where one sink gets all, its offsets are those of the group. Several sinks come to different
offsets: each commits its own for a group of its own, `GROUP-SINK`, and for the source's group the
least of all. That says as well that the partition is still the member's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple
from uuid import uuid4

from ottla.client.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

from .events import FORGET, GROUP_FACT, EventBatch, Position
from .parts import Delivered


class ClaimIsOver(RuntimeError):
    """The group has given a partition to another member; what was read of it is dropped."""


class Commit(NamedTuple):
    """Offsets that go into a transaction, and as whom."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    member: ConsumerGroupMetadata


@dataclass
class Claim:
    """A partition from when it came until it goes."""

    stream: str
    partition: TopicPartition
    start: int  # where reading began: all sinks have what is before
    # Up to where a sink has committed itself, by its name.
    begins: Mapping[str, int] = field(default_factory=dict)
    put: int = -1  # up to where all channels have it


class GroupOffsets:
    """One Kafka source's. Used by its reading thread, the loop and the threads of sinks."""

    def __init__(self, source: str, group: str, sinks: Iterable[str]) -> None:
        """`sinks` are the names of those that commit in their transactions."""
        self.source = source
        self.group = group
        self.sinks = frozenset(sinks)
        self._deliveries: Sequence[Delivered] = ()
        self._waits_for_put = False
        self._claims: dict[str, Claim] = {}
        self._by_partition: dict[TopicPartition, Claim] = {}
        self._member: ConsumerGroupMetadata | None = None
        self._numbers = count()
        self._start = uuid4().hex[:8]  # what a file channel held before is of other claims
        self._lock = threading.Lock()

    def runs_with(self, deliveries: Sequence[Delivered], *, waits_for_put: bool) -> None:
        """What is behind the source's required channels. If some of them keep what was put
        themselves, offsets also wait for that."""
        self._deliveries = deliveries
        self._waits_for_put = waits_for_put

    @property
    def is_shared(self) -> bool:
        """Whether more than one sink must have an offset before it is the group's."""
        names = {each.name for each in self._deliveries}
        return self._waits_for_put or len(names | self.sinks) != 1

    @property
    def commits_itself(self) -> bool:
        """Whether the source commits, too: not all sinks do so in their transactions."""
        return self.is_shared or not self.sinks

    @property
    def all_in_transactions(self) -> bool:
        return not self._waits_for_put and {each.name for each in self._deliveries} <= self.sinks

    def group_of(self, sink: str) -> str:
        """The group whose offsets are this sink's own."""
        return f"{self.group}-{sink}" if self.is_shared else self.group

    # The source

    def is_member(self, member: ConsumerGroupMetadata) -> None:
        """The source is this member now, of this generation."""
        with self._lock:
            self._member = member

    def claim(
        self, partition: TopicPartition, start: int, begins: Mapping[str, int] | None = None
    ) -> Claim:
        """The partition came, and is read from `start`."""
        self.end([partition])
        with self._lock:
            number = f"{self._start}-{next(self._numbers)}"
            stream = f"{self.source}/{partition.topic}/{partition.partition}/{number}"
            made = Claim(stream, partition, start, begins or {})
            self._claims[stream] = self._by_partition[partition] = made
            return made

    def end(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions have gone."""
        with self._lock:
            for partition in partitions:
                claim = self._by_partition.pop(partition, None)
                if claim is not None:
                    del self._claims[claim.stream]

    def claim_of(self, partition: TopicPartition) -> Claim | None:
        with self._lock:
            return self._by_partition.get(partition)

    def claims(self) -> list[Claim]:
        with self._lock:
            return list(self._claims.values())

    def holds(self, stream: str) -> bool:
        """Whether the claim is not over."""
        with self._lock:
            return stream in self._claims

    def position(self, claim: Claim, offset: int) -> Position:
        return Position(claim.stream, offset, {GROUP_FACT: self.group})

    def was_put(self, position: Position) -> None:
        """All channels have what is before."""
        with self._lock:
            claim = self._claims.get(position.stream)
            if claim is not None:
                claim.put = max(claim.put, position.offset)

    def is_delivered(self, claim: Claim, offset: int) -> bool:
        """Whether all have what is before: it was put, and a sink of each channel delivered it."""
        if offset > claim.put:
            return False
        reached: dict[str, int] = {}
        for delivery in self._deliveries:
            held = delivery.positions.get(claim.stream)
            name = delivery.channel.name
            reached[name] = max(reached.get(name, -1), -1 if held is None else held.offset)
        return all(each >= offset for each in reached.values())

    # A sink

    def wanted(self, batch: EventBatch, position: Position, sink: str) -> EventBatch | None:
        """What of a batch the sink does not have, given its position in the claim; None if that is
        nothing, or if the batch's partition has gone."""
        with self._lock:
            claim = self._claims.get(position.stream)
        if claim is None or position.offset == FORGET:
            return None
        if not batch.bodies or batch.position is not position:
            return batch  # that the offset is committed is all that it is for
        return batch.beyond(claim.begins.get(sink, claim.start))

    def commits(self, reached: Mapping[str, int], sink: str) -> list[Commit]:
        """What a transaction commits that brings the sink to these offsets, by stream. Raises
        `ClaimIsOver`."""
        own: dict[TopicPartition, OffsetAndMetadata] = {}
        least: dict[TopicPartition, OffsetAndMetadata] = {}
        with self._lock:
            member = self._member
            for stream, offset in reached.items():
                claim = self._claims.get(stream)
                if claim is None or member is None:
                    raise ClaimIsOver(
                        f"group {self.group} has given {stream.rpartition('/')[0]} to another "
                        "member, or divides anew"
                    )
                offset = max(offset, claim.begins.get(sink, claim.start))
                own[claim.partition] = OffsetAndMetadata(offset)
                least[claim.partition] = OffsetAndMetadata(self._least(claim, offset, sink))
        if member is None or not own:
            return []
        if not self.is_shared:
            return [Commit(own, member)]
        return [Commit(least, member), Commit(own, ConsumerGroupMetadata(self.group_of(sink)))]

    def _least(self, claim: Claim, offset: int, sink: str) -> int:
        least = offset
        if self._waits_for_put:
            least = min(least, max(claim.put, claim.start))
        for delivery in self._deliveries:
            if delivery.name != sink:
                held = delivery.positions.get(claim.stream)
                least = min(least, claim.start if held is None else max(held.offset, claim.start))
        return least

    def positions_of(
        self, sink: str, committed: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[str, Position]:
        """Where the sink is in the partitions that the source has, given what is committed for
        the sink's group."""
        found = {}
        for claim in self.claims():
            begin, held = claim.begins.get(sink, -1), committed.get(claim.partition)
            offset = begin if held is None else max(begin, held.offset)
            if offset >= 0:
                found[claim.stream] = self.position(claim, offset)
        return found

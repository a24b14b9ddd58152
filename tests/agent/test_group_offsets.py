"""Claims on partitions, what sinks commit for a group, and how records become events."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from ottla.agent.channels.memory import MemoryChannel
from ottla.agent.events import FORGET, EventBatch, Position
from ottla.agent.flume_event import encode_event
from ottla.agent.group_offsets import Claim, ClaimIsOver, GroupOffsets
from ottla.agent.sources.group_reader import GroupReader, Record
from ottla.agent.sources.kafka import RecordForm
from ottla.client.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

PARTITION = TopicPartition("t", 0)
MEMBER = ConsumerGroupMetadata("g", 5, "member", "instance")


@dataclass
class Sink:
    """How far a sink has come."""

    name: str
    positions: dict[str, Position] = field(default_factory=dict)
    channel: MemoryChannel = field(default_factory=lambda: MemoryChannel("c", 10))


def group_with(
    *sinks: Sink, in_transactions: str = "k1", waits_for_put: bool = False
) -> GroupOffsets:
    made = GroupOffsets("r1", "g", in_transactions.split())
    made.runs_with(sinks, waits_for_put=waits_for_put)
    made.is_member(MEMBER)
    return made


def batch(group: GroupOffsets, claim: Claim, *ends: int) -> EventBatch:
    position = group.position(claim, ends[-1])
    return EventBatch([b"%d" % end for end in ends], position=position, ends=ends)


def wanted(group: GroupOffsets, batch: EventBatch) -> EventBatch | None:
    assert batch.position is not None
    return group.wanted(batch, batch.position, "k1")


def test_one_sink_commits_as_the_member() -> None:
    """Its offsets are the group's."""
    group = group_with(Sink("k1"))
    claim = group.claim(PARTITION, 10, {"k1": 10})
    [commit] = group.commits({claim.stream: 15}, "k1")
    assert commit == ({PARTITION: OffsetAndMetadata(15)}, MEMBER)
    assert group.commits({}, "k1") == []


def test_a_partition_that_has_gone_is_not_committed() -> None:
    """Also if it has come back: what was read before is read again."""
    group = group_with(Sink("k1"))
    old = group.claim(PARTITION, 10)
    waiting = batch(group, old, 11, 12)
    assert wanted(group, waiting) is waiting
    group.end([PARTITION])
    assert wanted(group, waiting) is None
    with pytest.raises(ClaimIsOver, match="group g has given r1/t/0 to another member"):
        group.commits({old.stream: 12}, "k1")
    new = group.claim(PARTITION, 10)
    assert wanted(group, waiting) is None
    with pytest.raises(ClaimIsOver):
        group.commits({old.stream: 12, new.stream: 12}, "k1")


def test_a_stream_to_forget_is_never_committed() -> None:
    """Its offset is none: it would set the group back to where reading began."""
    group = group_with(Sink("k1"))
    claim = group.claim(PARTITION, 10)
    assert wanted(group, EventBatch([], position=group.position(claim, FORGET))) is None


def test_several_sinks_commit_their_own_and_the_least() -> None:
    """Each for a group of its own, without a member; the source's group gets what all have."""
    one, two = Sink("k1"), Sink("k2")
    group = group_with(one, two, in_transactions="k1 k2")
    claim = group.claim(PARTITION, 10, {"k1": 30, "k2": 10})
    assert wanted(group, batch(group, claim, 20, 30)) is None
    rest = wanted(group, batch(group, claim, 20, 30, 40))
    assert rest is not None
    assert rest.bodies == [b"40"]
    fence, own = group.commits({claim.stream: 40}, "k1")
    assert fence == ({PARTITION: OffsetAndMetadata(10)}, MEMBER)
    assert own == ({PARTITION: OffsetAndMetadata(40)}, ConsumerGroupMetadata("g-k1"))
    two.positions[claim.stream] = group.position(claim, 20)
    assert group.commits({claim.stream: 40}, "k1")[0].offsets == {PARTITION: OffsetAndMetadata(20)}
    # What a sink had before reading began anew is never committed again as less.
    assert group.commits({claim.stream: 20}, "k1")[1].offsets == {PARTITION: OffsetAndMetadata(30)}


def test_a_durable_channel_beside_holds_the_group_back() -> None:
    """The group's offset does not pass what that channel has synced."""
    group = group_with(Sink("k1"), waits_for_put=True)
    claim = group.claim(PARTITION, 10)
    assert group.commits({claim.stream: 20}, "k1")[0].offsets == {PARTITION: OffsetAndMetadata(10)}
    group.was_put(group.position(claim, 15))
    assert group.commits({claim.stream: 20}, "k1")[0].offsets == {PARTITION: OffsetAndMetadata(15)}


def test_a_sink_of_an_optional_channel_has_a_group_of_its_own() -> None:
    """It gets no say in where the source's group is."""
    group = group_with(Sink("k1"), in_transactions="k1 k2")
    claim = group.claim(PARTITION, 10)
    fence, own = group.commits({claim.stream: 20}, "k2")
    assert fence.offsets == {PARTITION: OffsetAndMetadata(10)}
    assert own.member.group_id == "g-k2"


def test_positions_after_a_failure() -> None:
    """What is committed, or was when the partition came; nothing for a sink that has begun none."""
    group = group_with(Sink("k1"))
    claim = group.claim(PARTITION, 10)
    assert group.positions_of("k1", {}) == {}
    found = group.positions_of("k1", {PARTITION: OffsetAndMetadata(12)})
    assert found == {claim.stream: group.position(claim, 12)}
    claim = group.claim(PARTITION, 20, {"k1": 20})
    found = group.positions_of("k1", {PARTITION: OffsetAndMetadata(12)})
    assert found[claim.stream].offset == 20


def test_delivered_is_what_a_sink_of_each_channel_has() -> None:
    """And what was put, for a channel that keeps it has no sink to ask."""
    one, two, rival = Sink("k1"), Sink("k2"), Sink("k3")
    one.channel = MemoryChannel("other", 10)
    group = group_with(one, two, rival, in_transactions="", waits_for_put=True)
    claim = group.claim(PARTITION, 10)
    for sink in (one, rival):
        sink.positions[claim.stream] = group.position(claim, 20)
    assert not group.is_delivered(claim, 20)
    group.was_put(group.position(claim, 20))
    assert group.is_delivered(claim, 20)
    assert not group.is_delivered(claim, 21)
    del one.positions[claim.stream]
    assert not group.is_delivered(claim, 20)


def test_a_member_that_was_put_out_claims_nothing() -> None:
    """As what came with an assignment that is over already: the reader joins again."""

    class PutOut:
        """A consumer whose group has another generation by now."""

        def group_metadata(self) -> ConsumerGroupMetadata:
            return ConsumerGroupMetadata("g")

    group = group_with(Sink("k1"))
    reader = GroupReader({}, group, RecordForm().batch_of, batch_size=1)
    reader.consumer = PutOut()  # type: ignore[assignment]
    reader.on_partitions_assigned([PARTITION])
    assert group.claims() == []
    assert reader.problem is not None
    assert reader.problem.retriable


def record(
    offset: int, value: bytes | None, key: bytes | None = None,
    headers: Mapping[str, bytes | None] | None = None,
) -> Record:  # fmt: skip
    pairs = list((headers or {}).items())
    return Record("in", 3, 0, offset, 1700, 0, key, value, pairs, None, 0, 0, 0)  # type: ignore[arg-type]


def test_headers_of_an_event() -> None:
    """Flume's: topic, partition, offset, timestamp, key, and mapped headers of the record."""
    form = RecordForm(record_headers={"trace": "X-Trace", "timestamp": "at"})
    made = form.batch_of(
        [
            record(7, b"a", "ž".encode(), {"X-Trace": b"\xc5\xbe", "other": b"o"}),
            record(9, None, None, {"at": b"12", "X-Trace": None}),
        ]
    )
    assert made.bodies == [b"a", b""]
    shared = {"topic": "in", "partition": "3"}
    assert made.headers_of(0) == {
        **shared, "offset": "7", "timestamp": "1700", "key": "ž", "trace": "ž",
    }  # fmt: skip
    assert made.headers_of(1) == {**shared, "offset": "9", "timestamp": "12"}
    assert list(made.ends) == [8, 10]
    assert "topic" not in RecordForm(None).batch_of([record(0, b"")]).headers_of(0)


def test_flume_events_bring_their_headers(caplog: pytest.LogCaptureFixture) -> None:
    """Headers that an event has stay, but for the key; a record that is none is left out with an
    error that names it, as in Flume, and the position gets past it."""
    form = RecordForm(flume_format=True)
    carried = {"topic": "first", "timestamp": "1", "offset": "2", "partition": "0", "key": "old"}
    with caplog.at_level(logging.ERROR):
        made = form.batch_of(
            [
                record(4, encode_event(carried, b"body"), b"new"),
                record(5, b"\xff\xff"),
                record(6, encode_event({}, b"next")),
            ]
        )
    assert made.bodies == [b"body", b"next"]
    assert made.headers_of(0) == {**carried, "key": "new"}
    assert made.headers_of(1)["offset"] == "6"
    assert list(made.ends) == [5, 7]
    assert "in-3: the record at offset 5 is left out" in caplog.text

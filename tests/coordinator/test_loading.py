"""Loading a coordinator's log: in slices, each key's last record only, the same state as replay."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from ottla.coordinator import group_shard, runtime, transaction_shard
from ottla.coordinator.effects import Effects, Producer, Record
from ottla.coordinator.group import EMPTY, STABLE
from ottla.coordinator.group_records import group_tombstone
from ottla.coordinator.group_shard import SESSIONS_TIMER, GroupShard, OffsetRules
from ottla.coordinator.offsets import Committed, offset_record, offset_tombstone
from ottla.coordinator.rebalance import GroupRules
from ottla.coordinator.runtime import load
from ottla.coordinator.transaction import Transaction
from ottla.coordinator.transaction_shard import TransactionRules, TransactionShard
from ottla.wire.compression import Compression
from ottla.wire.control import COMMIT, write_marker
from ottla.wire.coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    write_key,
    write_value,
)
from ottla.wire.records import Record as WireRecord
from ottla.wire.records import write_batch
from tests.coordinator.fake_partition import FakePartition


def group_shard_of(partition: FakePartition) -> tuple[GroupShard, list[int]]:
    shard = GroupShard(GroupRules(), OffsetRules())
    some: Any = partition
    return shard, list(load(some, shard))


def append(partition: FakePartition, *records: Record, **options: Any) -> None:
    batch = write_batch([WireRecord(r.value, key=r.key, timestamp=1) for r in records], **options)
    partition.append_as_coordinator(memoryview(bytearray(batch)), now_ms=1)


def offset_of(group: str, index: int, offset: int) -> Record:
    return offset_record(group, "t", index, Committed(offset, -1, "", 0))


def group_of(name: str, generation: int, members: int) -> Record:
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=generation,
        protocol="range",
        leader="m0",
        members=[
            MemberMetadata(member_id=f"m{i}", client_id="c", client_host="/h", session_timeout=9)
            for i in range(members)
        ],
    )
    return Record(write_key(GroupMetadataKey(group=name)), write_value(value, 3))


def test_batches_of_every_kind_in_their_order() -> None:
    """Plain, compressed and transactional batches, markers and tombstones: the last one counts."""
    partition = FakePartition()
    owner = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    append(partition, offset_of("g", 0, 1), offset_of("g", 1, 1), offset_of("g", 2, 1))
    append(partition, offset_of("g", 0, 2), compression=Compression.GZIP)
    append(partition, offset_of("g", 1, 3), offset_of("h", 0, 3), **owner)
    append(partition, offset_of("g", 1, 4))
    marker = write_marker(COMMIT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1)
    partition.append_as_coordinator(memoryview(bytearray(marker)), now_ms=1)
    append(partition, offset_tombstone("g", "t", 2), offset_of("i", 0, 5))
    append(partition, offset_of("i", 1, 6), **owner)
    shard, _ = group_shard_of(partition)
    found = {
        group: {index: each.offset for (_, index), each in shard.offsets.of(group).items()}
        for group in shard.offsets.by_group
    }
    assert found == {"g": {0: 2, 1: 4}, "h": {0: 3}, "i": {0: 5}}
    assert shard.offsets.unstable("i", ("t", 1))
    assert set(shard.groups) == {"g", "h", "i"}
    assert all(group.state is EMPTY for group in shard.groups.values())


def test_a_deleted_group_stays_deleted() -> None:
    """Also one whose offsets were committed in a transaction."""
    partition = FakePartition()
    owner = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    append(partition, offset_of("g", 0, 1), offset_of("h", 0, 1), **owner)
    marker = write_marker(COMMIT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1)
    partition.append_as_coordinator(memoryview(bytearray(marker)), now_ms=1)
    append(partition, offset_tombstone("g", "t", 0), group_tombstone("g"))
    append(partition, offset_tombstone("h", "t", 0), group_tombstone("h"))
    append(partition, offset_of("h", 1, 2), **owner)
    shard, _ = group_shard_of(partition)
    assert list(shard.groups) == ["h"], "h was made again by an offset that is still pending"


def test_only_the_last_record_of_a_group_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generations that are no longer current cost a dictionary entry, however large they were."""
    decoded: list[int] = []
    read = group_shard.read_value

    def counted(cls: Any, value: Any) -> Any:
        found = read(cls, value)
        decoded.append(found.generation)
        return found

    monkeypatch.setattr(group_shard, "read_value", counted)
    partition = FakePartition()
    for generation in range(1, 21):
        append(partition, group_of("g", generation, 5))
    append(partition, group_of("gone", 1, 5))
    append(partition, Record(write_key(GroupMetadataKey(group="gone")), None))
    shard, _ = group_shard_of(partition)
    assert decoded == [20]
    assert list(shard.groups) == ["g"]
    assert shard.groups["g"].state is STABLE
    assert len(shard.groups["g"].members) == 5


def test_groups_are_restored_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restoring members and groups without members gives way to other work."""
    monkeypatch.setattr(group_shard, "FINISH_SLICE_MEMBERS", 10)
    partition = FakePartition()
    append(partition, *(group_of(f"with-{i}", 1, 4) for i in range(6)))
    append(partition, *(offset_of(f"without-{i}", 0, 1) for i in range(30)))
    shard = GroupShard(GroupRules(), OffsetRules())
    some: Any = partition

    def restored() -> int:
        return sum(1 + len(group.members) for group in shard.groups.values())

    known = [0, *(restored() for _ in load(some, shard)), restored()]
    assert known[-1] == 6 * 5 + 30
    assert max(after - before for before, after in pairwise(known)) <= 10


def test_sessions_start_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each member that was loaded gets a whole session, of some groups in each turn."""
    monkeypatch.setattr(group_shard, "FINISH_SLICE_MEMBERS", 10)
    partition = FakePartition()
    append(partition, *(group_of(f"g{i}", 1, 4) for i in range(10)))
    shard, _ = group_shard_of(partition)
    started: dict[Any, int | None] = {}
    effects = Effects()
    shard.loaded(effects, 0)
    while True:
        sessions = {key: ms for key, ms in effects.timers.items() if key[1:2] == ("session",)}
        assert len(sessions) <= 12
        started |= sessions
        if SESSIONS_TIMER not in effects.timers:
            break
        effects = Effects()
        shard.due(SESSIONS_TIMER, effects, 0)
    assert started == {(f"g{i}", "session", f"m{j}"): 9 for i in range(10) for j in range(4)}


def test_slices_are_counted_in_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """No turn of the loop replays more than a slice and one batch."""
    monkeypatch.setattr(runtime, "LOAD_SLICE_RECORDS", 10)
    partition = FakePartition()
    owner = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    for number in range(40):
        append(partition, *[offset_of("g", number, 1)] * 3, **(owner if number % 3 == 0 else {}))
    _, counts = group_shard_of(partition)
    assert sum(counts) == 120
    assert max(counts) <= 12


def test_transactional_ids_are_restored_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last record of each transactional id, and tombstones take theirs away."""
    monkeypatch.setattr(transaction_shard, "FINISH_SLICE_IDS", 4)
    partition = FakePartition()
    for epoch in range(3):
        for number in range(10):
            append(partition, Transaction(f"id-{number}", 100 + number, epoch).record())
    append(partition, Record(Transaction("id-3", 103).record().key, None))
    shard = TransactionShard(TransactionRules(), lambda markers: None, lambda: None)
    some: Any = partition
    known = [0, *(len(shard.transactions) for _ in load(some, shard))]
    assert known[-1] == 9
    assert max(after - before for before, after in pairwise(known)) <= 4
    assert {each.producer for each in shard.transactions.values()} == {
        Producer(100 + number, 2) for number in range(10) if number != 3
    }

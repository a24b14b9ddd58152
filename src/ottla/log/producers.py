"""What each idempotent producer wrote last to a log, so that a retry is written once (KIP-98).

Per producer: its epoch, the last five batches (the client may have five in flight), and where its
open transaction began. A batch is checked before it is appended and noted after; nothing may run
between the two.

Kept in `.snapshot` files in Kafka's format (version 1): one at every roll and at a clean stop.
After a crash the newest good snapshot plus the headers of the batches behind it give the same
state again. A snapshot has only the last batch of each producer; those before it are read back
from the log when a retry asks for one (`Producer.incomplete`, replay.read_back).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from google_crc32c import value as crc32c

BATCHES_KEPT = 5  # as many as a client may have in flight with idempotence (KIP-98)
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
NO_EPOCH = -1
SEQUENCE_MAX = 2**31 - 1

SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_FROM = 6  # the checksum covers all that follows it

OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
TRANSACTION_COORDINATOR_FENCED = 52


class BatchNote(NamedTuple):
    """One of a producer's last batches."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def base_sequence(self) -> int:
        return sequence_minus(self.last_sequence, self.offset_delta)


class CompletedTransaction(NamedTuple):
    """A transaction that a marker ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class Producer:
    """One producer's state."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "incomplete",
        "last_timestamp",
        "transaction_first_offset",
    )

    def __init__(self, epoch: int = NO_EPOCH) -> None:
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.transaction_first_offset = -1
        self.batches: list[BatchNote] = []
        self.incomplete = False  # from a snapshot: the log may hold batches before the first here

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1


class Producers:
    """All producers of one log."""

    __slots__ = ("by_id", "completed", "ongoing")

    def __init__(self) -> None:
        self.by_id: dict[int, Producer] = {}
        self.ongoing: dict[int, int] = {}  # first offset of an open transaction -> producer id
        # Ended transactions whose marker consumers cannot see yet: first offset -> marker's offset.
        self.completed: dict[int, int] = {}

    def check(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        offset_delta: int,
        transactional: bool,
    ) -> BatchNote | int:
        """0 when a client's batch may be appended, an error code, or the batch it is a retry of."""
        known = self.by_id.get(producer_id)
        if known is None:
            return 0
        if epoch == known.epoch:
            last_sequence = sequence_plus(base_sequence, offset_delta)
            for note in known.batches:
                if note.last_sequence == last_sequence and note.offset_delta == offset_delta:
                    return note
            current = known.last_sequence
            if base_sequence != current + 1 and not (
                base_sequence == 0 and current == SEQUENCE_MAX
            ):
                return OUT_OF_ORDER_SEQUENCE_NUMBER
        elif epoch < known.epoch:
            return INVALID_PRODUCER_EPOCH
        elif base_sequence != 0 and known.epoch != NO_EPOCH:
            return OUT_OF_ORDER_SEQUENCE_NUMBER
        if known.transaction_first_offset >= 0 and not transactional:
            return INVALID_TXN_STATE
        return 0

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> int:
        """0 when a coordinator may end the producer's transaction, else why it is fenced."""
        known = self.by_id.get(producer_id)
        if known is None:
            return 0
        if epoch < known.epoch:
            return INVALID_PRODUCER_EPOCH
        if coordinator_epoch < known.coordinator_epoch:
            return TRANSACTION_COORDINATOR_FENCED
        return 0

    def note(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        base_offset: int,
        offset_delta: int,
        timestamp: int,
        transactional: bool,
    ) -> None:
        """A data batch of this producer is in the log."""
        known = self.by_id.get(producer_id)
        if known is None:
            known = self.by_id[producer_id] = Producer(epoch)
        elif known.epoch != epoch:
            known.epoch = epoch
            known.batches.clear()
            known.incomplete = False
        batches = known.batches
        if len(batches) >= BATCHES_KEPT:
            del batches[0]
        last_sequence = base_sequence + offset_delta if base_sequence >= 0 else NO_SEQUENCE
        if last_sequence > SEQUENCE_MAX:
            last_sequence -= SEQUENCE_MAX + 1
        batches.append(
            BatchNote(last_sequence, base_offset + offset_delta, offset_delta, timestamp)
        )
        known.last_timestamp = timestamp
        if transactional and known.transaction_first_offset < 0:
            known.transaction_first_offset = base_offset
            self.ongoing[base_offset] = producer_id

    def end_transaction(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        offset: int,
        timestamp: int,
        aborted: bool,
    ) -> CompletedTransaction | None:
        """A marker at `offset` ends the producer's transaction; None when that was empty."""
        known = self.by_id.get(producer_id)
        if known is None:
            known = self.by_id[producer_id] = Producer(epoch)
        first_offset = known.transaction_first_offset
        if known.epoch != epoch:
            known.epoch = epoch
            known.batches.clear()
            known.incomplete = False
        known.coordinator_epoch = coordinator_epoch
        known.transaction_first_offset = -1
        known.last_timestamp = timestamp
        if first_offset < 0:
            return None
        self.ongoing.pop(first_offset, None)
        self.completed[first_offset] = offset
        return CompletedTransaction(producer_id, first_offset, offset, aborted)

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """Where readers of committed records may read to once `completed` is visible."""
        others = [first for first, pid in self.ongoing.items() if pid != completed.producer_id]
        return min(others, default=completed.last_offset + 1)

    def first_unstable_offset(self) -> int | None:
        """The first offset of a transaction still open, or ended by a marker not yet visible."""
        if not self.ongoing and not self.completed:
            return None
        return min(min(self.ongoing, default=2**63), min(self.completed, default=2**63))

    def forget_completed_below(self, offset: int) -> None:
        """Markers below `offset` are visible now (the high watermark or the log start passed
        them).
        """
        if self.completed:
            self.completed = {f: last for f, last in self.completed.items() if last >= offset}

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers silent for too long; those with an open transaction stay."""
        stale = [
            producer_id
            for producer_id, known in self.by_id.items()
            if known.transaction_first_offset < 0 and now_ms - known.last_timestamp >= expiration_ms
        ]
        for producer_id in stale:
            del self.by_id[producer_id]

    def clear(self) -> None:
        self.by_id.clear()
        self.ongoing.clear()
        self.completed.clear()

    def snapshot(self) -> bytes:
        """The state as the content of a `.snapshot` file."""
        entries = [
            _SNAPSHOT_ENTRY.pack(
                producer_id,
                known.epoch,
                known.last_sequence,
                known.last_offset,
                known.batches[-1].offset_delta if known.batches else 0,
                known.last_timestamp,
                known.coordinator_epoch,
                known.transaction_first_offset,
            )
            for producer_id, known in self.by_id.items()
        ]
        data = bytearray(_SNAPSHOT_HEAD.pack(SNAPSHOT_VERSION, 0, len(entries)) + b"".join(entries))
        struct.pack_into(">I", data, 2, crc32c(bytes(data[_CRC_FROM:])))
        return bytes(data)

    def load(self, data: bytes) -> None:
        """Take over a snapshot's content; ValueError when it is torn or was never one."""
        for producer_id, known in parse_snapshot(data):
            self.by_id[producer_id] = known
            if known.transaction_first_offset >= 0:
                self.ongoing[known.transaction_first_offset] = producer_id


def parse_snapshot(data: bytes) -> list[tuple[int, Producer]]:
    """Producer ids and states of a `.snapshot` file's content; ValueError when it is not sound."""
    if len(data) < _SNAPSHOT_HEAD.size:
        raise ValueError(f"{len(data)} bytes are too few for a producer snapshot")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise ValueError(f"producer snapshot of unknown version {version}")
    found_crc = crc32c(data[_CRC_FROM:])
    if found_crc != crc:
        raise ValueError(f"checksum {found_crc:#010x} where {crc:#010x} is written")
    if len(data) != _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size:
        raise ValueError(f"{len(data)} bytes for {count} producers")
    entries = []
    for fields in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEAD.size :]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator, first = (
            fields
        )
        known = Producer(epoch)
        known.coordinator_epoch = coordinator
        known.last_timestamp = timestamp
        known.transaction_first_offset = first
        if last_offset >= 0:
            known.batches.append(BatchNote(last_sequence, last_offset, delta, timestamp))
            known.incomplete = True
        entries.append((producer_id, known))
    return entries


def sequence_plus(sequence: int, increment: int) -> int:
    """Sequence numbers go round from 2^31 - 1 to 0."""
    total = sequence + increment
    return total if total <= SEQUENCE_MAX else total - SEQUENCE_MAX - 1


def sequence_minus(sequence: int, decrement: int) -> int:
    total = sequence - decrement
    return total if total >= 0 else total + SEQUENCE_MAX + 1

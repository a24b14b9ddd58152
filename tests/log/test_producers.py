"""Sequence numbers: a retry is written once, a gap is refused, an old epoch is fenced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.producers import SEQUENCE_MAX, BatchNote, Producers, parse_snapshot
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.wire.errors import ErrorCode
from tests.log.logs import NOW_MS, SMALL, new_log, put, reopen, values

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def producers_after(*batches: tuple[int, int], epoch: int = 0) -> Producers:
    """Producer 1 wrote batches of (base sequence, records)."""
    producers = Producers()
    offset = 100
    for sequence, count in batches:
        producers.note(1, epoch, sequence, offset, count - 1, NOW_MS, False)
        offset += count
    return producers


def test_first_batch_may_have_any_sequence() -> None:
    """A producer that is not known may begin anywhere: its state may have been deleted."""
    assert Producers().check(1, 0, 77, 0, False) == 0


def test_next_in_sequence_is_taken_and_a_gap_is_not() -> None:
    """Only the sequence after the last one follows."""
    producers = producers_after((0, 3))
    assert producers.check(1, 0, 3, 0, False) == 0
    assert producers.check(1, 0, 4, 0, False) == OUT_OF_ORDER
    assert producers.check(1, 0, 2, 0, False) == OUT_OF_ORDER


def test_each_of_the_last_five_batches_is_a_duplicate() -> None:
    """Five batches may be in flight, so five are remembered; the sixth back is out of order."""
    producers = producers_after(*((sequence, 1) for sequence in range(7)))
    for sequence in range(2, 7):
        found = producers.check(1, 0, sequence, 0, False)
        assert isinstance(found, BatchNote)
        assert found.base_offset == 100 + sequence
    assert producers.check(1, 0, 1, 0, False) == OUT_OF_ORDER


def test_same_first_sequence_but_other_length_is_no_duplicate() -> None:
    """A duplicate has the same first and last sequence."""
    assert producers_after((0, 3)).check(1, 0, 0, 1, False) == OUT_OF_ORDER


def test_sequences_go_round_after_the_largest() -> None:
    """After 2^31 - 1 comes 0, also in the middle of a batch."""
    producers = producers_after((SEQUENCE_MAX - 1, 2))
    assert producers.check(1, 0, 0, 0, False) == 0
    producers = producers_after((SEQUENCE_MAX, 3))  # MAX, 0, 1
    assert producers.check(1, 0, 2, 0, False) == 0
    found = producers.check(1, 0, SEQUENCE_MAX, 2, False)
    assert isinstance(found, BatchNote)
    assert found.base_sequence == SEQUENCE_MAX


def test_old_epoch_is_fenced_and_new_epoch_starts_at_zero() -> None:
    """INVALID_PRODUCER_EPOCH for the past; a new epoch must begin with sequence 0."""
    producers = producers_after((0, 1), epoch=5)
    assert producers.check(1, 4, 1, 0, False) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producers.check(1, 6, 1, 0, False) == OUT_OF_ORDER
    assert producers.check(1, 6, 0, 0, False) == 0


def test_plain_write_into_an_open_transaction() -> None:
    """Kafka answers INVALID_TXN_STATE to a non-transactional batch inside a transaction."""
    producers = Producers()
    producers.note(1, 0, 0, 100, 0, NOW_MS, True)
    assert producers.check(1, 0, 1, 0, False) == ErrorCode.INVALID_TXN_STATE
    assert producers.check(1, 0, 1, 0, True) == 0
    assert producers.first_unstable_offset() == 100


def test_silent_producers_expire_unless_in_a_transaction() -> None:
    """producer.id.expiration.ms forgets those who stay silent."""
    producers = producers_after((0, 1))
    producers.note(2, 0, 0, 200, 0, NOW_MS, True)
    producers.expire(NOW_MS + 999, 1000)
    assert set(producers.by_id) == {1, 2}
    producers.expire(NOW_MS + 1000, 1000)
    assert set(producers.by_id) == {2}


def test_transactions_hold_the_last_stable_offset() -> None:
    """It stays at the first open transaction, and until the marker is visible."""
    producers = Producers()
    producers.note(1, 0, 0, 10, 0, NOW_MS, True)
    producers.note(2, 0, 0, 11, 0, NOW_MS, True)
    first = producers.end_transaction(1, 0, 0, 12, NOW_MS, aborted=True)
    assert first is not None
    assert producers.last_stable_offset_after(first) == 11
    assert producers.first_unstable_offset() == 10
    producers.forget_completed_below(13)
    assert producers.first_unstable_offset() == 11
    assert producers.end_transaction(2, 0, 0, 14, NOW_MS, aborted=False) is not None
    producers.forget_completed_below(15)
    assert producers.first_unstable_offset() is None


entry = st.tuples(
    st.integers(0, 2**62),  # producer id
    st.integers(0, 2**15 - 1),
    st.integers(0, SEQUENCE_MAX),
    st.integers(0, 2**40),
    st.integers(0, 1000),
    st.integers(-1, 2**50),
    st.booleans(),
)


@given(st.lists(entry, max_size=20, unique_by=lambda one: one[0]))
def test_a_snapshot_gives_back_what_was_written(entries: list[tuple[int, ...]]) -> None:
    """Write then read: epoch, last batch, time and open transaction of every producer."""
    producers = Producers()
    for producer_id, epoch, sequence, offset, delta, timestamp, transactional in entries:
        producers.note(producer_id, epoch, sequence, offset, delta, timestamp, bool(transactional))
    again = Producers()
    again.load(producers.snapshot())
    assert set(again.by_id) == set(producers.by_id)
    for producer_id, known in producers.by_id.items():
        other = again.by_id[producer_id]
        assert other.batches == known.batches[-1:]
        for field in ("epoch", "last_timestamp", "coordinator_epoch", "transaction_first_offset"):
            assert getattr(other, field) == getattr(known, field)
    assert again.first_unstable_offset() == producers.first_unstable_offset()


@given(st.data())
def test_a_damaged_snapshot_is_refused(data: st.DataObject) -> None:
    """Any flipped bit and any cut is noticed."""
    whole = producers_after((0, 3), (3, 2)).snapshot()
    damaged = bytearray(whole)
    damaged[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    for broken in (bytes(damaged), whole[: data.draw(st.integers(0, len(whole) - 1))]):
        with pytest.raises(ValueError):
            parse_snapshot(broken)


def test_snapshot_layout_is_kafkas() -> None:
    """Version 1: crc, count, then 46 bytes a producer (Kafka's ProducerSnapshot)."""
    data = producers_after((7, 2)).snapshot()
    assert data[:2] == b"\x00\x01"
    assert data[6:10] == b"\x00\x00\x00\x01"
    assert len(data) == 10 + 46
    assert data[10:18] == (1).to_bytes(8, "big")  # producer id
    assert data[18:20] == b"\x00\x00"  # epoch
    assert data[20:24] == (8).to_bytes(4, "big")  # last sequence
    assert data[24:32] == (101).to_bytes(8, "big")  # last offset
    assert data[32:36] == (1).to_bytes(4, "big")  # offset delta
    assert data[36:44] == NOW_MS.to_bytes(8, "big")
    assert data[44:48] == b"\xff" * 4  # coordinator epoch
    assert data[48:56] == b"\xff" * 8  # no transaction


@pytest.mark.parametrize("clean", [True, False])
def test_a_retry_over_a_restart_is_written_once(clean: bool) -> None:
    """The producer's last batch is known after a clean stop and after a kill."""
    disk = SimulatedDisk()
    log = new_log(disk)
    mine = {"producer_id": 5, "producer_epoch": 2}
    for sequence in range(40):
        put(log, b"%d" % sequence, base_sequence=sequence, **mine)
    if clean:
        log.close()
    log = reopen(disk, clean=clean, recovery_point=log.recovery_point)
    again = put(log, b"39", base_sequence=39, **mine)
    assert (again.error_code, again.base_offset, again.duplicate) == (0, 39, True)
    assert put(log, b"41", base_sequence=41, **mine).error_code == OUT_OF_ORDER
    assert put(log, b"40", base_sequence=40, **mine).base_offset == 40
    assert values(log) == [b"%d" % n for n in range(41)]


@pytest.mark.parametrize("others", [0, 3, 40])
@pytest.mark.parametrize("clean", [True, False])
def test_the_last_five_batches_are_known_after_a_restart(clean: bool, others: int) -> None:
    """Each of them is a duplicate when it comes again, wherever the log holds it.

    A snapshot tells of the last one only; the others lie in this segment or in earlier ones,
    between the batches of other producers.
    """
    for sequence in range(35, 40):
        disk = SimulatedDisk()
        log = new_log(disk)
        mine = {"producer_id": 5, "producer_epoch": 2}
        offsets = []
        for number in range(40):
            offsets.append(put(log, b"a", b"b", base_sequence=number * 2, **mine).base_offset)
            for other in range(others):
                put(log, b"v", base_sequence=number, producer_id=6 + other, producer_epoch=0)
        if clean:
            log.close()
        else:
            log.flush()
        end = log.end_offset
        log = reopen(disk, clean=clean, recovery_point=log.recovery_point)
        again = put(log, b"a", b"b", base_sequence=sequence * 2, **mine)
        assert (again.error_code, again.base_offset) == (0, offsets[sequence])
        assert again.duplicate
        assert put(log, b"a", b"b", base_sequence=34 * 2, **mine).error_code == OUT_OF_ORDER
        assert put(log, b"a", b"b", base_sequence=80, **mine).base_offset == end


def test_older_batches_are_looked_for_once_and_within_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch out of sequence reads the log back once for a producer, no further than allowed."""
    disk = SimulatedDisk()
    log = new_log(disk, SMALL._replace(segment_bytes=1 << 20))
    mine = {"producer_id": 5, "producer_epoch": 0}
    for number in range(10):
        put(log, b"v", base_sequence=number, **mine)
        for _ in range(30):
            put(log, b"v")
    log.close()
    monkeypatch.setattr("ottla.log.replay.READ_BACK_BATCHES_MAX", 80)
    monkeypatch.setattr("ottla.log.replay.READ_BACK_STEP_BYTES", 500)
    log = reopen(disk, clean=True, recovery_point=310)
    assert put(log, b"v", base_sequence=7, **mine).duplicate
    assert put(log, b"v", base_sequence=5, **mine).error_code == OUT_OF_ORDER
    monkeypatch.setattr("ottla.log.log.read_back", None)
    assert put(log, b"v", base_sequence=5, **mine).error_code == OUT_OF_ORDER


def test_an_earlier_epoch_is_not_read_back() -> None:
    """Batches of the producer's epoch before, with the same sequences, are no duplicates."""
    disk = SimulatedDisk()
    log = new_log(disk)
    for epoch, batches in ((0, 6), (1, 2)):
        for number in range(batches):
            put(log, b"v", base_sequence=number, producer_id=5, producer_epoch=epoch)
    log.close()
    log = reopen(disk, clean=True, recovery_point=8)
    mine = {"producer_id": 5, "producer_epoch": 1}
    assert put(log, b"v", base_sequence=4, **mine).error_code == OUT_OF_ORDER
    assert put(log, b"v", base_sequence=0, **mine).base_offset == 6


def test_a_damaged_snapshot_is_made_up_for_by_the_log() -> None:
    """A clean stop's snapshot with a flipped bit: the state comes from the batches instead."""
    disk = SimulatedDisk()
    log = new_log(disk)
    for sequence in range(30):
        put(log, b"v", base_sequence=sequence, producer_id=5, producer_epoch=0)
    log.close()
    for name in disk.listdir(log.directory):
        if name.endswith(".snapshot"):
            disk.flip_bit(f"{log.directory}/{name}", 80)
    log = reopen(disk, SMALL, clean=True, recovery_point=30)
    assert put(log, b"v", base_sequence=29, producer_id=5, producer_epoch=0).duplicate
    assert put(log, b"v", base_sequence=30, producer_id=5, producer_epoch=0).base_offset == 30

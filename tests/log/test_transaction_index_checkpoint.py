"""Damaged indexes of aborted transactions: no aborted record is shown after the next start."""

from __future__ import annotations

import pytest

from ottla.log.log import Log, Origin
from ottla.log.transaction_index import ENTRY_BYTES, AbortedTransaction
from ottla.log.transaction_index_checkpoint import TRANSACTION_INDEX_CHECKPOINT
from ottla.log.upkeep import finish
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.wire.control import ABORT, COMMIT, write_marker
from tests.log.logs import DIRECTORY, NOW_MS, batch, new_log, put, reopen

PRODUCER_ID = 7


def end(log: Log, kind: int) -> None:
    marker = write_marker(
        kind, producer_id=PRODUCER_ID, producer_epoch=0, coordinator_epoch=0, timestamp=NOW_MS
    )
    written = memoryview(bytearray(marker))
    assert not log.append(
        written, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR
    ).error_code


def fill(log: Log) -> None:
    """Two segments with aborted transactions, the second still open for appends."""
    for number in range(6):
        for values in ((b"%d" % number,), (b"again",)):
            written = batch(
                *values,
                transactional=True,
                producer_id=PRODUCER_ID,
                producer_epoch=0,
                base_sequence=2 * number + (values == (b"again",)),
            )
            assert not log.append(written, leader_epoch=0, now_ms=NOW_MS).error_code
        end(log, COMMIT if number % 3 == 1 else ABORT)
        if number == 2:
            log.roll(now_ms=NOW_MS)


def stopped(*, clean: bool) -> tuple[SimulatedDisk, list[AbortedTransaction], int]:
    """A disk after a stop, what was aborted, and the end of the log."""
    disk = SimulatedDisk()
    log = new_log(disk)
    fill(log)
    if clean:
        finish(log)
    for segment in log.segments:
        segment.write_out_indexes()
    return disk, log.aborted_transactions(0, log.end_offset), log.end_offset


def aborted_after(disk: SimulatedDisk, *, clean: bool, end_offset: int) -> list[AbortedTransaction]:
    """What the next start finds: after a kill, all but the last segment had been synced."""
    log = reopen(disk, clean=clean, recovery_point=end_offset if clean else 9)
    assert log.end_offset == end_offset
    return log.aborted_transactions(0, end_offset)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("base_offset", [0, 9])
def test_a_damaged_index_is_made_anew(clean: bool, base_offset: int) -> None:
    """Any bit flipped, cut anywhere, removed: the transactions are those that were aborted."""
    path = f"{DIRECTORY}/{base_offset:020d}.txnindex"
    size = 2 * ENTRY_BYTES
    damages = [("flip", bit) for bit in range(3, 8 * size, 41)]
    damages += [("cut", at) for at in (0, 1, ENTRY_BYTES, size - 1)] + [("remove", 0)]
    for kind, at in damages:
        disk, aborted, end_offset = stopped(clean=clean)
        assert len(aborted) == 4
        if kind == "flip":
            disk.flip_bit(path, at)
        elif kind == "cut":
            disk.cut(path, at)
        else:
            disk.unlink(path)
        assert aborted_after(disk, clean=clean, end_offset=end_offset) == aborted, (kind, at)


@pytest.mark.parametrize("damage", ["none", "removed", "garbage", "changed"])
def test_without_what_was_noted_the_indexes_are_believed(damage: str) -> None:
    """As those of Apache Kafka are; a line that is wrong costs a check and nothing else."""
    disk, aborted, end_offset = stopped(clean=True)
    path = f"{DIRECTORY}/{TRANSACTION_INDEX_CHECKPOINT}"
    noted = disk.read(path)
    if damage == "removed":
        disk.unlink(path)
    elif damage != "none":
        text = b"garbage" if damage == "garbage" else noted[:-2] + b"1\n"
        disk.write_atomically(path, text, sync=True)
    assert aborted_after(disk, clean=True, end_offset=end_offset) == aborted


def test_what_was_written_since_is_no_damage(caplog: pytest.LogCaptureFixture) -> None:
    """A log that went on after a clean stop, and was then killed, has other sizes."""
    disk, _, end_offset = stopped(clean=True)
    log = reopen(disk, clean=True, recovery_point=end_offset)
    put(log, b"plain")
    log.active.write_out_indexes()
    reopen(disk, recovery_point=end_offset)
    assert "damaged" not in caplog.text

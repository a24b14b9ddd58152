"""Leader epochs: where each began and ended (KIP-101, KIP-279)."""

from __future__ import annotations

import pytest

from ottla.log.epochs import EpochEntry, LeaderEpochs, format_entries, load_epochs, parse
from ottla.seams.simulated.disk import SimulatedDisk
from tests.log.logs import DIRECTORY, new_log, put, reopen

UNKNOWN = (-1, -1)


def epochs_with(*entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs(SimulatedDisk(), DIRECTORY)
    for epoch, start_offset in entries:
        epochs.assign(epoch, start_offset)
    return epochs


def test_the_end_of_an_epoch_is_the_start_of_the_next() -> None:
    """Asked for an epoch: the largest known one not above it, and where the next began."""
    epochs = epochs_with((2, 10), (4, 20), (5, 30))
    assert epochs.end_offset_for(2, 99) == (2, 20)
    assert epochs.end_offset_for(3, 99) == (2, 20)
    assert epochs.end_offset_for(4, 99) == (4, 30)
    assert epochs.end_offset_for(5, 99) == (5, 99)  # the current one ends where the log does
    assert epochs.end_offset_for(1, 99) == (1, 10)  # before all we know
    assert epochs.end_offset_for(6, 99) == UNKNOWN
    assert epochs.end_offset_for(-1, 99) == UNKNOWN
    assert epochs_with().end_offset_for(0, 99) == UNKNOWN


def test_an_epoch_is_assigned_once() -> None:
    """The first start offset of an epoch stands."""
    epochs = epochs_with((2, 10))
    assert not epochs.assign(2, 15)
    assert epochs.entries == [EpochEntry(2, 10)]


def test_a_leader_that_wrote_nothing_leaves_no_trace() -> None:
    """An epoch that begins where the one before did takes its place (KIP-279)."""
    epochs = epochs_with((2, 10), (3, 20), (4, 20))
    assert epochs.entries == [EpochEntry(2, 10), EpochEntry(4, 20)]


def test_truncation_at_both_ends() -> None:
    """From the end, epochs that begin there go; from the start, the last one before moves up."""
    epochs = epochs_with((2, 10), (4, 20), (5, 30))
    epochs.truncate_from_end(30)
    assert epochs.entries == [EpochEntry(2, 10), EpochEntry(4, 20)]
    epochs.truncate_from_start(15)
    assert epochs.entries == [EpochEntry(2, 15), EpochEntry(4, 20)]
    epochs.truncate_from_start(20)
    assert epochs.entries == [EpochEntry(4, 20)]
    epochs.truncate_from_start(25)
    assert epochs.entries == [EpochEntry(4, 25)]


def test_the_file_is_kafkas() -> None:
    """Version, count, then a line for each epoch."""
    entries = [EpochEntry(0, 0), EpochEntry(3, 17)]
    assert format_entries(entries) == b"0\n2\n0 0\n3 17\n"
    assert parse(b"0\n2\n0 0\n3 17\n") == entries


@pytest.mark.parametrize(
    "data",
    [b"", b"0\n", b"0\n2\n0 0\n", b"1\n0\n", b"0\n1\nx y\n", b"0\n2\n3 0\n1 5\n", b"\x00" * 8],
)
def test_a_torn_file_is_refused(data: bytes) -> None:
    """Whatever is not a whole checkpoint raises ValueError."""
    with pytest.raises(ValueError):
        parse(data)


def test_no_proper_prefix_of_the_file_is_taken_for_it() -> None:
    """A file cut short anywhere is noticed."""
    whole = format_entries([EpochEntry(0, 0), EpochEntry(3, 17), EpochEntry(14, 100)])
    for size in range(len(whole)):
        with pytest.raises(ValueError):
            parse(whole[:size])


@pytest.mark.parametrize("missing", [True, False])
@pytest.mark.parametrize("clean", [True, False])
def test_a_lost_or_damaged_file_is_made_anew_from_the_log(clean: bool, missing: bool) -> None:
    """Every batch bears its leader's epoch, so the file can be made again."""
    disk = SimulatedDisk()
    log = new_log(disk)
    for epoch in (0, 1, 4):
        log.begin_epoch(epoch)
        for _ in range(20):
            put(log, b"x" * 50, leader_epoch=epoch)
    expected = [EpochEntry(0, 0), EpochEntry(1, 20), EpochEntry(4, 40)]
    assert log.epochs.entries == expected
    log.close()
    if missing:
        disk.unlink(f"{DIRECTORY}/leader-epoch-checkpoint")
    else:
        disk.cut(f"{DIRECTORY}/leader-epoch-checkpoint", 5)
    log = reopen(disk, clean=clean, recovery_point=log.recovery_point)
    assert log.epochs.entries == expected
    assert load_epochs(disk, DIRECTORY, log.segments).entries == expected


def test_a_new_leader_is_not_written_before_it_appends() -> None:
    """10,000 idle partitions whose epoch rises at a start cost no file."""
    disk = SimulatedDisk()
    log = new_log(disk)
    log.begin_epoch(3)
    assert log.leader_epoch == 3
    assert log.end_offset_for_epoch(3) == (3, 0)
    assert not disk.exists(f"{DIRECTORY}/leader-epoch-checkpoint")
    put(log, b"x", leader_epoch=3)
    assert disk.read(f"{DIRECTORY}/leader-epoch-checkpoint") == b"0\n1\n3 0\n"


def test_epochs_before_the_log_start_are_forgotten() -> None:
    """Deleted records take their epochs with them, also over a clean restart."""
    disk = SimulatedDisk()
    log = new_log(disk)
    for epoch in (0, 1, 2):
        for _ in range(10):
            put(log, b"x", leader_epoch=epoch)
    log.delete_records_before(15)
    expected = [EpochEntry(1, 15), EpochEntry(2, 20)]
    assert log.epochs.entries == expected
    log.close()
    log = reopen(disk, clean=True, recovery_point=30, log_start_offset=15)
    assert log.epochs.entries == expected
    assert log.end_offset_for_epoch(0) == (0, 15)

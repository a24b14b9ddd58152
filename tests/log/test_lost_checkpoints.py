"""Data directories whose checkpoints are lost or wrong: no whole batch is lost with them.

Gaps between offsets are normal in a compacted log. What says so, if not a checkpoint, is found in
the partition's folder; and what recovery does cut, it sets aside.
"""

from __future__ import annotations

import errno
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.log import checkpoints
from ottla.log.cleaner import run_at_once
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.wire.records import Record, write_batch
from tests.log.logs import DIRECTORY, put, reopen, values
from tests.log.managed import TOPIC_ID, contents, make_manager, started
from tests.log.managed import put as put_pairs
from tests.log.test_manager import crash
from tests.simulated import pass_time, run_simulated

COMPACT = {"cleanup.policy": "compact"}
NOW = 1_700_000_000_000


def fill(log: Log) -> None:
    """Batches of which compaction takes all, some or no records, and an active segment."""
    for number in range(8):
        put_pairs(log, (b"hot", b"%d" % number))
        put_pairs(log, (b"hot", b"again"), (b"key %d" % number, b"x"))
        put_pairs(log, (b"other %d" % number, b"x"))
        if number % 2:
            log.roll(now_ms=NOW)
    put_pairs(log, (b"hot", b"last"))


async def compacted(*paths: Path) -> LogManager:
    """A manager, killed after it compacted partition 0 of `first` in each directory."""
    manager = make_manager(*map(str, paths), topic=COMPACT)
    await manager.start()
    for partition in range(len(paths)):
        fill(manager.create("first", partition, TOPIC_ID))
    assert run_at_once(manager.cleaner.run()) == len(paths)
    await manager.checkpointer.write(manager.directories)
    crash(manager)
    return manager


def remove_all_checkpoints(path: Path) -> None:
    for file in path.glob("*-checkpoint"):
        file.unlink()


def empty_all_checkpoints(path: Path) -> None:
    for file in path.glob("*-checkpoint"):
        file.write_bytes(b"")


def lower_the_recovery_point(path: Path) -> None:
    file = path / checkpoints.RECOVERY_POINTS
    assert b"first 0 33\n" in file.read_bytes(), file.read_bytes()
    file.write_bytes(file.read_bytes().replace(b"first 0 33\n", b"first 0 03\n"))


def tear_the_recovery_points(path: Path) -> None:
    file = path / checkpoints.RECOVERY_POINTS
    file.write_bytes(file.read_bytes()[:-4])


def make_it_look_like_zookeepers_time(path: Path) -> None:
    """As a Kafka of 2.x leaves it: no topic ids, a `meta.properties` of version 0."""
    remove_all_checkpoints(path)
    shutil.rmtree(path / "first-0" / "partition.metadata", ignore_errors=True)
    (path / "first-0" / "partition.metadata").unlink(missing_ok=True)
    (path / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=kafkas\n")


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("topic", [COMPACT, {}])
@pytest.mark.parametrize(
    "damage",
    [
        remove_all_checkpoints,
        empty_all_checkpoints,
        lower_the_recovery_point,
        tear_the_recovery_points,
        make_it_look_like_zookeepers_time,
    ],
)
def test_a_compacted_log_survives_its_checkpoints(
    tmp_path: Path, damage: Callable[[Path], None], topic: dict[str, str], marked: bool
) -> None:
    """Every record is there after a crash, whatever the checkpoints and the policy say.

    Also without the mark in the folder, as older versions and Apache Kafka leave it.
    """

    async def run() -> None:
        log = (await compacted(tmp_path)).get("first", 0)
        assert log is not None
        before = contents(log)
        assert len(before) < 30
        damage(tmp_path)
        if not marked:
            (tmp_path / "first-0" / checkpoints.COMPACTION_METADATA).unlink()
        async with started(make_manager(str(tmp_path), topic=topic)) as manager:
            again = manager.get("first", 0)
            assert again is not None
            assert contents(again) == before
            assert again.set_aside_bytes == 0

    run_simulated(run())


def test_a_compacted_folder_in_another_directory(tmp_path: Path) -> None:
    """Copied alone into a fresh data directory, beside another topic's checkpoints."""

    async def run() -> None:
        log = (await compacted(tmp_path / "old")).get("first", 0)
        assert log is not None
        async with started(make_manager(str(tmp_path / "new"))) as manager:
            put_pairs(manager.create("other", 0, bytes(15) + b"\1"), (b"k", b"v"))
        (tmp_path / "new" / checkpoints.CLEAN_SHUTDOWN).unlink()
        shutil.copytree(tmp_path / "old/first-0", tmp_path / "new/first-0")
        async with started(make_manager(str(tmp_path / "new"))) as manager:
            again = manager.get("first", 0)
            assert again is not None
            assert contents(again) == contents(log)

    run_simulated(run())


def test_compacted_logs_in_several_directories(tmp_path: Path) -> None:
    """Each directory has checkpoints of its own; the second one's are lost as well."""

    async def run() -> None:
        killed = await compacted(tmp_path / "a", tmp_path / "b")
        logs = [killed.get("first", partition) for partition in range(2)]
        before = [contents(log) for log in logs if log is not None]
        assert (tmp_path / "b" / "first-1").exists()
        for name in ("a", "b"):
            remove_all_checkpoints(tmp_path / name)
        async with started(make_manager(str(tmp_path / "a"), str(tmp_path / "b"))) as manager:
            again = [manager.get("first", partition) for partition in range(2)]
            assert [contents(log) for log in again if log is not None] == before

    run_simulated(run())


def segments_with_a_jump(*, marked: bool = False) -> SimulatedDisk:
    """Offsets 0 to 4 in one segment, 10 to 14 in the next, all batches whole."""
    disk = SimulatedDisk()
    disk.mkdir(DIRECTORY)
    for base in (0, 10):
        file = disk.open(f"{DIRECTORY}/{base:020d}.log", create=True)
        for offset in range(base, base + 5):
            file.append(write_batch([Record(b"%d" % offset)], base_offset=offset))
    if marked:
        checkpoints.mark_compacted(disk, DIRECTORY)
    return disk


def test_a_jump_between_segments_is_loss_where_nothing_was_compacted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log ends before the jump; the segment behind it is set aside, byte for byte."""
    disk = segments_with_a_jump()
    later = disk.read(f"{DIRECTORY}/{10:020d}.log")
    with caplog.at_level(logging.WARNING):
        log = reopen(disk)
    assert values(log) == [b"%d" % number for number in range(5)]
    assert disk.read(f"{DIRECTORY}/{10:020d}.log.corrupt") == later
    assert log.set_aside_bytes == len(later)
    assert f"{len(later)} bytes set aside as .corrupt" in caplog.text
    assert put(log, b"on").base_offset == 5
    assert values(reopen(disk))[-1] == b"on"


@pytest.mark.parametrize("recovery_point", [0, 3, 12])
def test_a_jump_between_segments_of_a_compacted_log(recovery_point: int) -> None:
    """With the mark in the folder the same files are all there is, and all of it is read."""
    log = reopen(segments_with_a_jump(marked=True), recovery_point=recovery_point)
    assert values(log) == [b"%d" % number for number in (*range(5), *range(10, 15))]


def test_a_wrong_base_offset_in_a_compacted_log_is_damage() -> None:
    """A batch that jumps ahead of the one behind it: cut there, also where gaps are normal."""
    disk = segments_with_a_jump(marked=True)
    path = f"{DIRECTORY}/{10:020d}.log"
    size = len(disk.read(path)) // 5
    disk.flip_bit(path, (size * 2 + 6) * 8)
    log = reopen(disk)
    assert values(log)[-1] == b"11"
    assert log.end_offset == 12
    assert len(disk.read(f"{DIRECTORY}/{12:020d}.log.corrupt")) == 3 * size


def test_what_is_cut_is_kept_whatever_was_kept_before() -> None:
    """The bytes behind a flipped bit, and those of a second crash at the same place."""
    disk = SimulatedDisk()
    disk.mkdir(DIRECTORY)
    kept = []
    for _ in range(3):
        log = reopen(disk)
        for number in range(4):
            put(log, b"%d" % number)
        path = f"{DIRECTORY}/{0:020d}.log"
        size = len(disk.read(path)) // 4
        disk.flip_bit(path, (size + 65) * 8)
        kept.append(disk.read(path)[size:])
        log = reopen(disk)
        assert values(log) == [b"0"]
        assert log.set_aside_bytes == 3 * size
        log.truncate_to(0, now_ms=NOW)
    names = [f"{1:020d}.log{suffix}" for suffix in (".corrupt", ".1.corrupt", ".2.corrupt")]
    assert [disk.read(f"{DIRECTORY}/{name}") for name in names] == kept


def test_a_log_is_not_cut_while_the_disk_is_full() -> None:
    """What cannot be set aside stays where it is: opening fails until there is space."""
    disk = segments_with_a_jump(marked=True)
    path = f"{DIRECTORY}/{10:020d}.log"
    size = len(disk.read(path)) // 5
    disk.flip_bit(path, (size * 2 + 65) * 8)
    before = disk.read(path)
    disk.fail("write", ".corrupt", errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        reopen(disk)
    assert disk.read(path) == before
    assert not [name for name in disk.listdir(DIRECTORY) if name.endswith(".corrupt")]
    disk.heal()
    assert reopen(disk).end_offset == 12


def test_a_torn_append_is_not_kept() -> None:
    """Half a batch, or zeros where it should be, leave no file behind."""
    for tail in (write_batch([Record(b"y" * 300)])[:200], bytes(200), b"\1" * 20):
        disk = segments_with_a_jump(marked=True)
        disk.open(f"{DIRECTORY}/{10:020d}.log").append(tail)
        log = reopen(disk)
        assert log.end_offset == 15
        assert not [name for name in disk.listdir(DIRECTORY) if name.endswith(".corrupt")]
        assert log.set_aside_bytes == 0


def test_whole_batches_behind_a_wrong_length_are_kept() -> None:
    """A batch whose length runs past the end of the file is not torn if others stand behind it."""
    disk = segments_with_a_jump(marked=True)
    path = f"{DIRECTORY}/{10:020d}.log"
    size = len(disk.read(path)) // 5
    disk.flip_bit(path, (size + 9) * 8 + 7)
    assert reopen(disk).end_offset == 11
    assert len(disk.read(f"{DIRECTORY}/{11:020d}.log.corrupt")) == 4 * size


def test_a_start_offset_beyond_the_end_costs_nothing_for_good() -> None:
    """A wrong digit in the checkpoint of the start: the log begins anew, its segments are kept."""
    disk = segments_with_a_jump(marked=True)
    before = [disk.read(f"{DIRECTORY}/{base:020d}.log") for base in (0, 10)]
    log = reopen(disk, log_start_offset=900)
    assert (log.log_start_offset, log.end_offset) == (900, 900)
    assert [disk.read(f"{DIRECTORY}/{base:020d}.log.corrupt") for base in (0, 10)] == before


def test_power_cuts_while_a_log_is_cut() -> None:
    """What was set aside lasts before the log is shortened: a second crash loses none of it."""
    for seed in range(100):
        disk = segments_with_a_jump()
        first = f"{DIRECTORY}/{0:020d}.log"
        size = len(disk.read(first)) // 5
        disk.flip_bit(first, (3 * size + 65) * 8)
        for path in (DIRECTORY, "/data", "/"):
            disk.sync_directory(path)
        whole = []
        for base in (0, 10):
            file = disk.open(f"{DIRECTORY}/{base:020d}.log")
            file.sync()
            data = file.pread(1000, 0)
            whole += [data[at : at + len(data) // 5] for at in range(0, len(data), len(data) // 5)]
        for again in range(2):
            found = values(reopen(disk))
            assert found == [b"0", b"1", b"2"], f"seed {seed}"
            disk.crash(seed * 2 + again)
        names = [name for name in disk.listdir(DIRECTORY) if ".log" in name]
        left = b"".join(disk.read(f"{DIRECTORY}/{name}") for name in names)
        assert all(batch in left for batch in whole), f"seed {seed}: {names}"


def test_what_was_set_aside_is_counted(tmp_path: Path) -> None:
    """The manager sums what recovery set aside at this start: the metric's value."""

    async def run() -> None:
        manager = make_manager(str(tmp_path))
        await manager.start()
        log = manager.create("first", 0, TOPIC_ID)
        for _ in range(3):
            put_pairs(log, (b"k", b"v"))
        crash(manager)
        path = tmp_path / "first-0" / f"{0:020d}.log"
        data = bytearray(path.read_bytes())
        data[len(data) // 3 + 65] ^= 1
        path.write_bytes(data)
        async with started(make_manager(str(tmp_path))) as manager:
            assert manager.set_aside_bytes == len(data) * 2 // 3

    run_simulated(run())


def test_deleting_the_topic_removes_what_was_set_aside(tmp_path: Path) -> None:
    """Retention and compaction leave `.corrupt` files alone; they go with their partition."""

    async def run() -> None:
        manager = await compacted(tmp_path)
        log = manager.get("first", 0)
        assert log is not None
        aside = tmp_path / "first-0" / f"{3:020d}.log.corrupt"
        aside.write_bytes(b"cut")
        manager = make_manager(str(tmp_path), topic=COMPACT | {"file.delete.delay.ms": "0"})
        async with started(manager):
            log = manager.get("first", 0)
            assert log is not None
            log.delete_oldest(1, now_ms=NOW)
            fill(log)
            assert run_at_once(manager.cleaner.run()) == 1
            assert aside.read_bytes() == b"cut"
            await manager.delete([("first", 0)])
            await pass_time(10)
            assert not list(tmp_path.glob("first-0*"))

    run_simulated(run())

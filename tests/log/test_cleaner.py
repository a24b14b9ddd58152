"""The cleaner: what it chooses and what it leaves in place."""

import asyncio
import errno
from pathlib import Path

import pytest

from ottla.log import checkpoints
from ottla.log.cleaner import candidate
from ottla.log.log import Log
from ottla.seams.background import RealBackground
from ottla.seams.simulated.disk import SimulatedDisk
from tests.log.cleaning import (
    COMPACT,
    NOW,
    STALE,
    clean,
    fill,
    last_values,
    left_over,
    new_log,
)
from tests.log.managed import TOPIC_ID, contents, make_manager, put, started
from tests.simulated import pass_time, run_simulated


def test_a_dirty_log_is_compacted_and_remembered(tmp_path: Path) -> None:
    """Each key is left once, in one segment; the checkpoint says so, and it is not done again."""

    async def run() -> None:
        manager, log = await new_log(str(tmp_path))
        fill(log)
        before = contents(log)
        assert clean(manager) == 1
        after = contents(log)
        assert last_values(after) == last_values(before)
        assert [key for _, key, _ in after] == [b"only 0", b"only 1", b"a", b"b", b"only 2"]
        assert len(log.segments) == 2
        assert clean(manager) == 0
        await manager.close()
        assert b"first 0 9\n" in (tmp_path / checkpoints.CLEANER_OFFSETS).read_bytes()
        async with started(make_manager(str(tmp_path), topic=COMPACT)) as again:
            assert contents(again.get("first", 0)) == after  # type: ignore[arg-type]
            assert clean(again) == 0

    run_simulated(run())


def test_the_work_is_done_by_a_helper_process(tmp_path: Path) -> None:
    """With the real background the same log comes out of `python -m ottla.log.helper`."""

    async def run() -> None:
        background = RealBackground(asyncio.get_running_loop())
        try:
            manager, log = await new_log(str(tmp_path), background=background)
            fill(log)
            before = last_values(contents(log))
            assert await manager.cleaner.run() == 1
            assert last_values(contents(log)) == before
            assert len(contents(log)) == 5
            await manager.close()
        finally:
            background.close()

    asyncio.run(run())


def test_the_cleaner_comes_round_by_itself(tmp_path: Path) -> None:
    """After `log.cleaner.backoff.ms` a dirty log is cleaned without being asked."""

    async def run() -> None:
        manager, log = await new_log(str(tmp_path))
        manager.begin_upkeep()
        fill(log, now_ms=manager.clock.now_ms())
        await pass_time(16_000)
        assert len(contents(log)) == 5
        await pass_time(61_000)
        names = [p.name for p in (tmp_path / "first-0").iterdir()]
        assert not [name for name in names if name.endswith((".deleted", ".cleaned", ".swap"))]
        await manager.close()

    run_simulated(run())


def test_the_cleaner_can_be_switched_off(tmp_path: Path) -> None:
    """With log.cleaner.enable=false nothing is compacted."""

    async def run() -> None:
        manager, log = await new_log(str(tmp_path), settings={"log.cleaner.enable": "false"})
        manager.begin_upkeep()
        fill(log, now_ms=manager.clock.now_ms())
        await pass_time(60_000)
        assert len(contents(log)) == 9
        await manager.close()

    run_simulated(run())


def test_a_reader_of_a_replaced_segment_reads_on(tmp_path: Path) -> None:
    """A range lent before the swap gives the old bytes, also once the files are removed."""

    async def run() -> None:
        manager, log = await new_log(str(tmp_path))
        fill(log)
        lent = log.read(0, bytes_max=1 << 20, end_offset=log.end_offset)
        assert lent is not None
        old = lent.file.pread(lent.size, lent.position)
        assert clean(manager) == 1
        assert lent.file.pread(lent.size, lent.position) == old
        await pass_time(61_000)
        assert lent.file.pread(lent.size, lent.position) == old
        await manager.close()

    run_simulated(run())


def facts(log: Log, **more: int | None) -> tuple[int, int, bool, bool]:
    found = candidate(
        log,
        cleaned_offset=more.get("cleaned_offset"),
        last_stable_offset=more.get("last_stable_offset", log.end_offset) or 0,
        now_ms=more.get("now_ms", NOW) or 0,
    )
    return (
        found.first_dirty_offset, found.first_uncleanable_offset, found.is_due, found.overdue,
    )  # fmt: skip


def test_what_may_be_cleaned(tmp_path: Path) -> None:
    """The active segment, undecided transactions and young records are left alone."""

    async def run() -> None:
        manager, log = await new_log(str(tmp_path))
        for number in range(3):  # segments at 0, 3, 6, the active one at 9
            fill(log, 1, now_ms=NOW + number * 1_000)
        put(log, (b"a", b"active"))
        assert facts(log) == (0, 9, True, False)
        assert facts(log, last_stable_offset=7) == (0, 6, True, False)
        assert facts(log, last_stable_offset=2) == (0, 0, False, False)
        assert facts(log, cleaned_offset=6) == (6, 9, False, False)
        assert facts(log, cleaned_offset=3) == (3, 9, True, False)
        assert facts(log, cleaned_offset=99) == (0, 9, True, False), "beyond the end"
        log.config = log.config._replace(min_compaction_lag_ms=500)
        assert facts(log, now_ms=NOW + 1_400) == (0, 3, True, False)
        assert facts(log, now_ms=NOW + 400) == (0, 0, False, False)
        log.config = log.config._replace(min_compaction_lag_ms=0, max_compaction_lag_ms=1_500)
        assert facts(log, cleaned_offset=6, now_ms=NOW + 3_000) == (6, 9, False, False)
        assert facts(log, cleaned_offset=6, now_ms=NOW + 4_000) == (6, 9, True, True)
        log.config = log.config._replace(
            max_compaction_lag_ms=2**63 - 1, min_cleanable_dirty_ratio=0.1
        )
        assert facts(log, cleaned_offset=6) == (6, 9, True, False)
        log.delete_records_before(4)
        assert facts(log, cleaned_offset=3) == (4, 9, True, False), "below the log's start"
        await manager.close()

    run_simulated(run())


def test_the_filthiest_log_comes_first(tmp_path: Path) -> None:
    """Of two logs that are due, the one with the larger dirty share is cleaned first."""

    async def run() -> None:
        manager, log = await new_log(str(tmp_path))
        other = manager.create("first", 1, TOPIC_ID)
        fill(log, 3)
        fill(other, 3)
        manager.cleaner.offsets["first", 0] = 3
        chosen = await manager.cleaner.filthiest()
        assert chosen is not None
        assert chosen.log is other
        assert clean(manager) == 2
        await manager.close()

    run_simulated(run())


def test_more_keys_than_memory_take_several_passes(tmp_path: Path) -> None:
    """With an offset map of two keys the log still ends up with each key once."""

    async def run() -> None:
        manager, log = await new_log(
            str(tmp_path), topic=COMPACT | {"min.cleanable.dirty.ratio": "0"}
        )
        manager.cleaner.dedupe_bytes = 3 * 24
        fill(log, 4)
        before = last_values(contents(log))
        assert clean(manager) > 2
        assert last_values(contents(log)) == before
        assert len(contents(log)) == len(before)
        await manager.close()

    run_simulated(run())


def test_a_corrupt_log_is_named_once_and_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A batch with a wrong checksum makes its log uncleanable; other logs are cleaned."""

    async def run() -> None:
        manager, log = await new_log(str(tmp_path))
        other = manager.create("first", 1, TOPIC_ID)
        fill(log)
        fill(other)
        log.segments[0].file.pwrite(b"\xff", 90)
        assert clean(manager) == 1
        assert clean(manager) == 0
        assert len(contents(other)) == 5
        assert manager.cleaner.uncleanable == {("first", 0)}
        await manager.close()

    run_simulated(run())
    assert "first-0: cannot be compacted" in caplog.text


@pytest.mark.parametrize("unwritable", [".cleaned", "compaction.metadata.tmp"])
def test_a_full_disk_only_puts_it_off(unwritable: str) -> None:
    """Without space for the cleaned segment, or for the sign that there is one, the log stays as
    it is, online, and is tried later.
    """

    async def run() -> None:
        disk = SimulatedDisk()
        manager, log = await new_log("/data", disk=disk)
        fill(log)
        before = contents(log)
        disk.fail("write", unwritable, errno.ENOSPC)
        assert clean(manager) == 0
        assert contents(log) == before
        assert log.offline is None
        assert left_over(disk) == [], "what was written goes, or the disk stays full"
        disk.heal()
        assert clean(manager) == 1
        assert len(contents(log)) == 5

    run_simulated(run())


def test_a_cleaning_that_cannot_remove_left_overs_does_not_begin() -> None:
    """A `.cleaned` file of an earlier compaction that cannot be removed puts the next one off."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager, log = await new_log("/data", disk=disk)
        fill(log)
        before = contents(log)
        disk.open(STALE, create=True)
        disk.fail("unlink", ".cleaned", errno.EIO)
        assert clean(manager) == 0
        assert contents(log) == before
        assert log.offline is None
        disk.heal()
        assert clean(manager) == 1
        assert left_over(disk) == []

    run_simulated(run())


def test_deleting_a_topic_calls_its_cleaning_off(tmp_path: Path) -> None:
    """A partition can be deleted while a helper works on it; nothing of it comes back."""

    async def run() -> None:
        background = RealBackground(asyncio.get_running_loop())
        try:
            manager, log = await new_log(str(tmp_path), background=background)
            fill(log)
            cleaning = asyncio.create_task(manager.cleaner.run())
            while not manager.cleaner.is_cleaning(log):
                await asyncio.sleep(0)
            await manager.delete([("first", 0)])
            assert await cleaning == 0
            assert not (tmp_path / "first-0").exists()
            assert manager.cleaner.offsets == {}
            await manager.close()
        finally:
            background.close()

    asyncio.run(run())


@pytest.mark.parametrize("trace", ["corrupt checkpoint", "Apache Kafka's log", "none"])
def test_gaps_of_compaction_are_not_taken_for_damage(trace: str) -> None:
    """After a crash a compacted log is whole, also if its policy is not known, or not any more."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager, log = await new_log("/data", disk=disk)
        fill(log)
        clean(manager)
        put(log, (b"a", b"active"))
        before = contents(log)
        disk.kill()
        if trace == "corrupt checkpoint":
            disk.write_atomically(f"/data/{checkpoints.RECOVERY_POINTS}", b"torn", sync=True)
        elif trace == "Apache Kafka's log":
            disk.mkdir("/data/__cluster_metadata-0")
            disk.unlink(f"/data/{checkpoints.RECOVERY_POINTS}")
        async with started(make_manager("/data", disk=disk)) as manager:
            assert contents(manager.get("first", 0)) == before  # type: ignore[arg-type]

    run_simulated(run())

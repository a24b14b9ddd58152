"""The log manager: start and stop, adoption, creation and deletion, and what a crash leaves."""

import asyncio
import errno
import json
import struct
from pathlib import Path

import pytest

from ottla.log import checkpoints
from ottla.log.directories import DirectoryProblem, parse_folder, renamed_folder
from ottla.log.manager import NO_TOPIC_ID, LogManager
from ottla.seams.disk import RealDisk
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.settings import Settings
from ottla.wire.checksum import crc32c
from ottla.wire.records import Record, write_batch
from tests.log.managed import TOPIC_ID, contents, make_manager, put, started
from tests.simulated import pass_time, run_simulated


def crash(manager: LogManager) -> None:
    """What SIGKILL leaves: files as they are, the lock gone."""
    for home in manager.directories:
        home.release()


def test_a_new_directory_is_marked_with_its_owner(tmp_path: Path) -> None:
    """The first start writes cluster, node and directory id, and later starts keep them."""

    async def run() -> None:
        path = tmp_path / "data"
        async with started(make_manager(str(path))) as manager:
            first = manager.cluster_id
            assert len(first) == 22
        async with started(make_manager(str(path), seed=2)) as manager:
            assert manager.cluster_id == first
        text = (path / "meta.properties").read_text()
        assert f"cluster.id={first}" in text
        assert "node.id=1" in text
        assert "directory.id=" in text

    run_simulated(run())


def test_records_are_there_after_a_clean_stop(tmp_path: Path) -> None:
    """What was appended is read again, from the same offsets, and nothing was recovered."""

    async def run() -> None:
        path = str(tmp_path / "data")
        async with started(make_manager(path)) as manager:
            log = manager.create("first", 0, TOPIC_ID)
            put(log, (b"k", b"1"), (b"k", b"2"))
            put(log, (None, b"3"))
        marker = json.loads((tmp_path / "data/.kafka_cleanshutdown").read_text())
        assert (marker["version"], marker["brokerEpoch"]) == (0, -1)
        manager = make_manager(path)
        async with started(manager):
            assert manager.directories[0].was_clean
            assert not (tmp_path / "data/.kafka_cleanshutdown").exists()
            assert manager.found() == [("first", 0, TOPIC_ID)]
            log = manager.get("first", 0)  # type: ignore[assignment]
            assert contents(log) == [(0, b"k", b"1"), (1, b"k", b"2"), (2, None, b"3")]
            assert log.recovery_point == log.end_offset == 3
            assert put(log, (None, b"4")) == 3

    run_simulated(run())


def test_records_are_there_after_a_crash(tmp_path: Path) -> None:
    """After SIGKILL every log is recovered before the start is over."""

    async def run() -> None:
        path = str(tmp_path / "data")
        manager = make_manager(path)
        await manager.start()
        log = manager.create("first", 0, TOPIC_ID)
        put(log, (b"k", b"1"))
        manager.create("first", 1, TOPIC_ID)
        await manager.metadata_files.settle()
        crash(manager)
        async with started(make_manager(path)) as manager:
            assert not manager.directories[0].was_clean
            assert len(manager.opened()) == 2
            log = manager.get("first", 0)  # type: ignore[assignment]
            assert contents(log) == [(0, b"k", b"1")]
            assert manager.get("first", 1).end_offset == 0  # type: ignore[union-attr]

    run_simulated(run())


def test_a_torn_batch_is_cut_off_at_the_start(tmp_path: Path) -> None:
    """Half a batch at the end of a log is gone after recovery; what was whole stays."""

    async def run() -> None:
        path = str(tmp_path / "data")
        manager = make_manager(path)
        await manager.start()
        log = manager.create("first", 0, TOPIC_ID)
        put(log, (b"k", b"1"))
        put(log, (b"k", b"2"))
        crash(manager)
        segment = tmp_path / "data/first-0/00000000000000000000.log"
        segment.write_bytes(segment.read_bytes()[:-5])
        async with started(make_manager(path)) as manager:
            assert contents(manager.get("first", 0)) == [(0, b"k", b"1")]  # type: ignore[arg-type]

    run_simulated(run())


def test_a_second_server_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """The directory of a running server is locked, and the message says what to do."""

    async def run() -> None:
        path = str(tmp_path / "data")
        async with started(make_manager(path)):
            with pytest.raises(DirectoryProblem) as caught:
                await make_manager(path).start()
            assert "in use by another server" in str(caught.value)
            assert path in str(caught.value)
            assert "\n" not in str(caught.value)
        async with started(make_manager(path)):
            pass  # free again

    run_simulated(run())


@pytest.mark.parametrize(
    ("meta", "complaint"),
    [
        ("version=1\ncluster.id=other\nnode.id=1\n", "belongs to cluster other"),
        ("version=1\ncluster.id=mine\nnode.id=7\n", "node.id=7"),
        ("version=9\n", "version 0 or 1"),
    ],
)
def test_a_foreign_directory_is_refused(tmp_path: Path, meta: str, complaint: str) -> None:
    """A directory of another cluster or node, or one that says nonsense, is not touched."""

    async def run() -> None:
        (tmp_path / "meta.properties").write_text(meta)
        with pytest.raises(DirectoryProblem, match=complaint):
            await make_manager(str(tmp_path)).start("mine")
        assert (tmp_path / "meta.properties").read_text() == meta
        RealDisk().lock(str(tmp_path / ".lock")).release()  # and it is not left locked

    run_simulated(run())


def test_a_directory_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    """A path below a file is one clear sentence, not a traceback."""
    (tmp_path / "file").write_text("")
    with pytest.raises(DirectoryProblem, match="cannot be used"):
        asyncio.run(make_manager(str(tmp_path / "file/data")).start())


def test_partitions_of_apache_kafka_are_adopted(tmp_path: Path) -> None:
    """Names come from folders, ids from partition.metadata; Kafka's own log is left alone."""

    async def run() -> None:
        for folder in (
            "first-0", "with-dash-12", "__cluster_metadata-0", "no-id-3", "gone-0.0123abc-delete",
            "moving-1.0123abc-future", "lost-0.0123abc-stray", "lost+found",
        ):  # fmt: skip
            (tmp_path / folder).mkdir()
        for folder in ("first-0", "with-dash-12"):
            (tmp_path / folder / "partition.metadata").write_bytes(
                checkpoints.format_partition_metadata(TOPIC_ID)
            )
        (tmp_path / "bootstrap.checkpoint").write_text("")
        (tmp_path / "meta.properties").write_text("cluster.id=kafkas\nnode.id=1\nversion=1\n")
        (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":42}')
        async with started(make_manager(str(tmp_path))) as manager:
            assert manager.cluster_id == "kafkas"
            assert manager.directories[0].last_broker_epoch == 42
            assert sorted(manager.found()) == [
                ("first", 0, TOPIC_ID), ("no-id", 3, NO_TOPIC_ID), ("with-dash", 12, TOPIC_ID),
            ]  # fmt: skip
            manager.create("no-id", 3, TOPIC_ID)
            await pass_time(61_000)
            assert not (tmp_path / "gone-0.0123abc-delete").exists()
        for folder in ("moving-1.0123abc-future", "lost-0.0123abc-stray", "__cluster_metadata-0"):
            assert (tmp_path / folder).exists()
        assert b"topic_id" in (tmp_path / "no-id-3/partition.metadata").read_bytes()

    run_simulated(run())


def test_a_deleted_partition_leaves_after_a_while(tmp_path: Path) -> None:
    """Its folder is renamed at once, removed after file.delete.delay.ms, and readers go on."""

    async def run() -> None:
        async with started(make_manager(str(tmp_path))) as manager:
            log = manager.create("first", 0, TOPIC_ID)
            put(log, (b"k", b"value"))
            lent = log.read(0, bytes_max=1000, end_offset=1)
            assert lent is not None
            await manager.delete([("first", 0), ("never", 7)])
            assert manager.get("first", 0) is None
            assert log.offline is not None
            (folder,) = [p.name for p in tmp_path.iterdir() if p.is_dir()]
            assert folder.startswith("first-0.")
            assert folder.endswith("-delete")
            await pass_time(59_000)
            assert (tmp_path / folder).exists()
            await pass_time(2_000)
            assert not (tmp_path / folder).exists()
            assert b"value" in lent.file.pread(lent.size, lent.position)

    run_simulated(run())


def test_a_new_topic_inherits_nothing(tmp_path: Path) -> None:
    """A topic made again under an old name begins at 0, also when the broker then crashes."""

    async def run() -> None:
        path = str(tmp_path)
        async with started(make_manager(path)) as manager:
            log = manager.create("first", 0, TOPIC_ID)
            for _ in range(5):
                put(log, (b"k", b"old"))
            log.delete_records_before(3)
        manager = make_manager(path)
        await manager.start()
        await manager.delete([("first", 0)])
        log = manager.create("first", 0, bytes(16)[:-1] + b"\x09")
        put(log, (b"k", b"new"))
        crash(manager)
        async with started(make_manager(path)) as manager:
            assert contents(manager.get("first", 0)) == [(0, b"k", b"new")]  # type: ignore[arg-type]

    run_simulated(run())


def test_checkpoints_forget_folders_that_are_gone(tmp_path: Path) -> None:
    """A start that finds entries without a folder rewrites the checkpoints at once."""

    async def run() -> None:
        (tmp_path / checkpoints.RECOVERY_POINTS).write_bytes(b"0\n1\ngone 0 99\n")
        (tmp_path / checkpoints.LOG_START_OFFSETS).write_bytes(b"0\n1\ngone 0 98\n")
        manager = make_manager(str(tmp_path))
        await manager.start()
        crash(manager)
        for name in (checkpoints.RECOVERY_POINTS, checkpoints.LOG_START_OFFSETS):
            assert (tmp_path / name).read_bytes() == b"0\n0\n"

    run_simulated(run())


@pytest.mark.parametrize("name", [
    checkpoints.RECOVERY_POINTS, checkpoints.LOG_START_OFFSETS, checkpoints.CLEANER_OFFSETS,
    checkpoints.HIGH_WATERMARKS,
])  # fmt: skip
@pytest.mark.parametrize("clean", [True, False])
def test_a_corrupt_checkpoint_costs_no_record(tmp_path: Path, name: str, clean: bool) -> None:
    """Without a checkpoint the start goes on, with a line in the log, and all records are there."""

    async def run() -> None:
        path = str(tmp_path)
        manager = make_manager(path)
        await manager.start()
        put(manager.create("first", 0, TOPIC_ID), (b"k", b"1"), (b"k", b"2"))
        if clean:
            await manager.close()
        else:
            crash(manager)
        (tmp_path / name).write_bytes(b"0\n7\nfirst")
        async with started(make_manager(path)) as manager:
            assert len(contents(manager.get("first", 0))) == 2  # type: ignore[arg-type]

    run_simulated(run())


def test_log_start_and_recovery_point_are_checkpointed(tmp_path: Path) -> None:
    """What DeleteRecords and fsync reached is written down in time, and believed after a crash."""

    async def run() -> None:
        manager = make_manager(str(tmp_path), topic={"flush.messages": "1"})
        await manager.start()
        manager.begin_upkeep()
        log = manager.create("first", 0, TOPIC_ID)
        for number in range(5):
            put(log, (b"k", b"%d" % number))
            await pass_time(1)
        assert log.recovery_point == 5
        log.delete_records_before(3)
        await pass_time(61_000)
        crash(manager)
        assert b"first 0 5\n" in (tmp_path / checkpoints.RECOVERY_POINTS).read_bytes()
        assert b"first 0 3\n" in (tmp_path / checkpoints.LOG_START_OFFSETS).read_bytes()
        assert b"first 0 5\n" in (tmp_path / checkpoints.HIGH_WATERMARKS).read_bytes()
        async with started(make_manager(str(tmp_path))) as manager:
            log = manager.get("first", 0)  # type: ignore[assignment]
            assert (log.log_start_offset, log.recovery_point) == (3, 5)

    run_simulated(run())


def test_flush_ms_is_kept(tmp_path: Path) -> None:
    """A log with `flush.ms` is synced when its records are that old, one without is not."""

    async def run() -> None:
        manager = make_manager(str(tmp_path), topic={"flush.ms": "5000"})
        async with started(manager):
            manager.begin_upkeep()
            log = manager.create("first", 0, TOPIC_ID)
            put(log, (b"k", b"1"))
            await pass_time(3_000)
            assert log.recovery_point == 0
            await pass_time(3_000)
            assert log.recovery_point == 1
            manager.configure("first", log.config._replace(flush_ms=2**63 - 1))
            put(log, (b"k", b"2"))
            await pass_time(100_000)
            assert log.recovery_point == 1

    run_simulated(run())


def test_retention_deletes_old_segments_in_time(tmp_path: Path) -> None:
    """Old segments leave the log at the next round and the disk after the delay."""

    async def run() -> None:
        manager = make_manager(
            str(tmp_path),
            topic={"retention.ms": "100000", "file.delete.delay.ms": "1000"},
        )  # fmt: skip
        async with started(manager):
            manager.begin_upkeep()
            log = manager.create("first", 0, TOPIC_ID)
            put(log, (b"k", b"old"), now_ms=manager.clock.now_ms())
            log.roll(now_ms=manager.clock.now_ms())
            await pass_time(290_000)  # rounds come after 30 s and then every 300 s
            put(log, (b"k", b"new"), now_ms=manager.clock.now_ms())
            assert log.log_start_offset == 0
            await pass_time(41_000)
            assert log.log_start_offset == 1
            await pass_time(2_000)
            names = {p.name for p in (tmp_path / "first-0").iterdir()}
            assert not [name for name in names if name.endswith(".deleted")]
            assert "00000000000000000000.log" not in names

    run_simulated(run())


def test_records_without_a_time_are_as_old_as_their_file(tmp_path: Path) -> None:
    """What librdkafka writes for them, a maximum timestamp of 0, does not make them of 1970."""

    async def run() -> None:
        manager = make_manager(str(tmp_path), topic={"retention.ms": "100000000"})
        async with started(manager):
            manager.begin_upkeep()
            log = manager.create("first", 0, TOPIC_ID)
            batch = bytearray(write_batch([Record(b"v", timestamp=-1)]))
            struct.pack_into(">q", batch, 35, 0)
            struct.pack_into(">I", batch, 17, crc32c(batch, 21))
            now_ms = manager.clock.now_ms()
            result = log.append(memoryview(batch), leader_epoch=0, now_ms=now_ms)
            assert result.error_code == 0
            log.roll(now_ms=now_ms)
            await pass_time(400_000)
            assert log.log_start_offset == 0

    run_simulated(run())


def test_an_offline_log_keeps_the_marker_away(tmp_path: Path) -> None:
    """A stop with a failed log is not clean: that log must be recovered; others lose nothing."""

    async def run() -> None:
        async with started(make_manager(str(tmp_path))) as manager:
            put(manager.create("first", 0, TOPIC_ID), (b"k", b"1"))
            put(manager.create("first", 1, TOPIC_ID), (b"k", b"2"))
            manager.get("first", 0).fail("for the test")  # type: ignore[union-attr]
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
        async with started(make_manager(str(tmp_path))) as manager:
            for partition in (0, 1):
                log = manager.get("first", partition)
                assert log is not None
                assert log.offline is None
                assert len(contents(log)) == 1

    run_simulated(run())


def test_several_directories_share_the_partitions(tmp_path: Path) -> None:
    """New partitions go where the fewest are; a partition in two places is refused."""

    async def run() -> None:
        paths = [str(tmp_path / "a"), str(tmp_path / "b")]
        async with started(make_manager(*paths)) as manager:
            for partition in range(4):
                put(manager.create("first", partition, TOPIC_ID), (b"k", b"%d" % partition))
        assert [len([p for p in Path(path).iterdir() if p.is_dir()]) for path in paths] == [2, 2]
        async with started(make_manager(*paths)) as manager:
            assert len(manager) == 4
            await manager.delete([("first", 3)])
        (tmp_path / "a/first-1").mkdir(exist_ok=True)
        (tmp_path / "b/first-1").mkdir(exist_ok=True)
        with pytest.raises(DirectoryProblem, match="first-1"):
            await make_manager(*paths).start()
        with pytest.raises(DirectoryProblem, match="twice"):
            await make_manager(paths[0], paths[0] + "/").start()

    run_simulated(run())


def test_another_topic_id_is_another_topic(tmp_path: Path) -> None:
    """A folder of an older topic with the same name is not taken for the new one."""

    async def run() -> None:
        async with started(make_manager(str(tmp_path))) as manager:
            manager.create("first", 0, TOPIC_ID)
            assert manager.create("first", 0, TOPIC_ID) is manager.get("first", 0)
            with pytest.raises(ValueError, match="delete it first"):
                manager.create("first", 0, bytes(15) + b"\x07")

    run_simulated(run())


def test_a_full_disk_at_the_stop_only_costs_the_marker(caplog: pytest.LogCaptureFixture) -> None:
    """A stop that cannot write its checkpoints ends in order; the next start recovers."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager = make_manager("/data", disk=disk)
        await manager.start()
        manager.begin_upkeep()
        put(manager.create("first", 0, TOPIC_ID), (b"k", b"v"))
        disk.fail("write", "checkpoint", errno.ENOSPC)
        await manager.close()
        disk.heal()
        assert not disk.exists("/data/.kafka_cleanshutdown")
        async with started(make_manager("/data", disk=disk)) as manager:
            assert contents(manager.get("first", 0)) == [(0, b"k", b"v")]  # type: ignore[arg-type]

    run_simulated(run())
    assert "not marked as clean" in caplog.text


def test_a_disk_error_at_the_start_is_one_sentence() -> None:
    """What the disk says while the directory is read reaches the operator without a traceback."""
    disk = SimulatedDisk()
    disk.mkdir("/data")
    disk.open("/data/.kafka_cleanshutdown", create=True)
    disk.fail("unlink", "cleanshutdown", errno.EIO)
    with pytest.raises(DirectoryProblem, match="Input/output error"):
        asyncio.run(make_manager("/data", disk=disk).start())


def test_one_partition_that_cannot_be_read_takes_no_other_down() -> None:
    """A log that fails to load is there, offline; the others serve."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager = make_manager("/data", disk=disk)
        await manager.start()
        for partition in (0, 1):
            put(manager.create("first", partition, TOPIC_ID), (b"k", b"v"))
        crash(manager)
        disk.fail("read", "first-0/0", errno.EIO)
        manager = make_manager("/data", disk=disk)
        await manager.start()
        assert manager.get("first", 0).offline is not None  # type: ignore[union-attr]
        assert contents(manager.get("first", 1)) == [(0, b"k", b"v")]  # type: ignore[arg-type]

    run_simulated(run())


def test_cleaner_options_change_while_running(tmp_path: Path) -> None:
    """New values of the dynamic options hold from the next cleaning on."""

    async def run() -> None:
        async with started(make_manager(str(tmp_path))) as manager:
            assert manager.cleaner.bytes_per_second is None
            manager.reconfigure(
                Settings.from_properties(
                    {
                        "log.cleaner.io.max.bytes.per.second": "1000000",
                        "log.cleaner.dedupe.buffer.size": "10000000",
                        "log.cleaner.io.buffer.load.factor": "0.5",
                    }
                )
            )
            assert manager.cleaner.bytes_per_second == 1_000_000
            assert manager.cleaner.dedupe_bytes == 10_000_000
            assert manager.cleaner.load_factor == 0.5

    run_simulated(run())


def test_folder_names() -> None:
    """Topic names may hold dashes; names of deleted folders fit any file system."""
    assert parse_folder("a-b-3") == ("a-b", 3)
    for name in ("a", "-3", "a-", "a-x", "a-٣"):
        assert parse_folder(name) is None
    assert len(renamed_folder("t" * 249, 123, "f" * 32, "-delete")) == 255

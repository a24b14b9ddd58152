"""Both disks keep the same promises; the real one with few descriptors, the simulated one through
power cuts.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.seams import posix
from ottla.seams.disk import AlreadyLocked, Disk, OutOfDescriptors, RealDisk
from ottla.seams.simulated.disk import SimulatedDisk
from tests.waiting import eventually

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return RealDisk(descriptors_max=3) if request.param == "real" else SimulatedDisk()


@pytest.fixture
def home(disk: Disk, tmp_path: Path) -> str:
    path = f"{tmp_path}/data"
    disk.mkdir(path)
    return path


def test_bytes_written_are_read(disk: Disk, home: str) -> None:
    """append, pwrite, truncate, and all ways to read."""
    file = disk.open(f"{home}/a")
    file.append(b"hello ")
    file.append(memoryview(b"world"))
    file.pwrite(b"W", 6)
    assert file.size() == 11
    assert file.pread(100, 0) == file.reading_once(0, 100)() == b"hello World"
    buffer = bytearray(5)
    assert file.pread_into(memoryview(buffer), 6) == 5
    assert buffer == b"World"
    file.truncate(5)
    file.append(b"!")
    file.sync()
    file.close()
    assert disk.read(f"{home}/a") == b"hello!"
    assert disk.open(f"{home}/a").size() == 6


def test_reading_makes_no_file_and_writing_does(disk: Disk, home: str) -> None:
    """A file that is not there is an error to read, and comes with the first write."""
    file = disk.open(f"{home}/new")
    with pytest.raises(FileNotFoundError):
        file.pread(1, 0)
    assert not disk.exists(f"{home}/new")
    file.append(b"x")
    assert disk.listdir(home) == ["new"]
    assert disk.entries(home) == [("new", 1, False)]


def test_a_file_survives_the_renaming_of_itself_and_its_folder(disk: Disk, home: str) -> None:
    """Whoever holds it reads and writes on."""
    disk.mkdir(f"{home}/t-0")
    file = disk.open(f"{home}/t-0/a", create=True)
    file.append(b"1")
    disk.rename(f"{home}/t-0/a", f"{home}/t-0/b")
    file.append(b"2")
    disk.rename(f"{home}/t-0", f"{home}/t-0.x-delete")
    file.close()
    file.append(b"3")
    assert disk.read(f"{home}/t-0.x-delete/b") == b"123"
    assert not disk.exists(f"{home}/t-0")


@pytest.mark.parametrize("how", ["unlink", "rmtree"])
def test_a_file_held_is_readable_after_it_is_gone(disk: Disk, home: str, how: str) -> None:
    """A sender that was lent a range reads to its end, also when descriptors are short."""
    disk.mkdir(f"{home}/t-0")
    file = disk.open(f"{home}/t-0/a", create=True)
    file.append(b"lent")
    file.close()
    if how == "unlink":
        disk.unlink(f"{home}/t-0/a")
    else:
        disk.rmtree(f"{home}/t-0")
    for number in range(10):
        disk.open(f"{home}/{number}", create=True).append(b"other")
    assert file.pread(10, 0) == b"lent"
    assert not disk.exists(f"{home}/t-0/a")
    disk.mkdir(f"{home}/t-0")
    again = disk.open(f"{home}/t-0/a")
    again.append(b"new")
    assert (file.pread(10, 0), again.pread(10, 0)) == (b"lent", b"new")


def test_small_files_are_replaced_whole(disk: Disk, home: str) -> None:
    """The new content, and no temporary file."""
    for data in (b"one", b"the second"):
        disk.write_atomically(f"{home}/checkpoint", data, sync=True)
        assert disk.read(f"{home}/checkpoint") == data
    assert disk.listdir(home) == ["checkpoint"]


def test_a_replaced_file_is_another_file(disk: Disk, home: str) -> None:
    """Whoever opened it before keeps the old bytes; whoever opens the name now has the new ones.

    A flush that still holds the old file must not stand for a flush of the new one.
    """
    path = f"{home}/leader-epoch-checkpoint"
    for replace in (
        lambda: disk.write_atomically(path, b"new", sync=False),
        lambda: (
            disk.write_atomically(path + "2", b"new", sync=False),
            disk.rename(path + "2", path),
        ),
    ):
        disk.write_atomically(path, b"old", sync=False)
        flushing = disk.open(path)
        assert flushing.pread(9, 0) == b"old"
        replace()
        now = disk.open(path)
        assert now.pread(9, 0) == b"new"
        assert flushing.pread(9, 0) == b"old"
        now.sync()
        flushing.sync()


def test_a_copy_is_not_taken_for_the_original(
    disk: Disk, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder may be renamed; a copy is none, even where a tool preserves the times of files."""
    folder = f"{home}/folder"
    disk.mkdir(folder)
    path = f"{folder}/marked"
    disk.write_original(path, b"first")
    disk.write_original(path, b"second\nline")
    assert disk.read_original(path) == b"second\nline"
    disk.rename(folder, f"{home}/renamed")
    path, copy = f"{home}/renamed/marked", f"{home}/copy"
    assert disk.read_original(path) == b"second\nline"
    if isinstance(disk, RealDisk):
        monkeypatch.setattr(posix, "WRITTEN_WITHIN_MS", 10)
        eventually(lambda: time.time() - Path(path).stat().st_ctime > 0.1)
        shutil.copy2(path, copy)
    else:
        disk.write_atomically(copy, disk.read(path), sync=True)
    assert disk.read(copy) == disk.read(path)
    assert disk.read_original(copy) is None
    disk.write_atomically(copy, b"without a time", sync=True)
    assert disk.read_original(copy) is None


def test_a_lock_is_held_once(disk: Disk, home: str) -> None:
    """A second broker, in this process too, gets an error."""
    lock = disk.lock(f"{home}/.lock")
    with pytest.raises(AlreadyLocked):
        disk.lock(f"{home}/.lock")
    lock.release()
    disk.lock(f"{home}/.lock").release()


def test_a_database_keeps_what_is_committed(disk: Disk, home: str) -> None:
    """A second connection sees what the first one wrote."""
    first = disk.database(f"{home}/tree.sqlite")
    first.execute("create table t (x)")
    first.execute("insert into t values (5)")
    first.close()
    assert disk.database(f"{home}/tree.sqlite").execute("select x from t").fetchall() == [(5,)]


def test_times_and_free_space(disk: Disk, home: str) -> None:
    """A file's time can be set and read; there is free space."""
    disk.open(f"{home}/a", create=True)
    disk.set_modified_ms(f"{home}/a", 1_700_000_000_123)
    assert disk.modified_ms(f"{home}/a") == 1_700_000_000_123
    assert 0 < disk.free_bytes(home) <= disk.total_bytes(home)


# The real one


def test_the_limit_of_descriptors_holds(tmp_path: Path) -> None:
    """Hundreds of files in turn, never more than the limit open, and nothing is lost."""
    disk = RealDisk(descriptors_max=8)
    files = [disk.open(f"{tmp_path}/{number}", create=True) for number in range(200)]
    for letter in (b"a", b"b", b"c"):
        for file in files:
            file.append(letter)
            assert disk.descriptors_open <= 8
    assert all(file.pread(9, 0) == b"abc" for file in files)
    del files, file
    assert disk.descriptors_open == 0


def test_a_file_in_use_stays_open(tmp_path: Path) -> None:
    """The clock passes by a file used since its last round."""
    disk = RealDisk(descriptors_max=4)
    busy = disk.open(f"{tmp_path}/busy", create=True)
    descriptor = busy.fileno()
    for number in range(50):
        busy.append(b"x")
        disk.open(f"{tmp_path}/{number}", create=True).append(b"y")
    assert busy.fileno() == descriptor


def test_syncs_in_threads_are_not_cut_off(tmp_path: Path) -> None:
    """The descriptor of a file that is being synced is not closed by the sweep."""
    disk = RealDisk(descriptors_max=2)
    files = [disk.open(f"{tmp_path}/{number}", create=True) for number in range(20)]
    problems: list[BaseException] = []

    def sync_all() -> None:
        try:
            for _ in range(10):
                for file in files:
                    file.sync()
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=sync_all)
    thread.start()
    for _ in range(20):
        for file in files:
            file.append(b"x")
    thread.join()
    assert not problems
    assert all(file.size() == 20 for file in files)


def test_an_append_that_fails_half_way_is_cut_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device takes some bytes, then is full: the file is as long as before."""
    disk = RealDisk()
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append(b"before")
    real_pwrite = os.pwrite
    calls = []

    def pwrite(descriptor: int, data: bytes, position: int) -> int:
        calls.append(position)
        if len(calls) == 1:
            return real_pwrite(descriptor, bytes(data)[:3], position)
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(OSError, match="no space") as caught:
        file.append(b"0123456789")
    monkeypatch.undo()
    assert caught.value.filename == f"{tmp_path}/a"
    assert disk.read(f"{tmp_path}/a") == b"before"
    file.append(b" after")
    assert file.pread(99, 0) == b"before after"


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write of a few bytes at a time still writes all."""
    disk = RealDisk()
    file = disk.open(f"{tmp_path}/a", create=True)
    real_pwrite = os.pwrite
    monkeypatch.setattr(
        os, "pwrite", lambda fd, data, position: real_pwrite(fd, bytes(data)[:3], position)
    )
    file.append(b"0123456789")
    monkeypatch.undo()
    assert file.pread(99, 0) == b"0123456789"


def test_a_read_only_file_can_be_read(tmp_path: Path) -> None:
    """Without the right to write, reading goes on."""
    if os.geteuid() == 0:
        pytest.skip("root may write everything")
    path = tmp_path / "a"
    path.write_bytes(b"data")
    path.chmod(0o444)
    assert RealDisk().open(str(path)).pread(4, 0) == b"data"


def test_without_linux_only_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system has no fdatasync, fsync does; where no preadv, pread and a copy."""
    monkeypatch.delattr(os, "fdatasync", raising=False)
    monkeypatch.delattr(os, "preadv", raising=False)
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    file = RealDisk().open(f"{tmp_path}/a", create=True)
    file.append(b"data")
    file.sync()
    assert len(synced) == 1
    buffer = bytearray(3)
    assert file.pread_into(memoryview(buffer), 1) == 3
    assert buffer == b"ata"


def test_half_of_the_allowed_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets get the other half; an unlimited process still has a limit here."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    assert posix.descriptors_allowed() == 512
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert posix.descriptors_allowed() == posix.DESCRIPTOR_LIMIT_DEFAULT // 2


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Inside, this process may open only so many descriptors more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    gaps = []
    while (gap := os.open(os.devnull, os.O_RDONLY)) <= highest:
        gaps.append(gap)
    os.close(gap)
    resource.setrlimit(resource.RLIMIT_NOFILE, (gap + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for gap in gaps:
            os.close(gap)


@on_linux
def test_without_descriptors_the_disk_gives_up_its_own(tmp_path: Path) -> None:
    """At the limit of the process a file is opened in the place of another one's descriptor."""
    disk = RealDisk()
    files = [disk.open(f"{tmp_path}/{number}", create=True) for number in range(5)]
    with descriptors_left(0):
        more = [disk.open(f"{tmp_path}/more{number}", create=True) for number in range(20)]
        for file in [*files, *more, *files]:
            file.append(b"x")
            file.sync()
            assert disk.entries(str(tmp_path))
            disk.write_atomically(f"{tmp_path}/whole", b"y", sync=True)
    assert all(file.pread(9, 0) == b"xx" for file in files)
    assert all(file.pread(9, 0) == b"x" for file in more)


@on_linux
def test_a_disk_without_open_files_still_opens_one(tmp_path: Path) -> None:
    """It holds a spare descriptor for that, and takes another one when it can."""
    disk = RealDisk()
    with descriptors_left(0):
        disk.write_atomically(f"{tmp_path}/a", b"x", sync=True)
        file = disk.open(f"{tmp_path}/b", create=True)
        file.append(b"y")
        assert disk.open(f"{tmp_path}/a").pread(1, 0) == b"x"
    del file
    with descriptors_left(0):
        disk.open(f"{tmp_path}/c", create=True).append(b"z")


@on_linux
def test_no_descriptor_at_all_is_an_error_of_its_own(tmp_path: Path) -> None:
    """Nothing was done then, and it works once a descriptor is free."""
    disk = RealDisk()
    with descriptors_left(0):
        lent = disk.open(f"{tmp_path}/a", create=True)  # in the place of the spare one
        lent.append(b"x")
        disk.unlink(f"{tmp_path}/a")  # it may not be closed any more
        with pytest.raises(OutOfDescriptors) as raised:
            disk.open(f"{tmp_path}/b", create=True)
        assert raised.value.filename == f"{tmp_path}/b"
        with pytest.raises(OutOfDescriptors):
            disk.sync_directory(str(tmp_path))
    disk.open(f"{tmp_path}/b", create=True).append(b"y")
    assert lent.pread(1, 0) == b"x"


def test_a_file_closed_during_a_sync_is_closed_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`close` does not take the descriptor away from a sync in another thread."""
    disk = RealDisk()
    file = disk.open(f"{tmp_path}/a", create=True)

    def sync_descriptor(descriptor: int) -> None:
        file.close()
        os.fstat(descriptor)  # raises if it is closed

    monkeypatch.setattr("ottla.seams.disk.sync_descriptor", sync_descriptor)
    file.sync()
    assert disk.descriptors_open == 0


# The simulated one


@given(st.lists(st.binary(min_size=1, max_size=2000), max_size=8), st.integers(0, 8), st.integers())
@settings(deadline=None, max_examples=60)
def test_a_power_cut_keeps_what_was_synced(pieces: list[bytes], synced: int, seed: int) -> None:
    """The synced bytes are there; of the others any sectors, never anything else."""
    disk = SimulatedDisk()
    file = disk.open("/a", create=True)
    disk.sync_directory("/")
    for number, piece in enumerate(pieces):
        file.append(piece)
        if number + 1 == synced:
            file.sync()
    whole = b"".join(pieces)
    safe = len(b"".join(pieces[:synced])) if synced <= len(pieces) else 0
    disk.crash(seed)
    after = disk.read("/a")
    assert after[:safe] == whole[:safe]
    assert len(after) <= len(whole)
    for at, byte in enumerate(after):
        assert byte in (0, whole[at])


def test_a_name_lasts_only_when_its_folder_is_synced() -> None:
    """Syncing the file alone may lose it; syncing the folder too may not."""
    outcomes = set()
    for seed in range(20):
        disk = SimulatedDisk()
        disk.open("/sure", create=True).sync()
        disk.sync_directory("/")
        disk.open("/unsure", create=True).sync()
        disk.crash(seed)
        assert disk.exists("/sure")
        outcomes.add(disk.exists("/unsure"))
    assert outcomes == {True, False}


def test_a_rename_is_all_or_nothing() -> None:
    """After a power cut there is the old content or the new, once it was written with sync."""
    for seed in range(20):
        disk = SimulatedDisk()
        disk.write_atomically("/c", b"old", sync=True)
        disk.open("/c.tmp", create=True).append(b"new")
        disk.open("/c.tmp").sync()
        disk.rename("/c.tmp", "/c")
        disk.crash(seed)
        assert disk.read("/c") in (b"old", b"new")


def test_a_failed_sync_drops_what_it_should_have_kept() -> None:
    """Asked again the disk says yes, and the bytes are gone all the same: Linux since 4.13."""
    disk = SimulatedDisk()
    file = disk.open("/a", create=True)
    disk.sync_directory("/")
    file.append(b"first")
    file.sync()
    file.append(b"second")
    disk.fail("sync", "/a", errno.EIO, times=1)
    with pytest.raises(OSError):
        file.sync()
    file.sync()
    assert file.pread(99, 0) == b"firstsecond"
    disk.crash(0)
    assert disk.read("/a") == b"first"


def test_faults_happen_when_set() -> None:
    """Only the operation, the path and the turn that were named."""
    disk = SimulatedDisk()
    disk.fail("write", ".log", errno.EIO, after=1, times=1)
    log, other = disk.open("/a.log"), disk.open("/a.index")
    log.append(b"1")
    other.append(b"1")
    with pytest.raises(OSError) as caught:
        log.append(b"2")
    assert caught.value.errno == errno.EIO
    log.append(b"3")
    assert disk.read("/a.log") == b"13"


def test_a_full_disk_says_so() -> None:
    """ENOSPC, and what was there stays."""
    disk = SimulatedDisk(capacity_bytes=10)
    file = disk.open("/a", create=True)
    file.append(b"12345678")
    with pytest.raises(OSError) as caught:
        file.append(b"901")
    assert caught.value.errno == errno.ENOSPC
    file.append(b"90")
    assert disk.free_bytes("/") == 0


def test_bits_and_ends_can_be_spoilt() -> None:
    """Damage at rest is there at once and after a crash."""
    disk = SimulatedDisk()
    disk.write_atomically("/a", b"abc", sync=True)
    disk.flip_bit("/a", 8)
    assert disk.read("/a") == b"acc"
    disk.cut("/a", 2)
    disk.crash(3)
    assert disk.read("/a") == b"ac"

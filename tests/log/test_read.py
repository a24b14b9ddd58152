"""Reading: whole first batches, cuts at the byte limit, ends, gaps and the cost of it."""

from __future__ import annotations

import errno
import os

import pytest

from ottla.log.failures import OffsetOutOfRange
from ottla.log.log import Log
from ottla.log.reading import extend_to_batch_end
from ottla.log.segment import HINTS_MAX
from ottla.seams.disk import RealDisk
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.settings import LogConfig
from ottla.wire.records import batch_bounds, read_header
from tests.log.logs import DIRECTORY, NOW_MS, SMALL, batch, new_log, put, read_all, reopen, values

ONE_SEGMENT = LogConfig(index_interval_bytes=150)


def filled(count: int, config: LogConfig = SMALL) -> Log:
    log = new_log(SimulatedDisk(), config)
    for number in range(count):
        put(log, b"%d" % number)
    return log


def test_every_offset_is_found() -> None:
    """In any segment, by index or hint, fresh or after a restart."""
    log = filled(200)
    assert len(log.segments) > 5
    log.close()
    for one in (log, reopen(log.disk, clean=True, recovery_point=200)):
        for offset in [*range(199, -1, -1), *range(200)]:
            part = one.read(offset, bytes_max=100, end_offset=200)
            assert part is not None
            assert read_header(part.file.pread(61, part.position)).base_offset == offset


def test_hints_of_tailing_readers_are_few() -> None:
    """Each read of the end leaves a hint for the next one; at the limit they begin anew, and every
    offset is found as before."""
    log = new_log(SimulatedDisk(), ONE_SEGMENT)
    most = 0
    for number in range(3 * HINTS_MAX):
        put(log, b"%d" % number)
        part = log.read(number, bytes_max=1 << 20, end_offset=number + 1)
        assert part is not None
        assert read_header(part.file.pread(61, part.position)).base_offset == number
        most = max(most, len(log.active.hints or ()))
    assert most == HINTS_MAX
    for offset in range(3 * HINTS_MAX):
        part = log.read(offset, bytes_max=100, end_offset=log.end_offset)
        assert part is not None
        assert read_header(part.file.pread(61, part.position)).base_offset == offset


def test_a_cut_is_moved_to_the_end_of_a_batch() -> None:
    """By the index, from any offset and wherever the cut is; never beyond the limit."""
    log = filled(100)
    for offset in range(0, 100, 7):
        for cut in (80, 100, 333, 1 << 20):
            whole = log.read(offset, bytes_max=1 << 20, end_offset=100)
            part = log.read(offset, bytes_max=cut, end_offset=100)
            assert whole is not None
            assert part is not None
            before = part.size
            extend_to_batch_end(log.segments, offset, part, 1 << 20)
            assert before <= part.size <= before + 300
            data = whole.file.pread(whole.size, whole.position)
            assert part.size in [end for _, end in batch_bounds(memoryview(data))]
            extend_to_batch_end(log.segments, offset, part, 70)
            assert part.size == 70


def test_an_offset_inside_a_batch_gives_the_whole_batch() -> None:
    """The consumer skips what it has."""
    log = new_log(SimulatedDisk())
    put(log, *(b"%d" % n for n in range(10)))
    for offset in range(10):
        part = log.read(offset, bytes_max=10_000, end_offset=10)
        assert part is not None
        assert (part.position, part.size) == (0, log.size_bytes)


def test_first_batch_comes_whole_and_the_rest_is_cut() -> None:
    """A first batch beyond the limit comes whole or, if asked, not at all; else exactly the
    limit.
    """
    log = filled(10, ONE_SEGMENT)
    size = log.size_bytes // 10
    whole = log.read(0, bytes_max=10, end_offset=10)
    assert whole is not None
    assert whole.size == size
    none = log.read(0, bytes_max=10, end_offset=10, first_batch_whole=False)
    assert none is not None
    assert none.size == 0
    cut = log.read(0, bytes_max=2 * size + 5, end_offset=10)
    assert cut is not None
    assert cut.size == 2 * size + 5


def test_never_beyond_the_end_offset() -> None:
    """The high watermark bounds a read, wherever it lies."""
    log = filled(60)
    for limit in range(61):
        for offset in (0, 17, 59):
            part = log.read(offset, bytes_max=1 << 20, end_offset=limit)
            if offset >= limit:
                assert part is None
                continue
            assert part is not None
            data = part.file.pread(part.size, part.position)
            offsets = [read_header(data, start).last_offset for start, _ in batch_bounds(data)]
            assert offsets[0] == offset
            assert offsets[-1] < limit


def test_outside_the_log() -> None:
    """Below the start and beyond the end: OFFSET_OUT_OF_RANGE; at the end: nothing yet."""
    log = filled(20)
    log.delete_records_before(5)
    assert log.read(20, bytes_max=100, end_offset=20) is None
    for offset in (-1, 0, 4, 21):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, bytes_max=100, end_offset=20)


def test_a_read_error_takes_the_log_offline() -> None:
    """An I/O error is not a client's business: the log goes offline, the caller gets an error."""
    log = filled(100, ONE_SEGMENT)
    log.disk.fail("read", ".log", errno.EIO)  # type: ignore[attr-defined]
    with pytest.raises(OSError):
        log.read(3, bytes_max=100, end_offset=100)
    assert log.offline is not None


def test_a_lent_range_outlives_its_segment(tmp_path: os.PathLike[str]) -> None:
    """A segment deleted while a fetch is being sent can be read to the end."""
    disk = RealDisk(descriptors_max=2)
    log = new_log(disk, directory=f"{tmp_path}/events-0")
    for number in range(100):
        put(log, b"%d" % number)
    part = log.read(0, bytes_max=500, end_offset=100)
    assert part is not None
    before = part.file.pread(part.size, part.position)
    for segment in log.delete_oldest(3, now_ms=NOW_MS):
        segment.delete()
    assert len(read_all(log)) > 10  # other files come and go
    assert part.file.pread(part.size, part.position) == before
    assert not os.path.exists(part.file.path)


def test_descriptors_stay_within_the_limit(tmp_path: os.PathLike[str]) -> None:
    """Many logs, few descriptors: the limit holds while all of them are used in turn."""
    disk = RealDisk(descriptors_max=16)
    logs = [new_log(disk, directory=f"{tmp_path}/events-{n}") for n in range(100)]
    for round_ in range(3):
        for log in logs:
            assert put(log, b"%d" % round_).base_offset == round_
            assert disk.descriptors_open <= 16
    assert all(values(log) == [b"0", b"1", b"2"] for log in logs)


def test_rolling_by_size_time_and_index() -> None:
    """A segment ends when it is full, old, or its index is full; offsets go on."""
    by_size = filled(100, LogConfig(segment_bytes=1000))
    assert all(segment.size_bytes <= 1000 for segment in by_size.segments)
    by_time = new_log(SimulatedDisk(), LogConfig(segment_ms=1000))
    for after_ms in (0, 1000, 1001, 1500, 2002):
        by_time.append(batch(b"x", timestamp=NOW_MS + after_ms), leader_epoch=0, now_ms=NOW_MS)
    assert [segment.base_offset for segment in by_time.segments] == [0, 2, 4]
    by_index = filled(100, LogConfig(segment_index_bytes=12 * 5, index_interval_bytes=100))
    assert len(by_index.segments) > 3
    assert all(len(segment.index) <= 5 for segment in by_index.segments)
    assert values(by_index) == [b"%d" % n for n in range(100)]


def test_jitter_lets_logs_roll_at_different_times() -> None:
    """segment.jitter.ms is taken off segment.ms."""
    log = new_log(SimulatedDisk(), LogConfig(segment_ms=1000))
    log.jitter_ms = 400
    put(log, b"a", timestamp=NOW_MS)
    put(log, b"b", timestamp=NOW_MS + 601)
    assert len(log.segments) == 2


def test_a_read_costs_the_same_in_a_large_log(tmp_path: os.PathLike[str]) -> None:
    """Bytes read to find an offset do not grow with the log."""
    costs = []
    for count in (300, 30_000):
        disk = RealDisk()
        log = new_log(disk, LogConfig(), directory=f"{tmp_path}/{count}/events-0")
        for _ in range(count):
            put(log, b"x" * 100)
        read_bytes = 0
        original = type(log.active.file).pread

        def counting(self: object, size: int, position: int, original: object = original) -> bytes:
            nonlocal read_bytes
            data: bytes = original(self, size, position)  # type: ignore[operator]
            read_bytes += len(data)
            return data

        type(log.active.file).pread = counting  # type: ignore[method-assign]
        try:
            for offset in range(0, count, count // 100):
                log.read(offset, bytes_max=1000, end_offset=count)
        finally:
            type(log.active.file).pread = original  # type: ignore[method-assign]
        costs.append(read_bytes / 100)
    assert costs[1] < costs[0] + 5000  # at most one page of the index more


def test_reads_skip_what_compaction_took() -> None:
    """An offset in a gap gives the next batch, in this segment or a later one."""
    log = filled(100)
    segments = log.segments
    second = segments[1]
    position = second.position_of(second.base_offset + 3)
    assert position is not None
    second.cut(position)
    second.index.reset()
    part = log.read(second.base_offset + 5, bytes_max=1000, end_offset=100)
    assert part is not None
    assert read_header(part.file.pread(61, part.position)).base_offset == segments[2].base_offset


@pytest.mark.parametrize("interval_bytes", [300_000, 2**31 - 1])
def test_reads_never_rebuild_the_index_of_a_large_interval(
    interval_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever index.interval.bytes says, a lookup finds an entry near enough, old or new."""
    log = new_log(SimulatedDisk(), LogConfig(index_interval_bytes=interval_bytes))
    for number in range(600):
        put(log, b"x" * 2000)
        offset = number * 7919 % (number + 1)
        assert read_header_at(log, offset) == offset
    assert 7 <= len(log.active.index) <= 9
    assert not caplog.records


def read_header_at(log: Log, offset: int) -> int:
    part = log.read(offset, bytes_max=100, end_offset=log.end_offset)
    assert part is not None
    return read_header(part.file.pread(61, part.position)).base_offset


def test_paths_are_kafkas() -> None:
    """Twenty digits of base offset, then what it is."""
    log = filled(50)
    names = log.disk.listdir(DIRECTORY)
    base = log.segments[1].base_offset
    for extension in ("log", "index", "timeindex", "snapshot"):
        assert f"{base:020d}.{extension}" in names
    assert "leader-epoch-checkpoint" in names

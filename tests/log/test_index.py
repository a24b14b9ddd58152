"""The sparse indexes against plain lists, over pages, restarts and cuts."""

from __future__ import annotations

from bisect import bisect_right

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.index import PAGE_ENTRIES, OffsetIndex
from ottla.log.time_index import TimeIndex, TimestampOffset
from ottla.log.transaction_index import AbortedTransaction, TransactionIndex
from ottla.seams.simulated.disk import SimulatedDisk

BASE = 5_000_000_000


def offset_index(count: int, *, step: int = 10) -> tuple[OffsetIndex, list[tuple[int, int]]]:
    disk = SimulatedDisk()
    index = OffsetIndex(BASE, disk.open("/00000000005000000000.index"), 0)
    entries = [(BASE + number * step, number * 4096) for number in range(1, count + 1)]
    for entry in entries:
        index.append(*entry)
    return index, entries


@given(
    count=st.sampled_from([0, 1, 2, PAGE_ENTRIES - 1, PAGE_ENTRIES, PAGE_ENTRIES + 1, 1300]),
    probes=st.lists(st.integers(-5, 13_100), min_size=1, max_size=20),
    written=st.booleans(),
)
@settings(deadline=None, max_examples=40)
def test_lookup_is_a_search_in_a_list(count: int, probes: list[int], written: bool) -> None:
    """The last entry at or before the offset, from memory or from one page of the file."""
    index, entries = offset_index(count)
    if written:
        index.write_out()
        index = OffsetIndex(BASE, index.file, index.file.size() if count else 0)
    offsets = [offset for offset, _ in entries]
    for probe in probes:
        at = bisect_right(offsets, BASE + probe)
        assert index.lookup(BASE + probe) == (entries[at - 1] if at else None)
    assert index.entries() == entries
    assert index.last() == (entries[-1] if entries else None)


@given(count=st.integers(0, 1300), keep=st.integers(0, 1400), more=st.integers(0, 600))
@settings(deadline=None, max_examples=40)
def test_truncated_then_appended(count: int, keep: int, more: int) -> None:
    """Cut back to any offset, then grown again, it holds exactly what a list would."""
    index, entries = offset_index(count)
    index.truncate_to(BASE + keep * 10 + 1)
    entries = entries[:keep]
    for number in range(len(entries) + 1, len(entries) + more + 1):
        entries.append((BASE + number * 10, number * 4096))
        index.append(*entries[-1])
    index.write_out()
    assert index.entries() == entries
    again = OffsetIndex(BASE, index.file, len(entries) * 8)
    for offset, position in entries[:: max(1, len(entries) // 7)]:
        assert again.lookup(offset) == (offset, position)


def test_entries_are_kafkas() -> None:
    """8 bytes: relative offset, position; 12 for times: timestamp, relative offset."""
    disk = SimulatedDisk()
    index = OffsetIndex(BASE, disk.open("/i"), 0)
    index.append(BASE + 7, 4242)
    index.write_out()
    assert disk.read("/i") == (7).to_bytes(4, "big") + (4242).to_bytes(4, "big")
    times = TimeIndex(BASE, disk.open("/t"), 0)
    times.append(1_700_000_000_000, BASE + 7)
    times.write_out()
    assert disk.read("/t") == (1_700_000_000_000).to_bytes(8, "big") + (7).to_bytes(4, "big")
    aborted = TransactionIndex(disk, "/x")
    aborted.append(AbortedTransaction(1, 2, 3, 4))
    assert disk.read("/x") == b"\0\0" + b"".join(n.to_bytes(8, "big") for n in (1, 2, 3, 4))


def test_zeros_allocated_in_advance_are_dropped() -> None:
    """Kafka allocates 10 MB of index at once; a crash leaves the zeros."""
    disk = SimulatedDisk()
    index, entries = offset_index(700)
    index.write_out()
    for extra in (0, 8, 8000, 1_000_000):
        data = index.file.pread(1 << 20, 0)[: 700 * 8] + bytes(extra)
        disk.open("/k.index", create=True).pwrite(data, 0)
        padded = OffsetIndex(BASE, disk.open("/k.index"), len(data))
        padded.strip_zeros()
        assert padded.entries() == entries
        disk.unlink("/k.index")
    times = TimeIndex(BASE, disk.open("/k.timeindex"), 0)
    times.append(50, BASE + 1)
    times.write_out()
    disk.open("/k.timeindex").pwrite(bytes(1200), 12)
    padded_times = TimeIndex(BASE, disk.open("/k.timeindex"), 1212)
    padded_times.strip_zeros()
    assert padded_times.entries() == [(50, BASE + 1)]


@given(
    steps=st.lists(st.tuples(st.integers(-3, 20), st.integers(0, 5)), max_size=1200),
    probes=st.lists(st.integers(-10, 12_000), min_size=1, max_size=10),
    written=st.booleans(),
)
@settings(deadline=None, max_examples=40)
def test_time_index_keeps_only_progress(
    steps: list[tuple[int, int]], probes: list[int], written: bool
) -> None:
    """Timestamps and offsets both go up; lookups are a search in that list."""
    disk = SimulatedDisk()
    index = TimeIndex(BASE, disk.open("/t"), 0)
    expected: list[TimestampOffset] = []
    timestamp, offset = 0, BASE
    for more_time, more_offset in steps:
        timestamp, offset = timestamp + more_time, offset + more_offset
        index.append(timestamp, offset)
        if not expected or (timestamp > expected[-1].timestamp and offset > expected[-1].offset):
            expected.append(TimestampOffset(timestamp, offset))
    if written and expected:
        index.write_out()
        index = TimeIndex(BASE, disk.open("/t"), len(expected) * 12)
    assert index.entries() == expected
    times = [entry.timestamp for entry in expected]
    for probe in probes:
        at = bisect_right(times, probe)
        assert index.lookup(probe) == (expected[at - 1] if at else None)


def test_aborted_transactions_survive_and_are_cut() -> None:
    """Written, read again, and cut back with the log."""
    disk = SimulatedDisk()
    index = TransactionIndex(disk, "/x")
    entries = [AbortedTransaction(1, 0, 5, 6), AbortedTransaction(2, 3, 9, 10)]
    for entry in entries:
        index.append(entry)
    index.append(entries[1])  # again, as a replay does
    assert TransactionIndex(disk, "/x").all() == entries
    index.truncate_to(9)
    assert TransactionIndex(disk, "/x").all() == entries[:1]

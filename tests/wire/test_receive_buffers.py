"""The memory of large answers: lent again when nobody looks at it, and never before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.receive_buffers import (
    KEPT_BYTES_MAX,
    RESTING_BYTES_MAX,
    SIZE_MIN,
    Buffers,
    LastBuffer,
    rounded,
)


def test_memory_is_lent_again_when_its_views_are_gone() -> None:
    """The second lending of a size is the same memory, once no view of the first is left."""
    buffers = Buffers()
    first = buffers.lend(300_000)
    memory = first.obj
    first[:4] = b"here"
    del first
    second = buffers.lend(290_000)
    assert second.obj is memory
    assert bytes(second[:4]) == b"here"
    assert len(second) == 290_000


def test_memory_that_somebody_looks_at_is_not_lent_again() -> None:
    """A slice that is kept keeps its bytes, whatever is lent meanwhile."""
    buffers = Buffers()
    first = buffers.lend(100_000)
    first[50_000:50_004] = b"mine"
    kept = first[50_000:50_004]
    del first
    for _ in range(5):
        other = buffers.lend(100_000)
        other[:] = b"\xff" * 100_000
        del other
    assert bytes(kept) == b"mine"
    assert len(buffers.kept) == 2


def test_the_smallest_that_is_free_and_fits_is_lent() -> None:
    """Large memory is left for large answers while there is smaller."""
    buffers = Buffers()
    large = buffers.lend(5_000_000)
    small = buffers.lend(300_000)
    memories = small.obj, large.obj
    del large, small
    first = buffers.lend(200_000)
    second = buffers.lend(200_000)
    assert (first.obj, second.obj) == memories


@given(size=st.integers(1, 200_000_000))
def test_sizes_are_rounded_so_that_they_are_used_again(size: int) -> None:
    """There are few sizes, and none is more than twice what is wanted, but for small ones."""
    found = rounded(size)
    assert size <= found <= max(SIZE_MIN, 2 * size)
    assert found % SIZE_MIN == 0


def test_kept_memory_is_bounded() -> None:
    """However much is lent at a time, no more than the bound is kept for later, and less at rest;
    what is lent stays whole."""
    buffers = Buffers()
    held = [buffers.lend(5 * 1024 * 1024) for _ in range(20)]
    assert sum(len(each) for each in buffers.kept) == buffers.kept_bytes <= KEPT_BYTES_MAX
    assert len({id(each.obj) for each in held}) == 20
    small = buffers.lend(1000)
    small[:5] = b"whole"
    buffers.shrink()
    assert sum(len(each) for each in buffers.kept) == buffers.kept_bytes <= RESTING_BYTES_MAX
    buffers.shrink(0)
    assert not buffers.kept
    assert bytes(small[:5]) == b"whole"
    huge = buffers.lend(KEPT_BYTES_MAX + 1)
    assert len(huge) == KEPT_BYTES_MAX + 1
    assert buffers.kept_bytes == 0


def test_the_memory_of_the_last_answer_serves_the_next() -> None:
    """The same memory for a size that fits; another while somebody looks; none once given back."""
    last = LastBuffer()
    first = last.lend(1_000_000)
    memory = first.obj
    looked_at = last.lend(900_000)
    assert looked_at.obj is not memory
    memory = looked_at.obj
    del looked_at
    assert last.lend(800_000).obj is memory
    larger = last.lend(3_000_000)
    assert len(larger) == 3_000_000
    memory = larger.obj
    del larger
    last.give_back()
    assert last.lend(1_000_000).obj is not memory

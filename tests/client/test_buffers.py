"""The memory of large answers: lent again when nobody looks at it, and never before."""

from __future__ import annotations

from ottla.client.buffers import KEPT_BYTES_MAX, STEP_BYTES, Buffers


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


def test_a_small_answer_does_not_hold_large_memory() -> None:
    """Memory more than twice as large as wanted is left for large answers."""
    buffers = Buffers()
    large = buffers.lend(8 * STEP_BYTES).obj
    small = buffers.lend(STEP_BYTES)
    assert small.obj is not large


def test_kept_memory_is_bounded() -> None:
    """However much is lent at a time, no more than the bound is kept for later."""
    buffers = Buffers()
    held = [buffers.lend(5 * 1024 * 1024) for _ in range(10)]
    assert sum(len(each) for each in buffers.kept) == buffers.kept_bytes <= KEPT_BYTES_MAX
    assert len({id(each.obj) for each in held}) == 10
    huge = buffers.lend(KEPT_BYTES_MAX + 1)
    assert len(huge) == KEPT_BYTES_MAX + 1
    assert buffers.kept_bytes == 0

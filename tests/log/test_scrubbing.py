"""The walk that checks a segment at rest."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from ottla.log.log import Log
from ottla.log.scrubbing import BatchWalk, Damage, Unsound, damage_of
from ottla.log.segment import Segment
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.wire.batch_header import BatchHeader
from tests.log.logs import new_log, put

VALUES = st.lists(st.binary(max_size=60), min_size=1, max_size=4)
# In a batch: base offset and leader epoch are outside of the checksum.
UNCHECKED = (*range(8), *range(12, 16))


def walk_over(segment: Segment, sizes: list[int], end_offset: int = 2**62) -> list[Damage]:
    """All damage in a segment, its bytes handed in by pieces of these sizes again and again."""
    found: list[Damage] = []
    position, next_offset, pieces = 0, segment.base_offset, 0
    end = segment.size_bytes
    while position < end:
        walk = BatchWalk(
            position=position, end_position=end, next_offset=next_offset, end_offset=end_offset
        )
        unsound: Unsound | None = None
        while not walk.ended:
            data = segment.file.pread(sizes[pieces % len(sizes)], position)
            pieces += 1
            position += len(data)
            unsound = walk.take(data)
        if unsound is None:
            break
        found.append(damage_of(segment, unsound, end))
        position, next_offset = found[-1].end_position, found[-1].next_offset
    return found


def flip(disk: SimulatedDisk, segment: Segment, position: int, bit: int) -> None:
    disk.flip_bit(segment.path(".log"), position * 8 + bit)


@given(
    batches=st.lists(VALUES, min_size=1, max_size=12),
    flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 7)), max_size=3),
    sizes=st.lists(st.integers(1, 400), min_size=1, max_size=5),
)
def test_every_flipped_bit_is_found(
    batches: list[list[bytes]], flips: list[tuple[float, int]], sizes: list[int]
) -> None:
    """A flipped bit is inside of what is reported, in whatever pieces the bytes come; a range that
    is reported begins with a damaged batch and ends where a sound one begins.
    """
    disk = SimulatedDisk()
    log = new_log(disk)
    for values in batches:
        put(log, *values)
    segment = log.segments[0]
    whole = segment.file.pread(segment.size_bytes, 0)
    bounds = list(segment.batches())
    checked = [
        batch.position + at for batch in bounds for at in range(batch.size) if at not in UNCHECKED
    ]
    for share, bit in flips:
        flip(disk, segment, checked[int(share * len(checked))], bit)
    now = segment.file.pread(segment.size_bytes, 0)
    found = walk_over(segment, sizes)
    changed = [batch for batch in bounds if differs(batch, whole, now)]
    for batch in changed:
        covered = [each for each in found if each.position <= batch.position < each.end_position]
        assert covered, f"{batch.position} not in {found}"
    ends = {batch.position: batch.base_offset for batch in bounds}
    for each in found:
        assert any(each.position <= batch.position < each.end_position for batch in changed)
        assert each.position in ends
        assert each.next_offset == ends.get(each.end_position, segment.next_offset)
        assert each.first_offset <= ends[each.position]
    if not changed:
        assert not found


def differs(batch: BatchHeader, whole: bytes, now: bytes) -> bool:
    own = slice(batch.position, batch.position + batch.size)
    return whole[own] != now[own]


def three_batches() -> tuple[SimulatedDisk, Log, list[BatchHeader]]:
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(3):
        put(log, b"%d" % number, b"more")
    return disk, log, list(log.segments[0].batches())


@example(21)
@given(position=st.integers(21, 61))
def test_damage_is_one_batch(position: int) -> None:
    """A bit that its checksum covers costs one batch: exactly its bytes and its offsets."""
    disk, log, batches = three_batches()
    flip(disk, log.active, batches[1].position + position, 0)
    [damage] = walk_over(log.active, [100])
    assert (damage.position, damage.end_position) == (batches[1].position, batches[2].position)
    assert (damage.first_offset, damage.next_offset) == (2, 4)
    assert "checksum" in damage.problem


def test_a_base_offset_ahead_of_the_next_batch() -> None:
    """Which no checksum covers: the batch behind the gap is the damaged one, not the next."""
    disk, log, batches = three_batches()
    flip(disk, log.active, batches[1].position + 6, 0)
    [damage] = walk_over(log.active, [100])
    assert (damage.position, damage.end_position) == (batches[1].position, batches[2].position)
    assert (damage.first_offset, damage.next_offset) == (2, 4)


def test_nothing_beyond_the_limit_is_looked_at() -> None:
    """What is not committed yet is judged later."""
    disk, log, batches = three_batches()
    flip(disk, log.active, batches[2].position + 30, 0)
    assert walk_over(log.active, [100], end_offset=4) == []
    assert len(walk_over(log.active, [100], end_offset=5)) == 1

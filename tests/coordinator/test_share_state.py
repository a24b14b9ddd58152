"""The share coordinator: what it answers, and that its log stays small and says the same again."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.effects import Effects, Record
from ottla.coordinator.packed_batches import (
    PIECES_MAX,
    ROWS_MAX,
    PackedBatches,
    StateBatch,
    merged,
    merged_rows,
    pack,
    unpack,
)
from ottla.coordinator.share_state import SharePartitionKey, ShareState
from ottla.coordinator.share_state_shard import (
    COLD_TIMER,
    PRUNE_TIMER,
    ShareStateRules,
    ShareStateShard,
)
from ottla.wire.errors import ErrorCode

KEY = SharePartitionKey("g", b"t" * 16, 0)
BATCHES = st.lists(
    st.builds(
        lambda first, size, state, count: StateBatch(first, first + size, state, count),
        st.integers(0, 30),
        st.integers(0, 10),
        st.sampled_from([0, 2, 4]),
        st.integers(0, 3),
    ),
    max_size=8,
)


class Driver:
    """A shard with its records in a list, replayed as they are appended."""

    def __init__(self, **rules: Any) -> None:
        self.committed_to = 0  # 0: all that is appended
        self.known = {KEY.topic_id}
        self.shard = ShareStateShard(
            ShareStateRules(**rules), lambda topic_id, _: topic_id in self.known, self._prune
        )
        self.log: list[tuple[int, Record]] = []
        self.next_offset = 0
        self.now_ms = 1000

    def _prune(self, shard: ShareStateShard) -> None:
        before = shard.redundant_before(self.committed_to or self.next_offset)
        self.log = [each for each in self.log if each[0] >= before]

    def run(self, method: str, *arguments: Any) -> Any:
        effects = Effects()
        result = getattr(self.shard, method)(*arguments, effects, self.now_ms)
        for record in effects.records:
            self.shard.replay(record, None, self.next_offset)
            self.log.append((self.next_offset, record))
            self.next_offset += 1
        for reply, action in effects.due:
            assert reply is None
            action()
        return result

    def write(self, *batches: StateBatch, start: int = 0, epoch: int = 0, state: int = 0) -> Any:
        if KEY not in self.shard.states:
            self.run("initialize", KEY, 0, 0)
        packed = PackedBatches.of(pack(batches))
        change = ShareState(0, state, epoch, start, 0, packed, self.now_ms, self.now_ms)
        return self.run("write", KEY, change)

    def reloaded(self) -> ShareStateShard:
        """Another shard that has read what is left of the log."""
        shard = ShareStateShard(self.shard.rules, lambda *_: True, lambda _: None)
        shard.load([(each.key, each.value, offset) for offset, each in self.log])
        return shard


def by_offset(batches: list[StateBatch] | tuple[StateBatch, ...]) -> dict[int, tuple[int, int]]:
    """The dumb twin: the strongest of all that is said about each offset."""
    found: dict[int, tuple[int, int]] = {}
    for first, last, state, count in batches:
        for offset in range(first, last + 1):
            found[offset] = max(found.get(offset, (0, 0)), (count, state))
    return found


@given(BATCHES, st.integers(-1, 35))
def test_batches_merge_as_their_offsets_do(batches: list[StateBatch], start: int) -> None:
    """Merged batches say of each offset what its strongest batch says, and do not overlap."""
    result = merged(batches, start)
    expected = {offset: each for offset, each in by_offset(batches).items() if offset >= start}
    assert by_offset(result) == expected
    for before, after in itertools.pairwise(result):
        assert before.last < after.first
        touching = before.last + 1 == after.first
        assert not (touching and before[2:] == after[2:])


@given(BATCHES, st.integers(-1, 35))
def test_packed_batches_are_merged_as_others(batches: list[StateBatch], start: int) -> None:
    """Packed batches that are merged already are left as they are; the result is the same."""
    rows = merged_rows(pack(batches), start)
    assert tuple(unpack(rows)) == merged(batches, start)
    assert merged_rows(rows, start) == rows


@given(st.lists(st.tuples(BATCHES, st.integers(0, 4)), max_size=2 * PIECES_MAX))
def test_pieces_say_what_all_batches_say(writes: list[tuple[list[StateBatch], int]]) -> None:
    """Batches kept in pieces say the same as all of them merged at once, and are few."""
    known, said, start = PackedBatches(), list[StateBatch](), 0
    for batches, more in writes:
        start += more
        known = known.with_more(pack(batches), start)
        said += batches
        assert len(known.pieces) <= PIECES_MAX
    assert known.merged(start) == merged(said, start)


def test_what_is_kept_in_pieces_is_bounded() -> None:
    """A record at the start that is never done with, and thousands of batches behind it: what is
    kept follows what is left of them merged."""
    known = PackedBatches()
    for number in range(300):
        rows = [(at, at, 2, 1) for at in range(1 + number % 2, 2000, 2)]
        known = known.with_more(pack(rows), 0)
        assert len(known.data) <= 20 * (ROWS_MAX + 2 * 2000)
    assert known.merged(0) == (StateBatch(1, 1999, 2, 1),)


@given(st.lists(st.tuples(BATCHES, st.integers(0, 20)), max_size=12), st.integers(0, 4))
def test_the_log_says_what_was_written(
    writes: list[tuple[list[StateBatch], int]], updates: int
) -> None:
    """Snapshots and updates give the same state after a load, also when the log was pruned."""
    driver = Driver(updates_per_snapshot=updates)
    for batches, start in writes:
        assert driver.write(*batches, start=start) is ErrorCode.NONE
        if start % 3 == 0:
            driver.run("due", PRUNE_TIMER)
        state = driver.shard.states[KEY]
        again = driver.reloaded().states[KEY]
        assert (state.start_offset, state.batches) == (again.start_offset, again.batches)
    if writes:
        driver.run("due", PRUNE_TIMER)
        assert len(driver.log) <= updates + 1


def test_pruning_keeps_what_a_lost_snapshot_would_have_replaced() -> None:
    """A snapshot that is not committed may be lost with its leader; the next one loads the last
    that was. So it is with the record that forgets a share partition."""
    driver = Driver(updates_per_snapshot=0)
    driver.run("initialize", KEY, 0, 0)
    driver.write(StateBatch(10, 19, 2, 1))
    driver.committed_to = 1
    driver.run("due", PRUNE_TIMER)
    assert [offset for offset, _ in driver.log] == [0, 1]
    driver.committed_to = 2
    driver.run("due", PRUNE_TIMER)
    assert [offset for offset, _ in driver.log] == [1]
    driver.run("topics_deleted", {KEY.topic_id})
    driver.run("due", PRUNE_TIMER)
    assert [offset for offset, _ in driver.log] == [1, 2]
    driver.committed_to = 3
    driver.run("due", PRUNE_TIMER)
    assert driver.log == []


def test_a_late_write_takes_nothing_back() -> None:
    """A write that its leader has repeated, and gone on from, may come once more: the start offset
    stays, for nothing is known any more of the records before it."""
    driver = Driver()
    driver.write(StateBatch(0, 4, 2, 1), start=0)
    driver.write(start=10)
    assert driver.write(StateBatch(0, 4, 2, 1), start=0) is ErrorCode.NONE
    assert driver.shard.states[KEY].start_offset == 10
    assert driver.reloaded().states[KEY].start_offset == 10


def test_a_later_leader_fences_those_before_it() -> None:
    """Whoever reads the state with an epoch makes earlier leaders' writes fail."""
    driver = Driver()
    assert driver.run("initialize", KEY, 1, -1) is ErrorCode.NONE
    found = driver.run("read", KEY, 5)
    assert (found.start_offset, found.state_epoch) == (-1, 1)
    assert driver.write(epoch=4, state=1) is ErrorCode.FENCED_LEADER_EPOCH
    assert driver.run("read", KEY, 4) is ErrorCode.FENCED_LEADER_EPOCH
    assert driver.write(epoch=5, state=0) is ErrorCode.FENCED_STATE_EPOCH
    assert driver.write(epoch=5, state=1) is ErrorCode.NONE
    assert driver.run("initialize", KEY, 0, 7) is ErrorCode.FENCED_STATE_EPOCH


def test_nothing_is_written_before_a_beginning() -> None:
    """State that nobody began, or that was deleted, is neither read nor written."""
    driver = Driver()
    change = ShareState(0, 0, 0, 0, 0, PackedBatches(), 1000, 1000)
    assert driver.run("write", KEY, change) is ErrorCode.INVALID_REQUEST
    assert driver.run("read", KEY, 3) is ErrorCode.INVALID_REQUEST
    assert driver.log == []


def test_a_quiet_partition_does_not_keep_the_log() -> None:
    """A share partition without writes gets a new snapshot, so the records before it can go."""
    driver = Driver()
    quiet = SharePartitionKey("quiet", KEY.topic_id, 0)
    driver.run("initialize", quiet, 0, 3)
    for start in range(5):
        driver.now_ms += 100_000
        driver.write(start=start)
    driver.run("due", PRUNE_TIMER)
    assert driver.log[0][0] == 0
    driver.run("due", COLD_TIMER)
    driver.now_ms += 400_000
    driver.run("due", COLD_TIMER)
    driver.run("due", PRUNE_TIMER)
    assert [offset for offset, _ in driver.log] == [driver.next_offset - 2, driver.next_offset - 1]
    assert driver.reloaded().states.keys() == {KEY, quiet}


def test_state_goes_with_its_topic() -> None:
    """The state of a deleted topic is forgotten, also when nobody said so at the time."""
    driver = Driver()
    driver.write()
    driver.run("topics_deleted", {KEY.topic_id})
    assert driver.reloaded().states == {}
    driver.write()
    driver.known.clear()
    assert driver.write() is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    driver.now_ms += 400_000
    driver.run("due", COLD_TIMER)
    assert driver.reloaded().states == {}

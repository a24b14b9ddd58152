"""Blocks of a tier out of those of the finer one, and what is old enough to be deleted.

Runs in the history's thread, a few series at a time: each batch is a commit, and what is done twice
because of a crash in between comes out the same.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterable

from .codec import NAN, BlockError, Values, pack, unpack
from .folding import fold
from .store import Store
from .tiers import DAY_MS, FINEST, TIERS, Tier

BATCH_SERIES = 100
log = logging.getLogger("ottla.console.history")
Pause = Callable[[], None]  # between batches; raises to stop


def whole(tier: Tier, parts: Iterable[tuple[int, Values]], from_ms: int, to_ms: int) -> Values:
    """Blocks and hours of a tier, side by side from one time to another."""
    slots = (to_ms - from_ms) // tier.step_ms
    found = tuple(array("f", [NAN]) * slots for _ in range(3))
    for start, values in parts:
        shift = (start - from_ms) // tier.step_ms
        first, last = max(0, -shift), min(len(values.means), slots - shift)
        if first < last:
            for column, part in zip(found, values, strict=True):
                column[shift + first : shift + last] = part[first:last]
    return Values(*found)


def laid_over(values: Values, tier: Tier, from_ms: int, start_ms: int, others: Values) -> Values:
    """The values with those of `others` (from `start_ms`) where these have any."""
    found = Values(*(column[:] for column in values))
    shift = (start_ms - from_ms) // tier.step_ms
    for index, mean in enumerate(others.means):
        at = shift + index
        if mean == mean and 0 <= at < len(found.means):
            for column, part in zip(found, others, strict=True):
                column[at] = part[index]
    return found


def readable(blocks: Iterable[tuple[int, bytes]]) -> list[tuple[int, Values]]:
    """Without those that are damaged."""
    found = []
    for start, data in blocks:
        try:
            found.append((start, unpack(data)))
        except BlockError as error:
            log.warning("a block of the history cannot be read: %s", error)
    return found


def over_block(store: Store, tier: Tier, series: int, start_ms: int, values: Values) -> Values:
    """With what the block has already, of another turn."""
    end_ms = start_ms + tier.block_ms
    for at, before in readable(store.blocks(tier, series, start_ms, end_ms)):
        if len(before.means) == len(values.means):
            return laid_over(before, tier, at, start_ms, values)
    return values


def write_hour(
    store: Store, start_ms: int, hour: dict[int, array[float]], pause: Pause, again: bool = False
) -> None:
    """An hour's values as blocks of the finest tier; `again`: it may have blocks already."""
    names = sorted(hour)
    for at in range(0, len(names), BATCH_SERIES):
        blocks = []
        for each in names[at : at + BATCH_SERIES]:
            values = Values(hour[each], hour[each], hour[each])
            if again:
                values = over_block(store, FINEST, each, start_ms, values)
            blocks.append((each, pack(values, FINEST.bits, FINEST.spread)))
        with store.transaction():
            store.put_blocks(FINEST, start_ms, blocks)
        pause()
    with store.transaction():
        store.set_rolled(FINEST, start_ms + FINEST.block_ms)
        store.delete_rounds(start_ms, start_ms + FINEST.block_ms)


def roll(store: Store, tier: Tier, rolled: dict[int, int], pause: Pause) -> int | None:
    """Make the next blocks of a tier, if their time is over; until when it has them then."""
    finer = TIERS[tier.number - 1]
    first = store.first_start(finer, rolled.get(tier.number, 0))
    if first is None:
        return None
    start = tier.block_start(first)
    if start + tier.block_ms > rolled.get(finer.number, 0):
        return None
    return roll_block(store, tier, start, pause)


def roll_block(store: Store, tier: Tier, start: int, pause: Pause, again: bool = False) -> int:
    """The blocks of a tier that begin then; `again`: they are there, and something came late."""
    finer = TIERS[tier.number - 1]
    end = start + tier.block_ms
    names = store.series_between(finer, start, end)
    for at in range(0, len(names), BATCH_SERIES):
        blocks = []
        for series in names[at : at + BATCH_SERIES]:
            parts = readable(store.blocks(finer, series, start, end))
            values = fold(whole(finer, parts, start, end), tier.step_ms // finer.step_ms)
            if again:  # some of the finer blocks may be deleted already
                values = over_block(store, tier, series, start, values)
            blocks.append((series, pack(values, tier.bits, tier.spread)))
            pause()
        with store.transaction():
            store.put_blocks(tier, start, blocks)
    with store.transaction():
        store.set_rolled(tier, end)
        if tier is TIERS[-1]:
            store.seen(names, end)
    return end


def delete_old(store: Store, rolled: dict[int, int], now_ms: int) -> None:
    """What no tier needs any more."""
    for tier in TIERS:
        before = now_ms - tier.kept_ms - tier.block_ms
        if tier.number + 1 < len(TIERS):
            before = min(before, rolled.get(tier.number + 1, 0))
        with store.transaction():
            store.delete_before(tier, tier.block_start(max(0, before)))
    with store.transaction():
        store.keep_rounds(now_ms - DAY_MS, now_ms + DAY_MS)

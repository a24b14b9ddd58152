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
from .tiers import FINEST, TIERS, Tier

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


def readable(blocks: Iterable[tuple[int, bytes]]) -> list[tuple[int, Values]]:
    """Without those that are damaged."""
    found = []
    for start, data in blocks:
        try:
            found.append((start, unpack(data)))
        except BlockError as error:
            log.warning("a block of the history cannot be read: %s", error)
    return found


def write_hour(store: Store, start_ms: int, hour: dict[int, array[float]], pause: Pause) -> None:
    """An hour's values as blocks of the finest tier."""
    names = sorted(hour)
    for at in range(0, len(names), BATCH_SERIES):
        some = names[at : at + BATCH_SERIES]
        blocks = [
            (each, pack(Values(hour[each], hour[each], hour[each]), FINEST.bits, FINEST.spread))
            for each in some
        ]
        with store.transaction():
            store.put_blocks(FINEST, start_ms, blocks)
        pause()
    with store.transaction():
        store.set_rolled(FINEST, start_ms + FINEST.block_ms)


def roll(store: Store, tier: Tier, rolled: dict[int, int], pause: Pause) -> int | None:
    """Make the next blocks of a tier, if their time is over; until when it has them then."""
    finer = TIERS[tier.number - 1]
    first = store.first_start(finer, rolled.get(tier.number, 0))
    if first is None:
        return None
    start = tier.block_start(first)
    end = start + tier.block_ms
    if end > rolled.get(finer.number, 0):
        return None
    names = store.series_between(finer, start, end)
    for at in range(0, len(names), BATCH_SERIES):
        blocks = []
        for series in names[at : at + BATCH_SERIES]:
            parts = readable(store.blocks(finer, series, start, end))
            values = fold(whole(finer, parts, start, end), tier.step_ms // finer.step_ms)
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

"""How long which detail is kept."""

from __future__ import annotations

from dataclasses import dataclass

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Tier:
    """A resolution. A block is what is written of one series at once, when its time is over."""

    number: int
    step_ms: int
    block_ms: int
    kept_ms: int
    bits: int  # of a value's mantissa, besides the leading one: 8 bits are 0.2 %, 5 are 1.6 %
    spread: bool  # whether minimum and maximum of the interval are kept beside the mean

    @property
    def slots(self) -> int:
        return self.block_ms // self.step_ms

    def block_start(self, time_ms: int) -> int:
        return time_ms - time_ms % self.block_ms


# A tier keeps a block more than it says, for the next one is made from it.
TIERS = (
    Tier(0, 10 * SECOND_MS, HOUR_MS, DAY_MS, 8, spread=False),
    Tier(1, MINUTE_MS, 12 * HOUR_MS, 7 * DAY_MS, 6, spread=True),
    Tier(2, 10 * MINUTE_MS, 7 * DAY_MS, 366 * DAY_MS, 5, spread=True),
)
FINEST = TIERS[0]
# What a chart's points may span, beginning with the finest.
RESOLUTIONS_MS = tuple(
    seconds * SECOND_MS
    for seconds in (
        10, 20, 30, 60, 120, 180, 300, 600, 1200, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
        172_800, 604_800,
    )
)  # fmt: skip

"""Which resolution a range gets, and the points out of what the tiers have."""

from __future__ import annotations

from math import isnan

from ..series import Point
from .codec import Values
from .folding import fold
from .tiers import RESOLUTIONS_MS, TIERS, Tier


def resolution_of(from_ms: int, to_ms: int, points_max: int, now_ms: int) -> int:
    """The finest that has no more points, and whose tier reaches back to the begin."""
    least = max(1, points_max)
    covering = next((tier for tier in TIERS if from_ms >= now_ms - tier.kept_ms), TIERS[-1])
    for each in RESOLUTIONS_MS:
        # One more than the range has: it begins and ends within an interval.
        if each >= covering.step_ms and (to_ms - from_ms) // each + 1 <= least:
            return each
    longest = RESOLUTIONS_MS[-1]
    return longest * -(-(to_ms - from_ms) // (longest * least))


def tier_of(resolution_ms: int) -> Tier:
    """The coarsest that has it."""
    return [tier for tier in TIERS if resolution_ms % tier.step_ms == 0][-1]


def points_of(values: Values, tier: Tier, from_ms: int, resolution_ms: int) -> list[Point]:
    folded = fold(values, resolution_ms // tier.step_ms)
    return [
        Point(from_ms + number * resolution_ms, mean, low, high)
        for number, (mean, low, high) in enumerate(zip(*folded, strict=True))
        if not isnan(mean)
    ]

"""Fine intervals put together into coarse ones."""

from __future__ import annotations

from array import array

from .codec import NAN, Values


def fold(values: Values, by: int) -> Values:
    """Each `by` slots as one: the mean of their means, the least and the greatest of them."""
    means, low, high = values
    if by == 1:
        return values
    found: tuple[array[float], array[float], array[float]] = (
        array("f"), array("f"), array("f"),
    )  # fmt: skip
    for start in range(0, len(means), by):
        end = start + by
        some = [value for value in means[start:end] if value == value]
        if not some:
            for each in found:
                each.append(NAN)
            continue
        found[0].append(sum(some) / len(some))
        if low is means:
            found[1].append(min(some))
            found[2].append(max(some))
        else:
            found[1].append(min(value for value in low[start:end] if value == value))
            found[2].append(max(value for value in high[start:end] if value == value))
    return Values(*found)

"""Which files are gone for good: their positions need not be kept."""

from __future__ import annotations

from collections.abc import Iterable

from .registry import Known

FORGET_AFTER_S = 7 * 24 * 3600  # since something was read
GONE_S = 12 * 3600  # while this process looked: what is not mounted yet has not gone


def stale(streams: Iterable[Known], now_s: float, clock_s: float) -> list[Known]:
    """Streams whose file has been gone for so long that no copy of it will come, given the time
    since 1970 and that of a clock that cannot be set."""
    found = []
    for known in streams:
        if known.has_file or known.is_open:
            known.gone_since_s = None
        elif known.gone_since_s is None:
            known.gone_since_s = clock_s
        elif (
            clock_s - known.gone_since_s >= GONE_S
            and 0 < known.facts.read_at_s < now_s - FORGET_AFTER_S
        ):
            found.append(known)
    return found

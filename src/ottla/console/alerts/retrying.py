"""When a message that was not taken is tried again. Pure."""

from __future__ import annotations

FIRST_WAIT_MS = 5_000
WAIT_MS_MAX = 10 * 60_000
AFTER_S_MAX = 3600  # that a receiver may ask for (Retry-After)
GIVE_UP_MS = 24 * 3600_000
FINAL_ATTEMPTS_MAX = 3  # of what the receiver says will never be taken: somebody may mend it


def next_attempt(
    created_ms: int, attempts: int, now_ms: int, *, final: bool = False, after_s: int = 0
) -> int | None:
    """When to try again after `attempts` that failed; None to give up."""
    if now_ms - created_ms >= GIVE_UP_MS or (final and attempts >= FINAL_ATTEMPTS_MAX):
        return None
    wait_ms = min(WAIT_MS_MAX, FIRST_WAIT_MS << min(attempts - 1, 20))
    return now_ms + max(wait_ms, after_s * 1000)


def is_due(next_ms: int, now_ms: int) -> bool:
    """Whether it is time; also where the clock went back, so that no message waits for longer than
    it ever may."""
    return next_ms <= now_ms or next_ms - now_ms > AFTER_S_MAX * 1000

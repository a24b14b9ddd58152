"""When the process that holds the controller's lock has to be ended. Pure.

A process that dies loses the lock; one that is suspended, or whose event loop hangs, keeps it, and
no other broker can become the controller. The holder renews the lock several times within a
session time-out. One that has not for as long as that is ended by its supervisor.
"""

from __future__ import annotations

# With a longer pause between two looks the supervisor itself was suspended, and knows nothing of
# what the holder did meanwhile.
PAUSE_S_MAX = 2.0


class HolderWatch:
    """Decides from what is seen of the lock: its holder and the time of its file."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._seen: tuple[int, float] | None = None
        self._since_s = 0.0
        self._looked_s = 0.0

    def hangs(self, now_s: float, holder: int | None, renewed_s: float) -> bool:
        """Whether the holder of the lock has not renewed it for the session time-out.

        `now_s` is monotonic time; `renewed_s`, the file's, is only compared with itself.
        """
        late = now_s - self._looked_s > PAUSE_S_MAX
        self._looked_s = now_s
        if holder is None:
            self._seen = None
            return False
        if late or self._seen != (holder, renewed_s):
            self._seen = (holder, renewed_s)
            self._since_s = now_s
        return now_s - self._since_s > self._timeout_s

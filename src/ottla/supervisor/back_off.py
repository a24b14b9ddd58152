"""How long a broker that has ended waits for its next start. Pure.

One that ran for a while is started again at once. One that ends again and again, ready or not, is
started after a pause that doubles: a start that fails costs as much as one that does not.
"""

from __future__ import annotations

PAUSE_S = 0.5
PAUSE_S_MAX = 30.0
# Whoever ran for so long has not failed at its start.
SETTLED_S = 30.0


class BackOff:
    """The pauses of all brokers, by node id."""

    def __init__(self) -> None:
        self._pause_s: dict[int, float] = {}

    def pause_s(self, node_id: int, ran_s: float) -> float:
        """The pause after a run of `ran_s` seconds."""
        if ran_s >= SETTLED_S:
            self._pause_s.pop(node_id, None)
        pause_s = self._pause_s.get(node_id, 0.0)
        self._pause_s[node_id] = min(max(PAUSE_S, 2 * pause_s), PAUSE_S_MAX)
        return pause_s

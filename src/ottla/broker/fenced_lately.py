"""Brokers that were fenced a moment ago: Metadata goes on to list them. Pure but for time.

librdkafka drops a broker that Metadata lists no more, and with it the partitions that it produced
to there, also those whose new leader the same answer names: they wait for a timer of one second.
Where the list changes after the leaders, no client waits. A client that tries the dead broker has
its connection refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.cluster.image import BrokerInfo

# Of a client that asks every 100 ms for the new leader, as librdkafka does, several answers.
LISTED_S = 1.0
NOBODY: frozenset[int] = frozenset()


class FencedLately:
    """The brokers that are listed although they are fenced."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._until_s: dict[int, float] = {}

    def follow(self, before: Mapping[int, BrokerInfo], after: Mapping[int, BrokerInfo]) -> None:
        """The cluster's brokers have changed."""
        if before is after:
            return
        for broker_id, known in before.items():
            now = after.get(broker_id)
            if now is None or not now.fenced:
                self._until_s.pop(broker_id, None)
            elif not known.fenced:
                self._until_s[broker_id] = self._monotonic() + LISTED_S

    def ids(self) -> frozenset[int]:
        """Their ids."""
        if not self._until_s:
            return NOBODY
        now_s = self._monotonic()
        self._until_s = {
            each: until_s for each, until_s in self._until_s.items() if now_s < until_s
        }
        return frozenset(self._until_s)

"""Brokers whose connections to this one have just been lost: they may be dead. Pure but for time.

The controller finds out within some milliseconds, and its feed brings new leaders. Until then, but
not for longer than a fraction of a second, what this broker knows about leaders is in doubt.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.cluster.image import ClusterImage

DOUBT_S = 0.5  # after the loss: an election takes some ten milliseconds, on a busy machine more
NEW_LOSS_S = 5.0  # a loss this long after another one is another


class LostBrokers:
    """The brokers in doubt, each since its connection was lost."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._since: dict[int, float] = {}  # until it answers again
        self._leads: tuple[ClusterImage, dict[int, bool]] = (ClusterImage(), {})

    def lost(self, broker_id: int) -> None:
        """A connection was refused, or ended by the other side. Soon again says nothing new."""
        now_s = self._monotonic()
        if now_s - self._since.get(broker_id, -NEW_LOSS_S) >= NEW_LOSS_S:
            self._since[broker_id] = now_s

    def answered(self, broker_id: int) -> bool:
        """The broker is alive; whether that was in doubt."""
        return bool(self._since) and self._since.pop(broker_id, None) is not None

    def may_change(self, image: ClusterImage) -> bool:
        """Whether the image has leaders that others will soon replace."""
        return bool(self._since) and any(
            self.in_doubt(broker_id) and self._is_leader(image, broker_id)
            for broker_id in self._since
        )

    def in_doubt(self, broker_id: int) -> bool:
        """Whether a broker may be dead, and others may soon lead what it leads."""
        since_s = self._since.get(broker_id)
        return since_s is not None and self._monotonic() - since_s < DOUBT_S

    def _is_leader(self, image: ClusterImage, broker_id: int) -> bool:
        if image is not self._leads[0]:
            self._leads = (image, {})
        known = self._leads[1]
        if broker_id not in known:
            known[broker_id] = any(
                partition.leader == broker_id
                for topic in image.topics.values()
                for partition in topic.partitions
            )
        return known[broker_id]

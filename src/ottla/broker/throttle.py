"""The replication throttles of a broker (KIP-73): one as a leader, one as a follower.

A throttle has a rate, the broker's dynamic config `leader.` or `follower.replication.throttled.
rate`, and covers the replicas that their topic's `….replication.throttled.replicas` names. As in
Kafka all that covered replicas pass counts, also what in-sync ones do, but only those that are not
in sync wait when the rate is exceeded. Whoever waits calls `wake_later`, and is woken when the
quota allows more, or when configs have changed. Without a rate `active` is None, and nobody asks
for more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING

from ottla.replica.replication_quota import ReplicationQuota, throttled_partitions
from ottla.settings.option import LONG_MAX
from ottla.settings.validate import throttle_rate

if TYPE_CHECKING:
    from ottla.metrics import Metrics
    from ottla.replica.partition import Partition
    from ottla.seams.clock import Clock, Timer
    from ottla.settings import LogConfig, Settings

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
# Whoever waits is woken so much later at the least: a quota that is a byte short costs no loop.
WAKE_S_MIN = 0.005


def leader_replicas(config: LogConfig) -> tuple[str, ...]:
    return config.leader_replication_throttled_replicas


def follower_replicas(config: LogConfig) -> tuple[str, ...]:
    return config.follower_replication_throttled_replicas


class Throttle:
    """One direction of a broker's replication. Compared by identity: a key of the purgatory."""

    __slots__ = (
        "_clock",
        "_covered",
        "_node_id",
        "_quota",
        "_rate_name",
        "_replicas_of",
        "_timer",
        "_wake",
        "active",
    )

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        rate_name: str,
        replicas_of: Callable[[LogConfig], tuple[str, ...]],
        wake: Callable[[], object],
    ) -> None:
        """`wake` is called when those who wait should look again."""
        self._clock = clock
        self._node_id = settings.node_id
        self._rate_name = rate_name
        self._replicas_of = replicas_of
        self._wake = wake
        self._quota = ReplicationQuota(
            settings.integer("replication.quota.window.num"),
            settings.integer("replication.quota.window.size.seconds"),
        )
        # By topic: the config, and the partitions of this broker that it names.
        self._covered: dict[str, tuple[tuple[str, ...], Container[int]]] = {}
        self._timer: Timer | None = None
        self.active: Throttle | None = None  # itself while there is a rate

    def covers(self, partition: Partition) -> bool:
        """Whether this broker's replica of a partition is throttled."""
        replicas = self._replicas_of(partition.config)
        if not replicas:
            return False
        known = self._covered.get(partition.topic)
        if known is None or known[0] is not replicas:
            known = replicas, throttled_partitions(replicas, self._node_id)
            self._covered[partition.topic] = known
        return partition.index in known[1]

    def record(self, size_bytes: int) -> None:
        """So many bytes of throttled replicas have passed."""
        self._quota.record(size_bytes, self._clock.monotonic())

    @property
    def allowance_bytes(self) -> int:
        """What replicas that are not in sync may pass in one answer; 0 when they must wait.

        The first batch may be larger, or it would never pass.
        """
        quota = self._quota
        if quota.rate is None:
            return LONG_MAX
        return 0 if quota.wait_s(self._clock.monotonic()) > 0 else quota.burst_bytes

    def wake_later(self) -> None:
        """Wake those who wait when the quota allows more."""
        if self._timer is None:
            self._wake_in(self._quota.wait_s(self._clock.monotonic()))

    def configure(self, settings: Settings) -> None:
        """The broker's dynamic configs may have changed."""
        rate = throttle_rate(settings, self._rate_name)
        if rate != self._quota.rate:
            self._quota.rate = rate
            self.active = self if rate is not None else None
            self.changed()

    def changed(self) -> None:
        """The rate is another, or other replicas are throttled."""
        self._covered.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._wake_in(0.0)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def show(self, metrics: Metrics, kind: str) -> None:
        """Show the rate under the name of Kafka's MBean."""
        metrics.gauge(
            f"kafka_server_{kind}_byte_rate",
            lambda: self._quota.measured(self._clock.monotonic()),
            "Bytes a second of throttled replicas, while there is a limit.",
        )

    def _wake_in(self, delay_s: float) -> None:
        self._timer = self._clock.call_later(max(delay_s, WAKE_S_MIN), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._wake()

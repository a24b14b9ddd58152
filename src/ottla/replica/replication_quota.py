"""A quota of bytes a second for throttled replicas (KIP-73), without a clock of its own.

As Kafka measures it (its SimpleRate): bytes are summed in samples of `sample_s` each, a sample
counts until `samples` times that have passed since its last byte, and the rate is the sum divided
by the time since the first sample began, at least `sample_s`. So a transfer that goes on for long
has exactly its rate, and one that begins is `sample_s` ahead of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container

# What times and rates, which are binary fractions, may be wrong by: less than a byte.
ROUNDING_BYTES = 0.5
ALL_REPLICAS = ("*",)


class Sample:
    """What passed from `start_s` on, and when the last of it did."""

    __slots__ = ("last_s", "size_bytes", "start_s")

    def __init__(self, start_s: float) -> None:
        self.start_s = self.last_s = start_s
        self.size_bytes = 0


class ReplicationQuota:
    """What may pass in a second, and what has passed lately. Times must not go back."""

    __slots__ = ("_expires_s", "_sample_s", "_samples", "rate")

    def __init__(self, samples: int, sample_s: float) -> None:
        self.rate: int | None = None  # bytes a second; None: no limit
        self._sample_s = sample_s
        self._expires_s = samples * sample_s
        self._samples: deque[Sample] = deque()

    @property
    def burst_bytes(self) -> int:
        """The most that should pass at once, for the next to pass within a sample's time."""
        assert self.rate is not None
        return max(int(self.rate * self._sample_s), 1)

    def record(self, size_bytes: int, now_s: float) -> None:
        """So many bytes have passed."""
        samples = self._samples
        self._expire(now_s)
        if not samples or now_s - samples[-1].start_s >= self._sample_s:
            samples.append(Sample(now_s))
        samples[-1].size_bytes += size_bytes
        samples[-1].last_s = now_s

    def measured(self, now_s: float) -> float:
        """Bytes a second, as they passed lately."""
        self._expire(now_s)
        if not self._samples:
            return 0.0
        span_s = max(now_s - self._samples[0].start_s, self._sample_s)
        return sum(each.size_bytes for each in self._samples) / span_s

    def wait_s(self, now_s: float) -> float:
        """Until the rate is within the quota again if nothing more passes; 0 when it is."""
        if self.rate is None:
            return 0.0
        self._expire(now_s)
        size_bytes = sum(each.size_bytes for each in self._samples)
        at_s = now_s
        for sample in self._samples:
            # While this sample is the first that counts, up to its end.
            end_s = sample.last_s + self._expires_s
            span_s = max(at_s - sample.start_s, self._sample_s)
            if size_bytes <= self.rate * span_s + ROUNDING_BYTES:
                return at_s - now_s
            if self.rate and (within_s := sample.start_s + size_bytes / self.rate) < end_s:
                return within_s - now_s
            size_bytes -= sample.size_bytes
            at_s = end_s
        return at_s - now_s

    def _expire(self, now_s: float) -> None:
        samples = self._samples
        while samples and now_s - samples[0].last_s >= self._expires_s:
            samples.popleft()


class _Everything(Container[int]):
    def __contains__(self, _: object) -> bool:
        return True


EVERYTHING = _Everything()


def throttled_partitions(replicas: tuple[str, ...], node_id: int) -> Container[int]:
    """The partitions of a topic whose replica on this broker is throttled.

    `replicas`: the value of `leader.` or `follower.replication.throttled.replicas`, each
    `partition:broker`, or `*` alone.
    """
    if replicas == ALL_REPLICAS:
        return EVERYTHING
    pairs = (each.split(":") for each in replicas)
    return frozenset(int(index) for index, broker_id in pairs if int(broker_id) == node_id)

"""How rates are measured, as Kafka does it: windows of samples, and tokens for bursts (KIP-599).

Times are milliseconds that never go back; the caller has the clock.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

MS_PER_S = 1000


class Windows(NamedTuple):
    """`quota.window.num` samples of `quota.window.size.seconds` each."""

    samples: int = 11
    sample_ms: int = 1000

    @property
    def whole_s(self) -> float:
        """All samples but the one that is running."""
        return (self.samples - 1) * self.sample_ms / MS_PER_S


class Sample:
    """What passed from `start_ms` on, and when the last of it did."""

    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = self.last_ms = start_ms
        self.value = 0.0


class Rate:
    """What passed lately, by second: Kafka's Rate over a SampledStat."""

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        # One beyond those that count: it overlaps the beginning of what is measured.
        self._samples: deque[Sample] = deque(maxlen=windows.samples + 1)

    @property
    def quiet(self) -> bool:
        """Whether nothing has been recorded, or all of it was long ago when last looked at."""
        return not self._samples

    def record(self, value: float, now_ms: int) -> None:
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._windows.sample_ms:
            samples.append(Sample(now_ms))
        samples[-1].value += value
        samples[-1].last_ms = now_ms

    def value(self, now_ms: int) -> float:
        window_ms = self.window_ms(now_ms)
        return sum(each.value for each in self._samples) * MS_PER_S / window_ms

    def window_ms(self, now_ms: int) -> int:
        """The time that the rate is over: never less than all samples but the running one."""
        samples, (count, sample_ms) = self._samples, self._windows
        while samples and now_ms - samples[0].last_ms >= count * sample_ms:
            samples.popleft()
        elapsed_ms = now_ms - samples[0].start_ms if samples else 0
        missing = count - 1 - elapsed_ms // sample_ms
        return max(elapsed_ms + max(missing, 0) * sample_ms, 1)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long nothing more may pass for the rate to be within the limit again."""
        over = self.value(now_ms) - limit
        return round(over / limit * self.window_ms(now_ms)) if over > 0 else 0


class TokenBucket:
    """Tokens that come at a rate, and are kept for as many samples as there are.

    Below zero nothing more is to be taken until they are back.
    """

    __slots__ = ("_last_ms", "_tokens", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens: float | None = None  # full
        self._last_ms = 0

    def tokens(self, rate: float, now_ms: int) -> float:
        samples, sample_ms = self._windows
        burst = samples * sample_ms / MS_PER_S * rate
        if self._tokens is None:
            self._tokens = burst
        else:
            came = rate * (now_ms - self._last_ms) / MS_PER_S
            self._tokens = min(burst, self._tokens + came)
        self._last_ms = now_ms
        return self._tokens

    def take(self, count: float, rate: float, now_ms: int) -> None:
        self._tokens = self.tokens(rate, now_ms) - count

    def throttle_ms(self, rate: float, now_ms: int) -> int:
        """Until there are none missing."""
        tokens = self.tokens(rate, now_ms)
        return round(-tokens / rate * MS_PER_S) if tokens < 0 else 0

"""Rates and tokens against Kafka's own arithmetic, written down plainly."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.quotas.rates import Rate, TokenBucket, Windows

WINDOWS = Windows(samples=11, sample_ms=1000)


@dataclass
class Slot:
    start_ms: int
    last_ms: int
    value: float = 0.0


@dataclass
class KafkasRate:
    """SampledStat and Rate: a ring of samples, which are emptied when they are too old."""

    windows: Windows
    slots: list[Slot] = field(default_factory=list)
    current: int = 0

    def record(self, value: float, now_ms: int) -> None:
        if not self.slots:
            self.slots.append(Slot(now_ms, now_ms))
        slot = self.slots[self.current]
        if now_ms - slot.start_ms >= self.windows.sample_ms:
            self.current = (self.current + 1) % (self.windows.samples + 1)
            if self.current >= len(self.slots):
                self.slots.append(Slot(now_ms, now_ms))
            slot = self.slots[self.current] = (
                self.slots[self.current]
                if self.slots[self.current].start_ms == now_ms
                else Slot(now_ms, now_ms)
            )
        slot.value += value
        slot.last_ms = now_ms

    def value(self, now_ms: int) -> float:
        window_ms = self.window_ms(now_ms)
        return sum(each.value for each in self.slots) / (window_ms / 1000)

    def window_ms(self, now_ms: int) -> int:
        samples, sample_ms = self.windows
        for place, slot in enumerate(self.slots):
            if now_ms - slot.last_ms >= samples * sample_ms:
                self.slots[place] = Slot(now_ms, now_ms)
        oldest_ms = min((each.start_ms for each in self.slots), default=now_ms)
        elapsed_ms = now_ms - oldest_ms
        full = elapsed_ms // sample_ms
        if full < samples - 1:
            elapsed_ms += (samples - 1 - full) * sample_ms
        return max(elapsed_ms, 1)


@given(
    st.integers(1, 12),
    st.lists(st.tuples(st.integers(0, 15_000), st.integers(0, 10**6), st.booleans()), max_size=60),
)
def test_a_rate_is_kafkas(samples: int, steps: list[tuple[int, int, bool]]) -> None:
    """Whatever passes, and whenever somebody looks: the same rate over the same time."""
    windows = Windows(samples, 1000)
    rate, kafkas, now_ms = Rate(windows), KafkasRate(windows), 5_000
    for wait_ms, value, looks in steps:
        now_ms += wait_ms
        rate.record(value, now_ms)
        kafkas.record(value, now_ms)
        if looks:
            assert rate.window_ms(now_ms) == kafkas.window_ms(now_ms)
            assert math.isclose(rate.value(now_ms), kafkas.value(now_ms), abs_tol=1e-6)


def test_a_burst_is_made_up_for() -> None:
    """Ten seconds' worth may pass at once; Kafka's formula says how long more must wait."""
    rate = Rate(WINDOWS)
    rate.record(10_000, 0)
    assert rate.throttle_ms(1000, 0) == 0
    rate.record(5_000, 0)
    # 1500 a second over ten seconds: half as much again as allowed, of ten seconds.
    assert rate.value(0) == 1500
    assert rate.throttle_ms(1000, 0) == 5_000
    # Time that has passed counts once it is more than all whole windows.
    assert rate.throttle_ms(1000, 10_500) == 4_500
    assert rate.throttle_ms(1000, 11_000) == 0


@given(st.integers(1, 10**6), st.floats(0.01, 1))
def test_who_waits_as_told_keeps_to_the_rate(limit: int, seconds: float) -> None:
    """In the long run, with requests of up to a second's worth."""
    size = max(int(limit * seconds), 1)
    rate, now_ms, total = Rate(WINDOWS), 0, 0
    for _ in range(300):
        rate.record(size, now_ms)
        total += size
        now_ms += rate.throttle_ms(limit, now_ms)
        now_ms += 1
    # Ahead of it may be what all windows allow; and Kafka's samples come a tenth too early.
    assert total <= (limit * (now_ms / 1000 + WINDOWS.whole_s) + size) * 1.1


def test_tokens_are_saved_up_for_a_burst() -> None:
    """As many as all windows allow; below none, the time until they are back (KIP-599)."""
    bucket = TokenBucket(WINDOWS)
    assert bucket.tokens(2.0, 1_000) == 22.0
    bucket.take(32, 2.0, 1_000)
    assert bucket.throttle_ms(2.0, 1_000) == 5_000
    assert bucket.throttle_ms(2.0, 5_999) == 1
    assert bucket.throttle_ms(2.0, 6_000) == 0
    assert bucket.tokens(2.0, 1_000_000) == 22.0


@pytest.mark.parametrize("samples", [1, 2, 11])
def test_long_silence_forgets_everything(samples: int) -> None:
    """Then a rate begins anew."""
    windows = Windows(samples, 1000)
    rate = Rate(windows)
    rate.record(10**6, 0)
    now_ms = samples * 1000
    assert rate.value(now_ms - 1) > 0
    assert rate.value(now_ms) == 0
    assert rate.quiet

"""How a replication quota measures, and when it lets the next bytes pass."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.replica.replication_quota import ReplicationQuota, throttled_partitions

SAMPLES, SAMPLE_S = 11, 1.0
WINDOW_S = SAMPLES * SAMPLE_S

rates = st.integers(0, 10_000_000)
sizes = st.integers(1, 5_000_000)
events = st.lists(st.tuples(st.floats(0, 15), sizes), max_size=30)  # pauses before, and bytes


def quota(rate: int | None) -> ReplicationQuota:
    made = ReplicationQuota(SAMPLES, SAMPLE_S)
    made.rate = rate
    return made


def is_within(made: ReplicationQuota, rate: int, now_s: float) -> bool:
    """Twin of `wait_s() == 0`, from the measured rate alone; a byte is neither here nor there."""
    return made.measured(now_s) * SAMPLE_S <= rate * SAMPLE_S + 1


class TestMeasuring:
    def test_the_rate_is_that_of_the_time_measured(self) -> None:
        """A sample's time at least, then all that has passed since the first byte."""
        made = quota(None)
        assert made.measured(100.0) == 0
        made.record(500, 100.0)
        made.record(500, 100.5)
        assert made.measured(100.5) == 1000
        assert made.measured(101.0) == 1000
        assert made.measured(104.0) == 250

    def test_what_is_older_than_the_window_counts_no_more(self) -> None:
        """A sample is forgotten as a whole, a window after its last byte."""
        made = quota(None)
        made.record(1000, 0.0)
        made.record(1000, 0.9)
        made.record(400, 5.0)
        assert made.measured(11.5) == pytest.approx(2400 / 11.5)
        assert made.measured(12.0) == pytest.approx(400 / 7)
        assert made.measured(16.0) == 0

    def test_without_a_rate_nothing_waits(self) -> None:
        """As before one is set, and after it is taken away."""
        made = quota(None)
        made.record(10**12, 0.0)
        assert made.wait_s(0.0) == 0


class TestWaiting:
    def test_what_is_beyond_the_rate_is_waited_for(self) -> None:
        """Three seconds' worth at once: the next two seconds after the first pass nothing."""
        made = quota(1000)
        made.record(1000, 0.0)
        assert made.wait_s(0.0) == 0
        made.record(2000, 0.0)
        assert made.wait_s(0.0) == pytest.approx(3.0)
        assert made.wait_s(2.0) == pytest.approx(1.0)
        assert made.wait_s(3.0) == 0

    def test_another_rate_counts_at_once(self) -> None:
        """What has passed already is judged by it."""
        made = quota(1000)
        made.record(10_000, 0.0)
        assert made.wait_s(1.0) == pytest.approx(9.0)
        made.rate = 5000
        assert made.wait_s(1.0) == pytest.approx(1.0)
        made.rate = None
        assert made.wait_s(1.0) == 0

    @pytest.mark.parametrize("rate", [0, 1])
    def test_a_batch_passes_in_every_window(self, rate: int) -> None:
        """However low the rate is, and how large the batch."""
        made = quota(rate)
        made.record(1_000_000, 0.0)
        assert made.wait_s(0.0) == WINDOW_S
        assert made.wait_s(WINDOW_S) == 0

    @given(rates, events)
    def test_the_wait_ends_when_the_rate_is_within_the_quota_and_not_before(
        self, rate: int, passed: list[tuple[float, int]]
    ) -> None:
        """Whatever passed before: after the wait the measured rate is within it, before it not."""
        made = quota(rate)
        now_s = 50.0
        for pause_s, size in passed:
            now_s += pause_s
            made.record(size, now_s)
        wait_s = made.wait_s(now_s)
        assert 0 <= wait_s <= WINDOW_S + 1e-6
        for part in (0.01, 0.5, 0.99):
            # In order, for times do not go back.
            if wait_s > 0.001:
                assert not made.measured(now_s + part * wait_s) <= rate * (1 - 1e-9)
        assert is_within(made, rate, now_s + wait_s + 1e-6)
        assert made.wait_s(now_s + wait_s + 1e-6) == 0

    @given(
        st.integers(1, 1_000_000),
        st.lists(st.tuples(st.floats(0, 3), st.integers(1, 5_000_000)), min_size=1, max_size=60),
    )
    def test_no_more_passes_than_the_rate_says(
        self, rate: int, asked: list[tuple[float, int]]
    ) -> None:
        """Reads that wait for the quota and are cut to its burst: the rate, a sample and a read."""
        made = quota(rate)
        now_s = passed = 0.0
        for pause_s, size in asked:
            now_s += pause_s
            now_s += made.wait_s(now_s)
            size = min(size, made.burst_bytes)
            made.record(size, now_s)
            passed += size
            assert passed <= rate * (now_s + SAMPLE_S) + made.burst_bytes + len(asked)

    @given(st.integers(1, 1_000_000), st.integers(2, 60))
    def test_a_long_transfer_takes_the_time_that_the_rate_says(self, rate: int, count: int) -> None:
        """Neither faster nor slower, but for the first sample and the last read."""
        made = quota(rate)
        now_s = passed = 0.0
        for _ in range(count):
            now_s += made.wait_s(now_s)
            made.record(made.burst_bytes, now_s)
            passed += made.burst_bytes
        assert passed / rate - 2 * SAMPLE_S - 0.01 <= now_s <= passed / rate


class TestThrottledReplicas:
    def test_partitions_of_this_broker(self) -> None:
        """Each item is partition and broker; only this broker's count."""
        found = throttled_partitions(("0:1", "0:2", "3:2", "4:3"), 2)
        assert [index for index in range(5) if index in found] == [0, 3]
        assert 0 not in throttled_partitions((), 2)

    def test_all_of_them(self) -> None:
        """A topic whose config is `*`."""
        found = throttled_partitions(("*",), 2)
        assert 0 in found
        assert 77 in found

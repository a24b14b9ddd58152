"""The scrubber of a running broker."""

from __future__ import annotations

import logging
from unittest.mock import patch

import pytest

from ottla.settings import Settings
from ottla.wire.errors import ErrorCode
from tests.broker.harness import DATA, BrokerHarness, fetch_request

LOG_FILE = f"{DATA}/damaged-0/00000000000000000000.log"
PASS_S = 70.0  # virtual; until a first pass over little data is over


def test_the_only_replica_is_damaged(caplog: pytest.LogCaptureFixture) -> None:
    """The damage is logged with its place, its offsets and what to try, and counted; all else can
    be read.
    """
    with BrokerHarness() as harness:
        harness.create("damaged")
        for _ in range(3):
            harness.produce("damaged")
        found = harness.partition("damaged").log
        found.flush()
        batch_bytes = found.size_bytes // 3
        harness.disk.flip_bit(LOG_FILE, (batch_bytes + 30) * 8)
        with caplog.at_level(logging.ERROR):
            harness.simulation.run_for(PASS_S)
        [line] = [each.getMessage() for each in caplog.records]
        assert f"bytes {batch_bytes} to {2 * batch_bytes} of {LOG_FILE}" in line
        assert "offsets 1 to 1" in line
        assert "Try: " in line
        assert "ottla_log_DamageFound_total 1" in harness.broker.metrics.text()
        response = harness.ask(fetch_request(("damaged", 0, 2)), 12)
        [partition] = response.responses[0].partitions
        assert partition.error_code == ErrorCode.NONE
        assert partition.records


def test_a_sound_log_is_read_at_the_rate_that_is_set() -> None:
    """As many bytes a second as `log.scrub.bytes.per.second` says, and no line is logged."""
    with BrokerHarness(log_scrub_bytes_per_second=100) as harness:
        harness.create("slow")
        for _ in range(20):
            harness.produce("slow")
        found = harness.partition("slow").log
        found.roll(now_ms=harness.clock.now_ms())
        harness.produce("slow")
        found.flush()
        scrubber = harness.broker.repairs.scrubber
        first, second = (segment.size_bytes for segment in found.segments)
        harness.simulation.run_for(60.0 + first / 100 - 1)
        assert scrubber.bytes_read == first
        harness.simulation.run_for(1.1 + second / 100)
        assert scrubber.bytes_read == first + second
        assert scrubber.passes == 1


def test_a_greater_rate_counts_at_once() -> None:
    """At one byte a second a slice takes days: another rate does not wait for their end."""
    with BrokerHarness(log_scrub_bytes_per_second=1) as harness:
        harness.create("slow")
        for _ in range(20):
            harness.produce("slow")
        harness.partition("slow").log.flush()
        scrubber = harness.broker.repairs.scrubber
        harness.simulation.run_for(PASS_S)
        assert scrubber.bytes_read > PASS_S
        assert not scrubber.passes
        scrubber.bytes_per_second = 2**20
        harness.simulation.run_for(2.0)
        assert scrubber.passes == 1


def test_a_shorter_interval_counts_at_once() -> None:
    """The next pass does not wait for the end of the interval before."""
    with BrokerHarness() as harness:
        scrubber = harness.broker.repairs.scrubber
        harness.simulation.run_for(PASS_S)
        assert scrubber.passes == 1
        changed = Settings.from_properties({"log.scrub.interval.ms": "1000"})

        async def reconfigure() -> None:
            scrubber.reconfigure(changed)

        harness.run(reconfigure())
        harness.simulation.run_for(1.5)
        assert scrubber.passes == 2


def test_a_log_that_cannot_be_checked_keeps_no_other_from_it() -> None:
    """A pass goes on with the next log."""
    with BrokerHarness() as harness:
        for topic in ("first", "second"):
            harness.create(topic)
            harness.produce(topic)
            harness.partition(topic).log.flush()
            path = f"{DATA}/{topic}-0/00000000000000000000.log"
            harness.disk.flip_bit(path, 65 * 8)
        with patch("ottla.log.scrubber.damage_of", side_effect=OSError) as tried:
            harness.simulation.run_for(PASS_S)
        assert tried.call_count == 2
        assert harness.broker.repairs.scrubber.passes == 1

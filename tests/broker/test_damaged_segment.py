"""A segment damaged under a running broker: the reader gets an error, it is
logged, and all else goes on."""

from __future__ import annotations

import logging

import pytest

from ottla.wire.errors import ErrorCode
from tests.broker.harness import DATA, BrokerHarness, fetch_request

LOG_FILE = f"{DATA}/damaged-0/00000000000000000000.log"
MAGIC_POSITION = 16  # of a batch, from its start


def test_reading_damaged_bytes_is_corrupt_message(caplog: pytest.LogCaptureFixture) -> None:
    """A fetch into what is no batch any more is CORRUPT_MESSAGE, and logged with its place."""
    with BrokerHarness() as harness:
        for topic in ("damaged", "sound"):
            harness.create(topic)
            for _ in range(3):
                harness.produce(topic)
        batch_bytes = harness.partition("damaged").log.size_bytes // 3
        for batch in range(3):
            harness.disk.flip_bit(LOG_FILE, (batch * batch_bytes + MAGIC_POSITION) * 8)
        harness.partition("damaged").log.active.hints = None
        with caplog.at_level(logging.ERROR):
            response = harness.ask(fetch_request(("damaged", 0, 1), ("sound", 0, 1)), 12)
        damaged, sound = (topic.partitions[0] for topic in response.responses)
        assert damaged.error_code == ErrorCode.CORRUPT_MESSAGE
        assert "no sound batch at byte" in caplog.text
        assert sound.error_code == ErrorCode.NONE
        assert sound.records

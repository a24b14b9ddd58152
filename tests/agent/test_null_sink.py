"""The null sink counts what it drops."""

from __future__ import annotations

import logging

import pytest

from ottla.agent.events import EventBatch
from ottla.agent.sinks.null import NullSink


def test_the_number_is_logged_every_so_often(caplog: pytest.LogCaptureFixture) -> None:
    """`logEveryNEvents`, once for a delivery that passes several such numbers, as in Flume."""
    sink = NullSink("n", 10)
    with caplog.at_level(logging.INFO):
        for events in (9, 1, 25, 4):
            sink.deliver([EventBatch([b""] * events)])
    said = [record.getMessage() for record in caplog.records]
    assert said == ["Null sink n: 10 events", "Null sink n: 35 events"]

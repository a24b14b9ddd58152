"""A new replica of a log that begins inside a batch: records were deleted up to its middle.

Kafka's follower has the same case (`UnexpectedAppendOffsetException`): the leader answers a fetch
at its log start with the batch around it, which begins before that.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.replica.brokers import Brokers

VALUES = [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("flush", ["false", "true"])
def test_an_empty_replica_begins_with_the_whole_batch(flush: str) -> None:
    """It has the batch and begins to be read where the leader's log does, also after a crash."""
    options: dict[str, Any] = {"log_flush_before_ack": flush}
    with Brokers(3, **options) as brokers:
        brokers.lead(1)
        for _ in range(3):
            brokers.produced(1, *VALUES)
        brokers.crash(3, power=True)
        brokers.script.decide(0, isr=(1, 2))
        assert brokers.at(1).delete_records_before(14) == 14
        brokers.nodes[3].disk.__init__()  # type: ignore[misc] # another disk
        brokers.start(3)
        brokers.lead(1)
        brokers.run_until(lambda: brokers.at(3).end_offset == 30)
        brokers.run_until(lambda: brokers.at(3).log_start_offset == 14)
        assert brokers.at(3).log.segments[0].base_offset == 10
        brokers.produced(1, *VALUES)
        brokers.run_until(lambda: brokers.at(3).end_offset == 40)
        brokers.crash(3, power=False)
        brokers.start(3)
        brokers.lead(1)
        brokers.run_until(lambda: brokers.at(3).end_offset == 40)
        brokers.lead(3, isr=(1, 2, 3))
        brokers.run_until(lambda: brokers.at(3).high_watermark == 40)
        assert brokers.read(3, 14)[4:] == [*VALUES[4:], *VALUES, *VALUES]

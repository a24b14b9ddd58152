"""What must hold of all replicas of a partition: see `ottla.testing.simulation.invariants`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.replica.partition import Partition
from ottla.testing.simulation.invariants import Invariants, PartitionRecord, Replica
from ottla.testing.simulation.replica_log import BatchId

OWN = BatchId(34, 34, 14, 1)  # of a leader that was cut off
NEXT = BatchId(34, 34, 15, 2)
COMMON = BatchId(35, 35, 15, 3)


def problems(start: int, *logs: list[BatchId]) -> list[str]:
    """What is found in replicas of these batches, of which one has a log that begins at `start`."""
    found: list[str] = []
    invariants, record = Invariants(found.append), PartitionRecord()
    for number, batches in enumerate(logs):
        partition: Any = SimpleNamespace(
            topic="t", index=0, topic_id=bytes(16), offline=None, is_leader=False, log=None,
            log_start_offset=0 if number else start,
        )  # fmt: skip
        replica = record.replicas[number] = Replica(cast("Partition", partition))
        replica.log = cast("Any", SimpleNamespace(read=lambda batches=batches: batches))
    invariants._records[bytes(16), 0] = record
    invariants.compare()
    return found


@pytest.mark.parametrize(("start", "differ"), [(0, True), (34, True), (35, False)])
def test_logs_agree_from_the_greatest_start_on(start: int, differ: bool) -> None:
    """Records before it were deleted, and a follower that had others there is not cut for them
    (seeds 601495 and 601496 with a queue).
    """
    assert bool(problems(start, [NEXT, COMMON], [OWN, COMMON])) == differ

"""The locks of a share partition while its state is being written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.broker.shares.acknowledgements import ACCEPT
from ottla.broker.shares.in_flight import InFlight
from ottla.broker.shares.ranges import AVAILABLE, BatchBounds, Limits
from ottla.broker.shares.share_partition import Outcome, SharePartition
from ottla.coordinator.share_state import SharePartitionKey
from ottla.seams.clock import ManualClock
from ottla.wire.errors import ErrorCode

LOCK_MS = 1000
LIMITS = Limits(deliveries_max=5, records_max=200, lock_ms=LOCK_MS)
KEY = SharePartitionKey("g", bytes(16), 0)


class Looking(InFlight):
    """Counts how often it is asked for locks that have ended."""

    looks = 0

    def expire(self, limits: Limits, now_ms: int) -> list[tuple[int, int, int, int]]:
        self.looks += 1
        return super().expire(limits, now_ms)


class Leader:
    """A share partition whose writes are answered by the test."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.writes: list[Any] = []
        partition = SimpleNamespace(
            topic="t", topic_id=KEY.topic_id, leader_epoch=0, is_leader=True, offline=None
        )
        self.shares = SharePartition(
            KEY,
            partition,  # type: ignore[arg-type]
            SimpleNamespace(write=lambda *asked: self.writes.append(asked[2])),  # type: ignore[arg-type]
            SimpleNamespace(limits=lambda _: LIMITS),  # type: ignore[arg-type]
            self.clock,
            SimpleNamespace(),  # type: ignore[arg-type]
            on_available=lambda _: None,
            on_idle=lambda _: None,
        )
        self.window = self.shares.in_flight = Looking(0)
        self.shares.loaded = True
        now_ms = int(self.clock.monotonic() * 1000)
        self.window.acquire("m", 0, 10, [BatchBounds(0, 9)], LIMITS, now_ms=now_ms, batch_size=500)
        self.shares._watch_locks(LOCK_MS)

    def available(self) -> list[tuple[int, int]]:
        return [(each[0], each[1]) for each in self.window.runs() if each.kind.state == AVAILABLE]


def test_nobody_looks_at_locks_again_and_again_while_a_write_hangs() -> None:
    """Locks that have ended beneath an acknowledgement that is being written wait for its outcome,
    without a timer every millisecond; when it fails they end at once."""
    leader, outcomes = Leader(), list[Outcome]()
    leader.shares.acknowledge("m", [(0, 4, [ACCEPT])], outcomes.append)
    leader.clock.advance(LOCK_MS + 1)
    assert leader.available() == [(5, 9)]
    before = leader.window.looks
    leader.clock.advance(10_000)
    assert leader.window.looks == before
    leader.writes.pop(0)(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert [each.error for each in outcomes] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert leader.available() == [(0, 9)]


def test_a_lock_goes_on_when_its_acknowledgement_could_not_be_written() -> None:
    """The member still has the records, until the time that it had for them is up."""
    leader = Leader()
    leader.clock.advance(LOCK_MS / 2)
    leader.shares.acknowledge("m", [(0, 9, [ACCEPT])], lambda _: None)
    leader.writes.pop(0)(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert leader.available() == []
    leader.clock.advance(LOCK_MS / 2 + 1)
    assert leader.available() == [(0, 9)]

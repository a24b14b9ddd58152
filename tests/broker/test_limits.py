"""What a broker remembers has an end: guards of first writes, faults that a test has asked for."""

from __future__ import annotations

import pytest

from ottla.broker import verification
from ottla.broker.faults import FAULTS_MAX, Fault, Faults, key_of
from ottla.broker.verification import Guard, Operation, Verification
from ottla.coordinator.effects import Producer
from ottla.wire.errors import ErrorCode
from tests.broker.harness import BrokerHarness


def test_guards_beyond_the_limit_push_out_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes that never come do not grow the memory; the oldest, if it comes after all, is refused
    as one whose transaction is over, and may be tried again."""
    monkeypatch.setattr(verification, "GUARDS_MAX", 3)
    with BrokerHarness() as harness:
        harness.create("guarded")
        partition = harness.partition("guarded")
        guards = Verification(harness.broker)

        def start(producer_id: int) -> Guard:
            found = guards.start(partition, Producer(producer_id, 0), 0, Operation.VERIFY)
            assert isinstance(found, Guard)
            return found

        made = {number: start(number) for number in range(4)}
        verdicts = [guards.check(partition, number, made[number], 0) for number in range(4)]
        assert verdicts == [ErrorCode.INVALID_TXN_STATE, *[ErrorCode.NONE] * 3]
        assert guards.check(partition, 0, start(0), 0) == ErrorCode.NONE


def test_faults_beyond_the_limit_are_refused() -> None:
    """A request for too many fails, API by API, and those that wait stay."""
    faults = Faults()
    faults.add("Produce", Fault(delay_ms=1), FAULTS_MAX)
    with pytest.raises(ValueError, match=f"more than {FAULTS_MAX}"):
        faults.add("produce", Fault(delay_ms=1), 1)
    faults.add("Fetch", Fault(delay_ms=1), 1)
    key = key_of("Produce")
    taken = 0
    while faults.take(key) is not None:
        taken += 1
    assert taken == FAULTS_MAX
    faults.add("Produce", Fault(delay_ms=1), 1)

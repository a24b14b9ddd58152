"""A broker stopped at every single change of its disk while transactions run: prepare written,
markers half written, completion not written, and everything between.

The broker is whole, only its network is left out and its disk is simulated. Two producers, one of
each generation, run three transactions each over two partitions and a group's offset. Wherever the
stop falls, the next start must find every transaction whole or not at all, each as its producer was
acknowledged, and nothing that holds readers back for good.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from ottla.seams.clock import Clock
from ottla.seams.simulated.background import Durations
from ottla.seams.simulated.disk import SimulatedDisk
from tests.broker.harness import BrokerHarness
from tests.broker.transactional import TOPIC, Client, Stopped, offset_of, visible

OUTCOMES = (True, False, True)
DURATIONS = Durations(thread_s=0.002)  # so that a stop falls between a sync and its answer, too
SETTINGS: dict[str, Any] = {
    "transaction_state_log_num_partitions": 1,
    "offsets_topic_num_partitions": 1,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 1000,
}


class StoppingDisk(SimulatedDisk):
    """Stops the machine at the n-th change: from then on nothing happens any more."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0
        self.stop_at: int | None = None

    @property
    def stopped(self) -> bool:
        return self.stop_at is not None and self.changes >= self.stop_at

    def _may_fail(self, operation: str, path: str) -> None:
        if operation in ("write", "sync", "rename", "unlink", "truncate"):
            self.changes += 1
            if self.stopped:
                raise OSError(5, "the machine has stopped")
        super()._may_fail(operation, path)


@dataclass
class Outcomes:
    """What was asked for, and what was acknowledged, by client and number of transaction."""

    asked: dict[tuple[str, int], bool] = field(default_factory=dict)
    acknowledged: dict[tuple[str, int], bool] = field(default_factory=dict)


def clients(harness: BrokerHarness) -> list[Client]:
    return [Client(harness, "classic", False), Client(harness, "bumping", True)]


def run(harness: BrokerHarness, outcomes: Outcomes) -> None:
    """Both producers, in turn, until the machine stops."""
    both = clients(harness)
    for client in both:
        client.begin()
    for number, commit in enumerate(OUTCOMES):
        for client in both:
            key = (client.name, number)
            for partition in (0, 1):
                client.write(partition, b"%s %d" % (client.name.encode(), number))
            client.commit_offset(number + 1)
            outcomes.asked[key] = commit
            client.end(commit)
            outcomes.acknowledged[key] = commit


def started(
    disk: SimulatedDisk, flush: bool, order: int, clock: Clock | None = None
) -> BrokerHarness:
    return BrokerHarness(
        disk=disk,
        clock=clock,
        order=order,
        durations=DURATIONS,
        log_flush_before_ack=str(flush).lower(),
        **SETTINGS,
    )


def check(harness: BrokerHarness, outcomes: Outcomes) -> None:
    """Whole or not at all, as it was acknowledged; and it can go on."""
    for client in clients(harness):
        client.begin()  # aborts what was left open
    for partition in (0, 1):
        harness.partition(TOPIC, partition)  # opened when first asked for, and shown once synced
    harness.advance(20_000)
    seen = [visible(harness, partition) for partition in (0, 1)]
    for client in clients(harness):
        name = client.name.encode()
        numbers = [
            [int(value.split()[1]) for value in values if value.split()[0] == name]
            for values in seen
        ]
        assert numbers[0] == numbers[1] == sorted(set(numbers[0])), "torn, doubled or reordered"
        for number, commit in enumerate(OUTCOMES):
            key = (client.name, number)
            if key in outcomes.acknowledged or not commit:
                assert (number in numbers[0]) == commit, (key, "is not as it was acknowledged")
            elif number in numbers[0]:
                assert outcomes.asked.get(key), (key, "was never to be committed")
        last = max(numbers[0], default=-1) + 1
        assert offset_of(harness, int(client.bumps)) == (last or -1), "offsets go with the records"
    for client in clients(harness):
        client.begin()
        client.write(0, b"%s 9" % client.name.encode())
        client.end(commit=True)
    harness.advance(20_000)
    assert visible(harness, 0)[-2:] == [b"classic 9", b"bumping 9"]


@pytest.mark.parametrize("cut", ["kill", "power"])
def test_a_stop_at_every_change_of_the_disk(cut: str) -> None:
    """Every transaction is whole or not at all, and as was acknowledged to its producer."""
    flush = cut == "power"
    stops = 0
    while True:
        disk, outcomes = StoppingDisk(), Outcomes()
        harness = started(disk, flush, stops)
        harness.create(TOPIC, 2)
        harness.settle()
        begun = disk.changes
        disk.stop_at = begun + 1 + stops * (2 if flush else 1)
        try:
            run(harness, outcomes)
            done = True
        except Stopped:
            done = False
        harness.kill()
        disk.stop_at = None
        if flush:
            disk.crash(stops)
        else:
            disk.kill()
        with started(disk, flush, stops, harness.clock) as later:
            check(later, outcomes)
        stops += 1
        if done:
            break
    assert stops > 30

"""Many partitions over the same brokers while leaders move, brokers die and links are cut.

The fetches of one follower from one leader share a session: what belongs to one partition must
never be taken for another's, whatever joins and leaves the session meanwhile.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from tests import needs
from tests.broker.harness import Answer
from tests.replica.brokers import NO_LEADER, Brokers, error_of
from tests.replica.test_divergence import batches

SEEDS = needs.rounds(5, 300)
PARTITIONS = 6
STEPS = 40
SETTINGS = {
    "min_insync_replicas": 2,
    "replica_lag_time_max_ms": 1500,
    "replica_fetch_wait_max_ms": 300,
    "replica_socket_timeout_ms": 1500,
    "internal_segment_bytes": 4096,
}


class Sent(NamedTuple):
    """A record, who was asked to write it, and the answer."""

    value: bytes
    broker: int
    answer: Answer

    @property
    def acknowledged(self) -> bool:
        return self.answer.ready and not error_of(self.answer)


class History:
    """One history of a cluster, from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        flush = "true" if seed % 3 == 0 else "false"
        self.brokers = Brokers(
            3, partitions=PARTITIONS, seed=seed, log_flush_before_ack=flush, **SETTINGS
        )
        self.sent: list[list[Sent]] = [[] for _ in range(PARTITIONS)]
        self.dead: set[int] = set()  # answers that may never come
        for index in range(PARTITIONS):
            self.brokers.script.decide(index, leader=index % 3 + 1)
        self.brokers.run(1)

    def run(self) -> None:
        with self.brokers:
            for _ in range(STEPS):
                for _ in range(self.rng.randint(1, 5)):
                    self.produce()
                self.rng.choice([self.move, self.move, self.crash, self.cut, self.wait])()
            self.heal()
            self.check()

    def produce(self) -> None:
        index = self.rng.randrange(PARTITIONS)
        leader = self.brokers.script.state(index).leader
        if leader in self.brokers.brokers:
            value = b"%d %d" % (index, len(self.sent[index]))
            answer = self.brokers.produce(leader, value, index=index, timeout_ms=5000)
            self.sent[index].append(Sent(value, leader, answer))

    def wait(self) -> None:
        self.brokers.run(self.rng.uniform(0, 1))

    def move(self) -> None:
        """Several leaderships at once, to members of the ISR that are alive."""
        script = self.brokers.script
        for index in self.rng.sample(range(PARTITIONS), self.rng.randint(1, PARTITIONS)):
            others = [each for each in script.state(index).isr if each in self.brokers.brokers]
            if others:
                script.decide(index, leader=self.rng.choice(others))
        self.brokers.run(self.rng.uniform(0, 0.4))

    def crash(self) -> None:
        """A broker dies and comes back, out of every ISR that has others."""
        script = self.brokers.script
        broker = self.rng.choice(sorted(self.brokers.brokers))
        self.brokers.crash(broker)
        self.dead |= {
            id(each.answer) for sent in self.sent for each in sent if each.broker == broker
        }
        self.brokers.run(self.rng.uniform(0, 0.3))
        for index in range(PARTITIONS):
            self.give_up(index, broker)
        self.brokers.run(self.rng.uniform(0, 2))
        self.brokers.start(broker)
        for index in range(PARTITIONS):
            if script.state(index).leader == NO_LEADER:
                script.decide(index, leader=broker)
        self.brokers.run(self.rng.uniform(0, 0.3))

    def give_up(self, index: int, broker: int) -> None:
        script = self.brokers.script
        state = script.state(index)
        isr = tuple(each for each in state.isr if each != broker)
        if isr and state.leader == broker:
            script.decide(index, leader=self.rng.choice(isr), isr=isr)
        elif isr and broker in state.isr:
            script.decide(index, isr=isr)
        elif state.leader == broker:
            script.decide(index, leader=NO_LEADER)

    def cut(self) -> None:
        broker = self.rng.choice(self.brokers.ids)
        self.brokers.cut(broker)
        for _ in range(3):
            self.produce()
        self.brokers.run(self.rng.uniform(0, 3))
        self.brokers.heal(broker)

    def heal(self) -> None:
        """Everything is in sync again, and every answer is here."""
        script = self.brokers.script

        def whole() -> bool:
            for index in range(PARTITIONS):
                leader = self.brokers.at(script.state(index).leader, index)
                if len(leader.in_sync) < 3 or leader.high_watermark < leader.end_offset:
                    return False
            return all(
                each.answer.ready or id(each.answer) in self.dead
                for sent in self.sent
                for each in sent
            )

        self.brokers.run_until(whole)
        self.brokers.run(2)

    def check(self) -> None:
        for index, sent in enumerate(self.sent):
            logs = [batches(self.brokers.at(each, index)) for each in self.brokers.ids]
            assert logs[0] == logs[1] == logs[2]
            ends = {self.brokers.at(each, index).high_watermark for each in self.brokers.ids}
            assert len(ends) == 1
            found = self.read(index)
            acknowledged = [each.value for each in sent if each.acknowledged]
            order = [value for value in found if value in set(acknowledged)]
            assert order == acknowledged
            assert set(found) <= {each.value for each in sent}
            assert all(value.startswith(b"%d " % index) for value in found)

    def read(self, index: int) -> list[bytes]:
        leader = self.brokers.script.state(index).leader
        end = self.brokers.at(leader, index).end_offset
        found: list[bytes] = []
        while len(found) < end:
            found += [each or b"" for each in self.brokers.read(leader, len(found), index)]
        return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_partitions_of_one_session_are_kept_apart(seed: int) -> None:
    """Each has its own records on all replicas, and all that were acknowledged, in their order."""
    History(seed).run()

"""Sink groups: who delivers next, and who is left out for how long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import pytest

from ottla.agent.events import EventBatch, Position
from ottla.agent.sink_groups import AllSinksFailed, Failover, LoadBalance, SinkGroup
from ottla.agent.sinks.kafka import KafkaSink
from ottla.agent.sinks.routing import Routing
from ottla.testing.broker import Broker
from tests.agent.reading import records


class Clock:
    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


class ScriptedSink:
    """Delivers, unless it is down."""

    keeps_positions = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.down = False
        self.bodies: list[bytes] = []

    def start(self) -> Mapping[str, Position]:
        if self.down:
            raise ConnectionError("down")
        return {}

    def deliver(self, batches: Sequence[EventBatch]) -> None:
        if self.down:
            raise ConnectionError("down")
        for batch in batches:
            self.bodies += batch.bodies

    def stop(self) -> None:
        return


def sinks(*names: str) -> dict[str, ScriptedSink]:
    return {name: ScriptedSink(name) for name in names}


def test_failover_delivers_to_the_highest_priority_that_works() -> None:
    """A sink that failed is left out for 1 s, then 2 s, up to maxpenalty, and comes back."""
    clock, members = Clock(), sinks("k1", "k2")
    group = SinkGroup("g", members, Failover({"k1": 5, "k2": 10}, 3000), clock)
    one = [EventBatch([b"x"])]
    group.deliver(one)
    members["k2"].down = True
    group.deliver(one)
    assert group.counts == {"k1": 1, "k2": 1}
    members["k2"].down = False
    clock.s = 0.9
    group.deliver(one)
    assert group.counts == {"k1": 2, "k2": 1}
    clock.s = 1.1
    group.deliver(one)
    assert group.counts == {"k1": 2, "k2": 2}
    members["k2"].down = True
    choice = Failover({"k1": 5, "k2": 10}, 3000)
    for penalty_ms in (1000, 2000, 3000, 3000):
        choice.failed("k2", 0)
        assert choice.order(penalty_ms - 1) == ["k1"]
        assert choice.order(penalty_ms) == ["k2", "k1"]
    choice.delivered("k2")
    choice.failed("k2", 0)
    assert choice.order(1000) == ["k2", "k1"]


def test_a_sink_that_failed_begins_anew(ottla_broker: Broker) -> None:
    """What a Kafka sink had encoded of a delivery that failed, and that the next sink has taken, is
    not in its next one. Before, it was, and more with each try of an event that cannot be sent."""
    bootstrap, clock = ottla_broker.bootstrap_servers, Clock()
    kafka = KafkaSink(
        "k2", Routing("group-fails", partition_header="p"), {"bootstrap.servers": bootstrap}, None
    )
    members = {**sinks("k1"), "k2": kafka}
    group = SinkGroup("g", members, Failover({"k1": 5, "k2": 10}, 3000), clock)
    group.deliver([EventBatch([b"good", b"bad"], own_headers=[{}, {"p": "no number"}])])
    assert (group.counts, group.failures) == ({"k1": 2, "k2": 0}, {"k1": 0, "k2": 1})
    clock.s = 2.0
    group.deliver([EventBatch([b"next"])])
    group.stop()
    assert [record.value for record in records(bootstrap, "group-fails")] == [b"next"]


def test_load_balance_takes_turns() -> None:
    """Round robin, and the next one if a sink fails."""
    clock, members = Clock(), sinks("k1", "k2", "k3")
    choice = LoadBalance(list(members), chance=None, backoff_max_ms=None)
    group = SinkGroup("g", members, choice, clock)
    for _ in range(6):
        group.deliver([EventBatch([b"x"])])
    assert group.counts == {"k1": 2, "k2": 2, "k3": 2}
    members["k1"].down = True
    for _ in range(3):
        group.deliver([EventBatch([b"x"])])
    assert group.counts == {"k1": 2, "k2": 4, "k3": 3}


def test_load_balance_leaves_a_failed_sink_out_with_backoff() -> None:
    """For a time that doubles; without backoff it is tried each time."""
    choice = LoadBalance(["k1", "k2"], chance=None, backoff_max_ms=1500)
    choice.failed("k1", 0)
    assert choice.order(999) == ["k2"]
    assert "k1" in choice.order(1000)
    choice.failed("k1", 0)
    assert choice.order(1499) == ["k2"]
    assert "k1" in choice.order(1500)


def test_random_order_uses_all_sinks() -> None:
    """Each is first now and then."""
    choice = LoadBalance(["k1", "k2", "k3"], chance=Random(1), backoff_max_ms=None)
    orders = [choice.order(0) for _ in range(50)]
    assert {order[0] for order in orders} == {"k1", "k2", "k3"}
    assert all(sorted(order) == ["k1", "k2", "k3"] for order in orders)


def test_a_group_without_a_working_sink_says_why() -> None:
    """The delivery is tried again: nothing is dropped."""
    members = sinks("k1", "k2")
    for member in members.values():
        member.down = True
    group = SinkGroup("g", members, Failover({"k1": 1, "k2": 2}, 1000), Clock())
    with pytest.raises(AllSinksFailed, match="k2: down; k1: down"):
        group.deliver([EventBatch([b"x"])])
    with pytest.raises(AllSinksFailed, match="left out"):
        group.deliver([EventBatch([b"x"])])

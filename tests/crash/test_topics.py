"""A broker stopped at every single change while topics come, grow and go: between any two writes of
the tree, between the tree and the partitions' folders, between two folders.

The broker is whole; only its network is left out and its disk is simulated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.cluster.requests import NewPartitions, NewTopic, TopicRef
from ottla.metadata_store.local_store import Store
from ottla.metadata_store.tree import ConnectionLoss
from tests.broker.harness import DATA, BrokerHarness, fetch_request, values
from tests.crash.test_transactions import DURATIONS, StoppingDisk

PARTITIONS, GROWN = 3, 5


class StoppingBroker:
    """A broker whose machine stops at a given change, and what it has answered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, order: int) -> None:
        self.disk = StoppingDisk()
        self.acknowledged: list[str] = []
        write: Callable[..., Any] = Store.write

        def counted(store: Store, *arguments: Any) -> Any:
            self.disk.changes += 1
            if self.disk.stopped:
                raise ConnectionLoss("/", "the machine has stopped")
            return write(store, *arguments)

        monkeypatch.setattr(Store, "write", counted)
        self.harness = BrokerHarness(disk=self.disk, order=order, durations=DURATIONS)

    def do(self, what: str, action: Callable[[BrokerHarness], Any]) -> bool:
        """Whether it was answered well before the machine stopped."""
        try:
            code = action(self.harness)
        except AssertionError:
            assert self.disk.stopped
            return False
        if self.disk.stopped:
            return False
        assert code == 0, (what, code)
        self.acknowledged.append(what)
        return True

    def run(self) -> bool:
        """All actions in turn; whether none was cut short."""
        return all(self.do(what, action) for what, action in ACTIONS.items())


def create(harness: BrokerHarness) -> Any:
    (outcome,) = harness.run(
        harness.broker.controller.create_topics([NewTopic("t", PARTITIONS, 1)])
    )
    return outcome.error_code


def grow(harness: BrokerHarness) -> Any:
    (outcome,) = harness.run(
        harness.broker.controller.create_partitions([NewPartitions("t", GROWN)])
    )
    return outcome.error_code


def delete(harness: BrokerHarness) -> Any:
    (outcome,) = harness.run(harness.broker.controller.delete_topics([TopicRef("t")]))
    return outcome.error_code


ACTIONS: dict[str, Callable[[BrokerHarness], Any]] = {
    "created": create,
    "written": lambda harness: harness.produce("t", 0, b"old").error_code,
    "grown": grow,
    "written to the last": lambda harness: harness.produce("t", GROWN - 1, b"old").error_code,
    "deleted": delete,
    "created again": create,
    "written again": lambda harness: harness.produce("t", 0, b"new").error_code,
}


def check(harness: BrokerHarness, acknowledged: list[str], cut: str) -> None:
    """The topic is there or not, whole, and as was acknowledged; nothing of another one is left."""
    topic = harness.broker.image.topics.get("t")
    last = acknowledged[-1] if acknowledged else ""
    if last in ("created", "written", "grown", "created again", "written again"):
        assert topic is not None, acknowledged
    if topic is None:
        assert create(harness) == 0
        topic = harness.broker.image.topics["t"]
    count = len(topic.partitions)
    assert count in ((GROWN,) if last == "grown" else (PARTITIONS, GROWN)), acknowledged
    begun_anew = "deleted" in acknowledged
    found = values(harness.ask(fetch_request(("t", 0, 0)), 11))["t", 0]
    assert found in ([], [b"new"] if begun_anew else [b"old"])
    if cut == "kill" and last in ("written", "grown", "written again"):
        assert found == [b"new" if begun_anew else b"old"]
    for index in range(count):
        assert harness.produce("t", index, b"next").error_code == 0
    folders = {name for name in harness.disk.listdir(DATA) if name.rpartition("-")[2].isdecimal()}
    assert folders == {f"t-{index}" for index in range(count)}
    assert harness.broker.image.deletions == {}


@pytest.mark.parametrize("cut", ["kill", "power"])
def test_a_stop_at_every_change(cut: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the next start a topic is whole or not there, as was acknowledged, and works."""
    stops = 0
    while True:
        with monkeypatch.context() as patched:
            stopping = StoppingBroker(patched, stops)
            stopping.disk.stop_at = stopping.disk.changes + 1 + stops
            done = stopping.run()
            stopping.harness.kill()
            stopping.disk.stop_at = None
            if cut == "power":
                stopping.disk.crash(stops)
            else:
                stopping.disk.kill()
            with BrokerHarness(
                disk=stopping.disk, clock=stopping.harness.clock, seed=2 + stops
            ) as later:
                later.settle()
                check(later, stopping.acknowledged, cut)
        stops += 1
        if done:
            break
    assert stops > 20

"""The producer's sender: what it costs to have many partitions, and when each batch is sent."""

from __future__ import annotations

import math
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.producer import sender as sender_module
from ottla.client.producer.accumulator import Batch, Memory, PartitionQueue
from ottla.client.producer.due_times import DueTimes
from ottla.client.producer.idempotence import Identity
from ottla.client.producer.options import MAX_IN_FLIGHT, PRODUCER
from ottla.client.producer.sender import Sender
from ottla.wire.api.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

TOPIC_ID = bytes(15) + b"\x01"
LINGER_S = 5.0
DELIVERY_S = 120.0


class FakeClient:
    """A client without a network: requests are kept, timers and calls run when the test says."""

    def __init__(self, leaders: int) -> None:
        defaults = {option.name: option.default for option in PRODUCER}
        self.config = {**defaults, "linger_ms": LINGER_S * 1000, "acks": -1}
        self.config |= {"compression_type": 0, MAX_IN_FLIGHT: 5, "retries": 10}
        self.leaders = leaders
        self.cluster = self
        self.topics = {"t": SimpleNamespace(topic_id=TOPIC_ID)}
        self.connections = SimpleNamespace(on_ended=None, failures=list, cluster=self)
        self.metadata = SimpleNamespace(listeners=[])
        self.calls: list[Any] = []
        self.timers: list[tuple[float, Any]] = []
        self.requests: list[tuple[int, Any, Future[Any]]] = []
        self.refreshed: list[str] = []

    def leader(self, topic: str, partition: int) -> int:
        return partition % self.leaders if self.leaders else -1

    def with_leader(self, *hint: Any) -> FakeClient:
        return self

    def call_soon(self, callback: Any, *arguments: Any) -> None:
        self.calls.append(callback)

    def call_later(self, delay_s: float, callback: Any) -> None:
        self.timers.append((delay_s, callback))

    def refresh(self, topics: list[str]) -> None:
        self.refreshed += topics

    def backoff_s(self, tries: int) -> float:
        return 0.1

    def submit(self, leader: int, message: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.requests.append((leader, message, future))
        return future


class Harness:
    """A sender, without an identity unless told so, on a clock that the test sets."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        partitions: int,
        leaders: int,
        transactional_id: str | None = None,
    ) -> None:
        self.now = 1000.0
        monkeypatch.setattr(
            sender_module, "time", SimpleNamespace(monotonic=lambda: self.now), raising=True
        )
        self.client = FakeClient(leaders)
        self.memory = Memory(1 << 30)
        self.identity = None
        if transactional_id is not None:
            self.identity = Identity(self.client, transactional_id)  # type: ignore[arg-type]
        self.sender = Sender(self.client, self.memory, self.identity)  # type: ignore[arg-type]
        self.queues = [PartitionQueue("t", n, self.sender.changed) for n in range(partitions)]

    def send(self, partition: int) -> Batch:
        """One record, as `Producer.send` does it."""
        queue = self.queues[partition]
        batch = queue.open
        if batch is None:
            batch = queue.open = Batch(queue, 100, self.now, self.now + DELIVERY_S)
            self.sender.incomplete.add(batch)
        assert batch.builder.append(0, None, b"v", None) > 0
        batch.count += 1
        if batch.count == 1:
            self.sender.begun(queue)
        return batch

    def run(self) -> None:
        """All that the background thread was asked to do."""
        while self.client.calls:
            self.client.calls.pop(0)()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        due = [each for each in self.client.timers if each[0] <= seconds + 1e-9]
        self.client.timers = [
            (delay - seconds, call)
            for delay, call in self.client.timers
            if (delay, call) not in due
        ]
        for _, callback in due:
            callback()
        self.run()

    def answer(self, error_code: int = 0) -> int:
        """Answer the oldest request; the number of its partitions."""
        _, message, future = self.client.requests.pop(0)
        answers = [
            PartitionProduceResponse(index=each.index, error_code=error_code, base_offset=7)
            for each in message.topic_data[0].partition_data
        ]
        found = TopicProduceResponse(name="t", topic_id=TOPIC_ID, partition_responses=answers)
        future.set_result(ProduceResponse(responses=[found]))
        self.run()
        return len(answers)


def test_a_record_to_each_of_many_partitions_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """One record each to ten times as many partitions is ten times the looks, and few requests."""
    looks = {}
    for partitions in (100, 1_000):
        harness = Harness(monkeypatch, partitions=partitions, leaders=3)
        batches = [harness.send(n) for n in range(partitions)]
        harness.run()
        assert not harness.client.requests, "they linger"
        harness.pass_time(LINGER_S)
        assert len(harness.client.requests) == 3
        assert sum(harness.answer() for _ in range(3)) == partitions
        assert all(batch.over and batch.base_offset == 7 for batch in batches)
        looks[partitions] = harness.sender.look_count
        assert not harness.sender.incomplete
    assert looks[1_000] <= 10 * looks[100]
    assert looks[1_000] <= 5 * 1_000


def test_a_send_costs_the_same_beside_many_waiting_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Partitions that linger, and those that wait for their broker, are not looked at again."""
    harness = Harness(monkeypatch, partitions=2_000, leaders=2)
    for n in range(0, 2_000, 2):  # all of broker 0, which does not answer
        harness.send(n)
    harness.pass_time(0.0)
    timers = len(harness.client.timers)
    harness.pass_time(LINGER_S)
    before = harness.sender.look_count
    for _ in range(10):
        harness.send(1)
        harness.queues[1].open.hurry()  # type: ignore[union-attr]
        harness.run()
        harness.client.requests.reverse()
        assert harness.answer() == 1
        harness.client.requests.reverse()
    assert harness.sender.look_count - before <= 10 * 5
    assert timers == 1, "one timer for all that linger"
    assert len(harness.sender.deadlines) <= 1_001


def test_a_batch_begun_while_others_linger_does_not_wake_the_sender(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The timer for the first comes before the others are due; all go in time all the same."""
    harness = Harness(monkeypatch, partitions=50, leaders=1)
    harness.send(0)
    harness.run()
    harness.pass_time(LINGER_S / 2)
    for n in range(1, 50):
        harness.send(n)
    assert not harness.client.calls
    harness.pass_time(LINGER_S / 2)
    assert harness.answer() == 1
    harness.pass_time(LINGER_S / 2)
    assert harness.answer() == 49


def test_a_flush_sends_all_that_lingers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush, and a caller that waits for memory, make every batch due at once."""
    harness = Harness(monkeypatch, partitions=20, leaders=1)
    for n in range(10):
        harness.send(n)
    harness.run()
    harness.sender.flushing += 1
    harness.sender.poke()
    harness.run()
    assert harness.answer() == 10
    harness.sender.flushing -= 1
    for n in range(10, 20):
        harness.send(n)
    harness.run()
    harness.memory.waiters += 1
    harness.sender.poke()
    harness.run()
    assert harness.answer() == 10


def test_a_request_holds_as_many_batches_as_its_size_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By their bytes, not by the memory reserved for them; the rest goes in the next requests."""
    harness = Harness(monkeypatch, partitions=100, leaders=1)
    size = harness.send(0).byte_count
    harness.client.config["max_request_size"] = 10 * size
    for n in range(1, 100):
        harness.send(n)
    harness.run()
    harness.pass_time(LINGER_S)
    assert len(harness.client.requests) == harness.client.config[MAX_IN_FLIGHT]
    served = []
    while harness.client.requests:
        served.append(harness.answer())
    assert served == [10] * 10


def test_without_a_leader_a_batch_waits_for_metadata_and_fails_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """New metadata sends it at once; without any it fails after delivery_timeout_ms."""
    harness = Harness(monkeypatch, partitions=2, leaders=0)
    first, second = harness.send(0), harness.send(1)
    harness.run()
    harness.pass_time(LINGER_S)
    assert not harness.client.requests
    assert "t" in harness.client.refreshed
    harness.client.cluster = FakeClient(1)
    harness.client.metadata.listeners[0](None)
    harness.run()
    assert harness.answer(error_code=6) == 2  # NOT_LEADER_OR_FOLLOWER: retried later
    harness.client.cluster = FakeClient(0)
    harness.pass_time(DELIVERY_S)
    assert first.over
    assert second.over
    assert "delivery_timeout_ms" in str(first.error)


TIMES = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 4), st.integers(0, 9)),
        st.integers(0, 9),
    ),
    max_size=40,
)


@given(TIMES)
def test_due_times_are_a_table_of_earliest_times(steps: list[Any]) -> None:
    """Beside a dictionary of the earliest time of each queue, searched through."""
    queues = [PartitionQueue("t", n) for n in range(5)]
    times, simple = DueTimes(), dict[PartitionQueue, float]()
    for step in steps:
        if isinstance(step, tuple):
            queue, when = queues[step[0]], float(step[1])
            times.add(queue, when)
            simple[queue] = min(when, simple.get(queue, math.inf))
        else:
            due = {queue for queue, when in simple.items() if when <= step}
            popped = times.pop_due(step)
            assert set(popped) == due
            assert len(popped) == len(due)
            simple = {queue: when for queue, when in simple.items() if queue not in due}
        assert len(times) == len(simple)
        assert times.next_at <= min(simple.values(), default=math.inf)
    assert set(times.pop_all()) == set(simple)


def test_a_transaction_waits_for_its_first_batch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the broker knows the producer the first batch goes alone. Each transaction has a new
    epoch, under which such a broker takes only 0 for the first number: so later ones do not wait
    for their first batch. Under another producer id it goes alone again."""
    harness = Harness(monkeypatch, partitions=1, leaders=1, transactional_id="id")
    identity = harness.identity
    assert identity is not None

    def requests_of_three_batches() -> list[int]:
        """Of a transaction: how many are open after each answer."""
        for _ in range(3):
            harness.send(0)
            with harness.queues[0].lock:
                harness.queues[0].close_open()
            harness.sender.changed(harness.queues[0])
        harness.run()
        open_requests = [len(harness.client.requests)]
        while harness.client.requests:
            harness.answer()
            open_requests.append(len(harness.client.requests))
        return open_requests

    identity.set(7, 0)
    assert requests_of_three_batches() == [1, 2, 1, 0]
    identity.set(7, 1)
    assert requests_of_three_batches() == [3, 2, 1, 0]
    identity.set(8, 0)
    assert requests_of_three_batches() == [1, 2, 1, 0]

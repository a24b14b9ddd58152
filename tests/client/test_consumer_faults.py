"""The consumer when things break: errors and cuts in every API, killed brokers, lost answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla import Consumer, ConsumerRebalanceListener, Producer, TopicPartition
from ottla.client import errors
from ottla.client.network.cluster_client import ANY
from ottla.testing import Broker, broker
from ottla.testing.history import History, Outcome, check
from ottla.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from tests.client.cutting import cut_off
from tests.client.reading import make_topic
from tests.live import Server, free_port
from tests.waiting import ends

QUICK: dict[str, Any] = {
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 50,
    "retry_backoff_ms": 10,
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 6000,
    "heartbeat_interval_ms": 50,
    "auto_commit_interval_ms": 50,
}
WAIT_S = 60

FAULTS = {
    "Fetch": [
        "NOT_LEADER_OR_FOLLOWER",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "FENCED_LEADER_EPOCH",
        "KAFKA_STORAGE_ERROR",
        "OFFSET_NOT_AVAILABLE",
        "UNKNOWN_SERVER_ERROR",
    ],
    "ListOffsets": ["NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE", "REQUEST_TIMED_OUT"],
    "OffsetForLeaderEpoch": ["NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH"],
    "FindCoordinator": ["COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"],
    "OffsetFetch": ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"],
    "OffsetCommit": [
        "COORDINATOR_LOAD_IN_PROGRESS",
        "NOT_COORDINATOR",
        "COORDINATOR_NOT_AVAILABLE",
        "REQUEST_TIMED_OUT",
    ],
    "JoinGroup": [
        "COORDINATOR_LOAD_IN_PROGRESS",
        "NOT_COORDINATOR",
        "UNKNOWN_MEMBER_ID",
        "REBALANCE_IN_PROGRESS",
    ],
    "SyncGroup": ["REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "NOT_COORDINATOR"],
    "Heartbeat": ["REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "NOT_COORDINATOR"],
    "Metadata": [],
}


@pytest.fixture(scope="module")
def faulty() -> Iterator[Broker]:
    """A broker that fails on demand."""
    with broker() as running:
        make_topic(running.bootstrap_servers, "faults", partitions=2)
        with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            for n in range(200):
                producer.send("faults", b"%d" % n, partition=n % 2)
        yield running


def caught_up(consumer: Consumer) -> bool:
    have = consumer.assignment()
    return len(have) == 2 and all(consumer.position(each) == 100 for each in have)


def poll_often(consumer: Consumer) -> None:
    for _ in range(10):
        consumer.poll(1000)


def read_all_and_commit(server: Broker, group: str) -> None:
    """As a member of a group, read everything, commit, and see the commit."""
    with Consumer(
        "faults", bootstrap_servers=server.bootstrap_servers, group_id=group, **QUICK
    ) as consumer:
        seen: set[tuple[int, int]] = set()
        deadline = time.monotonic() + WAIT_S
        while len(seen) < 200 and time.monotonic() < deadline:
            for records in consumer.poll(100).values():
                seen |= {(each.partition, each.offset) for each in records}
        assert len(seen) == 200
        until = time.monotonic() + 0.15  # some heartbeats and automatic commits
        while time.monotonic() < until:
            consumer.poll(20)
        # An answer to a heartbeat may have begun a rebalance, and all is read again.
        while not caught_up(consumer) and time.monotonic() < deadline:
            consumer.poll(50)
        consumer.commit()
        assert consumer.committed(TopicPartition("faults", 1)) == 100


@pytest.mark.parametrize("api", FAULTS)
def test_errors_and_cuts_are_overcome(faulty: Broker, api: str) -> None:
    """Whatever an API answers once or twice, and when its connection is cut, a member of a group
    reads all records and commits."""
    for error in FAULTS[api]:
        faulty.fail(api, error, times=2)
        read_all_and_commit(faulty, f"{api}-{error}")
        faulty.clear_faults()
    faulty.disconnect(api, times=2)
    read_all_and_commit(faulty, f"{api}-cut")
    faulty.clear_faults()


def test_errors_that_are_final_are_raised(faulty: Broker) -> None:
    """What trying again cannot help is raised by poll, and the consumer can go on after it."""
    # An automatic commit could meet the fault that is meant for `commit`.
    options = {**QUICK, "bootstrap_servers": faulty.bootstrap_servers, "enable_auto_commit": False}
    with Consumer("faults", group_id="final", **options) as consumer:
        faulty.fail("JoinGroup", "GROUP_AUTHORIZATION_FAILED")
        with pytest.raises(errors.GroupAuthorizationFailedError):
            consumer.poll(60_000)
        assert consumer.poll(60_000)
        faulty.fail("Fetch", "TOPIC_AUTHORIZATION_FAILED")
        with pytest.raises(errors.TopicAuthorizationFailedError):
            poll_often(consumer)
        faulty.fail("OffsetCommit", "GROUP_AUTHORIZATION_FAILED")
        with pytest.raises(errors.GroupAuthorizationFailedError):
            consumer.commit()
        consumer.commit()
    faulty.clear_faults()


def test_a_commit_is_tried_again_unless_it_is_asynchronous(faulty: Broker) -> None:
    """`commit_async` tells its callback of the first error, and what was committed stays; `commit`
    goes on until it is done."""
    place = TopicPartition("faults", 0)
    options = {"group_id": "asynchronous", "enable_auto_commit": False, **QUICK}
    with Consumer(bootstrap_servers=faulty.bootstrap_servers, **options) as consumer:
        consumer.assign([place])
        consumer.commit({place: 5})  # type: ignore[dict-item]
        outcomes: list[Any] = []
        faulty.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=1)
        sent = consumer.commit_async({place: 6}, lambda *received: outcomes.append(received))  # type: ignore[dict-item]
        assert isinstance(sent.exception(WAIT_S), errors.CoordinatorLoadInProgressError)
        assert consumer.committed(place) == 5
        faulty.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=3)
        consumer.commit({place: 7})  # type: ignore[dict-item]
        assert consumer.committed(place) == 7
    ((offsets, problem),) = outcomes
    assert offsets[place].offset == 6
    assert isinstance(problem, errors.CoordinatorLoadInProgressError)


def test_a_member_that_was_removed_comes_back(faulty: Broker) -> None:
    """A member that was removed gets the error in a heartbeat, loses its partitions, and joins
    anew under another name."""
    lost: list[TopicPartition] = []

    class Lost(ConsumerRebalanceListener):
        def on_partitions_lost(self, gone: list[TopicPartition]) -> None:
            lost.extend(gone)

    with Consumer(
        bootstrap_servers=faulty.bootstrap_servers, group_id="removed", **QUICK
    ) as consumer:
        consumer.subscribe(["faults"], listener=Lost())
        assert consumer.poll(60_000)
        before = consumer.group_metadata()
        answer = consumer._client.call(
            ANY,
            LeaveGroupRequest(
                group_id="removed", members=[MemberIdentity(member_id=before.member_id)]
            ),
        )
        assert answer.members[0].error_code == 0
        deadline = time.monotonic() + WAIT_S
        while not (lost and caught_up(consumer)) and time.monotonic() < deadline:
            consumer.poll(50)
        assert sorted(lost) == [TopicPartition("faults", 0), TopicPartition("faults", 1)]
        assert consumer.group_metadata().member_id != before.member_id


def test_a_slow_broker_does_not_hold_up_close(faulty: Broker) -> None:
    """With answers of the coordinator delayed, close ends after its own time-out, long before
    them."""
    consumer = Consumer(
        "faults", bootstrap_servers=faulty.bootstrap_servers, group_id="slow", **QUICK
    )
    consumer.poll(60_000)
    faulty.delay("LeaveGroup", ms=600_000)
    faulty.delay("OffsetCommit", ms=600_000)
    ends(lambda: consumer.close(timeout_ms=500))
    faulty.clear_faults()


class Workload:
    """A producer and members of a group, who record what they did in a history."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, members: int) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.partitions = partitions
        self.history = History()
        self.stop_writing = threading.Event()
        self.stop_reading = threading.Event()
        self.seen: set[tuple[int, int]] = set()
        self.acknowledged = 0
        self.problems: list[BaseException] = []
        self.writer = threading.Thread(target=self._guarded, args=(self._write,))
        self.readers = [
            threading.Thread(target=self._guarded, args=(self._read, f"member {n}"))
            for n in range(members)
        ]
        for thread in (self.writer, *self.readers):
            thread.start()

    def _guarded(self, work: Any, *args: Any) -> None:
        try:
            work(*args)
        except BaseException as problem:
            self.problems.append(problem)
            raise

    def _write(self) -> None:
        with Producer(
            bootstrap_servers=self.bootstrap, reconnect_backoff_max_ms=50, retry_backoff_ms=10
        ) as producer:
            number = 0
            while not self.stop_writing.is_set():
                for partition in range(self.partitions):
                    self._send(producer, partition, number)
                number += 1
                time.sleep(0.002)
            producer.flush(WAIT_S)

    def _send(self, producer: Producer[Any, Any], partition: int, number: int) -> None:
        def delivered(metadata: Any, error: Exception | None) -> None:
            self.history.sent(
                "writer",
                partition,
                number,
                offset=None if metadata is None else metadata.offset,
                outcome=Outcome.OK if error is None else Outcome.UNKNOWN,
            )
            self.acknowledged += error is None

        producer.send(self.topic, b"%d" % number, partition=partition, on_delivery=delivered)

    def _read(self, name: str) -> None:
        workload = self

        class Moved(ConsumerRebalanceListener):
            def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
                workload.history.moved(name)

        with Consumer(bootstrap_servers=self.bootstrap, group_id="checked", **QUICK) as consumer:
            consumer.subscribe([self.topic], listener=Moved())
            while not self.stop_reading.is_set():
                for partition, records in consumer.poll(50).items():
                    found = [(each.offset, int(each.value)) for each in records]
                    self.history.polled(name, partition.partition, found)
                    self.seen.update((partition.partition, value) for _, value in found)

    def finish(self) -> None:
        """Stop writing, let all be read, and look at the history."""
        self.stop_writing.set()
        self.writer.join(WAIT_S)
        assert not self.writer.is_alive()
        deadline = time.monotonic() + WAIT_S
        while len(self.seen) < self.acknowledged and time.monotonic() < deadline:
            time.sleep(0.02)
        self.stop_reading.set()
        for thread in self.readers:
            thread.join(WAIT_S)
            assert not thread.is_alive(), "close hangs"
        assert not self.problems
        report = check(self.history)
        assert report, str(report)
        assert report.unseen == 0, str(report)
        assert report.acknowledged > 300, str(report)


def test_killed_brokers_lose_nothing(tmp_path: Path) -> None:
    """SIGKILL and restart under a group of two: every acknowledged record is read, none is made
    up, and each member reads its partitions in order and without gaps."""
    with Server(tmp_path / "data", settings={"group.initial.rebalance.delay.ms": 0}) as server:
        make_topic(server.bootstrap, "kill", partitions=3)
        work = Workload(server.bootstrap, "kill", 3, 2)
        for _ in range(3):
            time.sleep(0.7)
            server.kill()
            server.start()
        time.sleep(0.5)
        work.finish()


def test_cut_connections_lose_nothing(tmp_path: Path) -> None:
    """Answers are lost again and again; the same holds."""
    outside = free_port()
    settings = {
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{outside}",
        "group.initial.rebalance.delay.ms": 0,
    }
    with (
        Server(tmp_path / "data", settings=settings) as server,
        cut_off(outside, server.port, "cut", partitions=3, seed=7, answers_between_cuts=15) as (
            bootstrap,
            proxy,
        ),
    ):
        work = Workload(bootstrap, "cut", 3, 2)
        time.sleep(0.3)
        proxy.quiet.clear()
        time.sleep(2.5)
        proxy.quiet.set()
        work.finish()
        assert proxy.cuts > 5


def test_records_that_retention_took_away(tmp_path: Path) -> None:
    """A position below the start of the log goes where the policy says, while reading on."""
    from confluent_kafka import TopicPartition as TheirPartition
    from confluent_kafka.admin import AdminClient

    with Server(tmp_path / "data") as server:
        make_topic(server.bootstrap, "gone", partitions=1)
        with Producer(bootstrap_servers=server.bootstrap) as producer:
            for n in range(100):
                producer.send("gone", b"%d" % n)
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        start = TheirPartition("gone", 0, 60)
        admin.delete_records([start])[start].result(60)
        with Consumer(bootstrap_servers=server.bootstrap, **QUICK) as consumer:
            partition = TopicPartition("gone", 0)
            consumer.assign([partition])
            consumer.seek(partition, 10)
            offsets: list[int] = []
            while len(offsets) < 40:
                offsets += [r.offset for each in consumer.poll(1000).values() for r in each]
            assert offsets == list(range(60, 100))
            assert consumer.beginning_offsets([partition]) == {partition: 60}

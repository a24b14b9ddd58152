"""Consumer groups of real clients on one live broker: join, leave, crash, static, cooperative."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka as ck
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as RangeOfAiokafka
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import RebalanceInProgressError

from tests.compat.groups import SETTINGS, WAIT_S, Reader, shared_out, spin
from tests.compat.test_confluent import make_topic, produce
from tests.kafka_python import subscribed
from tests.live import Server

pytestmark = pytest.mark.xdist_group("groups")
Named = Callable[[str], str]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose groups do not wait long for more members."""
    with Server(tmp_path_factory.mktemp("groups") / "data", settings=SETTINGS) as server:
        yield server.bootstrap


def numbered(bootstrap: str, topic: str, count: int, partitions: int, start: int = 0) -> None:
    produce(
        bootstrap,
        topic,
        [{"value": b"%d" % i, "partition": i % partitions} for i in range(start, start + count)],
    )


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_join_and_leave(bootstrap: str, new_name: Named, strategy: str) -> None:
    """Partitions are shared out anew when a member comes or goes, and every record is read."""
    topic, group = new_name("shared"), new_name(strategy)
    make_topic(bootstrap, topic, 6)
    options = {"partition_assignment_strategy": strategy}
    readers = [Reader(bootstrap, group, [topic], **options) for _ in range(2)]
    spin(readers, lambda: shared_out(readers, 6))
    numbered(bootstrap, topic, 60, 6)
    spin(readers, lambda: sum(len(reader.values) for reader in readers) == 60)
    readers.append(Reader(bootstrap, group, [topic], **options))
    for reader in readers[:2]:
        reader.consumer.commit(asynchronous=False)
    # Sticky members give up what they have too many of in a rebalance of its own.
    spin(readers, lambda: [len(reader.assigned) for reader in readers] == [2, 2, 2])
    assert shared_out(readers, 6)
    gone = readers.pop(0)
    seen = [*gone.values]
    gone.close()
    spin(readers, lambda: shared_out(readers, 6))
    numbered(bootstrap, topic, 60, 6, start=60)
    wanted = {b"%d" % i for i in range(120)}
    spin(readers, lambda: {*seen, *(v for r in readers for v in r.values)} == wanted)
    for reader in readers:
        reader.close()


CRASHING = """
    import sys, confluent_kafka as ck
    bootstrap, group, topic = sys.argv[1:]
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": group,
                            "session.timeout.ms": 1000, "heartbeat.interval.ms": 200})
    consumer.subscribe([topic], on_assign=lambda c, p: print(len(p), flush=True))
    while True:
        consumer.poll(0.1)
"""


def test_crash_of_a_member(bootstrap: str, new_name: Named) -> None:
    """A member that is killed is missed after its session timeout, and the rest takes over."""
    topic, group = new_name("crashed"), new_name("group")
    make_topic(bootstrap, topic, 4)
    reader = Reader(bootstrap, group, [topic], session_timeout_ms=2000)
    spin([reader], lambda: len(reader.assigned) == 4)
    program = [sys.executable, "-c", textwrap.dedent(CRASHING), bootstrap, group, topic]
    child = subprocess.Popen(program, stdout=subprocess.PIPE)
    try:
        spin([reader], lambda: len(reader.assigned) == 2)
        child.send_signal(signal.SIGKILL)
        spin([reader], lambda: len(reader.assigned) == 4)
    finally:
        child.kill()
        child.communicate()
    reader.close()


def test_static_restart_without_a_rebalance(bootstrap: str, new_name: Named) -> None:
    """A static member that comes back in time has its partitions again; nobody else notices."""
    topic, group = new_name("static"), new_name("group")
    make_topic(bootstrap, topic, 4)
    first = Reader(bootstrap, group, [topic], group_instance_id="first")
    second = Reader(bootstrap, group, [topic], group_instance_id="second")
    spin([first, second], lambda: shared_out([first, second], 4))
    before, given, taken = set(second.assigned), first.given, first.taken
    second.close()
    back = Reader(bootstrap, group, [topic], group_instance_id="second")
    spin([first, back], lambda: bool(back.assigned))
    deadline = time.monotonic() + 1
    spin([first, back], lambda: time.monotonic() > deadline)
    assert back.assigned == before
    assert (first.given, first.taken) == (given, taken)
    first.close()
    back.close()


def test_cooperative_rebalance_without_a_stop(bootstrap: str, new_name: Named) -> None:
    """Who keeps partitions in a rebalance keeps reading them: never all of them are taken."""
    topic, group = new_name("cooperative"), new_name("group")
    make_topic(bootstrap, topic, 6)
    options = {"partition_assignment_strategy": "cooperative-sticky"}
    first = Reader(bootstrap, group, [topic], **options)
    spin([first], lambda: len(first.assigned) == 6)
    readers = [first]
    for _ in range(2):
        held = {reader: set(reader.assigned) for reader in readers}
        readers.append(Reader(bootstrap, group, [topic], **options))
        spin(readers, lambda: shared_out(readers, 6))
        for reader, before in held.items():
            assert reader.assigned <= before, "a member got something it did not have"
    assert [reader.emptied for reader in readers] == [0, 0, 0]
    for reader in readers:
        reader.close()


def test_commits_and_seek(bootstrap: str, new_name: Named) -> None:
    """Sync and async commits are found again; seek sets the position."""
    topic, group = new_name("committed"), new_name("group")
    make_topic(bootstrap, topic, 1)
    numbered(bootstrap, topic, 20, 1)
    place = ck.TopicPartition(topic, 0)
    outcomes: list[Any] = []
    reader = Reader(bootstrap, group, [topic], on_commit=lambda error, _: outcomes.append(error))
    spin([reader], lambda: len(reader.values) == 20)
    reader.consumer.commit(
        offsets=[ck.TopicPartition(topic, 0, 5, "a note", 3)], asynchronous=False
    )
    [found] = reader.consumer.committed([place])
    assert (found.offset, found.metadata) == (5, "a note")
    reader.consumer.commit(offsets=[ck.TopicPartition(topic, 0, 9)], asynchronous=True)
    spin([reader], lambda: bool(outcomes))
    assert outcomes[-1] is None
    assert reader.consumer.committed([place])[0].offset == 9
    reader.values.clear()
    reader.consumer.seek(ck.TopicPartition(topic, 0, 15))
    spin([reader], lambda: len(reader.values) == 5)
    assert reader.values == [b"%d" % i for i in range(15, 20)]
    reader.close()
    again = Reader(bootstrap, group, [topic])
    spin([again], lambda: len(again.values) == 11)
    assert again.values[0] == b"9"
    again.close()


def test_pattern_subscription_finds_new_topics(bootstrap: str, new_name: Named) -> None:
    """A topic made later that fits the pattern is shared out too."""
    stem, group = new_name("fits"), new_name("group")
    make_topic(bootstrap, f"{stem}-a", 2)
    reader = Reader(
        bootstrap, group, [f"^{stem}-.*"], topic_metadata_refresh_interval_ms=200
    )  # fmt: skip
    spin([reader], lambda: len(reader.assigned) == 2)
    make_topic(bootstrap, f"{stem}-b", 2)
    make_topic(bootstrap, f"other-{stem}", 2)
    spin([reader], lambda: len(reader.assigned) == 4)
    assert {name for name, _ in reader.assigned} == {f"{stem}-a", f"{stem}-b"}
    reader.close()


@pytest.mark.parametrize(
    "assignor", [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor]
)
def test_kafka_python(bootstrap: str, new_name: Named, assignor: Any) -> None:
    """Two consumers of kafka-python share a topic, commit, and one takes over from the other."""
    topic, group = new_name("python"), new_name("group")
    make_topic(bootstrap, topic, 4)
    numbered(bootstrap, topic, 40, 4)
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "partition_assignment_strategy": [assignor],
        "heartbeat_interval_ms": 200,
        "session_timeout_ms": 30_000,
    }
    consumers = [subscribed(topic, **options) for _ in range(2)]
    seen: list[bytes] = []

    def poll_all() -> None:
        for consumer in consumers:
            for records in consumer.poll(timeout_ms=50).values():
                seen.extend(record.value for record in records)

    deadline = time.monotonic() + WAIT_S
    while not all(len(consumer.assignment()) == 2 for consumer in consumers):
        assert time.monotonic() < deadline
        poll_all()
    while len(set(seen)) < 40:
        assert time.monotonic() < deadline
        poll_all()
    for consumer in consumers:
        commit_when_settled(consumer, poll_all, deadline)
    consumers.pop().close()
    while len(consumers[0].assignment()) < 4:
        assert time.monotonic() < deadline
        poll_all()
    assert all(consumers[0].committed(each) == 10 for each in consumers[0].assignment())
    consumers[0].close()


def commit_when_settled(consumer: Any, poll_all: Callable[[], None], deadline: float) -> None:
    """A late joiner may have set off another rebalance: then poll, as the error says, and retry."""
    while True:
        try:
            consumer.commit()
            return
        except RebalanceInProgressError:
            assert time.monotonic() < deadline
            poll_all()


def test_aiokafka(bootstrap: str, new_name: Named) -> None:
    """Two consumers of aiokafka (old versions) share a topic, commit and take over."""
    topic, group = new_name("aio"), new_name("group")
    make_topic(bootstrap, topic, 4)
    numbered(bootstrap, topic, 40, 4)

    async def run() -> None:
        consumers = [
            AIOKafkaConsumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                heartbeat_interval_ms=200,
                session_timeout_ms=30_000,
            )
            for _ in range(2)
        ]
        for consumer in consumers:
            await consumer.start()
        seen: list[bytes] = []
        while len(set(seen)) < 40 or not all(len(each.assignment()) == 2 for each in consumers):
            for consumer in consumers:
                for records in (await consumer.getmany(timeout_ms=50)).values():
                    seen.extend(record.value for record in records)
        for consumer in consumers:
            await consumer.commit()
        await consumers.pop().stop()
        while len(consumers[0].assignment()) < 4:
            await consumers[0].getmany(timeout_ms=50)
        for place in consumers[0].assignment():
            assert await consumers[0].committed(place) == 10
        await consumers[0].stop()

    asyncio.run(asyncio.wait_for(run(), WAIT_S))


def test_clients_of_three_kinds_in_one_group(bootstrap: str, new_name: Named) -> None:
    """librdkafka, kafka-python and aiokafka agree on `range` and share the partitions."""
    topic, group = new_name("mixed"), new_name("group")
    make_topic(bootstrap, topic, 6)
    shares: dict[str, set[int]] = {}
    done = threading.Event()

    def python() -> None:
        consumer = subscribed(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            heartbeat_interval_ms=200,
            session_timeout_ms=30_000,
            partition_assignment_strategy=[RangePartitionAssignor],
        )
        while not done.is_set():
            consumer.poll(timeout_ms=50)
            shares["python"] = {each.partition for each in consumer.assignment()}
        consumer.close()

    async def aio() -> None:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            heartbeat_interval_ms=200,
            session_timeout_ms=30_000,
            partition_assignment_strategy=[RangeOfAiokafka],
        )
        await consumer.start()
        while not done.is_set():
            await consumer.getmany(timeout_ms=50)
            shares["aio"] = {each.partition for each in consumer.assignment()}
        await consumer.stop()

    threads = [
        threading.Thread(target=python),
        threading.Thread(target=lambda: asyncio.run(aio())),
    ]
    for thread in threads:
        thread.start()
    reader = Reader(bootstrap, group, [topic])

    def agreed() -> bool:
        sets = [*shares.values(), {index for _, index in reader.assigned}]
        return [len(each) for each in sets] == [2, 2, 2] and len(set().union(*sets)) == 6

    try:
        spin([reader], agreed)
    finally:
        done.set()
        for thread in threads:
            thread.join()
        reader.close()

"""Our consumers with group_protocol="consumer": the broker assigns (KIP-848)."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla import Consumer, Producer, TopicPartition, aio
from ottla.client import errors
from tests.compat.groups import Reader
from tests.compat.test_new_groups import SETTINGS, NewReader
from tests.live import Server

pytestmark = pytest.mark.xdist_group("consumer_protocol")
WAIT_S = 60.0
MakeTopic = Callable[..., None]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose members send heartbeats often; `make_topic` makes topics there too."""
    with Server(tmp_path_factory.mktemp("consumer-protocol") / "data", settings=SETTINGS) as server:
        yield server.bootstrap


class Listener:
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, set[int]]] = []

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self.calls.append(("assigned", {each.partition for each in assigned}))

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self.calls.append(("revoked", {each.partition for each in revoked}))

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        self.calls.append(("lost", {each.partition for each in lost}))

    def given_up(self) -> set[int]:
        return set().union(*(each for kind, each in self.calls if kind == "revoked"))


class Ours:
    """One of our consumers, polled in turns with others; can stand beside `Reader`."""

    def __init__(self, bootstrap: str, topic: str | None, group: str, **options: Any) -> None:
        self.listener = Listener()
        self.values: list[bytes | None] = []
        self.consumer = Consumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            **{"group_protocol": "consumer", "auto_offset_reset": "earliest"} | options,
        )
        if topic is not None:
            self.consumer.subscribe([topic], listener=self.listener)

    def poll(self) -> None:
        for records in self.consumer.poll(20).values():
            self.values += [each.value for each in records]

    @property
    def assigned(self) -> set[tuple[str, int]]:
        return {(each.topic, each.partition) for each in self.consumer.assignment()}

    def close(self) -> None:
        self.consumer.close()


AnyReader = Ours | Reader


def spin(readers: list[AnyReader], until: Callable[[], bool]) -> None:
    """Poll all of them in turns until something is so."""
    deadline = time.monotonic() + WAIT_S
    while not until():
        assert time.monotonic() < deadline, [sorted(each.assigned) for each in readers]
        for reader in readers:
            reader.poll()


def shared_out(readers: list[AnyReader], partitions: int) -> bool:
    sets = [each.assigned for each in readers]
    return all(sets) and len(set().union(*sets)) == sum(map(len, sets)) == partitions


def fill(bootstrap: str, topic: str, numbers: range, partitions: int) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for n in numbers:
            producer.send(topic, b"%d" % n, partition=n % partitions)


@pytest.mark.apache
def test_the_same_on_apache_kafka(apache_kafka: Any, topic: str) -> None:
    """A consumer alone in its group reads, commits and goes on where it was."""
    fill(apache_kafka.bootstrap, topic, range(20), 1)
    for wanted in (20, 5):
        reader = Ours(apache_kafka.bootstrap, topic, f"g-{topic}")
        spin([reader], lambda: len(reader.values) == wanted)  # noqa: B023
        reader.consumer.commit()
        reader.close()
        fill(apache_kafka.bootstrap, topic, range(20, 25), 1)


def test_members_share(bootstrap: str, topic: str, make_topic: MakeTopic) -> None:
    """A second member gets half, the first reads on and gives up only that; nothing is read twice,
    also with a member of confluent-kafka and a classic one of ours."""
    make_topic(topic, 6)
    fill(bootstrap, topic, range(60), 6)
    group = f"g-{topic}"
    first = Ours(bootstrap, topic, group)
    spin([first], lambda: len(first.values) == 60)
    second = Ours(bootstrap, topic, group)
    readers: list[AnyReader] = [first, second]
    spin(readers, lambda: shared_out(readers, 6))
    assert first.listener.given_up() == {number for _, number in second.assigned}
    readers.append(NewReader(bootstrap, group, [topic]))
    spin(readers, lambda: shared_out(readers, 6))
    classic = Ours(bootstrap, topic, group, group_protocol="classic", heartbeat_interval_ms=100)
    readers.append(classic)
    spin(readers, lambda: shared_out(readers, 6))
    fill(bootstrap, topic, range(60, 120), 6)
    spin(readers, lambda: sum(len(each.values) for each in readers) == 120)
    values = [int(value or b"") for each in readers for value in each.values]
    assert sorted(values) == list(range(120))
    for reader in readers[1:]:
        reader.close()
    spin([first], lambda: shared_out([first], 6))
    first.close()


def test_remote_assignor(bootstrap: str, topic: str, make_topic: MakeTopic) -> None:
    """`range` gives each a run of partitions; an assignor that the broker has not is an error."""
    make_topic(topic, 5)
    group = f"g-{topic}"
    readers: list[AnyReader] = [
        Ours(bootstrap, topic, group, group_remote_assignor="range") for _ in range(2)
    ]
    spin(readers, lambda: shared_out(readers, 5))
    runs = sorted(sorted(number for _, number in each.assigned) for each in readers)
    assert runs == [[0, 1, 2], [3, 4]]
    for reader in readers:
        reader.close()
    wrong = Ours(bootstrap, topic, group, group_remote_assignor="sticky")
    with pytest.raises(errors.KafkaError, match="sticky is not supported"):
        spin([wrong], lambda: False)
    wrong.close()


@pytest.mark.parametrize("compiled", [False, True])
def test_patterns(bootstrap: str, topic: str, make_topic: MakeTopic, compiled: bool) -> None:
    """A pattern as text is resolved by the broker, a compiled one by the client; both mean names
    that begin so."""
    make_topic(f"{topic}-one", 2)
    make_topic(f"no-{topic}", 1)
    reader = Ours(bootstrap, None, f"g-{topic}", metadata_max_age_ms=200)
    text = re.escape(topic) + "-(one|two)"
    reader.consumer.subscribe(pattern=re.compile(text) if compiled else text)
    spin([reader], lambda: len(reader.assigned) == 2)
    assert reader.consumer.subscription() == {f"{topic}-one"}
    membership: Any = reader.consumer._group
    assert bool(membership.broker_pattern) is not compiled
    if compiled:  # the broker looks again after ten seconds at the earliest
        make_topic(f"{topic}-two-and-more", 1)
        spin([reader], lambda: len(reader.assigned) == 3)
    reader.close()


def test_pattern_for_everything_leaves_internal_topics_out(
    bootstrap: str, topic: str, make_topic: MakeTopic
) -> None:
    """The broker would assign them: a pattern that means them is the client's to resolve."""
    make_topic(topic, 1)
    reader = Ours(bootstrap, None, f"g-{topic}")
    reader.consumer.subscribe(pattern=".*")
    spin([reader], lambda: (topic, 0) in reader.assigned)
    assert not any(name.startswith("__") for name, _ in reader.assigned)
    reader.close()


def test_pattern_that_the_broker_cannot_read(bootstrap: str, topic: str) -> None:
    """Python knows more than RE2: the error says so, and a compiled pattern works."""
    reader = Ours(bootstrap, None, f"g-{topic}")
    reader.consumer.subscribe(pattern="a(?=b)")
    with pytest.raises(errors.KafkaError, match="not a valid regular expression"):
        spin([reader], lambda: False)
    reader.close()


def test_static_member(bootstrap: str, topic: str, make_topic: MakeTopic) -> None:
    """It gets its partitions back after a restart, others keep theirs; its name is its own."""
    make_topic(topic, 4)
    group = f"g-{topic}"
    one = Ours(bootstrap, topic, group, group_instance_id="one")
    two = Ours(bootstrap, topic, group, group_instance_id="two")
    spin([one, two], lambda: shared_out([one, two], 4))
    before = two.assigned
    rival = Ours(bootstrap, topic, group, group_instance_id="two")
    with pytest.raises(errors.KafkaError, match="instance id is owned"):
        spin([one, two, rival], lambda: False)
    rival.close()
    given_up = one.listener.given_up()
    two.close()
    back = Ours(bootstrap, topic, group, group_instance_id="two")
    spin([one, back], lambda: shared_out([one, back], 4))
    assert back.assigned == before
    assert one.listener.given_up() == given_up
    one.close()
    back.close()


def test_member_that_was_removed(bootstrap: str, topic: str, make_topic: MakeTopic) -> None:
    """A member that does not poll for too long leaves, learns that it has lost its partitions, and
    joins again with its next poll."""
    make_topic(topic, 2)
    reader = Ours(bootstrap, topic, f"g-{topic}", max_poll_interval_ms=1000)
    spin([reader], lambda: len(reader.assigned) == 2)
    membership: Any = reader.consumer._group
    deadline = time.monotonic() + WAIT_S
    while not membership.lost:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    spin([reader], lambda: reader.listener.calls[-2:-1] == [("lost", {0, 1})])
    assert reader.listener.calls[-1] == ("assigned", {0, 1})
    reader.close()


def test_unsubscribe_and_subscribe(bootstrap: str, topic: str, make_topic: MakeTopic) -> None:
    """A change of topics gives up only what is wanted no more; after unsubscribe it joins anew."""
    make_topic(topic, 2)
    make_topic(f"{topic}-b", 1)
    reader = Ours(bootstrap, topic, f"g-{topic}")
    spin([reader], lambda: len(reader.assigned) == 2)
    reader.consumer.subscribe([topic, f"{topic}-b"], listener=reader.listener)
    spin([reader], lambda: len(reader.assigned) == 3)
    assert reader.listener.given_up() == set()
    reader.consumer.unsubscribe()
    assert not reader.assigned
    reader.consumer.subscribe([f"{topic}-b"], listener=reader.listener)
    spin([reader], lambda: reader.assigned == {(f"{topic}-b", 0)})
    reader.close()


def test_asyncio(bootstrap: str, topic: str, make_topic: MakeTopic) -> None:
    """ottla.aio speaks it as well."""
    make_topic(topic, 2)
    fill(bootstrap, topic, range(10), 2)

    async def main() -> int:
        async with aio.Consumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=f"g-{topic}",
            group_protocol="consumer",
            auto_offset_reset="earliest",
        ) as consumer:
            count = 0
            while count < 10:
                count += sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))
            await consumer.commit()
            return count

    assert asyncio.run(main()) == 10


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"group_protocol": "new"}, "group_protocol"),
        ({"group_protocol": "consumer", "session_timeout_ms": 9000}, "session_timeout_ms cannot"),
        ({"group.protocol": "consumer", "heartbeat.interval.ms": 9}, "heartbeat_interval_ms cann"),
        (
            {"group_protocol": "consumer", "partition_assignment_strategy": "range"},
            "group_remote_assignor",
        ),
        ({"group_remote_assignor": "range"}, "group_protocol='consumer' alone"),
    ],
)
def test_options_of_one_protocol(options: dict[str, Any], said: str) -> None:
    """What the other protocol has is refused, with what to do."""
    with pytest.raises(errors.KafkaConfigurationError, match=said):
        Consumer(options, bootstrap_servers="localhost:1", group_id="g")

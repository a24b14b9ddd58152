"""`ottla.ShareConsumer` and `ottla.Queue` on a live broker."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterator
from typing import Any

import pytest

import ottla
from ottla import AcknowledgeType, Queue, ShareConsumer, aio
from ottla.client.errors import IllegalStateError, KafkaConfigurationError
from tests.live import Server
from tests.waiting import eventually

pytestmark = pytest.mark.xdist_group("python-shares")
SETTINGS = {
    "group.share.min.heartbeat.interval.ms": 100,
    "group.share.heartbeat.interval.ms": 100,
    "group.share.assignment.interval.ms": 0,
    "group.share.min.record.lock.duration.ms": 1000,
    "offsets.topic.num.partitions": 4,
    "share.coordinator.state.topic.num.partitions": 4,
}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose members send heartbeats often."""
    with Server(tmp_path_factory.mktemp("python-shares") / "data", settings=SETTINGS) as server:
        yield server.bootstrap


@pytest.fixture
def topic(bootstrap: str, request: pytest.FixtureRequest) -> str:
    """A topic of its own, whose group of the same name begins at its first record.

    It has two partitions; one where two members must want the same records.
    """
    name = str(request.node.name)
    partitions = 1 if "refused" in name else 2
    with ottla.Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([ottla.NewTopic(name, partitions, 1)])
        configs = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "1000"}
        admin.alter_configs([ottla.ConfigResource("group", name, configs)])
    return name


def produce(bootstrap: str, topic: str, count: int) -> None:
    with ottla.Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % 2)


def consumer(bootstrap: str, topic: str, **options: Any) -> ShareConsumer[Any, bytes]:
    return ShareConsumer(topic, bootstrap_servers=bootstrap, group_id=topic, **options)


def polled(reader: ShareConsumer[Any, bytes], count: int) -> list[ottla.ShareRecord[Any, bytes]]:
    found: list[ottla.ShareRecord[Any, bytes]] = []

    def enough() -> bool:
        found.extend(reader.poll_more(500))
        return len(found) >= count

    eventually(enough)
    return found


def test_an_iteration_accepts_what_it_has_seen(bootstrap: str, topic: str) -> None:
    """Who stops in the middle leaves the rest for the next member, and only that."""
    produce(bootstrap, topic, 20)
    seen = []
    with consumer(bootstrap, topic) as reader:
        for record in reader:
            seen.append(record.value)
            if len(seen) == 7:
                break
    with consumer(bootstrap, topic) as reader:
        seen += [record.value for record in polled(reader, 13)]
        assert reader.poll(200) == []
    assert sorted(map(int, seen)) == list(range(20))


def test_explicit_acknowledgements(bootstrap: str, topic: str) -> None:
    """Accepted and rejected records are gone, released ones come again with a higher count."""
    produce(bootstrap, topic, 6)
    with consumer(bootstrap, topic, share_acknowledgement_mode="explicit") as reader:
        kinds = [AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT]
        for record in polled(reader, 6):
            reader.acknowledge(record, kinds[int(record.value) % 3])
        assert set(reader.commit_sync().values()) == {None}
        again = polled(reader, 2)
        assert sorted((int(each.value), each.delivery_count) for each in again) == [(1, 2), (4, 2)]
        with pytest.raises(IllegalStateError, match="not all records"):
            reader.poll()
        for record in again:
            reader.acknowledge(record)
        with pytest.raises(IllegalStateError, match="not held"):
            reader.acknowledge(again[0])
        reader.commit_sync()
        assert reader.poll(200) == []


def test_an_exception_gives_the_records_back(bootstrap: str, topic: str) -> None:
    """Leaving a `with` by an exception releases what was polled."""
    produce(bootstrap, topic, 2)

    def fail() -> None:
        with consumer(bootstrap, topic) as reader:
            polled(reader, 2)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with consumer(bootstrap, topic) as reader:
        assert [each.delivery_count for each in polled(reader, 2)] == [2, 2]


def test_late_acknowledgements_are_refused(bootstrap: str, topic: str) -> None:
    """Who holds records for too long learns it, by the result and by the callback."""
    produce(bootstrap, topic, 1)
    told = []
    with (
        consumer(bootstrap, topic, share_acknowledgement_mode="explicit") as slow,
        consumer(bootstrap, topic) as other,
    ):
        slow.set_acknowledgement_commit_callback(lambda offsets, error: told.append(error))
        held = polled(slow, 1)
        assert len(polled(other, 1)) == 1
        for record in held:
            slow.acknowledge(record)
        problems = slow.commit_sync().values()
        assert {type(each).__name__ for each in problems} == {"InvalidRecordStateError"}
        assert told == list(problems)


def test_a_group_is_needed() -> None:
    """A share consumer without a group says what to give."""
    with pytest.raises(KafkaConfigurationError, match="group_id"):
        ShareConsumer("topic", bootstrap_servers="127.0.0.1:1")


def test_a_queue(bootstrap: str) -> None:
    """Put, get, done, retry, dead: each message is finished once, the dead one with its reason."""
    with Queue("jobs", partitions=1, bootstrap_servers=bootstrap) as jobs:
        for value in (b"good", b"slow", b"bad"):
            jobs.put(value)
        good, slow, bad = jobs.get(30), jobs.get(30), jobs.get(30)
        assert [each.value for each in (good, slow, bad)] == [b"good", b"slow", b"bad"]
        jobs.done(good)
        jobs.retry(slow)
        jobs.dead(bad, "is bad")
        slow = jobs.get(30)
        assert (slow.value, slow.delivery_count) == (b"slow", 2)
        jobs.done(slow)
        with pytest.raises(queue.Empty):
            jobs.get(0.3)
    with Queue("jobs.dead", bootstrap_servers=bootstrap) as dead:
        message = dead.get(30)
        assert message.value == b"bad"
        assert dict(message.headers)["queue.reason"] == b"is bad"
        dead.done(message)


def test_a_queue_gives_back_what_was_not_finished(bootstrap: str) -> None:
    """A process that ends in the middle of a message leaves it to the next one."""
    with Queue("unfinished", bootstrap_servers=bootstrap) as jobs:
        jobs.put(b"job")
        assert jobs.get(30).delivery_count == 1
    with Queue("unfinished", bootstrap_servers=bootstrap) as jobs:
        assert jobs.get(30).delivery_count == 2


def test_in_an_event_loop(bootstrap: str, topic: str) -> None:
    """`aio.ShareConsumer` iterates, polls, acknowledges and commits; a cancelled poll loses
    nothing, and leaving by an exception gives back what was not processed."""
    produce(bootstrap, topic, 8)
    options: dict[str, Any] = {"bootstrap_servers": bootstrap, "group_id": topic}

    async def main() -> None:
        seen = []
        async with aio.ShareConsumer[Any, bytes](topic, **options) as reader:
            waiting = asyncio.ensure_future(reader.poll(60_000))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            async for record in reader:
                seen.append(record.value)
                if len(seen) == 3:
                    break

        async def fail() -> None:
            async with aio.ShareConsumer[Any, bytes](topic, **options) as reader:
                while not await reader.poll(1000):
                    pass
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        explicit = {**options, "share_acknowledgement_mode": "explicit"}
        said: list[object] = []
        async with aio.ShareConsumer[Any, bytes](topic, **explicit) as reader:
            reader.set_acknowledgement_commit_callback(lambda *each: said.append(each))
            while len(seen) < 8:
                for record in await reader.poll(1000):
                    seen.append(record.value)
                    await reader.acknowledge(record)
                outcomes = await reader.commit()
                assert set(outcomes.values()) <= {None}
            assert await reader.poll(200) == []
            assert reader.subscription() == {topic}
        assert said
        assert sorted(map(int, seen)) == list(range(8))

    asyncio.run(main())

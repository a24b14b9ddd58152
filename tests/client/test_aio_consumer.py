"""The consumer for asyncio: the same records, and an event loop that never waits."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla import Producer, TopicPartition, aio
from ottla.client import errors

OPTIONS: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 6000,
    "heartbeat_interval_ms": 100,
}


def fill(bootstrap: str, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for n in range(count):
            producer.send(topic, b"%d" % n)


def test_reading_committing_and_seeking(any_bootstrap: str, topic: str) -> None:
    """async for, getone, getmany, commit and seek do what the consumer does."""
    fill(any_bootstrap, topic, 100)
    partition = TopicPartition(topic, 0)

    async def main() -> None:
        async with aio.Consumer(
            topic, bootstrap_servers=any_bootstrap, group_id=f"g-{topic}", **OPTIONS
        ) as consumer:
            offsets = []
            async for record in consumer:
                offsets.append(record.offset)
                if record.offset == 49:
                    break
            assert offsets == list(range(50))
            assert await consumer.position(partition) == 50
            await consumer.commit()
            assert await consumer.committed(partition) == 50
            assert (await consumer.getone()).offset == 50
            found = await consumer.getmany(timeout_ms=5000, max_records=10)
            assert [each.offset for each in found[partition]] == list(range(51, 61))
            await consumer.seek(partition, 98)
            assert (await consumer.getone()).offset == 98
            assert await consumer.end_offsets([partition]) == {partition: 100}
            assert consumer.assignment() == {partition}

    asyncio.run(main())


def test_the_loop_goes_on_and_a_wait_can_be_cancelled(bootstrap: str, topic: str) -> None:
    """While a consumer waits for records, other tasks run; a cancelled wait loses nothing."""
    fill(bootstrap, topic, 1)

    async def main() -> None:
        async with aio.Consumer(topic, bootstrap_servers=bootstrap, **OPTIONS) as consumer:
            assert (await consumer.getone()).offset == 0
            for _ in range(3):
                waiting = asyncio.create_task(consumer.getone())
                for _ in range(10):  # these could not run if the wait held the loop
                    await asyncio.sleep(0.005)
                assert not waiting.done()
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            await asyncio.to_thread(fill, bootstrap, topic, 5)
            offsets = [(await asyncio.wait_for(consumer.getone(), 60)).offset for _ in range(5)]
            assert offsets == [1, 2, 3, 4, 5]
            batches = await consumer.poll_batches(timeout_ms=10)
            assert batches == []

    asyncio.run(main())


def test_a_listener_of_coroutines(
    bootstrap: str, topic: str, make_topic: Callable[..., None]
) -> None:
    """A listener's coroutines run in the event loop and may use the consumer."""
    make_topic(topic, 2)
    fill(bootstrap, topic, 10)
    calls: list[tuple[str, int]] = []

    class Listener:
        async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
            await asyncio.sleep(0.01)
            calls.append(("revoked", len(revoked)))

        async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
            await asyncio.sleep(0.01)
            calls.append(("assigned", len(assigned)))
            for each in assigned:
                await self.consumer.seek(each, 2)

        consumer: aio.Consumer

    async def main() -> None:
        async with aio.Consumer(
            bootstrap_servers=bootstrap, group_id=f"g-{topic}", **OPTIONS
        ) as consumer:
            listener = Listener()
            listener.consumer = consumer
            await consumer.subscribe([topic], listener=listener)
            assert (await consumer.getone()).offset == 2
        assert calls == [("assigned", 2), ("revoked", 2)]
        with pytest.raises(errors.IllegalStateError, match="not started"):
            await aio.Consumer(topic).getone()

    asyncio.run(main())


def test_records_of_other_partitions_wait(
    bootstrap: str, topic: str, make_topic: Callable[..., None]
) -> None:
    """`getmany` and `getone` of some partitions leave the records of the others for later."""
    make_topic(topic, 2)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for n in range(20):
            producer.send(topic, b"%d" % n, partition=n % 2)
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)

    async def main() -> None:
        async with aio.Consumer(bootstrap_servers=bootstrap, **OPTIONS) as consumer:
            await consumer.assign([one, two])
            seen: dict[int, list[int]] = {0: [], 1: []}
            while len(seen[0]) < 5:
                found = await consumer.getmany(one, timeout_ms=1000, max_records=5)
                assert set(found) <= {one}
                seen[0] += [record.offset for record in found.get(one, [])]
            for _ in range(3):
                record = await consumer.getone(two)
                assert record.partition == 1
                seen[1].append(record.offset)
            while len(seen[0]) + len(seen[1]) < 20:
                record = await consumer.getone()
                seen[record.partition].append(record.offset)
            assert seen == {0: list(range(10)), 1: list(range(10))}
            assert consumer.paused() == set()

    asyncio.run(main())


@pytest.mark.parametrize("columns", [False, True])
def test_cancelled_at_any_moment_nothing_is_lost(bootstrap: str, topic: str, columns: bool) -> None:
    """Waits that end while records are just being handed over: each record comes once, in order."""
    with Producer(bootstrap_servers=bootstrap, batch_size=200) as producer:  # many small batches
        for n in range(150):
            producer.send(topic, b"%d" % n)
    chance = random.Random(7)

    async def main() -> None:
        seen: list[int] = []
        cancelled = 0
        async with aio.Consumer(topic, bootstrap_servers=bootstrap, **OPTIONS) as consumer:
            deadline = time.monotonic() + 60
            while len(seen) < 150 and time.monotonic() < deadline:
                wait = (
                    consumer.poll_batches(timeout_ms=1000, max_records=5)
                    if columns
                    else consumer.getmany(timeout_ms=1000, max_records=5)
                )
                task: asyncio.Future[Any] = asyncio.ensure_future(wait)
                for _ in range(chance.randrange(6)):  # so many turns of the loop
                    await asyncio.sleep(0)
                if chance.random() < 0.5 and not task.done():
                    task.cancel()
                try:
                    found = await task
                except asyncio.CancelledError:
                    cancelled += 1
                    continue
                if columns:
                    seen += [offset for each in found for offset in each.offsets]
                else:
                    seen += [record.offset for records in found.values() for record in records]
        assert seen == list(range(150))
        assert cancelled >= 3

    asyncio.run(main())

"""The producer for asyncio."""

from __future__ import annotations

import asyncio
import time

import pytest

from ottla.aio import Producer
from ottla.client import errors
from tests.client.reading import make_topic, read_all


def test_records_are_awaited(any_bootstrap: str, topic: str) -> None:
    """send_and_wait gives the place; a hundred sends are awaited together, in order."""

    async def run() -> list[int]:
        async with Producer(bootstrap_servers=any_bootstrap, value_serializer="str") as producer:
            first = await producer.send_and_wait(topic, "first")
            futures = [await producer.send(topic, str(index)) for index in range(100)]
            rest = await asyncio.gather(*futures)
            await producer.flush()
            return [first.offset, *(metadata.offset for metadata in rest)]

    assert asyncio.run(run()) == list(range(101))
    assert [r.value for r in read_all(any_bootstrap, topic)][:3] == [b"first", b"0", b"1"]


def test_the_event_loop_goes_on_while_the_producer_waits(bootstrap: str, topic: str) -> None:
    """A new topic's metadata and a full buffer are waited for elsewhere."""

    async def run() -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        ticker = asyncio.create_task(tick())
        async with Producer(
            bootstrap_servers=bootstrap, buffer_memory=50_000, batch_size=10_000
        ) as producer:
            core = producer.core
            core._client.call_soon(time.sleep, 0.3)
            futures = [await producer.send(topic, b"x" * 1000) for _ in range(200)]
            for future in futures:
                await future
        ticker.cancel()
        return ticks

    assert asyncio.run(run()) > 10
    assert len(read_all(bootstrap, topic)) == 200


def test_transactions_and_errors(any_bootstrap: str, topic: str) -> None:
    """`async with transaction()` commits or aborts; errors of a record come out of its await."""
    make_topic(any_bootstrap, topic, max_message_bytes=1000)

    async def run() -> None:
        async with Producer(
            bootstrap_servers=any_bootstrap, transactional_id=f"id-{topic}"
        ) as producer:
            async with producer.transaction():
                await producer.send(topic, b"one")
            with pytest.raises(errors.MessageSizeTooLargeError):
                async with producer.transaction():
                    await (await producer.send(topic, b"x" * 5000))
            async with producer.transaction():
                await producer.send_and_wait(topic, b"two")

    asyncio.run(run())
    assert [record.value for record in read_all(any_bootstrap, topic)] == [b"one", b"two"]


def test_not_started_says_so() -> None:
    """Without start() or `async with` the error says what to do."""
    with pytest.raises(errors.IllegalStateError, match="async with Producer"):
        asyncio.run(Producer().send("t", b""))

"""The memory channel: bounded, in order, and nothing lost by a cancelled take."""

from __future__ import annotations

import asyncio
import random

from ottla.agent.channels.memory import READ_AHEAD_BYTES_MAX, MemoryChannel
from ottla.agent.events import EventBatch, Position


def batch(*bodies: bytes) -> EventBatch:
    return EventBatch(list(bodies))


def test_a_full_channel_makes_the_source_wait_until_something_is_taken() -> None:
    """A full channel makes the source wait until something is taken."""

    async def scenario() -> None:
        channel = MemoryChannel("c", 2)
        await channel.put(batch(b"1", b"2"))
        second = asyncio.create_task(channel.put(batch(b"3")))
        third = asyncio.create_task(channel.put(batch(b"4")))
        await asyncio.sleep(0)
        assert not second.done()
        taken = await channel.take(2)
        assert [one.bodies for one in taken] == [[b"1", b"2"]]
        await asyncio.gather(second, third)
        assert [one.bodies for one in await channel.take(10)] == [[b"3"], [b"4"]]

    asyncio.run(scenario())


def test_bytes_are_bounded_too_less_the_share_for_headers() -> None:
    """Bytes are bounded too less the share for headers."""

    async def scenario() -> None:
        channel = MemoryChannel("c", 100, 1000, byte_buffer_percentage=50)
        await channel.put(batch(b"x" * 400))
        waiting = asyncio.create_task(channel.put(batch(b"y" * 200)))
        await asyncio.sleep(0)
        assert not waiting.done()
        await channel.take(1)
        await waiting

    asyncio.run(scenario())


def test_a_waiting_sink_gets_at_once_what_it_asks_for_beyond_the_capacity() -> None:
    """A source with many small batches wakes the sink once, whatever the capacity."""

    async def scenario() -> None:
        channel = MemoryChannel("c", 2)

        async def put_all() -> None:
            for number in range(12):
                await channel.put(batch(b"%d" % number))

        putting = asyncio.create_task(put_all())
        await asyncio.sleep(0)
        assert channel.events == 2
        taken = await channel.take(6)
        assert [each.bodies[0] for each in taken] == [b"%d" % number for number in range(6)]
        await asyncio.sleep(0)
        assert channel.events <= 2 + 2  # nobody asks for more
        assert len(await channel.take(6)) == 6
        await putting

    asyncio.run(scenario())


def test_a_sink_that_gives_up_while_the_source_puts_leaves_the_events_to_another() -> None:
    """A take that is cancelled after it was woken wakes the one that waits behind it."""

    async def scenario(steps: int) -> None:
        channel = MemoryChannel("c", 1)
        first = asyncio.create_task(channel.take(1))
        second = asyncio.create_task(channel.take(1))
        await asyncio.sleep(0)
        putting = [asyncio.create_task(channel.put(batch(b"%d" % each))) for each in range(4)]
        for _ in range(steps):
            await asyncio.sleep(0)
        first.cancel()
        async with asyncio.timeout(10):
            await asyncio.wait([first])
            got = [] if first.cancelled() else first.result()
            got += await second
            while len(got) < 4:
                got += await channel.take(1)
            await asyncio.gather(*putting)
        assert [each.bodies[0] for each in got] == [b"0", b"1", b"2", b"3"]

    for steps in range(6):
        asyncio.run(scenario(steps))


def test_what_can_be_read_again_is_not_read_far_ahead() -> None:
    """Events with positions take no more than READ_AHEAD_BYTES_MAX of a channel, others all."""

    async def scenario(position: Position | None) -> int:
        channel = MemoryChannel("c", 100_000)
        body = b"x" * (READ_AHEAD_BYTES_MAX // 4)
        for _ in range(5):
            waiting = asyncio.create_task(channel.put(EventBatch([body], position=position)))
            await asyncio.sleep(0)
        if not waiting.done():
            await channel.take(1, 1)
            await waiting
        return channel.events

    assert asyncio.run(scenario(Position("r1/1", 1))) == 4
    assert asyncio.run(scenario(None)) == 5


def test_a_batch_larger_than_the_channel_goes_in_alone() -> None:
    """A batch larger than the channel goes in alone."""

    async def scenario() -> None:
        channel = MemoryChannel("c", 2)
        await channel.put(batch(b"1", b"2", b"3"))
        assert len((await channel.take(1))[0]) == 3

    asyncio.run(scenario())


def test_what_is_rolled_back_is_next_again() -> None:
    """What is rolled back is next again."""

    async def scenario() -> None:
        channel = MemoryChannel("c", 10)
        for body in (b"1", b"2", b"3"):
            await channel.put(batch(body))
        taken = await channel.take(2)
        channel.roll_back(taken)
        assert [one.bodies for one in await channel.take(10)] == [[b"1"], [b"2"], [b"3"]]

    asyncio.run(scenario())


def test_random_puts_takes_cancels_and_roll_backs_lose_nothing() -> None:
    """Each event comes out once and in order, whoever is cancelled while it waits."""

    async def scenario(seed: int) -> None:
        chance = random.Random(seed)
        channel = MemoryChannel("c", 5)
        total = 200
        done: list[bytes] = []

        async def put_all() -> None:
            for number in range(total):
                await channel.put(batch(b"%d" % number))
                if chance.random() < 0.3:
                    await asyncio.sleep(0)

        putting = asyncio.create_task(put_all())
        while len(done) < total:
            taking = asyncio.create_task(channel.take(chance.randrange(1, 4)))
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)
            if chance.random() < 0.4:
                taking.cancel()
            try:
                taken = await taking
            except asyncio.CancelledError:
                continue
            if chance.random() < 0.3:
                channel.roll_back(taken)
            else:
                channel.commit(taken)
                done += [body for one in taken for body in one.bodies]
        await putting
        assert done == [b"%d" % number for number in range(total)]
        assert channel.events == channel.bytes == 0

    for seed in range(20):
        asyncio.run(scenario(seed))

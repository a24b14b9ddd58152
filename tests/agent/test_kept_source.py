"""A source that goes on while its output is exchanged."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ottla.agent.channels.memory import MemoryChannel
from ottla.agent.events import EventBatch, Position
from ottla.agent.kept_source import Gate, KeptSource
from ottla.agent.output import SourceOutput
from ottla.agent.parts import Output


class Numbers:
    """Puts a number whenever the test asks for it; a put says when it is done."""

    name = "r1"
    replays = False

    def __init__(self) -> None:
        self.runs = 0
        self.ended = False
        self._wanted: asyncio.Queue[tuple[int, asyncio.Future[None]]] = asyncio.Queue()

    async def run(self, output: Output, positions: Mapping[str, Position]) -> None:
        self.runs += 1
        try:
            while True:
                number, done = await self._wanted.get()
                await output.put(EventBatch([b"%d" % number]))
                done.set_result(None)
        finally:
            self.ended = True

    def put(self, number: int) -> asyncio.Future[None]:
        done = asyncio.get_running_loop().create_future()
        self._wanted.put_nowait((number, done))
        return done


async def settle() -> None:
    """Lets every task go as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def taken(channel: MemoryChannel) -> list[bytes]:
    return [body for batch in await channel.take(100) for body in batch.bodies]


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_the_source_is_started_once_and_goes_on_with_another_output() -> None:
    """What it puts between two outputs waits for the second one."""

    async def run() -> None:
        source, first, second = Numbers(), MemoryChannel("c1", 10), MemoryChannel("c1", 10)
        kept = KeptSource(source)
        running = asyncio.create_task(kept.run(SourceOutput([first], []), {}))
        await source.put(1)
        kept.keep = True
        await stop(running)
        between = source.put(2)
        await settle()
        assert not between.done()
        assert not source.ended
        kept.keep = False
        running = asyncio.create_task(kept.run(SourceOutput([second], []), {}))
        await between
        assert (await taken(first), await taken(second)) == ([b"1"], [b"2"])
        await stop(running)
        assert (source.runs, source.ended) == (1, True)

    asyncio.run(run())


def test_a_put_that_waits_for_a_full_channel_goes_to_the_next_output() -> None:
    """It is in one of the two channels, once, and the source does not see that it was taken
    back."""

    async def run() -> None:
        source, first, second = Numbers(), MemoryChannel("c1", 1), MemoryChannel("c1", 1)
        kept = KeptSource(source)
        running = asyncio.create_task(kept.run(SourceOutput([first], []), {}))
        await source.put(1)
        waits = source.put(2)
        await settle()
        kept.keep, kept.close_s = True, 0.01
        await stop(running)
        assert not waits.done()
        kept.keep = False
        running = asyncio.create_task(kept.run(SourceOutput([second], []), {}))
        await waits
        assert (await taken(first), await taken(second)) == ([b"1"], [b"2"])
        await stop(running)

    asyncio.run(run())


def test_a_put_that_its_owner_cancels_is_cancelled() -> None:
    """While there is no output, while the channel is full, and also in the moment in which the
    gate takes it back."""

    async def run() -> None:
        gate, full = Gate(), MemoryChannel("c1", 1)
        waiting = asyncio.create_task(gate.put(EventBatch([b"a"])))
        await settle()
        await stop(waiting)
        assert waiting.cancelled()
        gate.open(SourceOutput([full], []))
        await gate.put(EventBatch([b"b"]))
        for _ in range(2):
            waiting = asyncio.create_task(gate.put(EventBatch([b"c"])))
            await settle()
            closing = asyncio.create_task(gate.close(0))
            await asyncio.sleep(0.01)
            await stop(waiting)
            await closing
            assert waiting.cancelled()
            gate.open(SourceOutput([full], []))
        assert await taken(full) == [b"b"]

    asyncio.run(run())


def test_a_source_that_fails_fails_the_agent_and_is_not_kept() -> None:
    """Its error comes out of `run`."""

    class Fails(Numbers):
        async def run(self, output: Output, positions: Mapping[str, Position]) -> None:
            raise OSError("the port is in use")

    async def run() -> None:
        kept = KeptSource(Fails())
        [result] = await asyncio.gather(kept.run(SourceOutput([], []), {}), return_exceptions=True)
        assert str(result) == "the port is in use"
        assert kept.has_failed

    asyncio.run(run())

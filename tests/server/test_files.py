"""A file that an answer refers to is released when the answer is sent or its connection gone."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from ottla.wire.out import Lent
from tests.server.fake import MemoryFile, file_answer
from tests.server.harness import running_server


@pytest.mark.parametrize("ending", ["sent", "closed with the answer waiting", "closed unsent"])
def test_a_file_is_released_without_the_collector(ending: str) -> None:
    """A deleted file that is open still fills the disk."""
    size = 50_000_000 if ending == "closed unsent" else 1000

    async def run() -> None:
        async with running_server() as running:
            client = await running.client()
            await client.ask(b"pfirst", b"psecond")
            await running.until(lambda: len(running.script.seen) == 2)
            file = MemoryFile(b"x" * size)
            found = weakref.ref(file)
            # The second answer is here before the first, and waits for it.
            running.script.settle(b"second", file_answer(b"", file, 0, size, b""))
            del file
            assert found() is not None
            if ending == "sent":
                running.script.settle(b"first")
                assert len(await client.answers(2)) == 2
            else:
                if ending == "closed unsent":
                    running.script.settle(b"first")
                    await client.exactly(1000)
                client.close()
            await running.until(lambda: found() is None)

    gc.collect()
    gc.disable()
    try:
        asyncio.run(run())
    finally:
        gc.enable()


@pytest.mark.parametrize("cut_at", [0, 40_000_000])
def test_a_range_that_is_cut_while_it_is_sent_ends_the_connection(cut_at: int) -> None:
    """After a truncation other records may lie there: half of each would be no answer."""

    async def run() -> None:
        async with running_server() as running:
            client = await running.client()
            await client.ask(b"pbig")
            await running.until(lambda: len(running.script.seen) == 1)
            out = file_answer(b"", MemoryFile(b"x" * 50_000_000), 0, 50_000_000, b"")
            lent = out.blobs[0][1].lent = Lent()
            running.script.settle(b"big", out)
            await client.exactly(1000)
            lent.void_from = cut_at
            assert len(await client.exactly(50_000_000)) < 40_000_000
            assert not running.server.connections

    asyncio.run(run())


def test_a_range_that_is_cut_before_it_is_sent_ends_the_connection() -> None:
    """An answer that waits for the one before it may lie there for long."""

    async def run() -> None:
        async with running_server() as running:
            client = await running.client()
            await client.ask(b"pfirst", b"psecond")
            await running.until(lambda: len(running.script.seen) == 2)
            out = file_answer(b"", MemoryFile(b"x" * 1000), 0, 1000, b"")
            lent = out.blobs[0][1].lent = Lent()
            running.script.settle(b"second", out)
            lent.void_from = 999
            running.script.settle(b"first")
            await running.until(lambda: not running.server.connections)

    asyncio.run(run())

"""A file that an answer refers to is released when the answer is sent or its connection gone."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

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

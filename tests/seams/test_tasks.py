"""Tasks that are cancelled together."""

from __future__ import annotations

import asyncio

from ottla.seams.tasks import Tasks


def test_tasks_are_cancelled_in_the_order_in_which_they_began() -> None:
    """Not in that of their addresses, which differ from one simulated run to the next."""
    cancelled = []

    async def wait(number: int) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cancelled.append(number)

    async def run() -> None:
        tasks = Tasks()
        for number in range(100):
            tasks.add(asyncio.create_task(wait(number)))
        await asyncio.sleep(0)
        tasks.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)
        assert not list(tasks)

    asyncio.run(run())
    assert cancelled == list(range(100))

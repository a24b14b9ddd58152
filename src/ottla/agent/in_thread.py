"""Work that blocks for as long as a part runs, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable


async def run_in_thread(work: Callable[[], object], stop: Callable[[], object], name: str) -> None:
    """Until `work` ends; raises what it raises. If it is cancelled it calls `stop`, from the loop,
    and waits until `work` has ended."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def finish(problem: BaseException | None) -> None:
        if done.done():
            return
        if problem is None:
            done.set_result(None)
        else:
            done.set_exception(problem)

    def run() -> None:
        problem: BaseException | None = None
        try:
            work()
        except BaseException as raised:
            problem = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(finish, problem)

    threading.Thread(target=run, name=name, daemon=True).start()
    try:
        await asyncio.shield(done)
    finally:
        stop()
        await asyncio.wait([done])

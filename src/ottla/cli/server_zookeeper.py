"""What `ottla server` asks of ZooKeeper: sessions for a broker, and ids of brokers without one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from ottla.cli.failure import Failure
from ottla.cli.start_failure import why_not_started

if TYPE_CHECKING:
    from ottla.metadata_store.tree import Tree
    from ottla.seams.background import Background
    from ottla.seams.clock import Clock
    from ottla.settings import Settings

    Connect = Callable[[], Awaitable[Tree]]  # opens a session

T = TypeVar("T")


def tree_of(
    settings: Settings, loop: asyncio.AbstractEventLoop, clock: Clock, background: Background
) -> Connect | None:
    """Opens sessions with the servers of `zookeeper.connect`, if it is set."""
    if settings.zookeeper_connect is None:
        return None
    try:
        from ottla.metadata_store.zookeeper import ZooKeeperTree
        from ottla.seams.zookeeper import new_client
    except ImportError as error:
        raise Failure(
            f"zookeeper.connect needs the package kazoo ({error})", "pip install 'ottla[zookeeper]'"
        ) from None
    from ottla.settings.zookeeper import split_connect

    hosts, root = split_connect(settings.zookeeper_connect)
    session_ms = settings.integer("zookeeper.session.timeout.ms")
    connection_ms = settings.values["zookeeper.connection.timeout.ms"] or session_ms
    assert isinstance(connection_ms, int)

    async def connect() -> Tree:
        client = new_client(hosts, session_ms / 1000, loop)
        return await ZooKeeperTree.connect(client, root, background, clock, connection_ms / 1000)

    return connect


def drawn_ids(settings: Settings, count: int) -> list[int]:
    """New ids for so many brokers, from ZooKeeper."""
    from ottla.broker.drawn_id import draw

    async def drawn(connect: Connect) -> list[int]:
        tree = await connect()
        try:
            reserved = settings.integer("reserved.broker.max.id")
            return [await draw(tree, reserved) for _ in range(count)]
        finally:
            await tree.close()

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(with_tree(settings, loop, drawn))
    finally:
        loop.close()


async def broker_id_of(settings: Settings, loop: asyncio.AbstractEventLoop) -> Settings:
    """The settings of a broker that finds its id in its directories, or draws one."""
    from ottla.broker.drawn_id import with_broker_id
    from ottla.seams.disk import RealDisk

    return await with_tree(
        settings, loop, lambda connect: with_broker_id(settings, RealDisk(), connect)
    )


async def with_tree(
    settings: Settings, loop: asyncio.AbstractEventLoop, act: Callable[[Connect], Awaitable[T]]
) -> T:
    """What `act` makes of a way to ZooKeeper, before there is a broker. Raises Failure."""
    from ottla.log.checkpoints import CorruptCheckpoint
    from ottla.metadata_store.tree import TreeError
    from ottla.seams.background import RealBackground
    from ottla.seams.clock import RealClock

    background = RealBackground(loop)
    connect = tree_of(settings, loop, RealClock(loop), background)
    assert connect is not None, "ids are drawn from ZooKeeper"
    try:
        return await act(connect)
    except (OSError, TreeError, CorruptCheckpoint) as error:
        raise why_not_started(error, os.path.abspath(settings.data_directory)) from None
    finally:
        background.close()

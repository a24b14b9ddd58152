"""The id of a broker that has none in its settings: Kafka 3's `broker.id=-1` with ZooKeeper.

A directory that was used before says which broker it belongs to (`meta.properties`). A new one gets
an id that no broker was given before: the version of /brokers/seqid after a write to it, beyond
`reserved.broker.max.id`, up to which ids are given by hand.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ottla.cluster import nodes
from ottla.log.checkpoints import read_meta_properties
from ottla.metadata_store.tree import NodeExists, NoNode

if TYPE_CHECKING:
    from ottla.metadata_store.tree import Tree
    from ottla.seams.disk import Disk
    from ottla.settings import Settings


async def with_broker_id(
    settings: Settings, disk: Disk, connect: Callable[[], Awaitable[Tree]]
) -> Settings:
    """The settings with the id of the directories, or a new one. Raises TreeError.

    What is drawn and not used, because the start fails later, is lost: ids are many.
    """
    for directory in settings.data_directories:
        meta = read_meta_properties(disk, directory) if disk.exists(directory) else None
        if meta is not None:
            return settings.with_node_id(meta.node_id)
    tree = await connect()
    try:
        drawn = await draw(tree, settings.integer("reserved.broker.max.id"))
    finally:
        await tree.close()
    return settings.with_node_id(drawn)


async def draw(tree: Tree, reserved_max: int) -> int:
    """An id that was and will be drawn by no other broker."""
    while True:
        try:
            return reserved_max + await tree.set(nodes.BROKER_SEQUENCE, b"", -1)
        except NoNode:
            pass
        for path in ("/brokers", nodes.BROKER_SEQUENCE):
            try:
                await tree.create(path, b"")
            except NodeExists:
                pass

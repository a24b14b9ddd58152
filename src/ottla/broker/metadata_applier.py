"""The broker follows the controller's feed: what the cluster decides becomes logs and partitions.

Each batch of changes is done locally (logs made, configured, given up) and only then becomes the
picture that requests are answered from; then the feed hears of it, and whoever asked for the change
gets the answer. A partition whose local work fails goes offline; the feed is told all the same, for
the cluster's decision stands.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.cluster.feed import Batch, Feed, Picture, follow_batches
from ottla.cluster.image import (
    ZERO_ID,
    BrokerConfigured,
    Change,
    ClusterImage,
    PartitionImage,
    PartitionsChanged,
    PartitionsCreated,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    TopicImage,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

log = logging.getLogger("ottla.broker")

# After so many logs made in one go the event loop gets its turn: a few milliseconds' work.
LOGS_PER_TURN = 50


class MetadataApplier:
    """Keeps one broker in step with the feed of its controller."""

    def __init__(self, broker: Broker, feed: Feed) -> None:
        self._broker = broker
        self._feed = feed
        self._task: asyncio.Task[None] | None = None
        self._confirmations: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Take over the whole picture, then follow. Returns when the picture is in use."""
        self._feed.follow(self._broker.node_id)
        await self._take(Picture(self._feed.image))
        self._task = asyncio.create_task(self._follow(), name="metadata-applier")

    async def stop(self) -> None:
        """Follow no longer."""
        self._feed.unfollow(self._broker.node_id)
        for task in (self._task, *self._confirmations):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _follow(self) -> None:
        while not self._feed.closed:
            image = self._broker.image
            await self._take(await self._feed.after(image.number, image.controller_epoch))

    async def _take(self, news: Sequence[Batch] | Picture) -> None:
        broker = self._broker
        try:
            if isinstance(news, Picture):
                await self._take_picture(news.image)
            else:
                # One after the other: a topic may be deleted by one and made again by the next.
                for batch in news:
                    await self._take_changes(follow_batches(broker.image, [batch]), batch.changes)
        except Exception:
            log.exception("the broker could not follow a change of the cluster")
            broker.image = self._feed.image
        self._feed.applied(broker.node_id, broker.image.number)

    async def _take_changes(self, image: ClusterImage, changes: Iterable[Change]) -> None:
        broker = self._broker
        gone: list[TopicDeleted] = []
        # Configs first: the logs that are made find their topic's configs in the picture to come.
        broker.next_image = image
        for change in changes:
            match change:
                case TopicCreated(topic, _):
                    await self._make_logs(topic, topic.partitions)
                case PartitionsCreated(name, _, partitions):
                    topic_image = image.topics.get(name)
                    if topic_image is not None:
                        await self._make_logs(topic_image, partitions)
                case PartitionsChanged(name, _, partitions):
                    self._assign(name, partitions)
                case TopicConfigured(name, _):
                    broker.configure_topic(name)
                case BrokerConfigured():
                    broker.configure()
                case TopicDeleted():
                    gone.append(change)
        broker.image = image
        broker.coordinators.follow(image)
        if gone:
            broker.coordinators.topics_deleted({deleted.name for deleted in gone})
        for deleted in gone:
            await self._give_up(deleted)

    async def _take_picture(self, image: ClusterImage) -> None:
        """Whatever was known before: this is how it is."""
        broker = self._broker
        broker.next_image = image
        broker.configure()
        found = {(topic, index): topic_id for topic, index, topic_id in broker.logs.found()}
        for topic in image.topics.values():
            new = [
                each
                for each in topic.partitions
                if found.get((topic.name, each.index), ZERO_ID) == ZERO_ID
            ]
            await self._make_logs(topic, new)
            self._assign(topic.name, topic.partitions)
        broker.image = image
        broker.coordinators.follow(image)

    async def _make_logs(self, topic: TopicImage, partitions: Sequence[PartitionImage]) -> None:
        broker = self._broker
        for place, partition in enumerate(partitions):
            if broker.node_id not in partition.replicas:
                continue
            try:
                broker.logs.create(topic.name, partition.index, topic.id)
            except (OSError, ValueError) as error:
                log.error(
                    "%s-%d cannot be made, and stays offline: %s",
                    topic.name,
                    partition.index,
                    error,
                )
            if place % LOGS_PER_TURN == LOGS_PER_TURN - 1:
                await asyncio.sleep(0)

    def _assign(self, topic: str, partitions: Sequence[PartitionImage]) -> None:
        opened = self._broker.partitions.by_name.get(topic)
        if not opened:
            return
        for image in partitions:
            partition = opened.get(image.index)
            if partition is not None:
                self._broker.assign(partition, image)
                self._broker.purgatory.wake(partition)

    async def _give_up(self, deleted: TopicDeleted) -> None:
        """The topic is gone from the picture: end its waiting requests, put its folders away."""
        broker = self._broker
        for partition in broker.partitions.remove_topic(deleted.name):
            broker.purgatory.wake(partition)
        broker.metrics.forget_topic(deleted.name)
        await broker.logs.delete((deleted.name, index) for index in range(deleted.partition_count))
        task = asyncio.create_task(
            broker.controller.confirm_deletions(broker.node_id, [deleted.id])
        )
        self._confirmations.add(task)
        task.add_done_callback(self._confirmations.discard)

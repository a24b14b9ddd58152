"""Applies the controller's feed to this broker: logs, partitions, coordinators, configs.

Each batch of changes is applied locally (logs created, configured, deleted), and only then becomes
`broker.image`, which requests are answered from; the next poll reports it to the controller, which
answers the request that led to the change. It does not wait for the disk to make folders
(`LogManager.create`), nor for thousands of replicas to be opened (openings.py). A whole image (a
`Snapshot`: at the start, and when the broker is too far behind) is applied as the difference from
`broker.image`.

A partition whose local work fails goes offline; the image moves on all the same, because the
controller's decision stands. Folders of deleted topics that cannot be removed are tried again after
a while; the deletion is confirmed when they are gone. Where something else fails, the broker says
so (log, metric), reports no number, and applies the whole image until that works. It never applies
a change that does not follow the one before, nor goes back to the image of an earlier controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.broker.found_folders import delete_folders, unknown_folders
from ottla.broker.openings import Openings
from ottla.cluster.feed import (
    Batch,
    MissedChange,
    Snapshot,
    StaleController,
    fenced,
    follow_batches,
)
from ottla.cluster.image import (
    ZERO_ID,
    BrokerConfigured,
    Change,
    ClusterImage,
    EntityConfigured,
    PartitionImage,
    PartitionsChanged,
    PartitionsCreated,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    TopicImage,
    deleted_between,
)
from ottla.cluster.state import NotAllowed, NotController, RegistrationRefused
from ottla.log.upkeep import TimeSlice
from ottla.seams.tasks import Tasks
from ottla.seams.waiting import pause, within

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.cluster.channel import ControllerChannel

log = logging.getLogger("ottla.broker")

# Without a controller, or after changes of one that has been replaced: until one is asked again,
# if no other has been found before.
RETRY_S = 0.1
# After the controller has not taken this broker for one: each try is a line of its audit.
DENIED_AGAIN_S = 1.0
# After changes that could not be applied: until the whole image is.
APPLY_AGAIN_S = 1.0
# After folders of deleted topics could not be removed: until that is tried again.
DELETE_AGAIN_S = 5.0


class MetadataApplier:
    """Keeps one broker up to date with its controller, which it polls for changes."""

    def __init__(self, broker: Broker, controller: ControllerChannel) -> None:
        self._broker = broker
        self._controller = controller
        self._task: asyncio.Task[None] | None = None
        self._confirmations = Tasks()
        self._applying = asyncio.Lock()
        self._moved = asyncio.Event()  # the controller, since it was last asked
        self._deleting_again: asyncio.Task[None] | None = None
        self._openings = Openings(broker)
        self._trouble = ""  # why the latest changes are not applied
        self._answered_s = broker.clock.monotonic()
        self._errors = broker.metrics.counter(
            "kafka_server_broker_metadata_metrics_metadata_apply_error_count",
            "Changes of the cluster that could not be applied in full.",
        )

    async def start(self) -> None:
        """Apply the whole image, then follow the feed. Returns when the image is in use."""
        await self._apply(await first_image(self._broker, self._controller))
        self._task = asyncio.create_task(self._follow(), name="metadata-applier")

    async def stop(self) -> None:
        """Stop following the feed."""
        for task in (self._task, self._deleting_again, *self._confirmations):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self._openings.stop()
        self._controller.leave(self._broker.node_id)

    def controller_moved(self) -> None:
        """Another controller was found: it is asked at once."""
        self._moved.set()

    @property
    def silent_s(self) -> float:
        """For how long the controller has not answered; polls come at least every heartbeat."""
        return self._broker.clock.monotonic() - self._answered_s

    def behind(self) -> str:
        """Why this broker may not have the cluster's latest changes; empty if it has them."""
        broker = self._broker
        silent_s = self.silent_s
        limit_s = broker.settings.integer("broker.session.timeout.ms") / 1000
        # Polls of a controller in this process wait until there is a change.
        if broker.in_cluster and silent_s > limit_s:
            return f"the controller has not answered for {silent_s:.0f} s"
        return self._trouble

    async def _follow(self) -> None:
        broker = self._broker
        reachable = True
        image = broker.image  # as reported: see `_move_to`
        while True:
            self._moved.clear()
            try:
                # The number in the poll reports what is applied here.
                update = await self._controller.poll(
                    broker.node_id, image.number, image.controller_epoch, broker.epoch
                )
                if not reachable:
                    log.info("the cluster's changes are followed again")
                reachable = True
                self._answered_s = broker.clock.monotonic()
                if await self._apply(update):
                    image = broker.image
                    self._trouble = ""
                else:
                    self._trouble = "a change of the cluster could not be applied here"
                    image = await self._begin_anew()
            except (NotController, RegistrationRefused) as reason:
                self._trouble = f"the cluster's changes cannot be followed: {reason}"
                denied = isinstance(reason, NotAllowed)
                if reachable:
                    level = logging.WARNING if denied else logging.INFO
                    log.log(level, "the cluster's changes cannot be followed for now: %s", reason)
                reachable = False
                broker.look_for_controller()
                wait_s = DENIED_AGAIN_S if denied else RETRY_S
                await within(broker.clock, wait_s, asyncio.ensure_future(self._moved.wait()))
            except StaleController as reason:
                log.warning("%s; asking again", reason)
                await pause(broker.clock, RETRY_S)
            except MissedChange as reason:
                log.error("%s; asking for the whole image", reason)
                image = ClusterImage()

    async def _begin_anew(self) -> ClusterImage:
        """Ask for the whole image next: what failed is tried again as a part of it.

        Until that has worked no number is reported, and nobody waits for this broker.
        """
        self._controller.leave(self._broker.node_id)
        await pause(self._broker.clock, APPLY_AGAIN_S)
        return ClusterImage()

    async def _apply(self, update: Sequence[Batch] | Snapshot) -> bool:
        """Apply what the controller sent; whether all of it could be."""
        async with self._applying:
            return await self._apply_update(update)

    async def _apply_update(self, update: Sequence[Batch] | Snapshot) -> bool:
        if isinstance(update, Snapshot):
            image = fenced(self._broker.image, update.image)
            self._note_tree(image)
            return await self._move_to(image, self._apply_image(image))
        done = True
        # One after the other: a topic may be deleted by one and created again by the next.
        for batch in update:
            image = follow_batches(self._broker.image, [batch])
            done &= await self._move_to(image, self._apply_changes(image, batch.changes))
        self._note_tree(self._broker.image)
        return done

    def _note_tree(self, image: ClusterImage) -> None:
        if self._broker.shared is not None:
            self._broker.shared.seen.note(image.controller_epoch)

    async def _move_to(self, image: ClusterImage, work: Coroutine[Any, Any, None]) -> bool:
        """Use an image, after the work for it; also when that fails, for the decision stands."""
        self._broker.fenced_lately.follow(self._broker.image.brokers, image.brokers)
        try:
            await work
        except Exception:
            log.exception("change %d of the cluster could not be applied in full", image.number)
            self._errors.value += 1
            self._broker.next_image = self._broker.image = image
            return False
        finally:
            self._broker.image_waits.changed()
        return True

    async def _apply_changes(self, image: ClusterImage, changes: Sequence[Change]) -> None:
        broker = self._broker
        deleted: list[TopicDeleted] = []
        removed: list[tuple[str, int]] = []
        # Configs first: a log that is created takes its topic's configs from `next_image`.
        broker.next_image = image
        for change in changes:
            match change:
                case TopicCreated(topic, _):
                    await self._create_logs(topic, topic.partitions)
                case PartitionsCreated(name, _, partitions):
                    topic_image = image.topics.get(name)
                    if topic_image is not None:
                        await self._create_logs(topic_image, partitions)
                case PartitionsChanged(name, _, partitions):
                    removed += [(name, p.index) for p in partitions if self._was_replica(name, p)]
                    await self._add_logs(image.topics.get(name), partitions)
                    self._assign(name, partitions)
                case TopicConfigured(name, _):
                    broker.configure_topic(name)
                case BrokerConfigured():
                    broker.configure()
                case EntityConfigured():
                    broker.quotas.configure(image.entity_configs)
                case TopicDeleted():
                    deleted.append(change)
        broker.image = image
        self._open_replicas(changes)
        broker.peers.follow(image)
        broker.coordinators.follow(image)
        await self._remove_replicas(removed, stray=False)
        await self._delete_topics(deleted)

    async def _apply_image(self, image: ClusterImage) -> None:
        """Apply a whole image as the difference from the one in use.

        A topic that is gone, or that has another id, is deleted first and as if by itself: no
        request may find the old log under the new topic.
        """
        broker = self._broker
        starts = not broker.image.number
        deleted = deleted_between(broker.image, image)
        if deleted:
            broker.image = broker.next_image = broker.image.apply(broker.image.number, deleted)
            broker.coordinators.follow(broker.image)
            await self._delete_topics(deleted)
        broker.next_image = image
        broker.configure()
        broker.quotas.configure(image.entity_configs)
        removed = self._not_replicas(image, starts)
        for topic in image.topics.values():
            missing = [
                each
                for each in topic.partitions
                if broker.logs.topic_id(topic.name, each.index) != topic.id
            ]
            await self._create_logs(topic, missing)
            self._assign(topic.name, topic.partitions)
        broker.image = image
        broker.peers.follow(image)
        for topic in image.topics.values():
            self._openings.note(topic.name, topic.partitions)
        await self._openings.finish()
        broker.coordinators.follow(image)
        await self._remove_replicas(removed, stray=starts)
        await self._finish_deletions(image)

    async def _finish_deletions(self, image: ClusterImage) -> None:
        """Delete what is left of topics that no image in use has shown, and confirm all again.

        A topic may have been created and deleted between two images, or deleted while this broker
        started; and a confirmation may have been lost with the controller that it went to.
        """
        if not image.deletions:
            return
        try:
            await delete_folders(self._broker, image)
        except OSError as error:
            log.error("logs of deleted topics cannot be deleted for now: %s", error)
            self._delete_again()
        else:
            self._confirm(*image.deletions)

    def _delete_again(self) -> None:
        """Try after a while to remove folders that could not be, and to create what needs them."""
        if self._deleting_again is None or self._deleting_again.done():
            self._deleting_again = asyncio.create_task(self._apply_image_again())

    async def _apply_image_again(self) -> None:
        await pause(self._broker.clock, DELETE_AGAIN_S)
        async with self._applying:
            self._deleting_again = None  # what fails now begins another one
            image = self._broker.image
            await self._move_to(image, self._apply_image(image))

    async def _create_logs(self, topic: TopicImage, partitions: Sequence[PartitionImage]) -> None:
        broker = self._broker
        try:
            await self._remove_other_topics(topic, partitions)
        except OSError as error:
            log.error("a folder of an earlier %s cannot be removed: %s", topic.name, error)
            self._delete_again()
        time_slice = TimeSlice(broker.clock)
        for partition in partitions:
            await time_slice.yield_if_over()
            if broker.node_id not in partition.replicas:
                continue
            if (topic.id, partition.index) in broker.missing:
                continue
            try:
                broker.logs.create(topic.name, partition.index, topic.id)
            except (OSError, ValueError) as error:
                log.error(
                    "%s-%d cannot be created, and stays offline: %s",
                    topic.name,
                    partition.index,
                    error,
                )

    async def _add_logs(
        self, topic: TopicImage | None, partitions: Sequence[PartitionImage]
    ) -> None:
        """Create the logs of partitions that this broker is a replica of by reassignment."""
        broker = self._broker
        added = [
            each
            for each in partitions
            if broker.node_id in each.adding_replicas
            and topic is not None
            and broker.logs.topic_id(topic.name, each.index) != topic.id
        ]
        if topic is not None and added:
            await self._create_logs(topic, added)

    def _was_replica(self, topic: str, partition: PartitionImage) -> bool:
        """Whether this broker was a replica by the image in use, and by the next is no more."""
        node_id = self._broker.node_id
        if node_id in partition.replicas:
            return False
        old = self._broker.image.partition(topic, partition.index)
        return old is not None and node_id in old.replicas

    async def _remove_other_topics(
        self, topic: TopicImage, partitions: Sequence[PartitionImage]
    ) -> None:
        """Remove folders of the topic's name that have the id of another topic.

        Those of a topic that was deleted (its deletion failed here) are deleted, others are kept
        as stray folders, and so is one without an id that may be of a deleted topic.
        """
        broker = self._broker
        deletions = broker.next_image.deletions
        deleted: list[tuple[str, int]] = []
        stray: list[tuple[str, int]] = []
        for partition in partitions:
            topic_id = broker.logs.topic_id(topic.name, partition.index)
            if topic_id is None or topic_id == topic.id:
                continue
            if topic_id == ZERO_ID and topic.name not in deletions.values():
                continue
            known = topic_id in deletions
            (deleted if known else stray).append((topic.name, partition.index))
        if deleted:
            await broker.logs.delete(deleted)
        if stray:
            await broker.logs.delete(stray, stray=True)

    def _assign(self, topic: str, partitions: Sequence[PartitionImage]) -> None:
        opened = self._broker.partitions.by_name.get(topic)
        if not opened:
            return
        for image in partitions:
            partition = opened.get(image.index)
            if partition is not None:
                self._broker.assign(partition, image)

    def _open_replicas(self, changes: Iterable[Change]) -> None:
        keys: list[tuple[str, int]] = []
        for change in changes:
            match change:
                case TopicCreated(topic, _):
                    keys += self._openings.note(topic.name, topic.partitions)
                case PartitionsCreated(name, _, partitions) | PartitionsChanged(
                    name, _, partitions
                ):
                    keys += self._openings.note(name, partitions)
        self._openings.begin(keys)

    def _not_replicas(self, image: ClusterImage, starts: bool) -> list[tuple[str, int]]:
        """The partitions whose folders are here and whose replicas have moved to other brokers.

        At the start also those that the cluster does not know.
        """
        broker = self._broker
        if not broker.in_cluster:
            return []
        if starts:
            return unknown_folders(broker, image)
        return [
            (topic, index)
            for topic, index, topic_id in broker.logs.found()
            if (known := image.partition(topic, index)) is not None
            and broker.node_id not in known.replicas
            and topic_id == image.topics[topic].id
        ]

    async def _remove_replicas(self, removed: Sequence[tuple[str, int]], stray: bool) -> None:
        """Give up replicas that have moved to other brokers; requests that wait are answered.

        What a start finds is kept as a stray folder, as Kafka does: nobody has seen it removed.
        """
        broker = self._broker
        if not removed:
            return
        opened = [broker.partitions.remove(topic, index) for topic, index in removed]
        for partition in opened:
            if partition is not None:
                partition.remove()
                broker.replication.removed(partition)
        await broker.logs.delete(removed, stray=stray)

    async def _delete_topics(self, deleted: Sequence[TopicDeleted]) -> None:
        """End the waiting requests of topics that are gone from the image; delete their logs.

        Logs that cannot be deleted now are deleted later, or before a topic of the same name is
        created; the other topics do not depend on them.
        """
        broker = self._broker
        if not deleted:
            return
        broker.coordinators.topics_deleted(
            {topic.name for topic in deleted}, {topic.id for topic in deleted}
        )
        for topic in deleted:
            for partition in broker.partitions.remove_topic(topic.name):
                partition.remove()
                broker.replication.removed(partition)
            broker.metrics.forget_topic(topic.name)
        for topic in deleted:
            try:
                await broker.logs.delete(
                    (topic.name, index) for index in range(topic.partition_count)
                )
            except OSError as error:
                log.error("the logs of %s cannot be deleted for now: %s", topic.name, error)
                self._delete_again()
            else:
                self._confirm(topic.id)

    def _confirm(self, *topic_ids: bytes) -> None:
        broker = self._broker
        task = asyncio.create_task(self._controller.confirm_deletions(broker.node_id, topic_ids))
        self._confirmations.add(task)


async def first_image(broker: Broker, controller: ControllerChannel) -> Snapshot:
    """The whole image for a broker that starts: once it has registered, one that shows it.

    The controller may answer with an older image and the changes since. They are put together
    before anything is applied: a broker that believed it led as before would begin an epoch again
    that is over, and others have written in later ones.

    Raises NotController when no controller has been there for as long as a start may wait.
    """
    limit_s = broker.settings.integer("initial.broker.registration.timeout.ms") / 1000
    end_s = broker.clock.monotonic() + limit_s
    image = ClusterImage()
    while True:
        try:
            # Without the broker's epoch: nothing is applied yet.
            update = await controller.poll(broker.node_id, image.number, image.controller_epoch)
            if isinstance(update, Snapshot):
                image = update.image
            else:
                image = follow_batches(image, update)
        except (NotController, StaleController, MissedChange) as reason:
            denied = isinstance(reason, NotAllowed)
            wait_s = DENIED_AGAIN_S if denied else RETRY_S
            if broker.clock.monotonic() + wait_s >= end_s:
                if denied:
                    raise
                raise NotController(str(reason)) from reason
            image = ClusterImage()
            broker.look_for_controller()
            await pause(broker.clock, wait_s)
            continue
        known = image.brokers.get(broker.node_id)
        if broker.epoch < 0 or (known is not None and known.epoch >= broker.epoch):
            return Snapshot(image)

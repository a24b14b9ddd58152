"""The controller's feed: numbered changes that brokers follow with a long poll.

A follower gives the number it has; `after` returns the batches behind that number, and waits while
there are none. The feed keeps the newest BATCHES_KEPT_MAX batches: a follower that is further
behind, or that has followed a controller of another epoch, gets the whole image instead. A follower
reports what it has applied, so that a request for a change is answered when the broker in the
controller's process has applied it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.cluster.image import (
    Change,
    ClusterImage,
    PartitionsChanged,
    PartitionsCreated,
    TopicCreated,
)

# One node catches up at once; for a follower that is a thousand writes behind the whole image is
# cheaper, for its size follows the number of topics.
BATCHES_KEPT_MAX = 1_000
# And a batch may create thousands of partitions: what is kept is limited by its content too.
WEIGHT_KEPT_MAX = 20_000


class Batch(NamedTuple):
    """Changes that take effect together, as the controller with that epoch made them."""

    number: int
    controller_epoch: int
    changes: Sequence[Change]


class Snapshot(NamedTuple):
    """The whole image, for a follower that is too far behind."""

    image: ClusterImage


class StaleController(Exception):
    """Changes from a controller that has been replaced since."""


class MissedChange(Exception):
    """A batch that does not follow the image that a broker has: it needs the whole image."""


class Feed:
    """The batches that the controller publishes and brokers follow."""

    def __init__(self, image: ClusterImage | None = None) -> None:
        self.image = image if image is not None else ClusterImage()
        self.closed = False
        # Called when there is something new: a batch, another image, or the end of the feed.
        self.on_change: list[Callable[[], object]] = []
        self._kept: deque[Batch] = deque()
        self._kept_weight = 0
        self._published = asyncio.Event()
        self._applied: dict[int, int] = {}  # follower's broker id to the number it has applied
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def publish(self, changes: Sequence[Change]) -> int:
        """Number the changes, make them the newest batch and wake the followers."""
        number = self.image.number + 1
        self.image = self.image.apply(number, changes)
        self._kept.append(Batch(number, self.image.controller_epoch, changes))
        self._kept_weight += weight(changes)
        while len(self._kept) > BATCHES_KEPT_MAX or self._kept_weight > WEIGHT_KEPT_MAX:
            self._kept_weight -= weight(self._kept.popleft().changes)
        self._announce()
        return number

    def restart(self, image: ClusterImage) -> None:
        """Begin with another image: every follower gets it whole."""
        self.image = image
        self._kept.clear()
        self._kept_weight = 0
        self._announce()

    def since(self, number: int, controller_epoch: int) -> list[Batch] | Snapshot:
        """What came after `number`; empty when nothing did."""
        if controller_epoch != self.image.controller_epoch or number > self.image.number:
            return Snapshot(self.image)
        missed = self.image.number - number
        if missed > len(self._kept):
            return Snapshot(self.image)
        return [self._kept[i] for i in range(len(self._kept) - missed, len(self._kept))]

    async def after(self, number: int, controller_epoch: int) -> list[Batch] | Snapshot:
        """What came after `number`, as soon as there is something. Empty when the feed closes."""
        while not self.closed:
            update = self.since(number, controller_epoch)
            if update:
                return update
            await self._published.wait()
        return []

    def follow(self, broker_id: int) -> None:
        """From now on `wait_applied` waits for this broker too."""
        self._applied.setdefault(broker_id, 0)

    def unfollow(self, broker_id: int) -> None:
        """No longer wait for this broker."""
        self._applied.pop(broker_id, None)
        self._wake()

    def applied(self, broker_id: int, number: int) -> None:
        """The broker has applied image `number`."""
        self._applied[broker_id] = number
        self._wake()

    async def wait_applied(self, number: int) -> None:
        """Return when every broker that follows beside this controller has applied `number`."""
        if self._applied_by_all() >= number:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((number, future))
        await future

    def close(self) -> None:
        """End the polls of followers, and the waits for them."""
        self.closed = True
        self._announce()
        self._applied.clear()
        self._wake()

    def _announce(self) -> None:
        self._published.set()
        self._published = asyncio.Event()
        for callback in self.on_change:
            callback()

    def _applied_by_all(self) -> int:
        return min(self._applied.values(), default=self.image.number)

    def _wake(self) -> None:
        reached = self._applied_by_all()
        still = []
        for number, future in self._waiting:
            if number <= reached or self.closed:
                if not future.done():
                    future.set_result(None)
            else:
                still.append((number, future))
        self._waiting = still


def fenced(current: ClusterImage, new: ClusterImage) -> ClusterImage:
    """`new`; raises StaleController if the broker that has `current` must not go back to it."""
    if (new.controller_epoch, new.number) < (current.controller_epoch, current.number):
        raise StaleController(
            f"image {new.number} comes from controller epoch {new.controller_epoch}, "
            f"but this broker has {current.number} of epoch {current.controller_epoch}"
        )
    return new


def follow_batches(image: ClusterImage, batches: Sequence[Batch]) -> ClusterImage:
    """The image after these batches.

    Raises StaleController if an old controller made one, MissedChange if there is a gap.
    """
    for batch in batches:
        if batch.controller_epoch < image.controller_epoch:
            raise StaleController(
                f"change {batch.number} comes from controller epoch {batch.controller_epoch}, "
                f"but this broker follows epoch {image.controller_epoch}"
            )
        if (batch.controller_epoch, batch.number) != (image.controller_epoch, image.number + 1):
            raise MissedChange(
                f"change {batch.number} of controller epoch {batch.controller_epoch} does not "
                f"follow {image.number} of epoch {image.controller_epoch}"
            )
        image = image.apply(batch.number, batch.changes)
    return image


def weight(changes: Sequence[Change]) -> int:
    """How many things the changes carry: each partition counts."""
    total = len(changes)
    for change in changes:
        if isinstance(change, TopicCreated):
            total += len(change.topic.partitions)
        elif isinstance(change, PartitionsCreated | PartitionsChanged):
            total += len(change.partitions)
    return total

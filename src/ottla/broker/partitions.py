"""The partitions this broker holds, found by topic name or id, opened when first asked for.

`by_name` and `by_id` lead to the same inner dictionaries (index -> Partition): the data path looks
there first. What it does not find there it asks `open` for, which opens the partition's log if the
cluster's image has a replica here; so a partition costs memory only once it is used. When there is
nothing to open, `missing` returns the error to answer with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.cluster.image import ClusterImage
    from ottla.log.log import Log
    from ottla.replica.partition import Partition


class Partitions:
    """The open partitions, by topic name and by topic id."""

    def __init__(self, opener: Callable[[str, int], Partition | None]) -> None:
        self.by_name: dict[str, dict[int, Partition]] = {}
        self.by_id: dict[bytes, dict[int, Partition]] = {}
        self._opener = opener

    def get(self, topic: str, index: int) -> Partition | None:
        """The partition, if this broker holds it; opened now if it was not yet."""
        partitions = self.by_name.get(topic)
        if partitions is not None:
            partition = partitions.get(index)
            if partition is not None:
                return partition
        return self.open(topic, index)

    def open(self, topic: str, index: int) -> Partition | None:
        """Open a partition that is not in the dictionaries; None when it is not here."""
        partition = self._opener(topic, index)
        if partition is not None:
            self.add(partition)
        return partition

    def add(self, partition: Partition) -> None:
        """This broker holds `partition` from now on."""
        partitions = self.by_name.get(partition.topic)
        if partitions is None:
            partitions = self.by_name[partition.topic] = {}
            self.by_id[partition.topic_id] = partitions
        partitions[partition.index] = partition

    def opened(self, topic: str) -> list[Partition]:
        """The partitions of a topic that have been opened."""
        return list(self.by_name.get(topic, {}).values())

    def remove_topic(self, topic: str) -> list[Partition]:
        """Forget all partitions of a topic; those that were open are returned."""
        partitions = list(self.by_name.pop(topic, {}).values())
        for partition in partitions:
            self.by_id.pop(partition.topic_id, None)
        return partitions

    def remove(self, topic: str, index: int) -> Partition | None:
        """Forget one partition of a topic; returned if it was open."""
        partitions = self.by_name.get(topic, {})
        partition = partitions.pop(index, None)
        if partition is not None and not partitions:
            self.remove_topic(topic)
            self.by_id.pop(partition.topic_id, None)
        return partition

    def log_replaced(self, old: Log, new: Log) -> None:
        """A partition goes on in another data directory."""
        opened = self.by_name.get(old.topic, {}).get(old.partition)
        if opened is not None:
            opened.replace_log(new)

    def log_released(self, log: Log) -> None:
        """A log may be synced again, of a partition that does not go on elsewhere after all."""
        opened = self.by_name.get(log.topic, {}).get(log.partition)
        if opened is not None:
            opened.sync_if_needed()

    def all_opened(self) -> list[Partition]:
        """Every partition that has been opened."""
        return [each for partitions in self.by_name.values() for each in partitions.values()]


def missing(image: ClusterImage, topic: str, index: int, node_id: int | None = None) -> ErrorCode:
    """The error for a partition that this broker does not hold.

    One that it should hold, because it leads it, could not be created or opened on the disk.
    """
    partition = image.partition(topic, index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.leader == node_id:
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NOT_LEADER_OR_FOLLOWER

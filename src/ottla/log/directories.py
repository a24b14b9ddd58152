"""A data directory: its owner, its lock, and the partitions in it.

One directory of `log.dirs`: its lock keeps a second server out, `meta.properties` names the cluster
and node it belongs to, `.kafka_cleanshutdown` means that nothing needs recovery, and the offset
checkpoints tell how far each partition was synced and where it begins. A directory that
Apache Kafka left is read the same way: its partitions are found by the names of their folders.

A failure stops the start, with one sentence for the operator: `DirectoryProblem`.
"""

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.log import checkpoints
from ottla.log.checkpoints import CorruptCheckpoint, MetaProperties, Offsets, TopicPartition
from ottla.seams.disk import AlreadyLocked

if TYPE_CHECKING:
    from ottla.seams.chance import Chance
    from ottla.seams.disk import Disk, Lock

logger = logging.getLogger("ottla.log")

LOCK = ".lock"
DELETE_SUFFIX = "-delete"
FUTURE_SUFFIX = "-future"
STRAY_SUFFIX = "-stray"
METADATA_TOPIC = "__cluster_metadata"  # Kafka's own log of the cluster; not a topic of ours
NAME_BYTES_MAX = 255  # what file systems allow


class DirectoryProblem(Exception):
    """A data directory cannot be used; the text is one sentence for an operator."""


class Contents(NamedTuple):
    """The folders of a data directory, by what their names mean."""

    partitions: list[TopicPartition]
    deleted: list[str]  # paths of folders to remove
    futures: list[tuple[str, TopicPartition]]  # paths of copies that replace a partition elsewhere
    from_kafka: bool  # Apache Kafka has written here


def partition_folder(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def renamed_folder(topic: str, partition: int, unique: str, kind: str) -> str:
    """The name for a partition to be deleted, or for a stray one; no file system's limit is hit."""
    suffix = f"-{partition}.{unique}{kind}"
    return topic[: NAME_BYTES_MAX - len(suffix)] + suffix


def parse_folder(name: str) -> TopicPartition | None:
    """Topic and partition that a folder is named after, or None."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isascii() or not number.isdigit():
        return None
    return topic, int(number)


def parse_future_folder(name: str) -> TopicPartition | None:
    """Topic and partition of a copy that is to replace a log in another directory, or None."""
    if not name.endswith(FUTURE_SUFFIX):
        return None
    return parse_folder(name.removesuffix(FUTURE_SUFFIX).rpartition(".")[0])


class DataDirectory:
    """One directory of `log.dirs`, locked from `open` to `release`."""

    def __init__(self, disk: "Disk", path: str) -> None:
        self.disk = disk
        self.path = path.rstrip("/") or "/"
        self.meta: MetaProperties | None = None
        self.was_clean = False
        self.is_kafkas = False  # Apache Kafka has written here; known until the first start of ours
        self.last_broker_epoch = checkpoints.NO_BROKER_EPOCH
        self.had_watermarks = False  # there was a checkpoint of high watermarks
        self._lock: Lock | None = None

    def open(self) -> None:
        """Makes the directory if need be and locks it."""
        try:
            if not self.disk.exists(self.path):
                self.disk.mkdir(self.path)
                self.disk.sync_directory(self.path.rpartition("/")[0] or "/")
            self._lock = self.disk.lock(f"{self.path}/{LOCK}")
        except AlreadyLocked:
            raise DirectoryProblem(
                f"data directory {self.path} is in use by another server; stop that one first, "
                "or choose another directory with --data-dir"
            ) from None
        except OSError as error:
            raise DirectoryProblem(
                f"data directory {self.path} cannot be used: {error.strerror or error}; "
                "choose another one with --data-dir, or give this user the right to write there"
            ) from error
        try:
            self.meta = checkpoints.read_meta_properties(self.disk, self.path)
        except CorruptCheckpoint as error:
            self.release()
            raise DirectoryProblem(
                f"{error}; restore the file, or move the directory away to begin with an empty one"
            ) from error
        self.had_watermarks = self.disk.exists(f"{self.path}/{checkpoints.HIGH_WATERMARKS}")
        # A broker of ours always notes a directory id; Kafka does so since 3.7, and not with
        # ZooKeeper.
        self.is_kafkas = self.meta is not None and self.meta.directory_id is None

    def belong_to(self, cluster_id: str, node_id: int, chance: "Chance", option: str = "") -> None:
        """Checks that the directory is of this cluster and node, or makes it so.

        `option`: the one, as NAME=VALUE, that says where the cluster's id was found.
        """
        meta = self.meta
        if meta is not None:
            if meta.cluster_id != cluster_id:
                found, hint = cluster_id, "is it the right directory?"
                if option:
                    found = f"{cluster_id}, which is that of {option}"
                    name = option.partition("=")[0]
                    hint = (
                        f"is it the right directory, and is {name} right? If the data that was "
                        "there is lost, put its newest copy back"
                    )
                raise DirectoryProblem(
                    f"data directory {self.path} belongs to cluster {meta.cluster_id}, not to "
                    f"{found}; {hint}"
                )
            if meta.node_id != node_id:
                raise DirectoryProblem(
                    f"data directory {self.path} belongs to node {meta.node_id}, not to node "
                    f"{node_id}; start with node.id={meta.node_id}, or with another directory"
                )
            if meta.directory_id is not None:
                return
        directory_id = checkpoints.uuid_text(chance.uuid())
        self.meta = MetaProperties(cluster_id, node_id, directory_id)
        try:
            checkpoints.write_meta_properties(self.disk, self.path, self.meta)
        except OSError as error:
            raise DirectoryProblem(
                f"data directory {self.path} cannot be written: {error.strerror or error}"
            ) from error

    def take_clean_marker(self) -> None:
        """Reads whether the last stop was clean, and removes the marker: a crash from now on is
        not.
        """
        path = f"{self.path}/{checkpoints.CLEAN_SHUTDOWN}"
        data = checkpoints.read_if_there(self.disk, path)
        if data is None:
            return
        if self._is_older(data):
            logger.warning("%s is older than the last clean stop here: recovering", self.path)
        else:
            self.was_clean = True
            self.last_broker_epoch = checkpoints.parse_clean_shutdown(data)
        self.disk.unlink(path)
        self.disk.sync_directory(self.path)

    def _is_older(self, clean_shutdown: bytes) -> bool:
        """Whether another checkpoint of high watermarks is here than the one at the clean stop.

        One that was removed or damaged is left out of account.
        """
        name = checkpoints.HIGH_WATERMARKS
        found = checkpoints.read_if_there(self.disk, f"{self.path}/{name}")
        return (
            found is not None
            and not checkpoints.belongs_to_clean_shutdown(clean_shutdown, found)
            and self.read_offsets(name) is not None
        )

    def mark_clean(self, broker_epoch: int) -> None:
        high_watermarks = f"{self.path}/{checkpoints.HIGH_WATERMARKS}"
        found = checkpoints.read_if_there(self.disk, high_watermarks)
        self.disk.write_atomically(
            f"{self.path}/{checkpoints.CLEAN_SHUTDOWN}",
            checkpoints.format_clean_shutdown(broker_epoch, found),
            sync=True,
        )

    def contents(self) -> Contents:
        """The partitions by their folders' names, and the folders that are being deleted."""
        partitions: list[TopicPartition] = []
        deleted: list[str] = []
        futures: list[tuple[str, TopicPartition]] = []
        from_kafka = self.is_kafkas
        for entry in self.disk.entries(self.path):
            if not entry.is_directory:
                continue
            name = entry.name
            if name.endswith(DELETE_SUFFIX):
                deleted.append(f"{self.path}/{name}")
            elif (copied := parse_future_folder(name)) is not None:
                futures.append((f"{self.path}/{name}", copied))
            elif name.endswith((FUTURE_SUFFIX, STRAY_SUFFIX)):
                logger.warning("%s/%s is left alone: not a current partition", self.path, name)
            elif (found := parse_folder(name)) is None:
                logger.warning("%s/%s is not a partition's folder; left alone", self.path, name)
            elif found[0] == METADATA_TOPIC:
                from_kafka = True
            else:
                partitions.append(found)
        return Contents(sorted(partitions), deleted, futures, from_kafka)

    def read_offsets(self, name: str) -> Offsets | None:
        """A checkpoint of this directory; None, and a line in the log, when it is corrupt."""
        try:
            return checkpoints.read_offsets(self.disk, self.path, name)
        except CorruptCheckpoint as error:
            logger.warning("%s; going on without it", error)
            return None

    def write_offsets(self, name: str, offsets: Offsets) -> None:
        checkpoints.write_offsets(self.disk, self.path, name, offsets)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def open_directories(disk: "Disk", paths: Iterable[str]) -> list[DataDirectory]:
    """Opens and locks all of them, or none."""
    opened: list[DataDirectory] = []
    try:
        for path in paths:
            directory = DataDirectory(disk, path)
            if any(directory.path == other.path for other in opened):
                raise DirectoryProblem(f"data directory {path} is listed twice")
            directory.open()
            opened.append(directory)
    except BaseException:
        for directory in opened:
            directory.release()
        raise
    return opened

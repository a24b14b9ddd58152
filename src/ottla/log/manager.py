"""All logs of a broker: found at the start, made and deleted while it runs, closed at the end.

A partition costs little until it is used: after a clean stop the start reads names and checkpoints
only, and a log is opened at its first use. After a crash every log is checked before the broker is
ready. Both run in time slices; so do retention, flushing and checkpoints later
(periodic.py), and deletions and compactions (upkeep.py, cleaner.py).

Checkpoints never name a partition that is gone: a new topic of the same name would inherit its
offsets. So deleting a partition rewrites them before it is over, and so does a start that finds
entries without a folder.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.log import checkpoints
from ottla.log.checkpointer import Checkpointer
from ottla.log.checkpoints import CorruptCheckpoint, Offsets, TopicPartition, mark_compacted
from ottla.log.cleaner import Cleaner
from ottla.log.directories import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    Contents,
    DataDirectory,
    DirectoryProblem,
    open_directories,
    parse_folder,
    partition_folder,
    renamed_folder,
)
from ottla.log.log import Log
from ottla.log.moves import Moves
from ottla.log.periodic import Periodic
from ottla.log.recovery import create_log, load_log
from ottla.log.replaced import settle_replaced
from ottla.log.segment import LOG, Segment
from ottla.log.upkeep import (
    FLUSH_MS_NEVER,
    Flusher,
    PartitionMetadataWriter,
    Remover,
    TimeSlice,
    finish,
    when_descriptors_are_free,
)
from ottla.seams.disk import OutOfDescriptors

if TYPE_CHECKING:
    from ottla.seams.background import Background
    from ottla.seams.chance import Chance
    from ottla.seams.clock import Clock
    from ottla.seams.disk import Disk
    from ottla.settings import LogConfig, Settings

logger = logging.getLogger("ottla.log")

NO_TOPIC_ID = bytes(16)


class Unopened(NamedTuple):
    """A partition on disk whose log has not been opened yet."""

    data_dir: DataDirectory
    topic_id: bytes
    recovery_point: int
    log_start_offset: int


class FoundPartition(NamedTuple):
    """A partition that lay on disk at the start; the id is all zeros if its folder has none."""

    topic: str
    partition: int
    topic_id: bytes


class LogManager:
    """The logs in one or several data directories."""

    def __init__(
        self,
        directories: Iterable[str],
        *,
        disk: "Disk",
        clock: "Clock",
        background: "Background",
        chance: "Chance",
        settings: "Settings",
        node_id: int,
        config_of: "Callable[[str], LogConfig]",
    ) -> None:
        self.disk = disk
        self.clock = clock
        self.background = background
        self.node_id = node_id
        self.cluster_id = ""
        self.directories: list[DataDirectory] = []
        # The high watermark of a log; set by the layer above, which keeps it.
        self.high_watermark_of: Callable[[Log], int] = lambda log: log.end_offset
        # Whether some logs here have replicas elsewhere.
        self.replicated: Callable[[], bool] = lambda: False
        self.remover = Remover(disk, clock, background)
        self.flusher = Flusher(clock, background)
        self.cleaner = Cleaner(
            clock,
            background,
            chance,
            self.remover,
            logs=self._compacted,
            last_stable_offset=self._last_stable_offset,
            secure=self._secure,
        )
        # The topic's configs as the tree has them, to be kept beside its records; None: not known.
        self.topic_configs_of: Callable[[str], Mapping[str, str] | None] = lambda topic: None
        # Those found in the folders at the start.
        self.found_configs: dict[TopicPartition, Mapping[str, str]] = {}
        self.metadata_files = PartitionMetadataWriter(disk, background)
        self.metadata_files.on_failed = self._folder_failed
        self._paths = list(directories)
        self._chance = chance
        self._config_of = config_of
        self._entries: dict[TopicPartition, Log | Unopened] = {}
        self._partitions: dict[str, set[int]] = {}  # of each topic
        self._renamed: dict[TopicPartition, int] = {}  # whose folder is that of another partition
        self._counts: dict[str, int] = {}  # partitions in each data directory
        self._high_watermarks: Offsets = {}  # as the checkpoints had them at the start
        self._watermarked: set[TopicPartition] = set()  # those above 0, with a folder or without
        self.flush_by_time: dict[Log, None] = {}  # the logs whose config has a `flush.ms`
        self._not_synced: dict[str, DataDirectory] = {}  # where a sync failed after a deletion
        self.checkpointer = Checkpointer(background, self._offsets_in)
        self.moves = Moves(self)
        # Where partitions that are not here yet are to be created (KIP-113).
        self.preferred: dict[TopicPartition, DataDirectory] = {}
        self._periodic = Periodic(self, settings)
        self._patiently = partial(when_descriptors_are_free, clock)
        self.from_kafka = False  # Apache Kafka has written to these directories
        self._upkeep_begun = False
        self.reconfigure(settings)

    def reconfigure(self, settings: "Settings") -> None:
        """Takes over the broker's options that may change while it runs."""
        self.cleaner.reconfigure(settings)
        self._periodic.reconfigure(settings)
        self.moves.reconfigure(settings)

    def unique(self) -> str:
        """A name that no other folder has."""
        return self._chance.uuid().hex()

    # Start

    async def start(self, cluster_id: str | None = None, option: str = "") -> None:
        """Locks the directories, checks whose they are, finds and if need be recovers all logs."""
        self.directories = open_directories(self.disk, self._paths)
        try:
            self.cluster_id = cluster_id or self._known_cluster_id() or self._new_cluster_id()
            for data_dir in self.directories:
                data_dir.belong_to(self.cluster_id, self.node_id, self._chance, option)
            contents = [data_dir.contents() for data_dir in self.directories]
            # Kafka's own log of the cluster lies in one of several directories.
            self.from_kafka = any(each.from_kafka for each in contents)
            if len(self.directories) > 1:
                settle_replaced(self.disk, self.directories, contents, self.unique)
            for data_dir, each in zip(self.directories, contents, strict=True):
                await self._load(data_dir, each)
            await self.moves.load()
        except OSError as error:
            self._release()
            raise DirectoryProblem(f"the data directory cannot be read: {error}") from error
        except BaseException:
            self._release()
            raise

    def _known_cluster_id(self) -> str | None:
        for data_dir in self.directories:
            if data_dir.meta is not None:
                return data_dir.meta.cluster_id
        return None

    def _new_cluster_id(self) -> str:
        return checkpoints.uuid_text(self._chance.uuid())

    async def _load(self, data_dir: DataDirectory, contents: Contents) -> None:
        recovery_points = self.checkpointer.read(data_dir, checkpoints.RECOVERY_POINTS) or {}
        log_starts = self.checkpointer.read(data_dir, checkpoints.LOG_START_OFFSETS) or {}
        cleaner_offsets = self.checkpointer.read(data_dir, checkpoints.CLEANER_OFFSETS) or {}
        high_watermarks = self.checkpointer.read(data_dir, checkpoints.HIGH_WATERMARKS) or {}
        self._watermarked |= {key for key, offset in high_watermarks.items() if offset > 0}
        data_dir.take_clean_marker()
        time_slice = TimeSlice(self.clock)
        self._counts[data_dir.path] = 0
        topics: dict[str, str] = {}  # one string for all partitions of a topic
        for name, partition in contents.partitions:
            key = (topics.setdefault(name, name), partition)
            if key in self._entries:
                raise DirectoryProblem(
                    f"partition {name}-{partition} is in {data_dir.path} and in another data "
                    "directory as well; move one of the two folders away"
                )
            path = f"{data_dir.path}/{partition_folder(*key)}"
            topic_id = await self._patiently(partial(self.read_topic_id, path, key))
            points = recovery_points.get(key, 0), log_starts.get(key, 0)
            entry = Unopened(data_dir, topic_id, *points)
            self._entries[key] = entry
            self._partitions.setdefault(key[0], set()).add(partition)
            self._counts[data_dir.path] += 1
            if key in high_watermarks:
                self._high_watermarks[key] = high_watermarks[key]
            if key in cleaner_offsets:
                self.cleaner.offsets[key] = cleaner_offsets[key]
            if not data_dir.was_clean:
                await self._patiently(partial(self._open, key, entry, clean=False))
            await time_slice.yield_if_over()
        for path in contents.deleted:
            self.remover.folder(path, self._config_of("").file_delete_delay_ms)
        for path, key in contents.futures:
            points = recovery_points.get(key, 0), log_starts.get(key, 0)
            self.moves.found(path, key, Unopened(data_dir, NO_TOPIC_ID, *points))
        if contents.partitions:
            logger.info(
                "%s: %d partitions %s", data_dir.path, len(contents.partitions),
                "found" if data_dir.was_clean else "recovered, for the last stop was not clean",
            )  # fmt: skip
        known = recovery_points.keys() | log_starts.keys() | cleaner_offsets.keys()
        if not known <= self._entries.keys():
            self.checkpointer.write_now(data_dir)

    def read_topic_id(self, directory: str, key: TopicPartition | None = None) -> bytes:
        """The topic id in a folder, zeros if it has none; notes the configs in that of `key`."""
        try:
            topic_id, configs, noted = checkpoints.read_partition_metadata(self.disk, directory)
        except OutOfDescriptors:
            raise
        except (CorruptCheckpoint, OSError) as error:
            logger.warning("%s; the topic's id is taken from the cluster", error)
            return NO_TOPIC_ID
        if configs is not None and key is not None:
            self.found_configs[key] = configs
        if key is not None and noted is not None and noted != key[1]:
            self._renamed[key] = noted
        return topic_id or NO_TOPIC_ID

    def keep_configs(self, topic: str, partitions: Iterable[int] | None = None) -> None:
        """Writes the topic's id and configs into the folders of its partitions (or of these)."""
        for partition in self._partitions.get(topic, ()) if partitions is None else partitions:
            entry = self._entries[topic, partition]
            if entry.topic_id != NO_TOPIC_ID and (topic, partition) not in self._renamed:
                data_dir = (
                    entry.data_dir if isinstance(entry, Unopened) else self.data_dir_of(entry)
                )
                directory = f"{data_dir.path}/{partition_folder(topic, partition)}"
                self._keep(directory, topic, entry.topic_id)

    def _keep(self, directory: str, topic: str, topic_id: bytes, is_new: bool = False) -> None:
        self.metadata_files.add(directory, topic_id, self.topic_configs_of(topic), is_new=is_new)

    def _folder_failed(self, directory: str, error: OSError) -> None:
        key = parse_folder(directory.rpartition("/")[2])
        entry = None if key is None else self._entries.get(key)
        if isinstance(entry, Log) and entry.directory == directory:
            entry.fail("its folder cannot be made", error)

    def partition_metadata(self, topic: str, partition: int, topic_id: bytes) -> bytes:
        """The content of `partition.metadata` in the folder of a partition."""
        configs = self.topic_configs_of(topic)
        return checkpoints.format_partition_metadata(topic_id, configs, partition)

    # Logs

    def found(self) -> list[FoundPartition]:
        """The partitions on disk."""
        return [
            FoundPartition(topic, partition, entry.topic_id)
            for (topic, partition), entry in self._entries.items()
        ]

    @property
    def last_broker_epoch(self) -> int:
        """The broker epoch that all data directories noted at a clean stop; -1 if there is none."""
        noted = {each.last_broker_epoch if each.was_clean else -1 for each in self.directories}
        return noted.pop() if len(noted) == 1 else checkpoints.NO_BROKER_EPOCH

    def directory_ids(self) -> dict[str, str]:
        """The paths of the data directories by their ids."""
        return {
            data_dir.meta.directory_id: data_dir.path
            for data_dir in self.directories
            if data_dir.meta is not None and data_dir.meta.directory_id is not None
        }

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def get(self, topic: str, partition: int) -> Log | None:
        """A partition's log, opened now if it was not before; None when there is none.

        Raises OutOfDescriptors when it cannot be opened now.
        """
        entry = self._entries.get((topic, partition))
        if isinstance(entry, Unopened):
            return self._open((topic, partition), entry, clean=True)
        return entry

    def checkpointed_high_watermark(self, topic: str, partition: int) -> int:
        """The high watermark in the checkpoint that the start found; 0 when it had none."""
        return self._high_watermarks.get((topic, partition), 0)

    def short(self) -> set[TopicPartition]:
        """At the start: partitions whose logs recovery has cut, that end below their checkpointed
        high watermark, or are gone. Logs that a clean stop has left unopened are not looked at.
        """
        short = self._watermarked - self._entries.keys()
        for log in self.opened():
            key = log.topic, log.partition
            short_of = self._high_watermarks.get(key, 0) - log.end_offset
            if short_of > 0 or log.set_aside_bytes > 0 or log.offline is not None:
                short.add(key)
        return short

    def opened(self) -> list[Log]:
        """The logs that are open."""
        return [entry for entry in self._entries.values() if isinstance(entry, Log)]

    def every(self) -> Iterator[Log]:
        """All logs, opened one after the other; partitions may come and go meanwhile.

        One that cannot be opened for want of a descriptor is left out.
        """
        for topic, partition in list(self._entries):
            log = self.get_if_possible(topic, partition)
            if log is not None:
                yield log

    def get_if_possible(self, topic: str, partition: int) -> Log | None:
        """As `get`; None also when it cannot be opened now, which is logged."""
        try:
            return self.get(topic, partition)
        except OutOfDescriptors as error:
            logger.warning("%s-%d: cannot be opened for now: %s", topic, partition, error)
            return None

    def _may_be_compacted(self, key: TopicPartition, entry: Unopened) -> bool:
        """Whether gaps between offsets are no damage, as far as the data directory can tell.

        The policy counts only where no checkpoint says how far the log was synced: we compact
        below the checkpointed recovery point, so a gap above it is loss.
        """
        return (
            self.from_kafka
            or key in self.cleaner.offsets
            or (entry.recovery_point == 0 and self._config_of(key[0]).compact)
        )

    def _open(self, key: TopicPartition, entry: Unopened, *, clean: bool) -> Log:
        log = self.open_at(f"{entry.data_dir.path}/{partition_folder(*key)}", key, entry, clean)
        self._admit(key, log)
        return log

    def open_at(
        self, directory: str, key: TopicPartition, entry: Unopened, clean: bool | None = None
    ) -> Log:
        """Opens the log in this folder, whatever its name; `clean`: None as the last stop was.

        One that cannot be read is offline.
        """
        topic, partition = key
        config = self._config_of(topic)
        now_ms = self.clock.now_ms()
        try:
            if key in self._renamed:
                # Its batches do not name their partition: other records would be served.
                raise ValueError(
                    f"the folder {directory} is that of partition {self._renamed[key]} of the "
                    "topic; rename it back, or delete it and copy the records from other replicas"
                )
            log = load_log(
                self.disk,
                directory,
                topic,
                partition,
                entry.topic_id,
                config,
                clean=entry.data_dir.was_clean if clean is None else clean,
                recovery_point=entry.recovery_point,
                log_start_offset=entry.log_start_offset,
                now_ms=now_ms,
                jitter_ms=self._jitter(config),
                compacted=self._may_be_compacted(key, entry),
            )
        except OutOfDescriptors:
            raise  # it says nothing about the log, which is opened another time
        except (OSError, ValueError) as error:
            # One partition that cannot be read takes nothing else down.
            log = Log(
                self.disk,
                directory,
                topic,
                partition,
                entry.topic_id,
                config,
                segments=[Segment(self.disk, directory, 0, created_ms=now_ms)],
                log_start_offset=0,
                recovery_point=entry.recovery_point,
                snapshots=[],
            )
            log.fail(f"cannot be loaded: {error}")
        return log

    def _admit(self, key: TopicPartition, log: Log) -> None:
        log.flush_wanted = self.flusher.soon
        self._entries[key] = log
        self._partitions.setdefault(key[0], set()).add(key[1])
        if log.config.flush_ms < FLUSH_MS_NEVER:
            self.flush_by_time[log] = None

    def _jitter(self, config: "LogConfig") -> int:
        jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
        return self._chance.integer(0, jitter_ms - 1) if jitter_ms > 0 else 0

    def create(self, topic: str, partition: int, topic_id: bytes) -> Log:
        """A new log, its folder made on a thread or by an append; or the one that is there."""
        key = (topic, partition)
        existing = self.get(topic, partition)
        if existing is not None:
            self.set_topic_id(existing, topic_id)
            return existing
        data_dir = self.preferred.pop(key, None) or min(
            self.directories, key=lambda data_dir: self._counts.get(data_dir.path, 0)
        )
        config = self._config_of(topic)
        directory = f"{data_dir.path}/{partition_folder(topic, partition)}"
        log = create_log(
            self.disk,
            directory,
            topic,
            partition,
            topic_id,
            config,
            now_ms=self.clock.now_ms(),
            jitter_ms=self._jitter(config),
        )
        self._renamed.pop(key, None)
        self._keep(directory, topic, topic_id, is_new=True)
        self._counts[data_dir.path] = self._counts.get(data_dir.path, 0) + 1
        self._admit(key, log)
        return log

    def replace(self, old: Log, new: Log) -> None:
        """A copy in another data directory takes the place of a log (moves.py)."""
        self._counts[self.data_dir_of(old).path] -= 1
        self._counts[self.data_dir_of(new).path] += 1
        self.flusher.forget(old)
        self.flush_by_time.pop(old, None)
        old.flush_wanted = None
        old.offline = old.offline or "it was replaced by a copy in another data directory"
        new.config = old.config
        self._admit((new.topic, new.partition), new)
        self._keep(new.directory, new.topic, new.topic_id)

    def set_topic_id(self, log: Log, topic_id: bytes) -> None:
        """Gives an id to a log whose folder had none; another id is another topic."""
        if log.topic_id == NO_TOPIC_ID:
            log.topic_id = topic_id
            self._keep(log.directory, log.topic, topic_id)
        elif log.topic_id != topic_id:
            raise ValueError(
                f"{log.directory} belongs to the topic id {checkpoints.uuid_text(log.topic_id)}, "
                f"not to {checkpoints.uuid_text(topic_id)}; delete it first"
            )

    def has_segments(self, topic: str, partition: int) -> bool:
        """Whether the partition's folder contains the file of a segment."""
        log = self.get(topic, partition)
        return log is not None and any(
            name.endswith(LOG) for name in self.disk.listdir(log.directory)
        )

    def topic_id(self, topic: str, partition: int) -> bytes | None:
        """The topic id of a partition's folder, all zeros if it has none; None without a folder."""
        entry = self._entries.get((topic, partition))
        return None if entry is None else entry.topic_id

    async def delete(self, keys: Iterable[TopicPartition], *, stray: bool = False) -> None:
        """Takes partitions away: renamed at once, removed from the disk some time later.

        A stray partition keeps its files, in a folder that no start looks into (as Kafka's).
        When it returns the checkpoints have forgotten them; only then may they be made again.
        Raises OSError after all others are taken away when some cannot be: those stay known, so
        that nothing is made in their folders. `delete` can be repeated, also after a failed sync.
        """
        data_dirs, self._not_synced = self._not_synced, {}
        failure: OSError | None = None
        keys, time_slice = list(keys), TimeSlice(self.clock)
        await self.metadata_files.withdraw(
            f"{data_dir.path}/{partition_folder(*key)}"
            for data_dir in self.directories
            for key in keys
        )
        for key in keys:
            await self.moves.settled(key)
            entry = self._entries.get(key)
            if isinstance(entry, Log):
                await self.cleaner.abort(entry)
            try:
                data_dir = self._retire(key, stray)
            except OSError as error:
                failure = failure or error
            else:
                if data_dir is not None:
                    data_dirs[data_dir.path] = data_dir
            await time_slice.yield_if_over()
        try:
            for path in data_dirs:
                await self.background.thread(self.disk.sync_directory, path)
            await self.checkpointer.write(data_dirs.values())
        except OSError:
            self._not_synced |= data_dirs
            raise
        if failure is not None:
            raise failure

    def _retire(self, key: TopicPartition, stray: bool) -> DataDirectory | None:
        """Renames a partition's folder, and forgets the partition if that succeeds."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        data_dir = entry.data_dir if isinstance(entry, Unopened) else self.data_dir_of(entry)
        if isinstance(entry, Log):
            self.flusher.forget(entry)
            self.flush_by_time.pop(entry, None)
            entry.flush_wanted = None
            entry.offline = entry.offline or "the partition was deleted"
        folder = f"{data_dir.path}/{partition_folder(*key)}"
        suffix = STRAY_SUFFIX if stray else DELETE_SUFFIX
        renamed = f"{data_dir.path}/{renamed_folder(*key, self._chance.uuid().hex(), suffix)}"
        try:
            self.disk.rename(folder, renamed)
        except FileNotFoundError:
            renamed = ""
        self._forget(key, data_dir)
        if renamed and stray:
            logger.warning("%s is kept as %s: no replica here has it", folder, renamed)
        elif renamed:
            self.remover.folder(renamed, self._config_of(key[0]).file_delete_delay_ms)
        return data_dir

    def _forget(self, key: TopicPartition, data_dir: DataDirectory) -> None:
        del self._entries[key]
        siblings = self._partitions[key[0]]
        siblings.discard(key[1])
        if not siblings:
            del self._partitions[key[0]]
        self._counts[data_dir.path] -= 1
        self._high_watermarks.pop(key, None)
        self.cleaner.forget(key)

    def data_dir_of(self, log: Log) -> DataDirectory:
        """The data directory in which a log is."""
        parent = log.directory.rpartition("/")[0]
        return next(data_dir for data_dir in self.directories if data_dir.path == parent)

    def configure(self, topic: str, config: "LogConfig") -> None:
        """A topic's config has changed; logs not opened yet get it then."""
        for partition in self._partitions.get(topic, ()):
            entry = self._entries[topic, partition]
            if isinstance(entry, Log):
                self._configure(entry, config)

    def configure_all(self) -> None:
        """The config of every topic may have changed, for the broker's defaults have."""
        for log in self.opened():
            self._configure(log, self._config_of(log.topic))

    def _configure(self, log: Log, config: "LogConfig") -> None:
        log.config = config
        if config.flush_ms < FLUSH_MS_NEVER:
            self.flush_by_time[log] = None
        else:
            self.flush_by_time.pop(log, None)

    # For the cleaner and the periodic work

    def _compacted(self) -> Iterator[Log | None]:
        """The compacted logs, and None for each other, so that a long walk can yield."""
        for topic, partitions in list(self._partitions.items()):
            if not self._config_of(topic).compact:
                yield None
                continue
            for partition in list(partitions):
                yield self.get_if_possible(topic, partition)

    async def _secure(self, log: Log) -> None:
        """Before a compaction: all of the log is synced, the checkpoint says so, and a sign in the
        folder says that gaps are no damage from now on.
        """
        await self.background.thread(mark_compacted, self.disk, log.directory)
        await self.flusher.flush([log], indexes=True)
        await self.checkpointer.write([self.data_dir_of(log)], [checkpoints.RECOVERY_POINTS])

    def _last_stable_offset(self, log: Log) -> int:
        high_watermark = self.high_watermark_of(log)
        first_unstable = log.first_unstable_offset(high_watermark)
        return high_watermark if first_unstable is None else min(high_watermark, first_unstable)

    @property
    def set_aside_bytes(self) -> int:
        """The bytes cut from logs since the start, and kept as `.corrupt`."""
        return sum(log.set_aside_bytes for log in self.opened())

    def _offsets_in(self, data_dir: DataDirectory) -> dict[str, Offsets]:
        """What the checkpoints of a directory should say now."""
        recovery_points: Offsets = {}
        log_starts: Offsets = {}
        high_watermarks: Offsets = {}
        only_data_dir = len(self.directories) == 1
        for key, entry in self._entries.items():
            if isinstance(entry, Unopened):
                if entry.data_dir is data_dir:
                    recovery_points[key] = entry.recovery_point
                    high_watermarks[key] = self._high_watermarks.get(key, 0)
                    if entry.log_start_offset:
                        log_starts[key] = entry.log_start_offset
            elif only_data_dir or self.data_dir_of(entry) is data_dir:
                recovery_points[key] = entry.recovery_point
                high_watermarks[key] = self.high_watermark_of(entry)
                if entry.log_start_offset > entry.segments[0].base_offset:
                    log_starts[key] = entry.log_start_offset
        for future in self.moves.futures():
            if future.data_dir is data_dir and future.checkpointed:
                key, log = future.key, future.log
                recovery_points[key] = log.recovery_point
                high_watermarks[key] = self.high_watermark_of(future.source)
                if log.log_start_offset > log.segments[0].base_offset:
                    log_starts[key] = log.log_start_offset
        return {
            checkpoints.RECOVERY_POINTS: recovery_points,
            checkpoints.LOG_START_OFFSETS: log_starts,
            checkpoints.HIGH_WATERMARKS: high_watermarks,
            checkpoints.CLEANER_OFFSETS: {
                key: offset
                for key, offset in self.cleaner.offsets.items()
                if key in recovery_points
            },
        }

    # The end

    def begin_upkeep(self) -> None:
        """Sets the periodic work going; the broker is ready."""
        self._upkeep_begun = True
        self._periodic.begin()
        self.moves.begin_found()

    async def close(self, broker_epoch: int = checkpoints.NO_BROKER_EPOCH) -> None:
        """Syncs what is not yet, writes all checkpoints, marks the stop as clean, unlocks."""
        try:
            await self._periodic.stop()
            await self.moves.stop()
            await self.metadata_files.settle()
            await self.flusher.settle()
            time_slice = TimeSlice(self.clock)
            dirty = []
            for log in self._all_opened():
                if finish(log):
                    dirty.append(log)
                await time_slice.yield_if_over()
            await self.flusher.flush(dirty, indexes=True)
            for future in self.moves.futures():
                future.checkpointed = future.log.offline is None
            for log in self._all_opened():
                for segment in log.segments:
                    segment.close()
                await time_slice.yield_if_over()
            await self.checkpointer.write(self.directories)
            await self.remover.close()
            for data_dir in self.directories:
                if self._all_sound(data_dir):
                    data_dir.mark_clean(broker_epoch)
        except OSError as error:
            # A start that fails says why by itself; this would only hide it.
            level = logging.ERROR if self._upkeep_begun else logging.DEBUG
            logger.log(level, "the stop is not marked as clean, the next start recovers: %s", error)
        finally:
            self._release()

    def _all_sound(self, data_dir: DataDirectory) -> bool:
        """A log that went offline, or could not be synced, must be recovered at the next start: no
        clean marker then.
        """
        return not any(
            (log.offline is not None or log.recovery_point < log.end_offset)
            and self.data_dir_of(log) is data_dir
            for log in self._all_opened()
        )

    def _all_opened(self) -> list[Log]:
        return [*self.opened(), *(future.log for future in self.moves.futures())]

    def _release(self) -> None:
        for data_dir in self.directories:
            data_dir.release()

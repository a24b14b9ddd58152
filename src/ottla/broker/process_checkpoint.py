"""`process-checkpoint`: whose writes to the data directories are all still there.

A process that is killed loses nothing: what it wrote is in the page cache of a machine that goes
on. A machine that loses power loses what was not synced, unless nothing was acknowledged before it
was (log.flush.before.ack). So a broker notes its incarnation and the boot of its machine in each
data directory before it registers. The next process finds out whether the one that the controller
knows can have lost anything; if not, its stop counts as a clean one, and it stays in ISR and ELR.

A data directory that was copied may be older than what its broker acknowledged since: a copy of the
file counts as none. Where the system has no name for its boot, every stop that was not clean counts
as a loss. So does the rest: a sync has failed, a log is damaged at its end, or ends below its
checkpointed high watermark, or is gone, or a segment of it does not reach to the next.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.log.checkpoints import HIGH_WATERMARKS, NO_BROKER_EPOCH, write_offsets
from ottla.log.manager import NO_TOPIC_ID
from ottla.log.scrubber import Scrubber
from ottla.log.upkeep import TimeSlice

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.cluster.image import ClusterImage
    from ottla.log.log import Log
    from ottla.seams.disk import Disk

log = logging.getLogger("ottla.broker")

PROCESS_CHECKPOINT = "process-checkpoint"
VERSION = 0


class Noted(NamedTuple):
    """What the file in one data directory says."""

    # The process that wrote it, and the one before, if nothing was lost between them: a process
    # that is killed before it has registered leaves the one before known to the controller.
    incarnations: tuple[str, ...]
    boot_id: str  # empty: not known
    synced: bool  # nothing was acknowledged before it was synced

    def is_kept(self, boot_id: str) -> bool:
        """Whether all that these processes acknowledged is there, in the present boot."""
        return self.synced or self.boot_id == boot_id != ""


class ProcessCheckpoint:
    """What one broker reads at its start about the processes before, and notes about its own."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def begin(self, image: ClusterImage) -> int:
        """Note this process, which is about to register, if it is one of a cluster.

        Returns the epoch of the registration before if nothing was lost since then, else -1.
        """
        broker, last_epoch = self._broker, self._broker.logs.last_broker_epoch
        if not broker.in_cluster:
            return last_epoch
        boot_id = broker.disk.boot_id()
        found = [read(broker.disk, path) for path in self._paths()]
        damaged = await self._open_electable(image)
        epoch = self._previous_epoch(image, damaged, kept_incarnations(found, boot_id))
        known = image.brokers.get(broker.node_id)
        synced = broker.group_commit is not None
        incarnations = [broker.incarnation.hex()]
        if known is not None and known.epoch == epoch:
            incarnations.append(known.incarnation.hex())
            # What the process before acknowledged and did not sync is un-synced to this day.
            if last_epoch == NO_BROKER_EPOCH:
                synced &= all(each is not None and each.synced for each in found)
        noted = Noted(tuple(incarnations), boot_id, synced)
        try:
            await broker.background.thread(write, broker.disk, self._paths(), noted)
        except OSError as error:
            # It names another incarnation: the next stop counts as a loss unless it is clean.
            log.warning("%s cannot be written: %s", PROCESS_CHECKPOINT, error)
        return epoch

    async def withdraw(self) -> None:
        """A sync has failed: the next process must not take what is there for all there was."""
        broker = self._broker
        try:
            await broker.background.thread(remove, broker.disk, self._paths())
        except OSError as error:
            log.error("%s cannot be removed: %s", PROCESS_CHECKPOINT, error)

    async def _open_electable(self, image: ClusterImage) -> set[tuple[str, int]]:
        """Open the logs that this broker may lead before it has copied anything.

        A clean stop leaves logs unopened, and only open ones tell whether records are missing: a
        file was cut meanwhile, or a folder exchanged for an older one. These are few unless all
        brokers were stopped. Returns those with other replicas that lack records in their middle.
        """
        broker, time_slice = self._broker, TimeSlice(self._broker.clock)
        damaged: set[tuple[str, int]] = set()
        scrubber = Scrubber(
            broker.logs,
            broker.chance,
            limit_of=broker.repairs.limit_of,
            damaged=lambda found, _: damaged.add((found.topic, found.partition)),
        )
        watermarks_known = all(each.had_watermarks for each in broker.logs.directories)
        for topic in image.topics.values():
            # The image is not in use yet: the logs do not know.
            compact = broker.settings.log_config(image.configs_of(topic.name)).compact
            for partition in topic.partitions:
                electable = (*partition.isr, *partition.elr, partition.last_known_leader)
                if broker.node_id in electable:
                    found = broker.logs.get_if_possible(topic.name, partition.index)
                    if len(partition.replicas) > 1:
                        if found is not None and not compact:
                            await self._check_ends(scrubber, found)
                        if not watermarks_known and is_nothing(found):
                            damaged.add((topic.name, partition.index))
                    await time_slice.yield_if_over()
        return damaged

    async def _check_ends(self, scrubber: Scrubber, found: Log) -> None:
        try:
            await scrubber.check_ends(found, urgent=True)
        except OSError as error:
            log.warning("%s: its segments cannot be looked at for now: %s", found.name, error)

    def _previous_epoch(
        self, image: ClusterImage, damaged: set[tuple[str, int]], kept: Collection[str]
    ) -> int:
        lacking = self._lacking(image, self._broker.logs.short() | damaged)
        if lacking is not None:
            log.error("%s lacks records that it had: they are copied from other replicas", lacking)
            return NO_BROKER_EPOCH
        last_epoch = self._broker.logs.last_broker_epoch
        if last_epoch != NO_BROKER_EPOCH:
            return last_epoch
        known = image.brokers.get(self._broker.node_id)
        if known is None or known.incarnation.hex() not in kept:
            return NO_BROKER_EPOCH
        return known.epoch

    def _paths(self) -> list[str]:
        return [each.path for each in self._broker.logs.directories]

    def _lacking(self, image: ClusterImage, short: set[tuple[str, int]]) -> str | None:
        """The first replica here that has lost records, as far as its log tells."""
        node_id = self._broker.node_id
        if not short:
            return None
        for topic in image.topics.values():
            for partition in topic.partitions:
                if node_id in partition.replicas and (topic.name, partition.index) in short:
                    return f"{topic.name}-{partition.index}"
        return None


def kept_incarnations(found: Sequence[Noted | None], boot_id: str) -> set[str]:
    """The processes that all data directories name, and after which nothing was lost."""
    kept = [
        set(each.incarnations) if each is not None and each.is_kept(boot_id) else set()
        for each in found
    ]
    return set.intersection(*kept) if kept else set()


def is_nothing(found: Log | None) -> bool:
    """Whether nothing is left of a replica: its folder or all files in it were removed.

    Where a checkpoint has high watermarks, that tells whether anything was there: the folder of a
    new topic may not have been made yet.
    """
    return found is None or (found.end_offset == 0 and found.topic_id == NO_TOPIC_ID)


def read(disk: Disk, directory: str) -> Noted | None:
    """What was noted last; None when there is no file, a copy, or none that can be parsed."""
    path = f"{directory}/{PROCESS_CHECKPOINT}"
    try:
        data = disk.read_original(path)
        if data is None:
            log.warning("%s: copied or changed, and left out of account", path)
            return None
        fields = json.loads(data)
        if fields["version"] != VERSION:
            return None
        incarnations = tuple(map(str, fields["incarnations"]))
        return Noted(incarnations, str(fields["bootId"]), fields["synced"] is True)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s: cannot be read, and left out of account: %s", path, error)
        return None


def write(disk: Disk, directories: Iterable[str], noted: Noted) -> None:
    """On a thread; returns when it is on the device."""
    fields = {
        "version": VERSION,
        "incarnations": noted.incarnations,
        "bootId": noted.boot_id,
        "synced": noted.synced,
    }
    data = json.dumps(fields).encode() + b"\n"
    for directory in directories:
        disk.write_original(f"{directory}/{PROCESS_CHECKPOINT}", data)
        # From now on one that is not there was removed: see is_nothing.
        if not disk.exists(f"{directory}/{HIGH_WATERMARKS}"):
            write_offsets(disk, directory, HIGH_WATERMARKS, {})


def remove(disk: Disk, directories: Iterable[str]) -> None:
    """On a thread; returns when the device has forgotten it."""
    for directory in directories:
        disk.unlink(f"{directory}/{PROCESS_CHECKPOINT}", missing_ok=True)
        disk.sync_directory(directory)

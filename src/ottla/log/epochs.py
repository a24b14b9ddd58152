"""Which leader epoch began at which offset: how replicas find where their logs part (KIP-101, 279).

A list of (epoch, start offset), both increasing, kept in `leader-epoch-checkpoint` as Kafka does.
Epochs are few, so lists and loops are enough. Changes are written when the log says so, not at
every start: 10,000 idle partitions whose epoch has risen must not cost 10,000 files.
"""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.log.segment import Segment
    from ottla.seams.disk import Disk

logger = logging.getLogger("ottla.log")

CHECKPOINT = "leader-epoch-checkpoint"
CHECKPOINT_VERSION = 0
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEntry(NamedTuple):
    """A leader's epoch and the first offset it could write."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """The epochs of one log."""

    __slots__ = ("_disk", "_entries", "directory", "dirty")

    def __init__(self, disk: Disk, directory: str, entries: list[EpochEntry] | None = None) -> None:
        self._disk = disk
        self.directory = directory
        self._entries = entries or []
        self.dirty = False

    @property
    def entries(self) -> list[EpochEntry]:
        return self._entries

    @property
    def latest(self) -> int:
        return self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` begins at `start_offset`; False when it is known already.

        Entries that begin at or after it, or with a higher epoch, were never replicated: they go.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"no leader epoch {epoch} can start at offset {start_offset}")
        entries = self._entries
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochEntry(epoch, start_offset))
        self.dirty = True
        return True

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at `end_offset`: epochs that begin there or later are gone."""
        keep = [entry for entry in self._entries if entry.start_offset < end_offset]
        if len(keep) < len(self._entries):
            self._entries = keep
            self.dirty = True

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now begins at `start_offset`: what lies wholly before goes, the rest begins
        there.
        """
        before = [entry for entry in self._entries if entry.start_offset <= start_offset]
        if (before and before[-1].start_offset < start_offset) or len(before) > 1:
            rest = self._entries[len(before) :]
            self._entries = [EpochEntry(before[-1].epoch, start_offset), *rest]
            self.dirty = True

    def clear(self) -> None:
        if self._entries:
            self._entries = []
            self.dirty = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch not above `epoch`, and where it ended; (-1, -1) when unknown.

        The current epoch ends where the log does. Below the first known epoch the answer is the
        first entry's start: nothing that a follower has from there on survives (KIP-279).
        """
        entries = self._entries
        if epoch == UNDEFINED_EPOCH or not entries:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == entries[-1].epoch:
            return epoch, log_end_offset
        later = [entry for entry in entries if entry.epoch > epoch]
        if not later:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET  # ahead of all we know
        earlier = entries[: len(entries) - len(later)]
        return (earlier[-1].epoch if earlier else epoch), later[0].start_offset

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch that wrote `offset`, or -1."""
        for entry in reversed(self._entries):
            if entry.start_offset <= offset:
                return entry.epoch
        return UNDEFINED_EPOCH

    def write(self, *, sync: bool) -> None:
        self._disk.write_atomically(
            f"{self.directory}/{CHECKPOINT}", format_entries(self._entries), sync=sync
        )
        self.dirty = False


def load_epochs(disk: Disk, directory: str, segments: list[Segment]) -> LeaderEpochs:
    """From the file; from the log itself when the file is missing or cannot be understood.

    A log without epochs would not be cut where it parts from its leader's.
    """
    path = f"{directory}/{CHECKPOINT}"
    try:
        return LeaderEpochs(disk, directory, parse(disk.read(path)))
    except FileNotFoundError as problem:
        if not any(segment.size_bytes for segment in segments):
            return LeaderEpochs(disk, directory)
        logger.warning("leader epochs are read from the log instead: %s", problem)
        epochs = LeaderEpochs(disk, directory, epochs_of(segments))
        epochs.dirty = True
        return epochs
    except ValueError as problem:
        logger.warning("%s: leader epochs are read from the log instead: %s", path, problem)
        epochs = LeaderEpochs(disk, directory, epochs_of(segments))
        epochs.dirty = True
        return epochs


def epochs_of(segments: list[Segment]) -> list[EpochEntry]:
    """The epochs that the batches bear. Only segments in which the epoch changes are walked."""
    found: list[EpochEntry] = []
    filled = [segment for segment in segments if segment.size_bytes]
    firsts = [next(segment.batches(strict=False), None) for segment in filled]
    for at, segment in enumerate(filled):
        after = firsts[at + 1] if at + 1 < len(filled) else None
        known = found[-1].epoch if found else UNDEFINED_EPOCH
        if after is not None and after.leader_epoch == known:
            continue
        for batch in segment.batches(strict=False):
            if batch.leader_epoch > known:
                known = batch.leader_epoch
                found.append(EpochEntry(known, batch.base_offset))
    return found


def format_entries(entries: list[EpochEntry]) -> bytes:
    lines = [
        str(CHECKPOINT_VERSION),
        str(len(entries)),
        *(f"{e.epoch} {e.start_offset}" for e in entries),
    ]
    return ("\n".join(lines) + "\n").encode()


def parse(data: bytes) -> list[EpochEntry]:
    """The entries of a checkpoint file; ValueError when it is torn or was never one."""
    lines = data.decode("ascii").splitlines()
    if len(lines) < 2 or int(lines[0]) != CHECKPOINT_VERSION:
        raise ValueError("not a leader epoch checkpoint of version 0")
    found = []
    for line in lines[2:]:
        epoch, start_offset = line.split(" ")
        found.append(EpochEntry(int(epoch), int(start_offset)))
    if len(found) != int(lines[1]) or not data.endswith(b"\n"):
        raise ValueError(f"{lines[1]} entries stated, {len(found)} found")
    for before, after in itertools.pairwise(found):
        if after.epoch <= before.epoch or after.start_offset < before.start_offset:
            raise ValueError(f"{after} follows {before}")
    return found

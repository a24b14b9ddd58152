"""`metadata-checkpoint`: which state of the metadata tree the data directory was last used with.

It names the tree, and how many writes it had had when the broker last registered or received a
block of producer ids. One with fewer is a copy from an earlier time, put back by an operator. It
lacks the producer ids, leader epochs, partitions and configs that came after, and so may another
tree: see adoption.py.

It also names the data directories. One that is missing at a start, because it is not mounted or was
taken from `log.dirs`, took its partitions with it. They stay offline, as in Kafka: if they began
empty in another directory, consumers would take the records in it for deleted.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.log.checkpoints import read_if_there

if TYPE_CHECKING:
    from ottla.seams.disk import Disk

log = logging.getLogger("ottla.broker")

METADATA_CHECKPOINT = "metadata-checkpoint"
VERSION = 0


class MetadataCheckpoint(NamedTuple):
    """What the file says."""

    tree: TreeState
    directories: Mapping[str, str]  # path by directory id


class TreeState(NamedTuple):
    """A state that a tree has been in."""

    identity: int  # the same in all copies of a tree
    writes: int

    def includes(self, other: TreeState) -> bool:
        """Whether all that was in the other state is in this one, or was changed since."""
        return self.identity == other.identity and self.writes >= other.writes


def read_metadata_checkpoint(disk: Disk, directory: str) -> MetadataCheckpoint | None:
    """What was noted last; None when there is no file, or none that can be parsed."""
    path = f"{directory}/{METADATA_CHECKPOINT}"
    data = read_if_there(disk, path)
    if data is None:
        return None
    try:
        fields = json.loads(data)
        if fields["version"] == VERSION:
            tree = TreeState(int(fields["tree"]), int(fields["writes"]))
            return MetadataCheckpoint(tree, dict(fields.get("directories", {})))
        reason = f"version {fields['version']}"
    except (ValueError, KeyError, TypeError) as error:
        reason = str(error)
    log.warning("%s: cannot be parsed, all partitions are looked at instead: %s", path, reason)
    return None


def write_metadata_checkpoint(disk: Disk, directory: str, noted: MetadataCheckpoint) -> None:
    """Returns when it is on the device."""
    fields = {
        "version": VERSION,
        "tree": noted.tree.identity,
        "writes": noted.tree.writes,
        "directories": dict(noted.directories),
    }
    data = json.dumps(fields).encode()
    disk.write_atomically(f"{directory}/{METADATA_CHECKPOINT}", data + b"\n", sync=True)

"""`controller-epoch`: the highest epoch of a controller that a data directory has followed.

The shared tree of a cluster raises that epoch with each controller. A tree with a lower one is an
earlier copy that an operator has put back, or a new one in the place of one that was removed. Its
leader epochs are older than those in the logs: replicas could not be told apart by them, and would
be cut where they should not. A broker that has seen more therefore neither follows such a tree nor
becomes its controller.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.log.checkpoints import read_if_there
from ottla.metadata_store.tree import CorruptTree

if TYPE_CHECKING:
    from ottla.seams.disk import Disk

log = logging.getLogger("ottla.broker")

CONTROLLER_EPOCH_FILE = "controller-epoch"


class ControllerEpoch:
    """What one broker has seen."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{CONTROLLER_EPOCH_FILE}"
        self.seen = 0

    def read(self) -> None:
        """Read what was noted before this start; a file that says nothing counts as none."""
        data = read_if_there(self._disk, self._path)
        try:
            self.seen = 0 if data is None else int(data)
        except ValueError:
            log.warning("%s is damaged, and left out of account", self._path)

    def check(self, epoch: int, tree_path: str) -> None:
        """Raise CorruptTree with a sentence for an operator if a tree's epoch is too low."""
        if epoch < self.seen:
            raise CorruptTree(
                tree_path,
                f"the metadata tree is older than this broker's data (controller epoch {epoch}, "
                f"seen {self.seen}); put the newest copy back, or move {self._path} of every "
                "broker away to go on with this one, which may cost records",
            )

    def note(self, epoch: int) -> None:
        """This epoch's controller is followed."""
        if epoch <= self.seen:
            return
        self.seen = epoch
        try:
            self._disk.write_atomically(self._path, f"{epoch}\n".encode(), sync=False)
        except OSError as error:
            # A full disk must not keep the broker from following.
            log.warning("%s cannot be written: %s", self._path, error)

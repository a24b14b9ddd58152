"""`controller-epoch`: the newest state of a cluster's tree that a data directory has followed.

The tree of a cluster raises its controller's epoch with each controller, and counts its writes. One
with a lower epoch, or with fewer writes, is an earlier copy that an operator has put back, or a new
one in the place of one that was removed. Its leader epochs are older than those in the logs:
replicas could not be told apart by them, and would be cut where they should not; and its ISRs have
members that lack records. A broker that has seen more therefore neither follows such a tree nor
becomes its controller.

What is noted is up to NOTE_EVERY_S old, so a copy from the last moment before a crash passes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.log.checkpoints import read_if_there
from ottla.metadata_store.tree import CorruptTree

if TYPE_CHECKING:
    from ottla.seams.clock import Clock, Timer
    from ottla.seams.disk import Disk

log = logging.getLogger("ottla.broker")

SEEN_TREE_FILE = "controller-epoch"
NOTE_EVERY_S = 1.0
NOT_COUNTED = -1


class SeenTree:
    """What one broker has seen: the epoch of a controller, and writes while that was in force."""

    def __init__(self, disk: Disk, directory: str, clock: Clock, tree_path: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{SEEN_TREE_FILE}"
        self._clock = clock
        self._tree_path = tree_path
        self._timer: Timer | None = None
        self._noted = (0, NOT_COUNTED)
        self.epoch = 0
        self.writes = NOT_COUNTED
        self._answered = (NOT_COUNTED, NOT_COUNTED)

    def read(self) -> None:
        """Read what was noted before this start; a file that says nothing counts as none."""
        data = read_if_there(self._disk, self._path)
        try:
            epoch, *writes = map(int, (data or b"0").split())
            self.epoch, self.writes = epoch, writes[0] if writes else NOT_COUNTED
        except ValueError:
            log.warning("%s is damaged, and left out of account", self._path)
        self._noted = self.epoch, self.writes

    def answered(self, opened_at: int, writes: int) -> None:
        """A controller has answered: its tree had so many writes when it opened it, and has now."""
        self._answered = opened_at, writes

    def check_controller(self, epoch: int) -> None:
        """Raise CorruptTree if the controller that has answered is one of an earlier tree."""
        if epoch != self.epoch:  # not the one that was followed before
            self.check(epoch, self._answered[0])

    def check(self, epoch: int, writes: int = NOT_COUNTED) -> None:
        """Raise CorruptTree, with a sentence for an operator, if a tree is too old: one that had a
        controller of this epoch, and so many writes, before another one opened it.
        """
        if epoch < self.epoch:
            found = f"controller epoch {epoch}, seen {self.epoch}"
        elif 0 <= writes < self.writes:
            found = f"write {writes}, seen {self.writes}, of controller epoch {self.epoch}"
        else:
            return
        raise CorruptTree(
            self._tree_path,
            f"the metadata tree is older than this broker's data ({found}); put the newest copy "
            f"back, or move {self._path} of every broker away to go on with this one, which may "
            "cost records",
        )

    def note(self, epoch: int) -> None:
        """The controller of this epoch is followed, with the tree as it was answered last.

        Written at once, but not much more than once in NOTE_EVERY_S.
        """
        self.epoch, self.writes = max((epoch, self._answered[1]), (self.epoch, self.writes))
        if self._timer is None:
            self._write()
            self._timer = self._clock.call_later(NOTE_EVERY_S, self._later)

    def close(self) -> None:
        """Write what is not written yet."""
        if self._timer is not None:
            self._timer.cancel()
        self._write()

    def _later(self) -> None:
        self._timer = None
        self._write()

    def _write(self) -> None:
        seen = self.epoch, self.writes
        if seen == self._noted:
            return
        try:
            data = f"{self.epoch} {self.writes}\n".encode()
            self._disk.write_atomically(self._path, data, sync=False)
            self._noted = seen
        except OSError as error:
            # A full disk must not keep the broker from following.
            log.warning("%s cannot be written: %s", self._path, error)

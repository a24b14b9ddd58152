"""Temporary directories of a driver that do not outlive it for long, even if it is killed.

The owner holds a lock of the kernel's on a file in the directory, which ends with the process. The
next one that makes a directory of the same kind removes those whose lock nobody holds.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

LOCK = "owner.lock"


class OwnedDirectory:
    """A new directory with this prefix; `remove` is for its owner, and may be called twice."""

    def __init__(self, prefix: str) -> None:
        self.parent = Path(tempfile.gettempdir())
        sweep(self.parent, prefix)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=self.parent))
            self._lock: int | None = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if (self.path / LOCK).exists():
                break
            os.close(self._lock)  # another sweep came between the file and the lock

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def sweep(parent: Path, prefix: str) -> None:
    """Remove the directories of this user whose owners have ended; one without a lock is not ours
    to judge."""
    for directory in parent.glob(f"{prefix}*"):
        with suppress(OSError):
            if directory.is_symlink() or directory.stat().st_uid != os.getuid():
                continue
            lock = os.open(directory / LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(lock)

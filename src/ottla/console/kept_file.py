"""A SQLite file that is deleted or moved while it is open.

SQLite writes on into a file that no name leads to any more, and the next start finds nothing. So
what is open is written once more under the name.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

BESIDE = ("-wal", "-shm")  # what SQLite keeps beside a file

log = logging.getLogger("ottla.console")
Identity = tuple[int, int]


def identity_of(path: Path) -> Identity | None:
    """Which file the name leads to; None: to none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


class KeptFile:
    """The file of one or several open connections."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity = identity_of(path)
        self._told = False

    def gone(self) -> bool:
        """Whether no file has the name. Another file there is left alone, and told of once."""
        now = identity_of(self.path)
        if now is not None and now != self._identity and not self._told:
            self._told = True
            log.error(
                "%s is another file than the one that this console has open: what is written now "
                "is lost; restart the console to use the new one",
                self.path,
            )
        return now is None

    def write_again(self, source: sqlite3.Connection, close: Callable[[], None]) -> None:
        """All that `source` has, under the name. `close` ends all connections to the old file,
        before the name leads to the new one: SQLite removes by name what lies beside a file. Raises
        sqlite3.Error, and then nothing is closed."""
        try:
            self._write_again(source, close)
        except OSError as error:
            reason = error.strerror or str(error)
            raise sqlite3.OperationalError(f"it is gone and cannot be made: {reason}") from None
        log.error("%s was deleted or moved: it is written again, with all that it had", self.path)

    def _write_again(self, source: sqlite3.Connection, close: Callable[[], None]) -> None:
        new = self.path.with_name(f"{self.path.name}.new")
        for each in ("", *BESIDE):
            new.with_name(new.name + each).unlink(missing_ok=True)
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new.touch(mode=0o600)
        with closing(sqlite3.connect(new)) as copy:
            source.backup(copy)
        close()
        for each in BESIDE:
            self.path.with_name(self.path.name + each).unlink(missing_ok=True)
        new.replace(self.path)
        self._identity = identity_of(self.path)
        self._told = False

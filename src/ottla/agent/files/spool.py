"""What a spooling directory holds, and how a file that is read is marked: Flume's rules."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum

from ..matching.bounded import Bounded
from .listing import Found, stat_file

ALL = Bounded(".*", "includePattern", whole=True)
NONE = Bounded("", "ignorePattern", whole=True)


class ConsumeOrder(Enum):
    OLDEST = "oldest"
    YOUNGEST = "youngest"
    RANDOM = "random"  # as the directory lists them


class SpoolError(RuntimeError):
    """A file is not as the rules of a spooling directory want it: the source ends."""


@dataclass(slots=True)
class SpoolRules:
    directory: str
    file_suffix: str = ".COMPLETED"
    delete: bool = False  # deletePolicy immediate
    tracker_directory: str | None = None  # trackingPolicy tracker_dir
    include: Bounded[str] = ALL
    ignore: Bounded[str] = NONE
    recursive: bool = False
    order: ConsumeOrder = ConsumeOrder.OLDEST

    def check(self) -> None:
        """Raises SpoolError if the directory cannot be used."""
        if not os.path.isdir(self.directory):
            raise SpoolError(f"Directory does not exist: {self.directory}")
        if self.tracker_directory is not None:
            os.makedirs(self.tracker_directory, exist_ok=True)
        elif not os.access(self.directory, os.W_OK | os.X_OK):
            raise SpoolError(f"Files in the spooling directory cannot be renamed: {self.directory}")

    def find(self) -> tuple[list[Found], list[str]]:
        """Files to read, in order, and the directories that they are in."""
        found: list[Found] = []
        directories: list[str] = []
        waiting = [self.directory]
        while waiting:
            directory = waiting.pop()
            directories.append(directory)
            try:
                entries = list(os.scandir(directory))
            except OSError:
                continue
            for entry in entries:
                if entry.name.startswith(".") or self.ignore.fullmatch(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if self.recursive:
                        waiting.append(entry.path)
                elif self._is_candidate(entry.name, entry.path):
                    seen = stat_file(entry.path, None)
                    if seen is not None:
                        found.append(seen)
        if self.order is ConsumeOrder.OLDEST:
            found.sort(key=lambda each: (each.modified_ns, os.path.basename(each.path)))
        elif self.order is ConsumeOrder.YOUNGEST:
            found.sort(key=lambda each: (-each.modified_ns, os.path.basename(each.path)))
        return found, directories

    def _is_candidate(self, name: str, path: str) -> bool:
        if (self.file_suffix and name.endswith(self.file_suffix)) or not self.include.fullmatch(
            name
        ):
            return False
        return self.tracker_directory is None or not os.path.exists(self._mark_of(path))

    def _mark_of(self, path: str) -> str:
        assert self.tracker_directory is not None
        relative = os.path.relpath(path, self.directory)
        return os.path.join(self.tracker_directory, relative + self.file_suffix)

    def retire(self, found: Found) -> None:
        """Marks or deletes a file that is read. Raises SpoolError if it changed meanwhile."""
        path = found.path
        seen = stat_file(path, None)
        if seen is None:
            return  # someone took it away; it is read
        if seen.size != found.size:
            raise SpoolError(f"File has changed size since being read: {path}")
        if (seen.key, seen.modified_ns) != (found.key, found.modified_ns):
            raise SpoolError(f"File has been modified since being read: {path}")
        if self.delete:
            os.unlink(path)
            return
        mark = path + self.file_suffix if self.tracker_directory is None else self._mark_of(path)
        if os.path.exists(mark):
            raise SpoolError(
                "File name has been re-used with different files. Spooling assumptions violated "
                f"for {mark}"
            )
        if self.tracker_directory is None:
            os.rename(path, mark)
        else:
            os.makedirs(os.path.dirname(mark), exist_ok=True)
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))

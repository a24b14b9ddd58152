"""Which files there are: a filegroup is a directory and a regular expression for names in it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Found(NamedTuple):
    """A file as one stat saw it: all of it belongs to the same file (FLUME-3320)."""

    path: str
    device: int
    inode: int
    size: int
    modified_ns: int
    group: str | None  # None: no filegroup has this name

    @property
    def key(self) -> tuple[int, int]:
        return self.device, self.inode


@dataclass(slots=True)
class FileGroup:
    """`filegroups.NAME = /directory/pattern`; the pattern is for the file name alone."""

    name: str
    directory: str
    pattern: re.Pattern[str]
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, name: str, value: str, headers: Mapping[str, str]) -> FileGroup:
        directory, pattern = os.path.split(value)
        return cls(name, os.path.abspath(directory or "."), re.compile(pattern), headers)


def stat_file(path: str, group: str | None) -> Found | None:
    """None if it is gone or no regular file. A symbolic link is the file that it leads to."""
    try:
        seen = os.stat(path)
    except OSError:
        return None
    if not stat.S_ISREG(seen.st_mode):
        return None
    return Found(path, seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, group)


def list_names(directory: str) -> list[str]:
    """Empty if there is no such directory: it may come later."""
    try:
        return os.listdir(directory)
    except OSError:
        return []


def list_group(group: FileGroup, names: list[str]) -> list[Found]:
    matches = group.pattern.fullmatch
    paths = (os.path.join(group.directory, name) for name in names if matches(name))
    return [found for path in paths if (found := stat_file(path, group.name)) is not None]

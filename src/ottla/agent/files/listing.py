"""Which files there are: a filegroup is a directory and a regular expression for names in it."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..matching.bounded import Bounded


class Found(NamedTuple):
    """A file as one stat saw it: all of it belongs to the same file (FLUME-3320)."""

    path: str
    device: int
    inode: int
    size: int
    modified_ns: int
    group: str | None  # None: no filegroup has this name
    is_link: bool = False

    @property
    def key(self) -> tuple[int, int]:
        return self.device, self.inode


@dataclass(slots=True)
class FileGroup:
    """`filegroups.NAME = /directory/pattern`; the pattern is for the file name alone."""

    name: str
    directory: str
    pattern: Bounded[str]
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, name: str, value: str, headers: Mapping[str, str]) -> FileGroup:
        directory, pattern = os.path.split(value)
        made = Bounded(pattern, f"filegroups.{name}", whole=True)
        return cls(name, os.path.abspath(directory or "."), made, headers)

    def has(self, path: str) -> bool:
        directory, name = os.path.split(path)
        return directory == self.directory and self.pattern.fullmatch(name) is not None


class Wanted(NamedTuple):
    """Files that are looked for although no filegroup has their names: the rest of a stream."""

    inodes: Collection[int] = ()
    names: Collection[str] = ()  # and names that extend these


def stat_file(path: str, group: str | None, is_link: bool = False) -> Found | None:
    """None if it is gone or no regular file. A symbolic link is the file that it leads to."""
    try:
        seen = os.stat(path)
    except OSError:
        return None
    if not stat.S_ISREG(seen.st_mode):
        return None
    return Found(path, seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, group, is_link)


def shorter_names(name: str) -> Iterator[str]:
    """The names that this one extends: `a.log.1` and `a.log-20260101.gz` are made of `a.log`."""
    return (name[:length] for length in range(1, len(name)) if not name[length].isalnum())


def list_files(groups: Iterable[FileGroup], wanted: Wanted) -> list[Found]:
    """All files of the groups, the oldest first as in Flume. A file of two groups is in the first.

    A directory that is not there may come later.
    """
    by_directory: dict[str, list[FileGroup]] = {}
    for group in groups:
        by_directory.setdefault(group.directory, []).append(group)
    found: list[Found] = []
    for directory, its_groups in by_directory.items():
        try:
            entries = os.scandir(directory)
        except OSError:
            continue
        with entries:
            for entry in entries:
                name = entry.name
                owner = next(
                    (each.name for each in its_groups if each.pattern.fullmatch(name)), None
                )
                if (
                    owner is None
                    and entry.inode() not in wanted.inodes
                    and not (
                        wanted.names and any(map(wanted.names.__contains__, shorter_names(name)))
                    )
                ):
                    continue
                seen = stat_file(entry.path, owner, entry.is_symlink())
                if seen is not None:
                    found.append(seen)
    found.sort(key=lambda each: (each.modified_ns, each.path))
    return found

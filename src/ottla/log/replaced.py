"""Which of two folders of a partition is in use, after a crash in the middle of a move (moves.py).

Before a complete copy gets the partition's name it has a file that says so. From then on, until the
replaced folder has been renamed to `-delete`, both have the name, and the copy is the one to use:
it has all that the other had, and what was appended since.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.log.directories import (
    DELETE_SUFFIX,
    Contents,
    DataDirectory,
    parse_folder,
    partition_folder,
    renamed_folder,
)

if TYPE_CHECKING:
    from ottla.log.checkpoints import TopicPartition
    from ottla.seams.disk import Disk

logger = logging.getLogger("ottla.log")

REPLACEMENT = "replacement.metadata"  # ours; Kafka's start refuses two folders of one partition


def mark_replacement(disk: "Disk", directory: str, source: str) -> None:
    """On a thread: a copy is complete, and takes the place of the log in `source`.

    One that `source` still has from an earlier move is removed before.
    """
    remove_mark(disk, source)
    text = f"version: 0\nreplaces: {source}\n"
    disk.write_atomically(f"{directory}/{REPLACEMENT}", text.encode(), sync=True)


def remove_mark(disk: "Disk", directory: str) -> None:
    """On a thread: there is one folder of the partition; returns when that lasts."""
    path = f"{directory}/{REPLACEMENT}"
    if disk.exists(path):
        disk.unlink(path, missing_ok=True)
        disk.sync_directory(directory)


def retire_leftovers(
    disk: "Disk", data_dirs: Sequence[DataDirectory], source: str, unique: Callable[[], str]
) -> list[str]:
    """On a thread, before a log moves again: folders that it has replaced and that could not be
    renamed then. Without the mark, which goes with this move, a start could not tell them from it.

    Returns their new paths. Raises OSError: then the mark must stay.
    """
    name = source.rpartition("/")[2]
    key = parse_folder(name)
    if key is None or not disk.exists(f"{source}/{REPLACEMENT}"):
        return []
    renamed = []
    for data_dir in data_dirs:
        folder = f"{data_dir.path}/{name}"
        if folder != source and disk.exists(folder):
            renamed.append(f"{data_dir.path}/{renamed_folder(*key, unique(), DELETE_SUFFIX)}")
            disk.rename(folder, renamed[-1])
            disk.sync_directory(data_dir.path)
    return renamed


def settle_replaced(
    disk: "Disk",
    data_dirs: Sequence[DataDirectory],
    contents: Sequence[Contents],
    unique: Callable[[], str],
) -> None:
    """At the start: rename the folders that were replaced, as the move would have done.

    Where no folder, or more than one, is marked, both stay in the contents.
    """
    places: dict[TopicPartition, list[int]] = {}
    for number, found in enumerate(contents):
        for key in found.partitions:
            places.setdefault(key, []).append(number)
    for key, numbers in places.items():
        folders = {
            number: f"{data_dirs[number].path}/{partition_folder(*key)}" for number in numbers
        }
        marked = [n for n in numbers if disk.exists(f"{folders[n]}/{REPLACEMENT}")]
        if not marked or (len(numbers) > 1 and len(marked) != 1):
            continue
        for number in numbers:
            if number != marked[0]:
                _retire(disk, data_dirs[number], contents[number], key, unique())
        remove_mark(disk, folders[marked[0]])


def _retire(
    disk: "Disk", data_dir: DataDirectory, contents: Contents, key: "TopicPartition", unique: str
) -> None:
    folder = f"{data_dir.path}/{partition_folder(*key)}"
    renamed = f"{data_dir.path}/{renamed_folder(*key, unique, DELETE_SUFFIX)}"
    disk.rename(folder, renamed)
    disk.sync_directory(data_dir.path)
    contents.partitions.remove(key)
    contents.deleted.append(renamed)
    logger.info("%s was replaced by a copy in another data directory; it is removed", folder)

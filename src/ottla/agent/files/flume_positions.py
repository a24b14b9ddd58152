"""Flume's own position file of TAILDIR, taken over at the first start.

It is a JSON list of `{"inode": …, "pos": …, "file": …}`. Flume checks nothing beyond inode and
name; here the position must lie inside the file as well, and behind a newline if the file has been
renamed since.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..events import Position
from .facts import Content, FileFacts
from .listing import Found

logger = logging.getLogger(__name__)


class FlumePosition(NamedTuple):
    inode: int
    offset: int
    path: str


def parse(text: str) -> list[FlumePosition]:
    """Raises ValueError if it is not such a file. Flume leaves an empty one if nothing was read."""
    if not text.strip():
        return []
    held = json.loads(text)
    if not isinstance(held, list):
        raise ValueError("not a list of positions")
    found = []
    for entry in held:
        try:
            found.append(FlumePosition(int(entry["inode"]), int(entry["pos"]), str(entry["file"])))
        except (KeyError, TypeError) as error:
            raise ValueError(f"a position without inode, pos or file: {entry}") from error
    return found


def read_position_file(path: str) -> list[FlumePosition]:
    """Empty if there is none; one that cannot be read is logged and left."""
    try:
        with open(path, encoding="utf-8") as file:
            return parse(file.read())
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        logger.warning("Flume's position file %s is not taken over: %s", path, error)
        return []


def take_over(
    positions: Iterable[FlumePosition],
    listing: Iterable[Found],
    content_of: Callable[[Found], Content | None],
    new_stream: Callable[[], str],
) -> dict[str, Position]:
    """Positions of ours for the files that are still there."""
    by_inode: dict[int, list[Found]] = {}
    for found in listing:
        by_inode.setdefault(found.inode, []).append(found)
    taken: dict[str, Position] = {}
    for held in positions:
        for found in by_inode.get(held.inode, ()):
            content = content_of(found)
            if content is None or held.offset <= 0 or not content.pread(1, held.offset - 1):
                continue
            if found.path != held.path and content.pread(1, held.offset - 1) != b"\n":
                continue
            facts = FileFacts(found.path, found.device, found.inode, start=held.offset)
            facts = facts.at(content, held.offset)
            stream = new_stream()
            taken[stream] = Position(stream, held.offset, facts.as_json())
            break
        else:
            logger.info("Flume's position %d of %s: its file is gone", held.offset, held.path)
    return taken

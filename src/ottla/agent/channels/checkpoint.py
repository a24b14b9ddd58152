"""What of a file channel is consumed: a small file, replaced as a whole, with a checksum.

It also has the positions of the sources up to there, and how far the channel was synced: what is
missing below that was lost by the disk.
"""

from __future__ import annotations

import contextlib
import json
import logging
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..atomic_file import replace_file
from ..events import FORGET, Position, is_of_group

logger = logging.getLogger(__name__)
NAME = "checkpoint.json"
# What is consumed is deleted once the checkpoint says so. On a disk that is full this file is given
# up for the checkpoint: otherwise what is consumed would keep the disk full for ever.
RESERVE = "checkpoint.reserve"
RESERVE_BYTES_MIN = 64 * 1024


@dataclass
class Checkpoint:
    channel: str  # an id: a channel whose files were deleted is another one
    consumed: int | None = None  # None: not known
    synced: int = 0
    sources: Mapping[str, Position] = field(default_factory=dict)

    def write(self, directory: Path) -> None:
        held = {
            "channel": self.channel,
            "consumed": self.consumed,
            "synced": self.synced,
            "sources": [[*position] for position in self.sources.values()],
        }
        text = json.dumps(held).encode()
        data = b"%08x %s\n" % (zlib.crc32(text), text)
        try:
            replace_file(directory / NAME, data)
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                (directory / RESERVE).unlink()
            replace_file(directory / NAME, data)


def keep_reserve(directory: Path) -> None:
    """Makes the file that a checkpoint may take the place of, if there is space. Two checkpoints
    may grow meanwhile, so it has twice the bytes of the last."""
    path = directory / RESERVE
    wanted = max(RESERVE_BYTES_MIN, 2 * (directory / NAME).stat().st_size)
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size >= wanted:
            return
    with contextlib.suppress(OSError):
        replace_file(path, bytes(wanted))


def read_checkpoint(directory: Path) -> Checkpoint | None:
    """None if there is none that is whole; a damaged one is set aside."""
    path = directory / NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    checksum, _, text = data.partition(b" ")
    if not text.endswith(b"\n") or b"%08x" % zlib.crc32(text[:-1]) != checksum:
        aside = path.with_name(f"{NAME}.damaged-{uuid.uuid4().hex[:8]}")
        path.rename(aside)
        logger.error("%s is damaged and set aside; the channel reads all that it holds", path)
        return None
    held = json.loads(text)
    sources = {position[0]: Position(*position) for position in held["sources"]}
    return Checkpoint(held["channel"], held["consumed"], held["synced"], sources)


def keep_later(positions: dict[str, Position], position: Position) -> None:
    """Puts a position that is not behind the one that is there; a forgotten stream goes. What a
    group keeps is not asked of the channel: after a crash the source reads it again."""
    if is_of_group(position):
        return
    if position.offset == FORGET:
        positions.pop(position.stream, None)
    elif position.stream not in positions or positions[position.stream].offset <= position.offset:
        positions[position.stream] = position

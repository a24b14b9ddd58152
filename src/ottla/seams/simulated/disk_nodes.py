"""What a simulated disk holds: the content of files and directories, now and on the device."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.seams.disk import Bytes

SECTOR_BYTES = 512
Change = tuple[int, bytes | None]  # write bytes at a position, or None: truncate to it


class Node:
    """A file's content: now, on the device, and the way from there to here."""

    def __init__(self, content: bytes = b"") -> None:
        self.data = bytearray(content)
        self.stable = content
        self.pending: list[Change] = []
        self.modified_ms = 0
        self.original = False  # from `write_original`, and not changed since

    def write(self, data: Bytes, position: int) -> None:
        self.original = False
        self.pending.append((position, bytes(data)))
        apply(self.data, self.pending[-1])

    def truncate(self, size: int) -> None:
        self.original = False
        self.pending.append((size, None))
        apply(self.data, self.pending[-1])

    def sync(self) -> None:
        stable = bytearray(self.stable)
        for change in self.pending:
            apply(stable, change)
        self.stable = bytes(stable)
        self.pending.clear()

    def survivor(self, chance: random.Random) -> Node:
        """What the device gives back after the power has been cut."""
        data = bytearray(self.stable)
        for position, written in self.pending:
            fate = chance.choice(("kept", "lost", "torn", "zeroed"))
            if fate == "lost":
                continue
            if written is None or fate == "kept":
                apply(data, (position, written))
            elif fate == "zeroed":
                apply(data, (position, bytes(len(written))))
            else:
                for at in range(0, len(written), SECTOR_BYTES):
                    if chance.random() < 0.5:
                        apply(data, (position + at, written[at : at + SECTOR_BYTES]))
        after = Node(bytes(data))
        after.original = self.original
        return after


class Directory:
    """Names: now, on the device, and the changes between, in order."""

    def __init__(self) -> None:
        self.names: dict[str, Node | Directory] = {}
        self.stable: dict[str, Node | Directory] = {}
        self.pending: list[dict[str, Node | Directory | None]] = []

    def change(self, names: dict[str, Node | Directory | None]) -> None:
        self.pending.append(names)
        rename_all(self.names, names)

    def sync(self) -> None:
        self.stable = dict(self.names)
        self.pending.clear()

    def survivor(self, chance: random.Random) -> Directory:
        names = dict(self.stable)
        for change in self.pending[: chance.randint(0, len(self.pending))]:
            rename_all(names, change)
        after = Directory()
        after.names = {name: node.survivor(chance) for name, node in sorted(names.items())}
        after.stable = dict(after.names)
        return after


def apply(data: bytearray, change: Change) -> None:
    position, written = change
    if len(data) < position:
        data.extend(bytes(position - len(data)))
    if written is None:
        del data[position:]
    else:
        data[position : position + len(written)] = written


def rename_all(
    names: dict[str, Node | Directory], change: dict[str, Node | Directory | None]
) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node

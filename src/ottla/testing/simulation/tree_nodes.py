"""The nodes of a simulated metadata tree: a dictionary, and what is done to it. No I/O, no time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.metadata_store.tree import (
    ANY_VERSION,
    CHANGED,
    CHILDREN,
    CREATED,
    DELETED,
    BadVersion,
    Create,
    Delete,
    Event,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    Set,
    Stat,
    parent_of,
)


class TreeNode(NamedTuple):
    data: bytes
    version: int
    owner: int
    created: int
    modified: int
    sequence: int = 0  # of the next sequential child


class TreeNodes:
    """All nodes by path. A write is done on a draft of those that it touches, and kept whole."""

    def __init__(self) -> None:
        self._nodes: dict[str, TreeNode] = {"/": TreeNode(b"", 0, 0, 0, 0)}
        self._names: dict[str, set[str]] = {"/": set()}  # of children, by parent
        self._writes = 0

    def copy(self) -> TreeNodes:
        """The nodes as they are now."""
        copied = TreeNodes()
        copied._nodes = dict(self._nodes)
        copied._names = {path: set(names) for path, names in self._names.items()}
        copied._writes = self._writes
        return copied

    def change(self, since: TreeNodes, path: str, on_children: bool) -> Event | None:
        """What a watch that was set when the nodes were as in `since` fires with by now."""
        before, now = since._nodes.get(path), self._nodes.get(path)
        if now is None:
            return None if before is None else Event(DELETED, path)
        if on_children:
            same = since._names.get(path) == self._names[path]
            return None if same else Event(CHILDREN, path)
        if before is None:
            return Event(CREATED, path)
        return None if before.modified == now.modified else Event(CHANGED, path)

    def get(self, path: str) -> tuple[bytes, Stat]:
        node = self._nodes.get(path)
        if node is None:
            raise NoNode(path)
        count = len(self._names[path])
        return node.data, Stat(node.version, count, node.owner, node.created, node.modified)

    def children(self, path: str) -> list[str]:
        if path not in self._nodes:
            raise NoNode(path)
        return sorted(self._names[path])

    def get_many(self, paths: Sequence[str]) -> dict[str, tuple[bytes, int]]:
        found = ((path, self._nodes.get(path)) for path in paths)
        return {path: (node.data, node.version) for path, node in found if node is not None}

    def subtree(self, path: str) -> dict[str, tuple[bytes, int]]:
        below = path.rstrip("/") + "/"
        return {
            each: (node.data, node.version)
            for each, node in self._nodes.items()
            if each == path or each.startswith(below)
        }

    def write(
        self, operations: Sequence[Operation], session: int
    ) -> tuple[list[Result], list[Event]]:
        """All or none: raises the error of the first that fails."""
        events: list[Event] = []
        undo: list[tuple[str, TreeNode | None]] = []
        try:
            results = [self._run(each, session, events, undo) for each in operations]
        except Exception:
            for path, node in reversed(undo):
                self._put(path, node)
            raise
        self._writes += 1
        return results, events

    def end_session(self, session: int) -> list[Event]:
        """Remove its ephemeral nodes."""
        owned = [path for path, node in self._nodes.items() if node.owner == session]
        return self.write([Delete(path) for path in owned], session)[1] if owned else []

    def _put(self, path: str, node: TreeNode | None) -> None:
        if node is None:
            del self._nodes[path], self._names[path]
            self._names[parent_of(path)].discard(path.rpartition("/")[2])
        else:
            self._nodes[path] = node
            self._names.setdefault(path, set())
            if path != "/":
                self._names[parent_of(path)].add(path.rpartition("/")[2])

    def _run(
        self,
        operation: Operation,
        session: int,
        events: list[Event],
        undo: list[tuple[str, TreeNode | None]],
    ) -> Result:
        def put(path: str, node: TreeNode | None) -> None:
            undo.append((path, self._nodes.get(path)))
            self._put(path, node)

        path, number = operation.path, self._writes + 1
        if isinstance(operation, Create):
            if path == "/":
                raise NodeExists(path)
            parent = parent_of(path)
            above = self._nodes.get(parent)
            if above is None:
                raise NoNode(path, f"its parent {parent} is not there")
            if above.owner:
                raise NoChildrenForEphemerals(path, f"its parent {parent} is ephemeral")
            if operation.sequential:
                path += f"{above.sequence:010d}"
                put(parent, above._replace(sequence=above.sequence + 1))
            if path in self._nodes:
                raise NodeExists(path)
            owner = session if operation.ephemeral else 0
            put(path, TreeNode(operation.data, 0, owner, number, number))
            events += [Event(CREATED, path), Event(CHILDREN, parent)]
            return path
        node = self._nodes.get(path)
        if node is None:
            raise NoNode(path)
        if operation.version not in (ANY_VERSION, node.version):
            raise BadVersion(path, f"version {node.version}, expected {operation.version}")
        if isinstance(operation, Set):
            put(path, node._replace(data=operation.data, version=node.version + 1, modified=number))
            events.append(Event(CHANGED, path))
            return node.version + 1
        if isinstance(operation, Delete):
            if self._names[path] or path == "/":
                raise NotEmpty(path)
            put(path, None)
            events += [Event(DELETED, path), Event(CHILDREN, parent_of(path))]
        return None

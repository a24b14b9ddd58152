"""The rows of the local tree: one SQLite table, keyed by parent and name. Blocking.

Children and subtrees are ranges of that key. A write is one transaction with one fsync (WAL,
synchronous=FULL) and raises the tree's errors after rolling back. Rows carry a checksum: SQLite
does not notice a flipped bit in a value, and a wrong leader epoch is worse than a failed start.

Everything here runs in the background thread, one call at a time (`local.py` ensures it).
"""

import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.metadata_store.tree import (
    ANY_VERSION,
    CHANGED,
    CHILDREN,
    CREATED,
    DELETED,
    BadVersion,
    Check,
    ConnectionLoss,
    CorruptTree,
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
    check_path,
    check_weight,
    parent_of,
)

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")

SCHEMA_VERSION = 1
SYNCHRONOUS = "FULL"  # every commit is synced; only tests that crash nothing do without
SCHEMA = """
CREATE TABLE node (
    parent TEXT NOT NULL,
    name TEXT NOT NULL,
    data BLOB NOT NULL,
    version INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    created INTEGER NOT NULL,
    modified INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (parent, name)
) WITHOUT ROWID;
CREATE INDEX ephemeral ON node (owner) WHERE owner != 0;
CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counter VALUES ('writes', 0), ('sessions', 0);
INSERT INTO node VALUES ('', '', x'', 0, 0, 0, 0, 0, 0);
"""


class Store:
    """The rows. Blocking: everything here runs in the background thread, one call at a time."""

    def __init__(self, connection: "sqlite3.Connection", path: str) -> None:
        self.connection = connection
        self.path = path
        self._writes = 0

    def prepare(self) -> None:
        """Make the schema if the file is new; remove what dead sessions left."""
        self._guarded(self._prepare)

    def new_session(self) -> int:
        """An id that no session of this file has had."""
        return self._guarded(self._new_session)

    def get(self, path: str) -> tuple[bytes, Stat]:
        return self._guarded(self._get, path)

    def exists(self, path: str) -> Stat | None:
        try:
            return self._guarded(self._get, path)[1]
        except NoNode:
            return None

    def children(self, path: str) -> list[str]:
        return self._guarded(self._children, path)

    def get_many(self, paths: Sequence[str]) -> dict[str, tuple[bytes, int]]:
        found = {}
        for path in paths:
            try:
                data, stat = self.get(path)
            except NoNode:
                continue
            found[path] = data, stat.version
        return found

    def subtree(self, path: str) -> dict[str, tuple[bytes, int]]:
        return self._guarded(self._subtree, path)

    def write(
        self, operations: Sequence[Operation], session: int
    ) -> tuple[list[Result], list[Event]]:
        return self._guarded(self._transaction, operations, session)

    def end_session(self, session: int) -> list[Event]:
        return self._guarded(self._end_session, session)

    @property
    def writes(self) -> int:
        """How many writes the tree had had after the last one here, since it was made."""
        return self._writes

    def identity(self, drawn: int) -> int:
        """The number that tells this tree from others, whichever copy; `drawn` if it had none."""
        return self._guarded(self._identity, drawn)

    def continue_after(self, writes: int) -> None:
        """Count on from here, if fewer writes have been counted."""
        self._guarded(self._continue_after, writes)

    def close(self) -> None:
        self.connection.close()

    def _guarded(self, fn: Callable[..., T], *args: object) -> T:
        """Call, and turn what SQLite raises into one sentence of ours."""
        connection = self.connection
        try:
            return fn(*args)
        except connection.OperationalError as error:
            raise ConnectionLoss(self.path, f"the metadata tree failed: {error}") from error
        except connection.DatabaseError as error:
            raise corrupt(self.path, str(error)) from error

    def _prepare(self) -> None:
        execute = self.connection.execute
        execute("PRAGMA journal_mode = WAL")
        execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
        (schema_version,) = execute("PRAGMA user_version").fetchone()
        if schema_version == 0:
            self.connection.executescript(
                f"BEGIN; {SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT"
            )
        elif schema_version != SCHEMA_VERSION:
            raise CorruptTree(
                self.path,
                f"made by another version of this program (schema {schema_version}, "
                f"this one reads {SCHEMA_VERSION})",
            )
        (self._writes,) = execute("SELECT value FROM counter WHERE name = 'writes'").fetchone()
        if execute("SELECT 1 FROM node WHERE owner != 0 LIMIT 1").fetchone():
            execute("DELETE FROM node WHERE owner != 0")

    def _identity(self, drawn: int) -> int:
        execute = self.connection.execute
        execute("INSERT OR IGNORE INTO counter VALUES ('identity', ?)", (drawn,))
        (identity,) = execute("SELECT value FROM counter WHERE name = 'identity'").fetchone()
        return int(identity)

    def _continue_after(self, writes: int) -> None:
        if writes > self._writes:
            execute = self.connection.execute
            execute("UPDATE counter SET value = ? WHERE name = 'writes'", (writes,))
            self._writes = writes

    def _new_session(self) -> int:
        # Not RETURNING: there are machines with a SQLite from before 2021.
        execute = self.connection.execute
        execute("UPDATE counter SET value = value + 1 WHERE name = 'sessions'")
        (session,) = execute("SELECT value FROM counter WHERE name = 'sessions'").fetchone()
        return int(session)

    def _get(self, path: str) -> tuple[bytes, Stat]:
        parent, name = split(path)
        row = self.connection.execute(
            "SELECT data, version, owner, created, modified, checksum,"
            " (SELECT count(*) FROM node AS child WHERE child.parent = ?)"
            " FROM node WHERE parent = ? AND name = ?",
            (path, parent, name),
        ).fetchone()
        if row is None:
            raise NoNode(path)
        data, version, owner, created, modified, checksum, child_count = row
        self._verify(path, data, checksum)
        return data, Stat(version, child_count, owner, created, modified)

    def _children(self, path: str) -> list[str]:
        rows = self.connection.execute(
            "SELECT name FROM node WHERE parent = ? ORDER BY name", (path,)
        ).fetchall()
        if not rows:
            self._get(path)  # for its NoNode
        return [name for (name,) in rows]

    def _subtree(self, path: str) -> dict[str, tuple[bytes, int]]:
        found: dict[str, tuple[bytes, int]] = {}
        parent, name = split(path)
        below = "" if path == "/" else path
        for condition, arguments in (
            ("parent = ? AND name = ?", (parent, name)),
            ("parent = ?", (path,)),
            # '0' is the character after '/': between the two is all that starts with the path.
            ("parent > ? AND parent < ?", (below + "/", below + "0")),
        ):
            rows = self.connection.execute(
                f"SELECT parent, name, data, version, checksum FROM node WHERE {condition}",
                arguments,
            )
            for node_parent, node_name, data, version, checksum in rows:
                node = joined(node_parent, node_name)
                self._verify(node, data, checksum)
                found[node] = data, version
        return found

    def _verify(self, path: str, data: bytes, checksum: int) -> None:
        if checksum_of(path, data) != checksum and path != "/":
            raise corrupt(self.path, f"node {path} does not match its checksum")

    def _transaction(
        self, operations: Sequence[Operation], session: int
    ) -> tuple[list[Result], list[Event]]:
        for operation in operations:
            check_path(operation.path)
        check_weight(operations)
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            # As the file counts them: a controller that is replaced may write beside the next one.
            (before,) = execute("SELECT value FROM counter WHERE name = 'writes'").fetchone()
            number = before + 1
            transaction = Transaction(self.connection, number, session)
            results = [transaction.run(operation) for operation in operations]
            execute("UPDATE counter SET value = ? WHERE name = 'writes'", (number,))
            execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                execute("ROLLBACK")
            raise
        self._writes = number
        return results, transaction.events

    def _end_session(self, session: int) -> list[Event]:
        rows = self.connection.execute(
            "SELECT parent, name FROM node WHERE owner = ?", (session,)
        ).fetchall()
        if not rows:
            return []
        operations = [Delete(joined(parent, name)) for parent, name in rows]
        return self._transaction(operations, session)[1]


class Transaction:
    """One `multi` under way: runs operations, collects events, remembers parents."""

    def __init__(self, connection: "sqlite3.Connection", number: int, session: int) -> None:
        self.connection = connection
        self.events: list[Event] = []
        self._number = number
        self._session = session
        self._parents: set[str] = set()  # persistent nodes known to exist
        self._run: dict[type, Callable[[Any], Result]] = {
            Create: self._create,
            Set: self._set,
            Delete: self._delete,
            Check: self._check,
        }

    def run(self, operation: Operation) -> Result:
        return self._run[type(operation)](operation)

    def _create(self, operation: Create) -> str:
        path = operation.path
        parent = parent_of(path)
        if parent not in self._parents:
            self._check_parent(path, parent)
        if operation.sequential:
            path += f"{self._next_sequence(parent):010d}"
        owner = self._session if operation.ephemeral else 0
        cursor = self.connection.execute(
            "INSERT OR IGNORE INTO node VALUES (?, ?, ?, 0, ?, ?, ?, 0, ?)",
            (
                parent,
                path[path.rindex("/") + 1 :],
                operation.data,
                owner,
                self._number,
                self._number,
                checksum_of(path, operation.data),
            ),
        )
        if cursor.rowcount != 1:
            raise NodeExists(path)
        if not owner:
            self._parents.add(path)
        self.events.append(Event(CREATED, path))
        self.events.append(Event(CHILDREN, parent))
        return path

    def _next_sequence(self, parent: str) -> int:
        execute = self.connection.execute
        (sequence,) = execute(
            "SELECT sequence FROM node WHERE parent = ? AND name = ?", split(parent)
        ).fetchone()
        execute(
            "UPDATE node SET sequence = sequence + 1 WHERE parent = ? AND name = ?", split(parent)
        )
        return int(sequence)

    def _check_parent(self, path: str, parent: str) -> None:
        if path == "/":
            raise NodeExists(path)
        row = self.connection.execute(
            "SELECT owner FROM node WHERE parent = ? AND name = ?", split(parent)
        ).fetchone()
        if row is None:
            raise NoNode(path, f"its parent {parent} is not there")
        if row[0]:
            raise NoChildrenForEphemerals(path, f"its parent {parent} is ephemeral")
        self._parents.add(parent)

    def _set(self, operation: Set) -> int:
        path, data, expected = operation
        parent, name = split(path)
        if expected == ANY_VERSION:
            expected = self._version(path)
        cursor = self.connection.execute(
            "UPDATE node SET data = ?, version = version + 1, modified = ?, checksum = ?"
            " WHERE parent = ? AND name = ? AND version = ?",
            (data, self._number, checksum_of(path, data), parent, name, expected),
        )
        if cursor.rowcount != 1:
            raise self._refusal(path, expected)
        self.events.append(Event(CHANGED, path))
        return expected + 1

    def _delete(self, operation: Delete) -> None:
        path, expected = operation
        parent, name = split(path)
        if path == "/":
            raise NotEmpty(path, "the root stays")
        if self.connection.execute(
            "SELECT 1 FROM node WHERE parent = ? LIMIT 1", (path,)
        ).fetchone():
            self._check(Check(path, expected))
            raise NotEmpty(path)
        cursor = self.connection.execute(
            "DELETE FROM node WHERE parent = ? AND name = ? AND (version = ? OR ? = -1)",
            (parent, name, expected, expected),
        )
        if cursor.rowcount != 1:
            raise self._refusal(path, expected)
        self._parents.discard(path)
        self.events.append(Event(DELETED, path))
        self.events.append(Event(CHILDREN, parent))

    def _check(self, operation: Check) -> None:
        path, expected = operation
        if expected not in (ANY_VERSION, self._version(path)):
            raise self._refusal(path, expected)

    def _refusal(self, path: str, expected: int) -> BadVersion:
        """Why a row was not found; raises NoNode if it is not there at all."""
        return BadVersion(path, f"version {self._version(path)}, expected {expected}")

    def _version(self, path: str) -> int:
        row = self.connection.execute(
            "SELECT version FROM node WHERE parent = ? AND name = ?", split(path)
        ).fetchone()
        if row is None:
            raise NoNode(path)
        return int(row[0])


def split(path: str) -> tuple[str, str]:
    """Parent and name; the root's are both empty."""
    if path == "/":
        return "", ""
    cut = path.rindex("/")
    return path[:cut] or "/", path[cut + 1 :]


def joined(parent: str, name: str) -> str:
    """The path of a row."""
    if not parent:
        return "/"
    return f"/{name}" if parent == "/" else f"{parent}/{name}"


def checksum_of(path: str, data: bytes) -> int:
    """Over path and data: a row that was moved is as wrong as one that was changed."""
    return zlib.crc32(data, zlib.crc32(path.encode()))


def corrupt(path: str, reason: str) -> CorruptTree:
    """The one sentence for a damaged file."""
    return CorruptTree(
        path,
        f"the metadata tree is damaged ({reason}); restore the file from a backup, or move it"
        " away and let the topics be adopted from their folders, with the configs kept there",
    )

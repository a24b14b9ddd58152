"""The coordination tree of a single node: SQLite inside the broker, nothing to install.

One row per node, keyed by parent and name, so that children and subtrees are ranges of one table.
Every operation runs in the background thread, one after the other in the order asked for; a
`multi` is one transaction with one fsync (WAL, synchronous=FULL). Rows carry a checksum: SQLite
does not notice a flipped bit in a value, and a wrong leader epoch is worse than a refusal.

Ephemeral nodes belong to a session, and no session outlives the process: the nodes that a killed
process left behind are removed when the file is opened. `LocalEngine` is the file and may have
several sessions (tests do); `LocalTree` is one session, which is what the broker has.
"""

import asyncio
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ottla.coordination.tree import (
    ANY_VERSION,
    CHANGED,
    CHILDREN,
    CREATED,
    DELETED,
    MULTI_BYTES_MAX,
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
    SessionExpired,
    Set,
    Stat,
    TooLarge,
    Watcher,
    check_path,
    parent_of,
    weight,
)

if TYPE_CHECKING:
    import sqlite3

    from ottla.seams.background import Background

T = TypeVar("T")

SCHEMA_VERSION = 1
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


class Databases(Protocol):
    """The part of the disk that the engine needs."""

    def database(self, path: str) -> "sqlite3.Connection":
        """A connection in autocommit mode (isolation_level None) that any thread may use."""
        ...


class LocalEngine:
    """The file, the order of operations on it, and who watches what."""

    def __init__(self, connection: "sqlite3.Connection", path: str, background: "Background"):
        self.path = path
        self.store = Store(connection, path)
        self._background = background
        self._turn = asyncio.Lock()
        self._data_watches: dict[str, list[Watcher]] = {}
        self._child_watches: dict[str, list[Watcher]] = {}
        self._closed = False

    @classmethod
    async def open(cls, disk: Databases, path: str, background: "Background") -> "LocalEngine":
        """Open or make the file, and clear away the sessions of the process before this one."""
        engine = cls(disk.database(path), path, background)
        await engine.run(engine.store.prepare)
        return engine

    async def connect(self) -> "LocalTree":
        """A new session."""
        return LocalTree(self, await self.run(self.store.new_session))

    async def run(self, fn: Callable[..., T], *args: object) -> T:
        """Run an operation in the background, after those asked for before."""
        async with self._turn:
            return await self._call(fn, *args)

    async def _call(self, fn: Callable[..., T], *args: object) -> T:
        if self._closed:
            raise SessionExpired(self.path, "the coordination tree is closed")
        # Shielded: a caller that is cancelled must not leave its turn to the next operation while
        # its own still runs in the thread.
        future = asyncio.ensure_future(self._background.thread(fn, *args))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if not future.done():
                await asyncio.wait([future])
            raise

    async def read(
        self, fn: Callable[[str], T], path: str, watch: Watcher | None, on_children: bool = False
    ) -> T:
        """Run a read and, in the same turn, set the watch: no change can slip in between."""
        async with self._turn:
            try:
                result = await self._call(fn, path)
            except NoNode:
                raise
            if watch is not None:
                watches = self._child_watches if on_children else self._data_watches
                watches.setdefault(path, []).append(watch)
            return result

    async def write(self, operations: Sequence[Operation], session: int) -> list[Result]:
        """Run a transaction, then tell those who watch."""
        async with self._turn:
            results, events = await self._call(self.store.write, operations, session)
            self._tell(events)
            return results

    async def end_session(self, session: int) -> None:
        """Remove the session's ephemeral nodes."""
        async with self._turn:
            self._tell(await self._call(self.store.end_session, session))

    async def close(self) -> None:
        """Close the file."""
        async with self._turn:
            if not self._closed:
                await self._call(self.store.close)
                self._closed = True

    def forget_watches(self, watchers: "set[Watcher]") -> None:
        """A session that has ended is told nothing more."""
        for watches in (self._data_watches, self._child_watches):
            for path in list(watches):
                watches[path] = [w for w in watches[path] if w not in watchers]
                if not watches[path]:
                    del watches[path]

    def _tell(self, events: list[Event]) -> None:
        if not self._data_watches and not self._child_watches:
            return
        for event in events:
            fired: list[Watcher] = []
            if event.kind != CHILDREN:
                fired += self._data_watches.pop(event.path, ())
            if event.kind in (CHILDREN, DELETED):
                fired += self._child_watches.pop(event.path, ())
            for watcher in fired:
                watcher(event)


class LocalTree:
    """One session with the local tree."""

    def __init__(self, engine: LocalEngine, session: int) -> None:
        self._engine = engine
        self._session = session
        self._open = True
        self._owns_engine = False
        self._watchers: set[Watcher] = set()

    @classmethod
    async def open(cls, disk: Databases, path: str, background: "Background") -> "LocalTree":
        """The file's only session: closing it closes the file."""
        engine = await LocalEngine.open(disk, path, background)
        tree = await engine.connect()
        tree._owns_engine = True
        return tree

    @property
    def session(self) -> int:
        return self._session

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        (made,) = await self.multi([Create(path, data, ephemeral, sequential)])
        assert isinstance(made, str)
        return made

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        self._check_open(path)
        return await self._engine.read(self._engine.store.get, path, self._watch(watch))

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        self._check_open(path)
        return await self._engine.read(self._engine.store.exists, path, self._watch(watch))

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        self._check_open(path)
        return await self._engine.read(self._engine.store.children, path, self._watch(watch), True)

    async def subtree(self, path: str) -> dict[str, tuple[bytes, int]]:
        self._check_open(path)
        return await self._engine.run(self._engine.store.subtree, path)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        (new_version,) = await self.multi([Set(path, data, version)])
        assert isinstance(new_version, int)
        return new_version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        self._check_open("/")
        return await self._engine.write(operations, self._session)

    async def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._engine.forget_watches(self._watchers)
        await self._engine.end_session(self._session)
        if self._owns_engine:
            await self._engine.close()

    def _check_open(self, path: str) -> None:
        if not self._open:
            raise SessionExpired(path, f"session {self._session} is closed")
        check_path(path)

    def _watch(self, watch: Watcher | None) -> Watcher | None:
        if watch is None:
            return None

        def once(event: Event) -> None:
            self._watchers.discard(once)
            watch(event)

        self._watchers.add(once)
        return once


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

    def subtree(self, path: str) -> dict[str, tuple[bytes, int]]:
        return self._guarded(self._subtree, path)

    def write(
        self, operations: Sequence[Operation], session: int
    ) -> tuple[list[Result], list[Event]]:
        return self._guarded(self._transaction, operations, session)

    def end_session(self, session: int) -> list[Event]:
        return self._guarded(self._end_session, session)

    def close(self) -> None:
        self.connection.close()

    def _guarded(self, fn: Callable[..., T], *args: object) -> T:
        """Call, and turn what SQLite raises into one sentence of ours."""
        connection = self.connection
        try:
            return fn(*args)
        except connection.OperationalError as error:
            raise ConnectionLoss(self.path, f"the coordination tree failed: {error}") from error
        except connection.DatabaseError as error:
            raise corrupt(self.path, str(error)) from error

    def _prepare(self) -> None:
        execute = self.connection.execute
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
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

    def _new_session(self) -> int:
        (session,) = self.connection.execute(
            "UPDATE counter SET value = value + 1 WHERE name = 'sessions' RETURNING value"
        ).fetchone()
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
        if not rows and self._row(path) is None:
            raise NoNode(path)
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

    def _row(self, path: str) -> tuple[int, int, int] | None:
        """Version, owner and sequence."""
        row: tuple[int, int, int] | None = self.connection.execute(
            "SELECT version, owner, sequence FROM node WHERE parent = ? AND name = ?", split(path)
        ).fetchone()
        return row

    def _verify(self, path: str, data: bytes, checksum: int) -> None:
        if checksum_of(path, data) != checksum and path != "/":
            raise corrupt(self.path, f"node {path} does not match its checksum")

    def _transaction(
        self, operations: Sequence[Operation], session: int
    ) -> tuple[list[Result], list[Event]]:
        for operation in operations:
            check_path(operation.path)
        total = sum(map(weight, operations))
        if total > MULTI_BYTES_MAX:
            raise TooLarge(operations[0].path, f"{total} bytes, at most {MULTI_BYTES_MAX}")
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            transaction = Transaction(self.connection, self._writes + 1, session)
            results = [transaction.run(operation) for operation in operations]
            execute("UPDATE counter SET value = ? WHERE name = 'writes'", (self._writes + 1,))
            execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                execute("ROLLBACK")
            raise
        self._writes += 1
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
            (sequence,) = self.connection.execute(
                "UPDATE node SET sequence = sequence + 1 WHERE parent = ? AND name = ?"
                " RETURNING sequence",
                split(parent),
            ).fetchone()
            path = f"{path}{sequence - 1:010d}"
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
        row = self.connection.execute(
            "UPDATE node SET data = ?, version = version + 1, modified = ?, checksum = ?"
            " WHERE parent = ? AND name = ? AND (version = ? OR ? = -1) RETURNING version",
            (data, self._number, checksum_of(path, data), parent, name, expected, expected),
        ).fetchone()
        if row is None:
            raise self._refusal(path, expected)
        self.events.append(Event(CHANGED, path))
        return int(row[0])

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
        row = self.connection.execute(
            "SELECT version FROM node WHERE parent = ? AND name = ?", split(path)
        ).fetchone()
        if row is None or expected not in (ANY_VERSION, row[0]):
            raise self._refusal(path, expected)

    def _refusal(self, path: str, expected: int) -> NoNode | BadVersion:
        """Why a row was not found."""
        row = self.connection.execute(
            "SELECT version FROM node WHERE parent = ? AND name = ?", split(path)
        ).fetchone()
        if row is None:
            return NoNode(path)
        return BadVersion(path, f"version {row[0]}, expected {expected}")


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
        f"the coordination tree is damaged ({reason}); restore the file from a backup, or move it"
        " away and let the topics be adopted from their folders, without their configs",
    )

"""The metadata tree of a single node: SQLite inside the broker, nothing to install.

Every operation runs in the background thread, one after the other in the order asked for; the
rows and what is done to them are in `local_store.py`.

Ephemeral nodes belong to a session, and no session outlives the process: the nodes that a killed
process left behind are removed when the file is opened. `LocalEngine` is the file and may have
several sessions (tests do); `LocalTree` is one session, which is what the broker has.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from ottla.metadata_store.local_store import Store
from ottla.metadata_store.tree import (
    CHILDREN,
    DELETED,
    ConnectionLoss,
    Event,
    Operation,
    Result,
    SessionExpired,
    SingleWrites,
    Stat,
    Watcher,
    check_path,
)

if TYPE_CHECKING:
    import sqlite3

    from ottla.seams.background import Background

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Databases(Protocol):
    """The part of the disk that the engine needs."""

    def database(self, path: str) -> "sqlite3.Connection":
        """A connection in autocommit mode (isolation_level None) that any thread may use."""
        ...


class LocalEngine:
    """The file, the order of operations on it, and the watches."""

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
        try:
            connection = disk.database(path)
        except Exception as error:  # of SQLite's own family, which has no name below the seams
            raise ConnectionLoss(
                path,
                f"the metadata tree cannot be opened: {error}; let this user read and write the "
                "file and its directory",
            ) from error
        engine = cls(connection, path, background)
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
            raise SessionExpired(self.path, "the metadata tree is closed")
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
            result = await self._call(fn, path)
            if watch is not None:
                watches = self._child_watches if on_children else self._data_watches
                watches.setdefault(path, []).append(watch)
            return result

    async def write(self, operations: Sequence[Operation], session: int) -> list[Result]:
        """Run a transaction, then call the watches that it fires."""
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
        """Drop the watches of a session that has ended."""
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


class LocalTree(SingleWrites):
    """One session with the local tree."""

    reads_at_once = True

    def __init__(self, engine: LocalEngine, session: int) -> None:
        self._engine = engine
        self._session = session
        self._open = True
        self._owns_engine = False
        self._watchers: set[Watcher] = set()
        self._expired: list[Callable[[], object]] = []

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

    @property
    def writes(self) -> int:
        """How many writes the tree has had. A copy from an earlier time has fewer."""
        return self._engine.store.writes

    async def identity(self, drawn: int) -> int:
        """The number that tells this tree from others; `drawn` if it had none."""
        return await self._engine.run(self._engine.store.identity, drawn)

    async def continue_after(self, writes: int) -> None:
        """Count on from `writes`, if fewer were counted: then no earlier copy has more."""
        await self._engine.run(self._engine.store.continue_after, writes)

    def when_expired(self, callback: Callable[[], object]) -> None:
        self._expired.append(callback)

    async def expire(self) -> None:
        """End the session as a lost connection would. Nothing here does that; tests do."""
        if self._open:
            await self._end()
            for callback in self._expired:
                callback()

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

    async def get_many(self, paths: Sequence[str]) -> dict[str, tuple[bytes, int]]:
        for path in paths:
            self._check_open(path)
        return await self._engine.run(self._engine.store.get_many, paths)

    async def sync(self) -> None:
        self._check_open("/")

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        self._check_open("/")
        return await self._engine.write(operations, self._session)

    async def close(self) -> None:
        if not self._open:
            return
        try:
            await self._end()
        except ConnectionLoss as error:
            if not self._owns_engine:
                raise
            logger.warning("%s; the next start clears this session away", error)
        if self._owns_engine:
            await self._engine.close()

    async def _end(self) -> None:
        self._open = False
        self._engine.forget_watches(self._watchers)
        await self._engine.end_session(self._session)

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

"""The metadata tree in a ZooKeeper ensemble: one session, through kazoo.

Requests are sent in the order asked for. When the connection is lost, a write that was under way
raises ConnectionLoss: whether it took place is not known, and it is not sent again. Reads are, and
later requests wait until one of the servers answers. Watches that the old connection had fire then
too: a change may have been missed, and the watcher reads again.

A session that has expired is not replaced here: its owner opens another one, and with it begins
its roles anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kazoo import exceptions
from kazoo.protocol.states import EventType, KazooState

from ottla.metadata_store.tree import (
    CHANGED,
    CHILDREN,
    CREATED,
    DELETED,
    BadPath,
    BadVersion,
    ConnectionLoss,
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
    SingleWrites,
    Stat,
    TreeError,
    Watcher,
    check_path,
    check_weight,
)
from ottla.seams.waiting import within
from ottla.seams.zookeeper import end_session, read_many

if TYPE_CHECKING:
    from ottla.seams.background import Background
    from ottla.seams.clock import Clock

log = logging.getLogger("ottla.zookeeper")

# In one request: well below a packet's limit with the longest paths.
READS_PER_REQUEST_MAX = 500
# Requests in flight at a time when a tree is walked through: kazoo wakes its thread through a
# socket with a byte for each, and one that is full would hold the event loop.
READS_IN_FLIGHT_MAX = 200
END_S_MAX = 2.0  # a server that has not ended a session by then does so when it is silent
ZOOKEEPERS_OWN = "/zookeeper"  # quotas and the ensemble's configuration

KINDS = {
    EventType.CREATED: CREATED,
    EventType.CHANGED: CHANGED,
    EventType.DELETED: DELETED,
    EventType.CHILD: CHILDREN,
}
ERRORS: tuple[tuple[type[Exception], type[TreeError]], ...] = (
    (exceptions.NoNodeError, NoNode),
    (exceptions.NodeExistsError, NodeExists),
    (exceptions.BadVersionError, BadVersion),
    (exceptions.NotEmptyError, NotEmpty),
    (exceptions.NoChildrenForEphemeralsError, NoChildrenForEphemerals),
    (exceptions.BadArgumentsError, BadPath),
    (exceptions.SessionExpiredError, SessionExpired),
    (exceptions.ConnectionClosedError, SessionExpired),
)
# What a failed `multi` says of operations before and after the one that failed.
NOT_TRIED = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)


class ZooKeeperTree(SingleWrites):
    """One session with an ensemble; its paths are below `root`."""

    reads_at_once = False

    def __init__(self, client: Any, root: str, background: Background, clock: Clock) -> None:
        """`client`: from `seams.zookeeper.new_client`. `root`: empty, or the chroot."""
        self.client = client
        self._root = root
        self._background = background
        self._clock = clock
        self._session = 0
        self._open = False
        self._stopped: asyncio.Future[None] | None = None
        self._connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._expired: list[Callable[[], object]] = []
        client.add_listener(lambda state: client.handler.hop(self._state_changed, state))

    @classmethod
    async def connect(
        cls, client: Any, root: str, background: Background, clock: Clock, timeout_s: float
    ) -> ZooKeeperTree:
        """A new session. Raises ConnectionLoss when no server answers in time."""
        tree = cls(client, root, background, clock)
        client.start_async()
        try:
            if not await within(clock, timeout_s, tree._connected):
                hosts = ",".join(f"{host}:{port}" for host, port in client.hosts)
                raise ConnectionLoss(
                    f"ZooKeeper at {hosts}",
                    f"no server answered within {timeout_s:g} s; start one, or see whether "
                    "zookeeper.connect names it",
                )
            tree._session = client.client_id[0]
            tree._open = True
            await tree._make_root()
        except BaseException:
            await tree.close()
            raise
        return tree

    async def _make_root(self) -> None:
        steps = self._root.split("/")[1:]
        for depth in range(len(steps)):
            path = "/" + "/".join(steps[: depth + 1])
            transaction = self.client.transaction()
            transaction.create(path)
            (made,) = await self._write(path, transaction)
            if isinstance(made, Exception) and not isinstance(made, exceptions.NodeExistsError):
                raise tree_error(path, made)

    @property
    def session(self) -> int:
        return self._session

    def when_expired(self, callback: Callable[[], object]) -> None:
        self._expired.append(callback)

    def _state_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            if not self._connected.done():
                self._connected.set_result(None)
            elif self._open and self.client.client_id[0] != self._session:
                self._expire()
            elif self._open:
                log.info("ZooKeeper answers again")
        elif state == KazooState.LOST:
            self._expire()
        elif self._open:
            log.warning("the connection to ZooKeeper is lost; another one is looked for")

    def _expire(self) -> None:
        if not self._open:
            return
        self._open = False
        log.warning("session 0x%x with ZooKeeper has expired", self._session & (2**64 - 1))
        # kazoo would go on with a session of its own making.
        self._stop()
        for callback in self._expired:
            callback()

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        watcher = self._watch(watch, path, CHANGED)
        data, stat = await self._read(path, lambda full: self.client.get_async(full, watcher))
        return data or b"", stat_of(stat)

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        watcher = self._watch(watch, path, CHANGED)
        stat = await self._read(path, lambda full: self.client.exists_async(full, watcher))
        return None if stat is None else stat_of(stat)

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        watcher = self._watch(watch, path, CHILDREN)
        names = await self._read(path, lambda full: self.client.get_children_async(full, watcher))
        return sorted(names)

    async def sync(self) -> None:
        await self._read("/", self.client.sync_async)

    async def get_many(self, paths: Sequence[str]) -> dict[str, tuple[bytes, int]]:
        return {path: node[:2] for path, node in (await self._get_nodes(paths)).items()}

    async def _get_nodes(self, paths: Sequence[str]) -> dict[str, tuple[bytes, int, int]]:
        """Data, version and number of children of those nodes that are there, by path."""
        found: dict[str, tuple[bytes, int, int]] = {}
        for part in await asyncio.gather(
            *(
                self._get_part(paths[first : first + READS_PER_REQUEST_MAX])
                for first in range(0, len(paths), READS_PER_REQUEST_MAX)
            )
        ):
            found |= part
        return found

    async def _get_part(self, paths: Sequence[str]) -> dict[str, tuple[bytes, int, int]]:
        full = [self._full(path) for path in paths]
        try:
            nodes = await self._read(paths[0], lambda _: read_many(self.client, full))
        except exceptions.UnimplementedError:  # a server before 3.6
            each = await self._read_many(self.client.get_async, paths)
            return {
                path: (data or b"", stat.version, stat.numChildren)
                for path, (data, stat) in each.items()
            }
        return {path: node for path, node in zip(paths, nodes, strict=True) if node is not None}

    async def subtree(self, path: str) -> dict[str, tuple[bytes, int]]:
        found: dict[str, tuple[bytes, int]] = {}
        level = [path]
        while level:
            nodes = await self._get_nodes(level)
            found |= {node: each[:2] for node, each in nodes.items()}
            parents = [node for node, (_, _, children) in nodes.items() if children]
            names = await self._read_many(self.client.get_children_async, parents)
            below = [
                f"/{name}" if parent == "/" else f"{parent}/{name}"
                for parent in parents
                for name in names.get(parent, ())
            ]
            level = [node for node in below if self._root or node != ZOOKEEPERS_OWN]
        return found

    async def _read_many(self, ask: Callable[[str], Any], paths: Sequence[str]) -> dict[str, Any]:
        """The answers for those nodes that are there, by path."""
        found = {}
        for first in range(0, len(paths), READS_IN_FLIGHT_MAX):
            part = paths[first : first + READS_IN_FLIGHT_MAX]
            asked = (self._read(path, ask) for path in part)
            answers = await asyncio.gather(*asked, return_exceptions=True)
            for path, answer in zip(part, answers, strict=True):
                if not isinstance(answer, BaseException):
                    found[path] = answer
                elif not isinstance(answer, NoNode):
                    raise answer
        return found

    async def _read(self, path: str, ask: Callable[[str], Any]) -> Any:
        """The answer to a read. It is asked again when the connection was lost: that waits until
        there is another."""
        while True:
            full = self._full(path)
            try:
                return await ask(full).future
            except exceptions.ConnectionLoss:
                continue
            except exceptions.UnimplementedError:
                raise
            except exceptions.KazooException as error:
                raise self._error(path, error) from None

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        paths = [self._full(operation.path) for operation in operations]
        check_weight(operations, self._root)
        if not operations:
            return []
        transaction = self.client.transaction()
        for path, operation in zip(paths, operations, strict=True):
            if isinstance(operation, Create):
                transaction.create(
                    path,
                    operation.data,
                    ephemeral=operation.ephemeral,
                    sequence=operation.sequential,
                )
            elif isinstance(operation, Set):
                transaction.set_data(path, operation.data, operation.version)
            elif isinstance(operation, Delete):
                transaction.delete(path, operation.version)
            else:
                transaction.check(path, operation.version)
        outcomes = await self._write(operations[0].path, transaction)
        for operation, outcome in zip(operations, outcomes, strict=True):
            if isinstance(outcome, Exception) and not isinstance(outcome, NOT_TRIED):
                raise tree_error(operation.path, outcome)
        return [self._result(*each) for each in zip(operations, outcomes, strict=True)]

    def _result(self, operation: Operation, outcome: Any) -> Result:
        if isinstance(operation, Create):
            path: str = outcome[len(self._root) :]
            return path
        return int(outcome.version) if isinstance(operation, Set) else None

    async def close(self) -> None:
        """Ends the session: its nodes are gone at once if a server can be reached, else later."""
        was_open, self._open = self._open, False
        if was_open and self.client.connected:
            await within(self._clock, END_S_MAX, end_session(self.client).future)
        await self._stop()

    def _stop(self) -> asyncio.Future[None]:
        if self._stopped is None:
            self._stopped = self._background.thread(stop, self.client)
        return self._stopped

    def _full(self, path: str) -> str:
        """The path in the ensemble. Raises SessionExpired, BadPath."""
        if not self._open:
            raise SessionExpired(path, f"session {self._session} is closed")
        check_path(path)
        return path if not self._root else self._root + ("" if path == "/" else path)

    async def _write(self, path: str, transaction: Any) -> Any:
        """The outcomes of a transaction, which is sent once."""
        try:
            return await transaction.commit_async().future
        except exceptions.KazooException as error:
            raise self._error(path, error) from None

    def _error(self, path: str, error: BaseException) -> TreeError:
        if not self._open:
            return SessionExpired(path, f"session {self._session} is closed")
        return tree_error(path, error)

    def _watch(self, watch: Watcher | None, path: str, otherwise: str) -> Any:
        """kazoo's callback for a watch; `otherwise` is what is reported when the connection is lost
        and with it whatever became of the node."""
        if watch is None:
            return None

        def fired(event: Any) -> None:
            if self._open:
                watch(Event(KINDS.get(event.type, otherwise), path))

        return fired


def stop(client: Any) -> None:
    """End kazoo's thread, and the session if a server can be reached. Blocking."""
    try:
        client.stop()
        client.close()
    except Exception as error:  # a connection attempt that hangs: the thread ends with it
        log.warning("the connection to ZooKeeper is left behind: %s", error)


def tree_error(path: str, error: BaseException) -> TreeError:
    """The tree's error for one of kazoo's."""
    for theirs, ours in ERRORS:
        if isinstance(error, theirs):
            return ours(path, "" if ours is not SessionExpired else "the session has expired")
    return ConnectionLoss(path, f"no answer from ZooKeeper: {type(error).__name__}")


def stat_of(stat: Any) -> Stat:
    return Stat(stat.version, stat.numChildren, stat.ephemeralOwner, stat.czxid, stat.mzxid)

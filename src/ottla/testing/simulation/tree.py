"""A metadata tree for simulated machines: what ZooKeeper does, with its faults on demand.

The tree is on a machine of its own. Each session belongs to the process that opened it: requests
and answers take time, keep their order, and are lost when the machine is cut off; a session that is
silent for its time-out ends, and its process finds out when it is connected again.

    ensemble = SimulatedEnsemble(simulation)
    tree = await ensemble.connect(node, session_timeout_s=6)
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.metadata_store.tree import (
    CHANGED,
    CHILDREN,
    DELETED,
    ConnectionLoss,
    Event,
    NoNode,
    Operation,
    Result,
    SessionExpired,
    SingleWrites,
    Stat,
    Watcher,
    check_path,
    check_weight,
)
from ottla.seams.waiting import within
from ottla.testing.simulation.tree_nodes import TreeNodes

if TYPE_CHECKING:
    from ottla.seams.simulated.simulation import Node, Simulation

LATENCY_S = 0.0005  # one way
CHECKS_PER_TIMEOUT = 4


class SimulatedEnsemble:
    """The tree, and the sessions with it."""

    def __init__(self, simulation: Simulation, *, latency_s: float = LATENCY_S) -> None:
        self.nodes = TreeNodes()
        self.latency_s = latency_s
        self.machine = simulation.node("zookeeper")
        self.sessions: dict[int, SimulatedTree] = {}
        self._last_session = 0
        self._data_watches: dict[str, list[tuple[SimulatedTree, Watcher]]] = {}
        self._child_watches: dict[str, list[tuple[SimulatedTree, Watcher]]] = {}
        self._cut: set[str] = set()
        self._away = False
        self._connecting: list[SimulatedTree] = []
        self._ended: list[SimulatedTree] = []  # of machines that are cut off and do not know

    async def connect(self, node: Node, session_timeout_s: float) -> SimulatedTree:
        """A new session of the process that runs on a machine.

        Raises ConnectionLoss when the ensemble does not answer within the session's time-out.
        """
        self._last_session += 1
        tree = SimulatedTree(self, node, self._last_session, session_timeout_s)
        self._connecting.append(tree)
        begun = tree.ask(lambda: self._begin(tree))
        try:
            if not await within(node.clock, session_timeout_s, begun):
                self.sessions.pop(tree.session, None)
                raise ConnectionLoss("/", f"no answer within {session_timeout_s:g} s")
        finally:
            self._connecting.remove(tree)
        begun.result()
        return tree

    def cut(self, name: str) -> None:
        """A machine does not reach the ensemble: what is under way has no answer."""
        self._cut.add(name)
        for tree in self._clients():
            if tree.machine.name == name:
                tree.lose_connection()

    def heal(self, name: str) -> None:
        """It does again."""
        self._cut.discard(name)
        if self.is_cut(name):
            return
        for tree in self._clients():
            if tree.machine.name == name:
                tree.reconnect()
        self._ended = [tree for tree in self._ended if tree.machine.name != name]

    def stop(self) -> None:
        """The ensemble has no quorum: it answers nobody. No session ends meanwhile."""
        self._away = True
        for tree in self._clients():
            tree.lose_connection()

    def go_on(self) -> None:
        """It has one again; each session has its whole time-out from now on, as in ZooKeeper."""
        self._away = False
        now_s = self.machine.clock.monotonic()
        for tree in self.sessions.values():
            tree.seen_s = now_s
        for name in {tree.machine.name: None for tree in self._clients()}:
            if not self.is_cut(name):
                self.heal(name)

    def is_cut(self, name: str) -> bool:
        return self._away or name in self._cut

    def sessions_of(self, machine: Node) -> list[SimulatedTree]:
        """Those of the process that runs on a machine now."""
        return [each for each in self.sessions.values() if each.machine is machine and each.alive]

    def _clients(self) -> list[SimulatedTree]:
        return [*self.sessions.values(), *self._connecting, *self._ended]

    def expire(self, tree: SimulatedTree) -> None:
        """End a session; its process knows when it is connected."""
        if self.sessions.pop(tree.session, None) is None:
            return
        self._tell(self.nodes.end_session(tree.session))
        self._forget(tree)
        tree.ended = True
        if self.is_cut(tree.machine.name):
            self._ended.append(tree)
        else:
            tree.reconnect()

    # Called on the ensemble's machine

    def _begin(self, tree: SimulatedTree) -> None:
        self.sessions[tree.session] = tree
        tree.seen_s = self.machine.clock.monotonic()
        self._check(tree)

    def _check(self, tree: SimulatedTree) -> None:
        if tree.session not in self.sessions:
            return
        now_s = self.machine.clock.monotonic()
        if tree.alive and not tree.machine.loop.paused and not self.is_cut(tree.machine.name):
            tree.seen_s = now_s
        elif now_s - tree.seen_s > tree.timeout_s and not self._away:
            self.expire(tree)
            return
        self.machine.clock.call_later(
            tree.timeout_s / CHECKS_PER_TIMEOUT, lambda: self._check(tree)
        )

    def end(self, tree: SimulatedTree) -> None:
        """Close a session at its own wish."""
        self.sessions.pop(tree.session, None)
        self._forget(tree)
        self._tell(self.nodes.end_session(tree.session))

    def write(self, operations: Sequence[Operation], session: int) -> list[Result]:
        results, events = self.nodes.write(operations, session)
        self._tell(events)
        return results

    def watch(self, tree: SimulatedTree, path: str, watch: Watcher, on_children: bool) -> None:
        watches = self._child_watches if on_children else self._data_watches
        watches.setdefault(path, []).append((tree, watch))

    def take_watches(self, tree: SimulatedTree) -> list[tuple[Watcher, Event]]:
        """The watches of a connection that is lost, each with the event that it fires with."""
        taken: list[tuple[Watcher, Event]] = []
        for watches, kind in ((self._data_watches, "changed"), (self._child_watches, CHILDREN)):
            for path, each in list(watches.items()):
                taken += [(watch, Event(kind, path)) for owner, watch in each if owner is tree]
                watches[path] = [pair for pair in each if pair[0] is not tree]
        return taken

    def _forget(self, tree: SimulatedTree) -> None:
        self.take_watches(tree)

    def _tell(self, events: Sequence[Event]) -> None:
        for event in events:
            fired: list[tuple[SimulatedTree, Watcher]] = []
            if event.kind != CHILDREN:
                fired += self._data_watches.pop(event.path, ())
            if event.kind in (CHILDREN, DELETED):
                fired += self._child_watches.pop(event.path, ())
            for tree, watch in fired:
                tree.tell(watch, event)


class SimulatedTree(SingleWrites):
    """One session."""

    reads_at_once = False

    def __init__(
        self, ensemble: SimulatedEnsemble, machine: Node, session: int, timeout_s: float
    ) -> None:
        self.machine = machine
        self.timeout_s = timeout_s
        self.seen_s = 0.0
        self.ended = False  # at the ensemble; the process may not know yet
        self.withholding = False  # requests arrive, answers do not: for tests
        # What happens at a write instead of it; it is given the write itself.
        self.on_write: Callable[[Callable[[], list[Result]]], list[Result]] | None = None
        self._ensemble = ensemble
        self._session = session
        self._starts = machine.starts
        self._open = True
        self._expired: list[Callable[[], object]] = []
        self._connection = 0  # which one: what was sent on an earlier one is lost
        self._waiting: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._under_way: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._unanswered: list[asyncio.Future[Any]] = []  # of requests that have arrived
        self._coming: deque[Callable[[], object]] = deque()
        # While it is served by a member of the ensemble that is behind: what that member has, and
        # the watches that were set there or have to fire when it has caught up.
        self._behind: TreeNodes | None = None
        self._watches_behind: list[tuple[str, Watcher, bool]] = []
        self._events_behind: list[tuple[Watcher, Event]] = []

    @property
    def alive(self) -> bool:
        """Whether the process that opened it is there."""
        return self.machine.alive and self.machine.starts == self._starts

    @property
    def session(self) -> int:
        return self._session

    def when_expired(self, callback: Callable[[], object]) -> None:
        self._expired.append(callback)

    # A member of the ensemble that is behind

    def fall_behind(self, member: TreeNodes | None = None) -> None:
        """Reads see the tree as it is now until `sync`, a write of this session, or `catch_up`.

        `member`: what the member of the ensemble has that serves the session, if that is older.
        """
        if self._behind is None:
            self._behind = self._ensemble.nodes.copy() if member is None else member

    def catch_up(self) -> None:
        """Reads see the tree as it is; watches fire first, as in ZooKeeper."""
        behind, self._behind = self._behind, None
        if behind is None:
            return
        events, self._events_behind = self._events_behind, []
        watches, self._watches_behind = self._watches_behind, []
        for watch, event in events:
            self.tell(watch, event)
        for path, watch, on_children in watches:
            changed = self._ensemble.nodes.change(behind, path, on_children)
            if changed is None:
                self._ensemble.watch(self, path, watch, on_children)
            else:
                self.tell(watch, changed)

    def _leave_member_behind(self) -> list[tuple[Watcher, Event]]:
        """Another member serves the session next: the watches of this one, each with its event."""
        taken = [
            *self._events_behind,
            *(
                (watch, Event(CHILDREN if on_children else CHANGED, path))
                for path, watch, on_children in self._watches_behind
            ),
        ]
        self._behind, self._events_behind, self._watches_behind = None, [], []
        return taken

    def tell(self, watch: Watcher, event: Event) -> None:
        """A watch fires: at once, or when the member that serves this session knows why."""
        if self._behind is not None:
            self._events_behind.append((watch, event))
        else:
            self.deliver(lambda: watch(event))

    @property
    def is_behind(self) -> bool:
        return self._behind is not None

    @property
    def _nodes(self) -> TreeNodes:
        return self._ensemble.nodes if self._behind is None else self._behind

    # The connection

    def ask(self, act: Callable[[], Any]) -> asyncio.Future[Any]:
        """Have the ensemble do something; its result or error."""
        future: asyncio.Future[Any] = self.machine.loop.create_future()
        if self._ensemble.is_cut(self.machine.name):
            self._waiting.append((act, future))
        else:
            self._send(act, future)
        return future

    def _send(self, act: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self._under_way.append((act, future))
        self._later(self._arrive)

    def _later(self, act: Callable[[], object]) -> None:
        connection = self._connection

        def in_time() -> None:
            if connection == self._connection:
                act()

        self._ensemble.machine.clock.call_later(self._ensemble.latency_s, in_time)

    def _arrive(self) -> None:
        act, future = self._under_way.popleft()
        self._unanswered.append(future)
        connection = self._connection
        if self.ended:
            error: Exception | None = SessionExpired("/", "the session has expired")
            result = None
        else:
            try:
                result, error = act(), None
            except Exception as raised:
                result, error = None, raised
            if connection != self._connection:
                return  # it was lost meanwhile

        def answered() -> None:
            if future in self._unanswered:  # the connection was not lost after this had come
                self._unanswered.remove(future)
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.deliver(answered)

    def deliver(self, act: Callable[[], object]) -> None:
        """Have the process do something, after what was delivered before."""
        if self.withholding:
            return
        self._coming.append(act)
        self._later(self._come)

    def _come(self) -> None:
        act = self._coming.popleft()
        if self.alive:
            self.machine.loop.call_soon(act)

    def lose_connection(self) -> None:
        """What is under way has an unknown outcome; watches fire."""
        self._connection += 1
        self.withholding = False
        self._coming.clear()
        lost_futures = [*self._unanswered, *(future for _, future in self._under_way)]
        self._under_way.clear()
        self._unanswered.clear()
        watches = [*self._leave_member_behind(), *self._ensemble.take_watches(self)]
        if not self.alive:
            return

        def lost() -> None:
            for future in lost_futures:
                if not future.done():
                    future.set_exception(ConnectionLoss("/", "the connection was lost"))
            for watch, event in watches:
                if self._open:
                    watch(event)

        self.machine.loop.call_soon(lost)

    def reconnect(self) -> None:
        """The machine reaches the ensemble: what waited is sent, or the session has expired."""
        if not self.alive or self._ensemble.is_cut(self.machine.name):
            return
        if self.ended:
            # A process that was suspended goes on for a moment, until the ensemble's answer comes.
            self.machine.loop.call_soon(
                lambda: self.machine.clock.call_later(self._ensemble.latency_s, self._expire)
            )
            return
        waiting, self._waiting = self._waiting, deque()
        for act, future in waiting:
            self._send(act, future)

    def _expire(self) -> None:
        if not self._open:
            return
        self._open = False
        waiting = [future for _, future in (*self._waiting, *self._under_way)]
        for future in (*waiting, *self._unanswered):
            if not future.done():
                future.set_exception(SessionExpired("/", "the session has expired"))
        for callback in self._expired:
            callback()

    # The tree

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        self._check(path)

        def act() -> tuple[bytes, Stat]:
            found = self._nodes.get(path)
            self._watch(path, watch)
            return found

        found: tuple[bytes, Stat] = await self.ask(act)
        return found

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        self._check(path)

        def act() -> Stat | None:
            self._watch(path, watch)
            try:
                return self._nodes.get(path)[1]
            except NoNode:
                return None

        found: Stat | None = await self.ask(act)
        return found

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        self._check(path)

        def act() -> list[str]:
            names = self._nodes.children(path)
            self._watch(path, watch, on_children=True)
            return names

        names: list[str] = await self.ask(act)
        return names

    def _watch(self, path: str, watch: Watcher | None, on_children: bool = False) -> None:
        if watch is None:
            return
        if self._behind is not None:
            self._watches_behind.append((path, watch, on_children))
        else:
            self._ensemble.watch(self, path, watch, on_children)

    async def subtree(self, path: str) -> dict[str, tuple[bytes, int]]:
        self._check(path)
        found: dict[str, tuple[bytes, int]] = await self.ask(lambda: self._nodes.subtree(path))
        return found

    async def get_many(self, paths: Sequence[str]) -> dict[str, tuple[bytes, int]]:
        for path in paths:
            self._check(path)
        found: dict[str, tuple[bytes, int]] = await self.ask(lambda: self._nodes.get_many(paths))
        return found

    async def sync(self) -> None:
        self._check("/")
        await self.ask(self.catch_up)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        self._check("/")
        for operation in operations:
            check_path(operation.path)
        check_weight(operations)
        wanted = list(operations)

        def write() -> list[Result]:
            self.catch_up()
            return self._ensemble.write(wanted, self._session)

        def act() -> list[Result]:
            return write() if self.on_write is None else self.on_write(write)

        results: list[Result] = await self.ask(act)
        return results

    async def close(self) -> None:
        if not self._open:
            return
        self._open = False
        if self._ensemble.is_cut(self.machine.name):
            self.lose_connection()
            for _, future in self._waiting:
                if not future.done():
                    future.set_exception(SessionExpired("/", "the session is closed"))
        elif not self.ended:
            await self.ask(lambda: self._ensemble.end(self))

    def _check(self, path: str) -> None:
        if not self._open:
            raise SessionExpired(path, f"session {self._session} is closed")
        check_path(path)

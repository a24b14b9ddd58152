"""What faults do to the sessions of simulated brokers with their ZooKeeper ensemble.

Each kind is one coroutine on the node `operator`, as those of `injection.py`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.cluster import nodes
from ottla.metadata_store.tree import ConnectionLoss, Delete, NoNode, Result

if TYPE_CHECKING:
    from ottla.testing.simulation.machines import Machine
    from ottla.testing.simulation.plan import Fault
    from ottla.testing.simulation.run import ClusterRun
    from ottla.testing.simulation.tree import SimulatedEnsemble, SimulatedTree

Write = Callable[[], list[Result]]

CONNECTIONS = 6  # are lost in a row
BEHIND_SHARE = 0.5  # of the lost connections are followed by one to a member that is behind
DELETED_SHARE = 0.5  # of the controllers that are deposed
NO_SESSION = 0
NO_TIME_S = 1e-6  # simulated time has whole nanoseconds
QUORUM_SHARE = 0.5  # of the times that the ensemble is away it has no quorum
TAKES_PLACE_SHARE = 0.5  # of the writes without an answer


class EnsembleFaults:
    """The faults that are in force."""

    def __init__(self, run: ClusterRun, ensemble: SimulatedEnsemble) -> None:
        self._run = run
        self._ensemble = ensemble
        self._cuts: Counter[str] = Counter()  # by machine
        self._away = 0

    def heal(self) -> None:
        """End all faults."""
        ensemble = self._ensemble
        self._cuts.clear()
        self._away = 0
        ensemble.go_on()
        for machine in self._run.machines.values():
            ensemble.heal(machine.name)
        for tree in ensemble.sessions.values():
            tree.on_write = None
            tree.catch_up()

    async def cut(self, machine: Machine, lasts_s: float) -> None:
        """A machine does not reach the ensemble; cuts may overlap."""
        self._cuts[machine.name] += 1
        self._ensemble.cut(machine.name)
        await asyncio.sleep(lasts_s)
        if self._cuts[machine.name] == 1:
            self._ensemble.heal(machine.name)
        if self._cuts[machine.name] > 0:
            self._cuts[machine.name] -= 1

    async def ensemble_cut(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        """Below its session's time-out or beyond it, while it reaches the other brokers."""
        self._run.note(f"{machine.id} does not reach the ensemble")
        await self.cut(machine, fault.lasts_s)
        self._run.note(f"{machine.id} reaches the ensemble again")

    async def ensemble_away(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        """Without a quorum no session ends; if all brokers are cut off, they do."""
        run = self._run
        if rng.random() < QUORUM_SHARE:
            run.note("the ensemble has no quorum")
            self._away += 1
            self._ensemble.stop()
            await asyncio.sleep(fault.lasts_s)
            if self._away == 1:
                self._ensemble.go_on()
            self._away = max(0, self._away - 1)
            run.note("the ensemble has a quorum")
        else:
            run.note("no broker reaches the ensemble")
            cuts = (self.cut(each, fault.lasts_s) for each in run.machines.values())
            await asyncio.gather(*cuts)
            run.note("brokers reach the ensemble again")

    async def connection(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        """What is under way has an unknown outcome."""
        self._run.note(f"connections of {machine.id} to the ensemble are lost")
        for _ in range(CONNECTIONS):
            for tree in self._ensemble.sessions_of(machine.node):
                tree.lose_connection()
            await asyncio.sleep(rng.uniform(0, 2 * fault.lasts_s / CONNECTIONS))

    async def behind(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        """Reads of the broker are old until it syncs or writes, and as old again after that."""
        self._run.note(f"the ensemble's member of {machine.id} falls behind")
        until_s = self._run.simulation.now_s + fault.lasts_s
        while (left_s := until_s - self._run.simulation.now_s) > NO_TIME_S:
            for tree in self._ensemble.sessions_of(machine.node):
                tree.fall_behind()
            await asyncio.sleep(min(left_s, rng.uniform(0.1, 1.0)))
        for tree in self._ensemble.sessions_of(machine.node):
            tree.catch_up()
        self._run.note(f"the ensemble's member of {machine.id} has caught up")

    async def depose(
        self, fault: Fault, machine: Machine, rng: random.Random, then: Callable[[], object]
    ) -> None:
        """Its session ends, or an operator deletes /controller; it does not know for a while.

        `then` is called when that has happened, and when there may be another controller.
        """
        if rng.random() < DELETED_SHARE and machine.alive:
            await self._delete_controller(fault, machine, then)
            return
        self._run.note(f"the session of controller {machine.id} ends unknown to it")
        cut = asyncio.ensure_future(self.cut(machine, fault.lasts_s))
        await asyncio.sleep(0)
        self.end_session(machine)
        then()
        await asyncio.sleep(fault.lasts_s / 2)
        then()
        await cut

    async def _delete_controller(
        self, fault: Fault, machine: Machine, then: Callable[[], object]
    ) -> None:
        """The process is suspended, for less than its session's time-out: it could write on."""
        self._run.note(f"/controller of {machine.id} is deleted while it is suspended")
        loop = machine.node.loop
        machine.node.pause()
        with suppress(NoNode):
            self._ensemble.write([Delete(nodes.CONTROLLER)], NO_SESSION)
        await asyncio.sleep(fault.lasts_s / 2)
        then()
        await asyncio.sleep(fault.lasts_s / 2)
        then()
        if machine.alive and machine.node.loop is loop:
            machine.node.resume()

    def end_session(self, machine: Machine) -> None:
        """As a time-out does: its ephemeral nodes go."""
        for tree in self._ensemble.sessions_of(machine.node):
            self._ensemble.expire(tree)

    def after_writes(self, machine: Machine, callback: Callable[[], object]) -> None:
        """Call back whenever a write has taken effect, before its answer comes."""

        def wrote(write: Write) -> list[Result]:
            result = write()
            callback()
            return result

        for tree in self._ensemble.sessions_of(machine.node):
            tree.on_write = wrote

    def lose_answers(self, machine: Machine, rng: random.Random, times: int) -> None:
        """The connection is lost at each of the next writes; some of them take place."""
        for tree in self._ensemble.sessions_of(machine.node):
            tree.on_write = self._losing(tree, rng, times)

    def _losing(
        self, tree: SimulatedTree, rng: random.Random, times: int
    ) -> Callable[[Write], list[Result]]:
        left = times

        def lost(write: Write) -> list[Result]:
            nonlocal left
            left -= 1
            if left <= 0:
                tree.on_write = None
            before = self._ensemble.nodes.copy()
            try:
                if rng.random() < TAKES_PLACE_SHARE:
                    write()
            finally:
                tree.lose_connection()
                if rng.random() < BEHIND_SHARE:
                    # The next member is as far as what the client knows, and may lack the write.
                    tree.fall_behind(before)
            raise ConnectionLoss("/", "no answer")

        return lost

"""What the faults of a plan do to the machines and links of a simulated cluster.

Each kind is one coroutine on the node `operator`, which no fault strikes; faults that overlap are
tasks beside each other. A fault that cannot strike now (the broker is down already) does nothing.
`heal` ends whatever is left.
"""

from __future__ import annotations

import asyncio
import errno
import math
import random
from collections import Counter
from typing import TYPE_CHECKING

from ottla.seams.simulated.background import USUAL, Durations
from ottla.testing.simulation import tree_faults, user_faults
from ottla.testing.simulation.ensemble_faults import EnsembleFaults
from ottla.testing.simulation.machines import DATA, Machine
from ottla.testing.simulation.plan import OF_USERS, OF_ZOOKEEPER, Fault

if TYPE_CHECKING:
    from ottla.testing.simulation.run import ClusterRun

# Faults that need no running broker to strike.
OF_THE_CLUSTER = (
    *("move", "rolling", "join", "step", "session", "lost-answer", "depose", "config"),
    *("ensemble-away", *OF_USERS),
)

CLOCK_JUMP_MS = 1_800_000  # either way, at each jump
DRIFT_PPM = 200_000
SLOW_S = (0.02, 0.4)
SLOW_DISK = Durations(thread_s=0.6, process_s=3.0)
SPACE_LEFT_BYTES = 3000
MOVES = 5
WRITES_MAX = 6  # of the controller, until something happens to one
LOOK_S = 0.002  # how often the controller's decisions are looked at
STOP_S_MAX = 5.0  # then the process is killed
# Who does not renew the controller's lock for so many session time-outs is killed.
SUPERVISOR_TIMEOUTS = 1.0


class Injector:
    """The faults that are in force."""

    def __init__(self, run: ClusterRun) -> None:
        self._run = run
        self._cuts: Counter[tuple[str, str]] = Counter()  # from, to
        self._losing: set[int] = set()  # brokers whose next sync may fail
        self._lost: set[int] = set()  # brokers that lost bytes and have not been in all ISRs since
        self._users = user_faults.UserFaults(run, self._lacking)
        self.injected: Counter[str] = Counter()

    @property
    def _of_ensemble(self) -> EnsembleFaults | None:
        """For brokers whose tree is in one."""
        return self._run.ensemble_faults

    async def inject(self, fault: Fault) -> None:
        """Wait for the fault's time, let it happen and end."""
        run = self._run
        await asyncio.sleep(max(0.0, fault.at_s - run.simulation.now_s))
        run.compare()
        rng = fault.rng
        machine = self._target(fault, rng)
        if machine is None:
            return
        name = fault.kind.replace("-", "_")
        if fault.kind in user_faults.KINDS:
            act = getattr(self._users, name)
        elif fault.kind not in OF_ZOOKEEPER:
            act = getattr(self, "_" + name)
        elif self._of_ensemble is not None:
            act = getattr(self._of_ensemble, name)
        else:
            return
        if fault.kind not in OF_THE_CLUSTER and not machine.ready:
            return
        self.injected[fault.kind] += 1
        await act(fault, machine, rng)

    def _target(self, fault: Fault, rng: random.Random) -> Machine | None:
        machines, view = self._run.machines, self._run.view
        if fault.target.isdecimal():
            return machines.get(int(fault.target))
        struck = self._run.struck
        leader = view.leader(struck[fault.draw % len(struck)])
        if fault.target == "leader" and leader in machines:
            return machines[leader]
        if fault.target == "controller" and view.controller is not None:
            return view.controller
        others = [
            each
            for each in machines.values()
            if each.ready and (fault.target != "follower" or each.id != leader)
        ]
        return rng.choice(others) if others else None

    def heal(self) -> None:
        """End all faults."""
        run = self._run
        if self._of_ensemble is not None:
            self._of_ensemble.heal()
        for machine in run.machines.values():
            machine.node.disk.heal()
            tree_faults.heal(machine)
            machine.node.disk.capacity_bytes = None
            machine.node.machine_time.set_drift(0)
            if machine.alive:
                machine.node.resume()
                machine.node.background.durations = USUAL
            self._repair(machine)
            for other in self._others(machine):
                run.simulation.network.slow(machine.name, other.name, None)
        for link in list(self._cuts):
            run.simulation.network.heal(*link, both_ways=False)
        self._cuts.clear()
        for machine in run.machines.values():
            machine.start()

    def _others(self, machine: Machine) -> list[Machine]:
        return [each for each in self._run.machines.values() if each is not machine]

    # Processes and machines

    async def _kill(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        await self._crash(fault, machine)

    async def _power(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        lossless = self._run.sync_before_ack
        await self._crash(fault, machine, power=lossless or self._may_lose(machine))

    async def _wipe(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        if self._may_lose(machine):
            await self._crash(fault, machine, power=True, wipe=True)
        else:
            await self._crash(fault, machine)

    def _may_lose(self, machine: Machine) -> bool:
        """Whether the promise covers a loss of un-synced bytes here, now.

        One replica may lose them while another in the ISR has them, and another replica only after
        that one is in all ISRs again.
        """
        run = self._run
        if self._lacking() or self._users.configuring:
            return False
        return run.view.may_be_missed(machine.id, lambda broker_id: run.machines[broker_id].ready)

    def _lacking(self) -> bool:
        """Whether a broker has lost bytes, or is about to, and has not been in all ISRs since."""
        run = self._run
        damaged = run.rot.left()
        self._lost = {
            each
            for each in self._lost
            if not (run.machines[each].ready and run.view.in_sync(each)) or each in damaged
        }
        return bool(self._lost or self._losing)

    async def _flip(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        may_lose = not self._run.sync_before_ack and self._may_lose(machine)
        await self._crash(fault, machine, flip=rng if may_lose else None)

    async def _crash(
        self,
        fault: Fault,
        machine: Machine,
        *,
        power: bool = False,
        wipe: bool = False,
        flip: random.Random | None = None,
    ) -> None:
        run = self._run
        run.note(f"{'wiped disk' if wipe else 'power cut' if power else 'kill'} of {machine.id}")
        if flip is not None or (power and (wipe or not run.sync_before_ack)):
            self._lost.add(machine.id)
        machine.crash(power=power)
        run.invariants.crashed(machine.id)
        if wipe:
            machine.wipe()
        if flip is not None:
            run.note(f"bits of {machine.id} flip")
            machine.flip_bits(flip)
        await asyncio.sleep(fault.lasts_s)
        run.note(f"start of {machine.id}")
        machine.start()

    async def _stop(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        run = self._run
        run.note(f"stop of {machine.id}")
        node = machine.node.loop
        machine.stop()
        waited_s = 0.0
        while machine.node.loop is node and machine.alive and waited_s < STOP_S_MAX:
            await asyncio.sleep(0.05)
            waited_s += 0.05
        if machine.node.loop is node and machine.alive:
            run.note(f"{machine.id} does not stop: killed")
            machine.crash()
        run.invariants.crashed(machine.id)
        await asyncio.sleep(fault.lasts_s)
        run.note(f"start of {machine.id}")
        machine.start()

    async def _rolling(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        machines = list(self._run.machines.values())
        rng.shuffle(machines)
        for each in machines:
            if each.ready:
                await self._stop(fault._replace(lasts_s=rng.uniform(0.1, 0.6)), each, rng)
            await asyncio.sleep(fault.lasts_s / len(machines))

    async def _pause(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        run = self._run
        run.note(f"{machine.id} is stopped by a signal")
        loop = machine.node.loop
        machine.node.pause()
        # Where the controller has a session with an ensemble, that ends instead.
        patience_s = run.session_timeout_s * SUPERVISOR_TIMEOUTS if not run.zookeeper else math.inf
        await asyncio.sleep(min(fault.lasts_s, patience_s))
        if fault.lasts_s > patience_s and machine.controller is not None:
            if machine.alive and machine.node.loop is loop:
                # It holds the controller's lock: whoever watches the processes of a host ends it.
                run.note(f"{machine.id} is killed, for it has not renewed the lock")
                machine.crash()
                run.invariants.crashed(machine.id)
                machine.start()
            return
        await asyncio.sleep(max(0.0, fault.lasts_s - patience_s))
        if machine.alive and machine.node.loop is loop:
            machine.node.resume()
            run.note(f"{machine.id} goes on")

    # Links

    async def _cut(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        names = [each.name for each in self._others(machine)]
        links = [(machine.name, each) for each in names] + [(each, machine.name) for each in names]
        await self._cut_links(fault, f"links of {machine.id}", links)

    async def _cut_in(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        links = [(each.name, machine.name) for each in self._others(machine)]
        await self._cut_links(fault, f"links to {machine.id}", links)

    async def _cut_out(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        links = [(machine.name, each.name) for each in self._others(machine)]
        await self._cut_links(fault, f"links from {machine.id}", links)

    async def _cut_link(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        other = rng.choice(self._others(machine))
        links = [(machine.name, other.name), (other.name, machine.name)]
        await self._cut_links(fault, f"link between {machine.id} and {other.id}", links)

    async def _isolate(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        names = [name for name in self._run.simulation.nodes if name != machine.name]
        links = [(machine.name, each) for each in names] + [(each, machine.name) for each in names]
        cut = self._cut_links(fault, f"all links of {machine.id}", links)
        if self._of_ensemble is None:
            await cut
        else:
            await asyncio.gather(self._of_ensemble.cut(machine, fault.lasts_s), cut)

    async def _controller(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        controller = self._run.view.controller
        if controller is machine or controller is None:
            await self._cut(fault, machine, rng)
            return
        links = [(machine.name, controller.name), (controller.name, machine.name)]
        await self._cut_links(fault, f"link of {machine.id} to the controller", links)

    async def _cut_links(self, fault: Fault, what: str, links: list[tuple[str, str]]) -> None:
        run = self._run
        run.note(f"{what} cut")
        for link in links:
            self._cuts[link] += 1
            run.simulation.network.cut(*link, both_ways=False)
        await asyncio.sleep(fault.lasts_s)
        for link in links:
            if self._cuts[link] == 1:
                run.simulation.network.heal(*link, both_ways=False)
            if self._cuts[link] > 0:
                self._cuts[link] -= 1
        run.note(f"{what} healed")

    async def _slow(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        run = self._run
        latency_s = rng.uniform(*SLOW_S)
        run.note(f"links of {machine.id} take {latency_s:.3f} s")
        for other in self._others(machine):
            run.simulation.network.slow(machine.name, other.name, latency_s)
        await asyncio.sleep(fault.lasts_s)
        for other in self._others(machine):
            run.simulation.network.slow(machine.name, other.name, None)
        run.note(f"links of {machine.id} are fast again")

    # Clocks

    async def _drift(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        ppm = rng.randint(-DRIFT_PPM, DRIFT_PPM)
        self._run.note(f"the clocks of {machine.id} drift by {ppm} ppm")
        machine.node.machine_time.set_drift(ppm)
        await asyncio.sleep(fault.lasts_s)
        machine.node.machine_time.set_drift(0)
        self._run.note(f"the clocks of {machine.id} run as they should")

    async def _jump(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        ms = rng.randint(-CLOCK_JUMP_MS, CLOCK_JUMP_MS)
        self._run.note(f"the wall clock of {machine.id} is set by {ms} ms")
        machine.node.machine_time.jump_wall(ms)

    # Disks

    async def _full(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        disk = machine.node.disk
        used = (1 << 40) - disk.free_bytes("/") if disk.capacity_bytes is None else 0
        if not used:
            return
        disk.capacity_bytes = used + rng.randint(0, SPACE_LEFT_BYTES)
        self._run.note(f"the disk of {machine.id} is full")
        await asyncio.sleep(fault.lasts_s)
        disk.capacity_bytes = None
        self._run.note(f"the disk of {machine.id} has space again")
        self._repair(machine)

    async def _rot(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        if not self._may_lose(machine):
            return
        struck = self._run.rot.strike(machine, rng.choice(self._run.places), rng)
        if struck is not None:
            self._lost.add(machine.id)
            self._run.note(f"a bit of {struck} flips on {machine.id}")

    async def _sync_error(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        # What it should have written is lost, as un-synced bytes are without power.
        if not self._may_lose(machine):
            return
        self._losing.add(machine.id)
        await self._disk_error(fault, machine, "sync", rng.randint(0, 3), 1)
        self._losing.discard(machine.id)
        self._lost.add(machine.id)

    async def _write_error(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        await self._disk_error(fault, machine, "write", rng.randint(0, 10), rng.randint(1, 5))

    async def _disk_error(
        self, fault: Fault, machine: Machine, operation: str, after: int, times: int
    ) -> None:
        disk = machine.node.disk
        self._run.note(f"{operation} of {machine.id} fails, {times} times after {after}")
        disk.fail(operation, DATA, errno.EIO, after=after, times=times)
        await asyncio.sleep(fault.lasts_s)
        disk.heal()
        self._repair(machine)

    def _repair(self, machine: Machine) -> None:
        """What a disk error took offline is back after a restart, as an operator knows."""
        failure = machine.failure
        if failure is not None:
            self._run.note(f"{machine.id} is restarted: {failure}")
            machine.crash()
            self._run.invariants.crashed(machine.id)
            machine.start()

    async def _slow_disk(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        self._run.note(f"the disk of {machine.id} is slow")
        background = machine.node.background
        background.durations = SLOW_DISK
        await asyncio.sleep(fault.lasts_s)
        background.durations = USUAL
        self._run.note(f"the disk of {machine.id} is fast again")

    # The controller's decisions

    async def _move(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        """Several times in a row, so that some brokers learn of more than one at once."""
        run = self._run
        for _ in range(MOVES):
            run.note("leadership moves")
            for leader in rng.sample(list(run.machines), len(run.machines)):
                for place in run.moved:
                    run.view.move_leader(place, leader)
            await asyncio.sleep(fault.lasts_s / MOVES)

    async def _join(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        """What the follower lacks must not have been committed."""
        run = self._run
        place = rng.choice(run.places)
        before = run.view.partition(place)
        for _ in range(round(fault.lasts_s / LOOK_S)):
            await asyncio.sleep(LOOK_S)
            now = run.view.partition(place)
            if before is None or now is None:
                return
            if now.leader == before.leader and len(now.isr) > len(before.isr):
                leader = run.machines.get(now.leader)
                if leader is not None and leader.ready:
                    await self._crash(fault._replace(lasts_s=rng.uniform(0, 2)), leader)
                return
            before = now

    # The controller's session with the tree

    async def _step(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        """What the controller has begun is finished by the next one."""
        run = self._run
        controller = run.view.controller
        if controller is None or not controller.ready:
            return
        left = rng.randint(0, WRITES_MAX)
        written = asyncio.Event()

        def wrote() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                written.set()

        loop = controller.node.loop
        (self._of_ensemble or tree_faults).after_writes(controller, wrote)
        self._cause_writes(rng)
        try:
            await asyncio.wait_for(written.wait(), fault.lasts_s)
        except TimeoutError:
            tree_faults.heal(controller)
            return
        if controller.node.loop is loop and controller.alive:
            await self._crash(fault._replace(lasts_s=rng.uniform(0, 1)), controller)

    async def _session(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        controller = self._run.view.controller
        if self._of_ensemble is not None:
            self._run.note(f"the session of {machine.id} ends")
            self._of_ensemble.end_session(machine)
        elif controller is not None:
            self._run.note(f"the session of controller {controller.id} ends")
            tree_faults.end_session(controller)

    async def _lost_answer(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        controller = self._run.view.controller
        if controller is not None:
            times = rng.randint(1, WRITES_MAX)
            self._run.note(f"{times} writes of controller {controller.id} get no answer")
            (self._of_ensemble or tree_faults).lose_answers(controller, rng, times)
            self._cause_writes(rng)

    async def _depose(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        controller = self._run.view.controller
        if controller is not None:
            if self._of_ensemble is not None:
                await self._of_ensemble.depose(
                    fault, controller, rng, lambda: self._cause_writes(rng)
                )
            else:
                self._run.note(f"the lock of controller {controller.id} is lost")
                tree_faults.lose_lock(controller)
                await asyncio.sleep(fault.lasts_s)
            self._cause_writes(rng)

    def _cause_writes(self, rng: random.Random) -> None:
        run = self._run
        for controller in run.view.controllers:
            for place in run.moved:
                run.view.move_leader(place, rng.choice(list(run.machines)), controller)

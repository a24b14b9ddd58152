"""Several nodes on one thread, in virtual time, from one seed.

The simulation runs one callback at a time: of the nodes that have one ready, the seed chooses. When
none has, the time moves to the next timer of any node, so that waiting costs nothing. The same seed
gives the same order, and `digest` is a fingerprint of it; another seed gives another order wherever
none is promised: between nodes, among timers of one moment, in the duration of background work and
of a packet's way.

    with Simulation(seed=7) as simulation:
        one, two = simulation.node("one"), simulation.node("two")
        one.run(start_broker(one))
        two.crash()
        simulation.run_for(3600)

Without a seed (None) the order is fixed: first come, first served.
"""

from __future__ import annotations

import asyncio
import random
from asyncio import _get_running_loop, _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack
from hashlib import blake2b
from types import TracebackType
from typing import Any, Self, TypeVar

from ottla.seams.background import Job
from ottla.seams.chance import SeededChance
from ottla.seams.simulated.background import USUAL, Durations, SimulatedBackground
from ottla.seams.simulated.clock import EPOCH_MS, MachineTime, SimulatedClock
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.seams.simulated.loop import NEVER_NS, NS_PER_S, SimulatedLoop
from ottla.seams.simulated.network import SimulatedNetwork

T = TypeVar("T")

STEPS_AT_ONCE_MAX = 1_000_000  # callbacks in one moment; more is a loop that waits for nothing
RECENT_STEPS = 50  # in the message of a failure


class SimulationStuck(AssertionError):
    """What was waited for cannot come: nothing is scheduled, or time does not move."""


class Node:
    """One machine and the process on it. The seams are new with each start of the process.

    `disk`, `network`'s name and the machine's time stay; `loop`, `clock`, `background` and `chance`
    belong to the process and are replaced by `start`.
    """

    loop: SimulatedLoop
    clock: SimulatedClock
    background: SimulatedBackground
    chance: SeededChance

    def __init__(
        self,
        simulation: Simulation,
        name: str,
        disk: SimulatedDisk,
        *,
        jobs: Mapping[str, Job],
        durations: Durations,
        wall_ms: int,
    ) -> None:
        self.simulation = simulation
        self.name = name
        self.disk = disk
        self.machine_time = MachineTime(simulation.true_ns, wall_ms)
        self.starts = 0
        self.alive = False
        self._jobs = jobs
        self._durations = durations
        self.start()

    def start(self) -> None:
        """Begin a new process on this machine, with nothing of the one before but the disk."""
        assert not self.alive, f"node {self.name} is running"
        self.alive = True
        self.starts += 1
        self.loop = SimulatedLoop(self.simulation, self.name, self.machine_time)
        self.clock = SimulatedClock(self.loop, self.machine_time)
        self.network = self.simulation.network.host(self.name, self.clock)
        stream = f"node {self.name} {self.starts}"
        self.chance = SeededChance(self.simulation.stream(stream).getrandbits(64))
        self.background = SimulatedBackground(
            self.loop,
            self.disk,
            self._jobs,
            rng=self.simulation.stream(f"{stream} background"),
            durations=self._durations,
        )
        self.simulation._add(self.loop)

    def crash(self, *, power: bool = False) -> None:
        """End the process, or with `power` the machine: tasks, timers and background work vanish.

        Nothing is cancelled or closed: no `finally` runs. What was written survives the end of the
        process; of what was not synced, the seed says what survives a loss of power.
        """
        assert self.alive, f"node {self.name} is not running"
        self.alive = False
        self.loop.drop()
        self.simulation.network.crash(self.name, power=power)
        if power:
            self.disk.crash(
                self.simulation.stream(f"power {self.name} {self.starts}").getrandbits(32)
            )
        else:
            self.disk.kill()

    def restart(self, *, power: bool = False) -> None:
        """`crash` and `start`."""
        self.crash(power=power)
        self.start()

    def pause(self) -> None:
        """Stop running its callbacks, as SIGSTOP or a suspended virtual machine; time goes on."""
        self.loop.paused = True

    def resume(self) -> None:
        self.loop.paused = False

    def task(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a coroutine on this node; it runs when the simulation does."""
        task: asyncio.Task[T] = self.loop.create_task(coroutine)
        return task

    def run(self, coroutine: Coroutine[Any, Any, T], *, limit_s: float | None = None) -> T:
        """Run the simulation until a coroutine on this node has ended; its result."""
        result: T = self.simulation.run_on(self.loop, coroutine, limit_s=limit_s)
        return result


class Simulation:
    """The scheduler: virtual time, a seeded order, and the nodes."""

    def __init__(
        self,
        seed: int | None = 0,
        *,
        latency_s: float = 0.0,
        jitter_s: float = 0.0,
        split_share: float = 1.0,
    ) -> None:
        """`split_share`: how many of all reads and writes on the network move only a part."""
        self.seed = seed
        self.nodes: dict[str, Node] = {}
        self.now_ns = 0  # the true time
        self._rng = self.stream("scheduler")
        self._loops: list[SimulatedLoop] = []
        self._running: list[SimulatedLoop] = []  # those that were not dropped
        self._recent: deque[tuple[int, str, object]] = deque(maxlen=RECENT_STEPS)
        self._digest = blake2b(digest_size=16)
        self.steps = 0
        # What is on its way belongs to no node: it arrives although its sender is gone.
        wire_time = MachineTime(self.true_ns)
        wire = SimulatedLoop(self, "network", wire_time)
        self._add(wire)
        self.network = SimulatedNetwork(
            SimulatedClock(wire, wire_time),
            latency_s=latency_s,
            jitter_s=jitter_s,
            chance=None if seed is None else SeededChance(self.stream("network").getrandbits(64)),
            split_share=split_share,
        )
        self.network.on_sent = self._sent

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        if kind is None:
            self.check()

    def node(
        self,
        name: str,
        *,
        disk: SimulatedDisk | None = None,
        jobs: Mapping[str, Job] | None = None,
        durations: Durations = USUAL,
        wall_ms: int = EPOCH_MS,
    ) -> Node:
        """Add a machine with a running process."""
        assert name not in self.nodes, f"there is a node {name}"
        node = Node(
            self, name, disk or SimulatedDisk(), jobs=jobs or {}, durations=durations,
            wall_ms=wall_ms,
        )  # fmt: skip
        self.nodes[name] = node
        return node

    def close(self) -> None:
        """Drop what is left of every node; nothing of it changes a disk any more."""
        for loop in self._loops:
            loop.drop()
        with ExitStack() as shut:
            for node in self.nodes.values():
                shut.enter_context(node.disk.shut())
            for loop in self._loops:
                loop.dispose()

    def check(self) -> None:
        """Raise when a callback or a task of a node has failed with nobody to notice."""
        failures = [(loop.name, each) for loop in self._loops for each in loop.failures]
        if failures:
            name, context = failures[0]
            raise AssertionError(
                f"seed {self.seed}: node {name}: {context.get('message')}"
            ) from context.get("exception")

    # Time and order

    def true_ns(self) -> int:
        return self.now_ns

    @property
    def now_s(self) -> float:
        """Virtual seconds since the simulation began."""
        return self.now_ns / NS_PER_S

    def stream(self, what: str) -> random.Random:
        """A source of randomness for one purpose, so that no purpose shifts another."""
        return random.Random(f"{self.seed} {what}")

    def tie(self) -> int:
        """Where a timer stands among those due at the same moment."""
        return 0 if self.seed is None else self._rng.getrandbits(32)

    @property
    def digest(self) -> str:
        """A fingerprint of all so far: each step (when, which node, which callback), each send."""
        return self._digest.hexdigest()

    def _sent(self, source: str, target: str, data: bytes) -> None:
        self._digest.update(f"{source} {target} {len(data)}\n".encode())
        self._digest.update(data)

    def step(self) -> bool:
        """Run one callback of one node at this moment; False when none is ready."""
        now_ns = self.now_ns
        ready = [
            loop
            for loop in self._running
            if (loop.soon or loop.due_ns <= now_ns) and not loop.paused
        ]
        if not ready:
            return False
        loop = ready[0] if len(ready) == 1 or self.seed is None else self._rng.choice(ready)
        handle = loop.take()
        if handle is not None:
            self.steps += 1
            what = _description(handle)
            self._recent.append((now_ns, loop.name, what))
            self._digest.update(f"{now_ns} {loop.name} {what}\n".encode())
            outer = _get_running_loop()
            _set_running_loop(loop)
            try:
                handle._run()
            finally:
                _set_running_loop(outer)
        return True

    def run_ready(self, done: Callable[[], bool] = lambda: False) -> None:
        """Run all that can run without time passing, or until `done`."""
        for _ in range(STEPS_AT_ONCE_MAX):
            if done() or not self.step():
                return
        raise self._stuck(f"{STEPS_AT_ONCE_MAX} callbacks and time has not moved")

    def run_until(self, done: Callable[[], bool], *, limit_s: float | None = None) -> None:
        """Run until `done`, for at most `limit_s` of virtual time. Raises SimulationStuck."""
        end_ns = None if limit_s is None else self.now_ns + round(limit_s * NS_PER_S)
        while True:
            self.run_ready(done)
            if done():
                return
            due_ns = self._next_due_ns()
            if due_ns is None:
                raise self._stuck("nothing is scheduled that could end the wait")
            if end_ns is not None and due_ns > end_ns:
                self.now_ns = end_ns
                raise self._stuck(f"not done within {limit_s} s")
            self.now_ns = max(due_ns, self.now_ns)

    def run_for(self, seconds: float) -> None:
        """Run everything that is due within this time, and let the time pass."""
        end_ns = self.now_ns + round(seconds * NS_PER_S)
        while True:
            self.run_ready()
            due_ns = self._next_due_ns()
            if due_ns is None or due_ns > end_ns:
                break
            self.now_ns = max(due_ns, self.now_ns)
        self.now_ns = end_ns

    def run_on(self, loop: SimulatedLoop, coroutine: Any, *, limit_s: float | None = None) -> Any:
        """Run until a coroutine or future of this loop is done; its result."""
        future = asyncio.ensure_future(coroutine, loop=loop)
        self.run_until(lambda: future.done() or loop.dropped, limit_s=limit_s)
        if not future.done():
            raise SimulationStuck(f"seed {self.seed}: node {loop.name} crashed meanwhile")
        return future.result()

    def _next_due_ns(self) -> int | None:
        while True:
            running = [each for each in self._running if not each.paused]
            due_ns = min([each.due_ns for each in running], default=NEVER_NS)
            if due_ns == NEVER_NS:
                return None
            first = [each for each in running if each.due_ns <= due_ns]
            # Each of them: one whose first timer is cancelled has nothing to run.
            if True not in [each.leave_out_cancelled() for each in first]:
                return due_ns

    def _add(self, loop: SimulatedLoop) -> None:
        self._loops.append(loop)
        self._running = [each for each in self._running if not each.dropped]
        self._running.append(loop)

    def _stuck(self, why: str) -> SimulationStuck:
        last = "\n".join(f"  {at / NS_PER_S:.6f} {name} {what}" for at, name, what in self._recent)
        return SimulationStuck(
            f"seed {self.seed}, {self.now_s:.6f} s: {why}; the last steps:\n{last}"
        )


def _description(handle: asyncio.Handle) -> str:
    """What a callback is, the same in every run: a task by its coroutine, else the function."""
    callback = handle._callback  # type: ignore[attr-defined]
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return getattr(owner.get_coro(), "__qualname__", "task")
    return getattr(callback, "__qualname__", type(callback).__name__)

"""The simulated nodes: virtual time, a seeded order, crashes that leave nothing running."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

import pytest

from ottla.seams.background import HelperFailed
from ottla.seams.disk import Disk
from ottla.seams.network import Stream
from ottla.seams.simulated.background import NO_TIME, Durations
from ottla.seams.simulated.simulation import Node, Simulation, SimulationStuck

HOUR_S = 3600.0
Note = Callable[[str], None]


async def busy(node: Node, note: Note, rounds: int = 20) -> None:
    """Timers that collide, wake-ups, background work: each step is noted."""
    for number in range(rounds):
        note(f"{node.name} {number}")
        await asyncio.gather(asyncio.sleep(0.01), asyncio.sleep(0.01), asyncio.sleep(0))
        await node.background.thread(note, f"{node.name} thread {number}")


def played(seed: int | None) -> tuple[list[str], str]:
    """What three busy nodes noted, and the fingerprint of the run."""
    notes: list[str] = []
    with Simulation(seed) as simulation:
        nodes = [simulation.node(name) for name in ("one", "two", "three")]
        tasks = [node.task(busy(node, notes.append)) for node in nodes]
        simulation.run_until(lambda: all(task.done() for task in tasks))
    return notes, simulation.digest


def test_the_same_seed_gives_the_same_trace() -> None:
    """Every step, its time and its node are the same in every run of one seed."""
    assert played(7) == played(7)
    assert played(None) == played(None)


def test_another_seed_gives_another_order() -> None:
    """The same steps happen, and nodes overtake each other elsewhere."""
    runs = [played(seed) for seed in range(5)]
    assert len({digest for _, digest in runs}) == 5
    assert len({tuple(notes) for notes, _ in runs}) > 1
    assert all(sorted(notes) == sorted(runs[0][0]) for notes, _ in runs)


def test_virtual_hours_cost_only_their_steps() -> None:
    """A year passes in as many steps as there are timers in it."""
    with Simulation() as simulation:
        node = simulation.node("one")
        ticks: list[float] = []

        async def hourly() -> None:
            for _ in range(365 * 24):
                await asyncio.sleep(HOUR_S)
                ticks.append(node.clock.monotonic())

        began_ms = node.clock.now_ms()
        node.run(hourly())
        assert ticks == [HOUR_S * number for number in range(1, 365 * 24 + 1)]
        assert node.clock.now_ms() - began_ms == 365 * 24 * 3_600_000
        assert simulation.steps < 10 * len(ticks)


def test_what_asyncio_promises_is_kept() -> None:
    """Callbacks of a node run in the order they were scheduled, timers not before they are due."""
    for seed in range(20):
        with Simulation(seed) as simulation:
            node = simulation.node("one")
            seen: list[int] = []
            for number in range(10):
                node.loop.call_soon(seen.append, number)
            for number in (13, 11, 12):
                node.clock.call_later(number / 1000, seen.append, number)
            node.clock.call_later(0.020, seen.append, 99).cancel()
            simulation.run_for(0.0125)
            assert seen == [*range(10), 11, 12]
            simulation.run_for(1)
            assert seen == [*range(10), 11, 12, 13]


def test_timers_of_one_moment_run_in_any_order() -> None:
    """asyncio does not say which comes first, so the seed does; without a seed, the first set."""

    def order(seed: int | None) -> tuple[int, ...]:
        with Simulation(seed) as simulation:
            node, seen = simulation.node("one"), list[int]()
            for number in range(5):
                node.clock.call_later(1, seen.append, number)
            simulation.run_for(1)
            return tuple(seen)

    assert order(None) == (0, 1, 2, 3, 4)
    assert len({order(seed) for seed in range(10)}) > 5


def test_the_timeouts_of_asyncio_work() -> None:
    """`asyncio.timeout`, `wait_for` and cancellation follow virtual time."""
    with Simulation() as simulation:
        node = simulation.node("one")

        async def waits() -> float:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(60):
                    await asyncio.Event().wait()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.sleep(HOUR_S), 30)
            return asyncio.get_running_loop().time()

        assert node.run(waits()) == 90


@pytest.mark.parametrize("seed", range(20))
def test_a_crashed_node_never_runs_again(seed: int) -> None:
    """Tasks, timers, background work, callbacks and clean-up of a crashed node are gone at once."""
    notes: list[str] = []

    async def lives(node: Node) -> None:
        try:
            await busy(node, notes.append, 1000)
        finally:
            notes.append(f"{node.name} cleans up")

    with Simulation(seed) as simulation:
        one, two = simulation.node("one"), simulation.node("two")
        one.task(lives(one))
        other = two.task(busy(two, notes.append, 50))
        one.clock.call_later(1, notes.append, "one's timer")
        simulation.run_for(0.05 + seed / 1000)
        one.background.thread(notes.append, "one's thread")
        one.loop.call_soon(notes.append, "one's callback")
        one.crash()
        before = [note for note in notes if note.startswith("one")]
        one.loop.call_soon(notes.append, "one after its end")
        one.clock.call_later(0, notes.append, "one after its end")
        simulation.run_until(other.done)
        simulation.run_for(HOUR_S)
        gc.collect()
        assert [note for note in notes if note.startswith("one")] == before
        assert "two 49" in notes


def test_the_end_of_a_simulation_changes_no_disk() -> None:
    """What crashed nodes would clean up does not reach the disk that a test reads afterwards."""
    ran: list[str] = []
    simulation = Simulation(2)
    node = simulation.node("one")
    node.disk.mkdir("/data")

    async def lives() -> None:
        try:
            await asyncio.sleep(HOUR_S)
        finally:
            ran.append("finally")
            await asyncio.sleep(1)
            node.disk.mkdir("/data/cleaned")

    node.task(lives())
    simulation.run_for(1)
    node.crash()
    simulation.close()
    gc.collect()
    assert node.disk.listdir("/data") == []
    assert ran == ["finally"]
    node.disk.mkdir("/data/next")


def test_a_node_starts_again_with_its_disk_alone() -> None:
    """After a crash a new process has the files, a clock that went on, and nothing else."""
    with Simulation(3) as simulation:
        node = simulation.node("one")
        node.disk.mkdir("/data")
        node.disk.write_atomically("/data/file", b"synced", sync=True)
        node.disk.sync_directory("/")
        node.disk.lock("/data/.lock")
        simulation.run_for(10)
        before = (node.loop, node.clock, node.background, node.chance)
        node.restart(power=True)
        assert not any(new is old for new in vars(node).values() for old in before)
        assert node.disk.read("/data/file") == b"synced"
        node.disk.lock("/data/.lock")
        assert node.clock.monotonic() == 10
        assert node.starts == 2


def test_waiting_for_a_node_that_crashes_ends() -> None:
    """Whoever waits for work of a node learns that it crashed."""
    with Simulation() as simulation:
        one, two = simulation.node("one"), simulation.node("two")
        two.clock.call_later(5, one.crash)
        with pytest.raises(SimulationStuck, match="node one crashed"):
            one.run(asyncio.sleep(HOUR_S))


def test_a_paused_node_is_late() -> None:
    """Nothing runs while it is paused, time goes on for all, and what came due runs afterwards."""
    with Simulation() as simulation:
        one, two, seen = simulation.node("one"), simulation.node("two"), list[float]()
        one.clock.call_later(5, lambda: seen.append(one.clock.monotonic()))
        two.clock.call_later(5, lambda: seen.append(two.clock.monotonic()))
        one.pause()
        simulation.run_for(60)
        assert seen == [5]
        one.resume()
        simulation.run_for(1)
        assert seen == [5, 60]


def test_each_machine_has_its_own_time() -> None:
    """Clocks drift apart, wall clocks jump, and timers follow the clock of their machine."""
    with Simulation() as simulation:
        right, fast, slow = (simulation.node(name) for name in ("right", "fast", "slow"))
        simulation.run_for(100)
        fast.machine_time.set_drift(100_000)
        slow.machine_time.set_drift(-100_000)
        fired: list[str] = []
        for node in (slow, right, fast):
            node.clock.call_later(10, fired.append, node.name)
        before_ms = slow.clock.now_ms()
        slow.clock.jump_wall(-60_000)
        simulation.run_for(10)
        assert fired == ["fast", "right"]
        assert (right.clock.monotonic(), fast.clock.monotonic()) == (110, 111)
        assert slow.clock.now_ms() == before_ms - 60_000 + 9_000
        simulation.run_for(1.2)
        assert fired == ["fast", "right", "slow"]


def test_background_work_takes_simulated_time() -> None:
    """A result arrives later than the work was done, both later than it was asked for."""
    with Simulation(5) as simulation:
        node = simulation.node("one", durations=Durations(thread_s=2.0))
        done_at: list[float] = []
        future = node.background.thread(lambda: done_at.append(simulation.now_s))
        assert not done_at
        simulation.run_until(future.done)
        assert 0 < done_at[0] < simulation.now_s <= 4


def test_background_work_is_done_by_a_few_threads() -> None:
    """Four calls at a time, in any order of ending; the fifth waits for a free thread."""
    ended: list[int] = []
    with Simulation(1) as simulation:
        node = simulation.node("one", durations=Durations(thread_s=1.0))
        for number in range(40):
            node.background.thread(lambda: None).add_done_callback(
                lambda _, number=number: ended.append(number)  # type: ignore[misc]
            )
        simulation.run_until(lambda: len(ended) == 40)
    assert ended != sorted(ended)
    assert simulation.now_s > 40 / 4 * 0.5


def test_background_work_without_duration_still_comes_later() -> None:
    """No time passes, but the caller goes on first, as with a thread."""
    with Simulation(None) as simulation:
        node, seen = simulation.node("one", durations=NO_TIME), list[str]()
        node.background.thread(seen.append, "work")
        seen.append("caller")
        simulation.run_ready()
        assert (seen, simulation.now_s) == (["caller", "work"], 0)


def test_errors_of_background_work_arrive() -> None:
    """As the exception from a thread, as HelperFailed from a job; a closed one takes no more."""

    def job(disk: Disk, arguments: dict[str, object]) -> dict[str, object]:
        raise OSError("no " + str(arguments["what"]))

    def fail() -> None:
        raise ValueError("no")

    with Simulation() as simulation:
        node = simulation.node("one", jobs={"job": job})

        async def ask() -> None:
            with pytest.raises(ValueError, match="no"):
                await node.background.thread(fail)
            with pytest.raises(HelperFailed, match="'job' failed: OSError: no way"):
                await node.background.process("job", {"what": "way"})
            node.background.close()
            with pytest.raises(RuntimeError, match="closed"):
                node.background.thread(fail)

        node.run(ask())


def test_a_crash_falls_before_or_after_the_effect() -> None:
    """Over the seeds a crash finds a background write undone, done unnoticed, and noticed."""
    seen: set[tuple[bool, bool]] = set()
    for seed in range(40):
        with Simulation(seed) as simulation:
            node = simulation.node("one")
            future = node.background.thread(node.disk.mkdir, "/made")
            simulation.run_for(0.008)
            node.crash()
            seen.add((node.disk.exists("/made"), future.done()))
    assert seen == {(False, False), (True, False), (True, True)}


def test_what_nobody_can_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait without a timer, one that is too long, and a loop that spins: errors, not hangs."""

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    with Simulation(9) as simulation:
        node = simulation.node("one")
        with pytest.raises(SimulationStuck, match=r"seed 9.*nothing is scheduled"):
            node.run(asyncio.Event().wait())
        with pytest.raises(SimulationStuck, match="not done within 60 s"):
            node.run(asyncio.sleep(HOUR_S), limit_s=60)
        node.task(spin())
        monkeypatch.setattr("ottla.seams.simulated.simulation.STEPS_AT_ONCE_MAX", 1000)
        with pytest.raises(SimulationStuck, match=r"time has not moved(.|\n)*one .*spin"):
            simulation.run_for(1)


def test_a_failure_that_nobody_awaits_fails_the_simulation() -> None:
    """An exception in a callback is kept and raised at the end, with the seed."""

    def fail() -> None:
        raise ValueError("lost")

    simulation = Simulation(4)
    simulation.node("one").loop.call_soon(fail)
    simulation.run_ready()
    with pytest.raises(AssertionError, match="seed 4: node one"):
        simulation.check()
    simulation.close()


def test_futures_of_another_node_are_refused() -> None:
    """Nodes are processes: what one awaits is its own; they meet on the network."""
    with Simulation() as simulation:
        one, two = simulation.node("one"), simulation.node("two")

        async def wait_for(future: asyncio.Future[None]) -> None:
            await future

        with pytest.raises(RuntimeError, match="attached to a different loop"):
            one.run(wait_for(two.loop.create_future()))


def test_what_was_sent_arrives_although_its_sender_crashed() -> None:
    """Bytes on their way belong to no node; the receiver reads them, then the reset."""
    with Simulation(latency_s=0.1, jitter_s=0.05) as simulation:
        one, two = simulation.node("one"), simulation.node("two")
        got, ends = bytearray(), list[str]()

        def accepted(stream: Stream) -> None:
            def read() -> None:
                buffer = bytearray(100)
                try:
                    size = stream.recv_into(buffer)
                except ConnectionResetError:
                    ends.append("reset")
                    stream.close()
                else:
                    got.extend(buffer[: size or 0])

            stream.on_readable(read)

        two.network.listen("two", 9092, accepted)

        async def send() -> None:
            stream = await one.network.connect("two", 9092)
            sent = 0
            while sent < 5:
                sent += stream.send([b"hello"[sent:]])

        one.run(send())
        simulation.run_for(0.2)
        one.crash()
        simulation.run_for(1)
        assert (bytes(got), ends) == (b"hello", ["reset"])


def test_a_host_without_power_is_silent_until_it_is_back() -> None:
    """Its peer waits, sends into the void, and gets a reset when the machine runs again."""
    with Simulation(latency_s=0.01) as simulation:
        one, two = simulation.node("one"), simulation.node("two")
        two.network.listen("two", 9092, lambda stream: None)

        async def connect() -> Stream:
            return await one.network.connect("two", 9092)

        stream = one.run(connect())
        simulation.run_for(1)
        two.crash(power=True)
        stream.send([b"anybody?"])
        simulation.run_for(HOUR_S)
        assert stream.recv_into(bytearray(10)) is None
        with pytest.raises(TimeoutError):
            one.run(connect())
        two.start()
        simulation.run_for(1)
        with pytest.raises(ConnectionResetError):
            stream.recv_into(bytearray(10))
        with pytest.raises(ConnectionRefusedError):
            one.run(connect())

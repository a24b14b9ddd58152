"""One run of a simulated cluster: real brokers on simulated machines, clients, faults, a judgement.

    outcome = ClusterRun(seed).run()
    assert outcome.finding is None, outcome

Three brokers and more have a topic with three replicas; producers and readers work while the faults
of a plan (drawn from the seed, or given) strike. Then all is healed: within HEAL_S_MAX every
replica must be in sync and every record read. The same seed and plan give the same run.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ottla.seams.simulated.disk import SimulatedDisk
from ottla.seams.simulated.loop import SimulatedLoop
from ottla.seams.simulated.simulation import Simulation
from ottla.testing.history import History, Report, check
from ottla.testing.simulation import rot
from ottla.testing.simulation.admin import Admin
from ottla.testing.simulation.churn import Churn, is_left
from ottla.testing.simulation.clients import CarelessProducer, Place, Producer
from ottla.testing.simulation.ensemble_faults import EnsembleFaults
from ottla.testing.simulation.injection import Injector
from ottla.testing.simulation.invariants import Invariants
from ottla.testing.simulation.machines import Machine
from ottla.testing.simulation.plan import (
    FAULTS,
    SECONDS,
    USUAL_KINDS,
    ZOOKEEPER_KINDS,
    Plan,
    draw_plan,
    write_plan,
)
from ottla.testing.simulation.reader import Reader
from ottla.testing.simulation.replica_log import content, producer_states
from ottla.testing.simulation.tree import SimulatedEnsemble
from ottla.testing.simulation.view import View

BROKERS = 3
REPLICAS = 3
MIN_ISR = 2
TOPIC = "t"
PARTITIONS = (1, 1, 2, 3)  # one of these
PRODUCERS = 2
READERS = 2
FIRST_PRODUCER_ID = 1000
FIRST_ADDED_ID = 2000  # of the producers of partitions that are added
CHURN_SHARE = 0.4  # of the seeds also create and delete topics
START_S_MAX = 30.0
CLIENTS_S = 1.0  # when the clients begin, at the earliest
HEAL_S_MAX = 30.0
COMPARE_EVERY_S = 1.0
WRITE_ON_S = 0.5  # producers go on after the last fault
AFTER_FINDING_S = 0.2  # a run that has failed goes on for so long, to see what else is wrong
PROBLEMS_MAX = 10
SETTINGS: Mapping[str, object] = {
    "min.insync.replicas": MIN_ISR,
    "replica.lag.time.max.ms": 1500,
    "replica.fetch.wait.max.ms": 200,
    "replica.fetch.backoff.ms": 50,
    "replica.socket.timeout.ms": 2500,
    "controller.socket.timeout.ms": 2500,
    "broker.heartbeat.interval.ms": 300,
    "broker.session.timeout.ms": 1500,
    "leader.imbalance.check.interval.seconds": 4,
    # Jumps of a wall clock add up: within Kafka's hour a broker may rightly refuse every timestamp
    # of the clients, whose clocks do not jump. A day is more than the jumps of any drawn plan.
    "log.message.timestamp.after.max.ms": 86_400_000,
    "log.scrub.bytes.per.second": 0,
}
TOPIC_CONFIGS = {"min.insync.replicas": str(MIN_ISR), "internal.segment.bytes": "8192"}


@dataclass
class Outcome:
    """What came of a run. `finding` None: nothing is wrong."""

    seed: int
    plan: Plan
    finding: str | None = None
    timeline: list[str] = field(default_factory=list)
    simulated_s: float = 0.0
    steps: int = 0
    faults: int = 0  # that struck
    digest: str = ""
    report: Report = field(default_factory=Report)

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.finding or 'nothing wrong'}", "timeline:"]
        lines += [f"  {each}" for each in self.timeline]
        lines += ["faults:", *(f"  {each}" for each in write_plan(self.plan).splitlines())]
        return "\n".join(lines)


class ClusterRun:
    """One history of a cluster."""

    faults_max = FAULTS
    faults_s = SECONDS  # within which they begin

    def __init__(
        self,
        seed: int,
        plan: Plan | None = None,
        *,
        brokers: int = BROKERS,
        partitions: int | None = None,
        settings: Mapping[str, object] | None = None,
        zookeeper: bool = False,
    ) -> None:
        """`plan` and `partitions` are drawn from the seed where they are not given.

        `zookeeper`: the brokers' tree is in an ensemble, not in a directory that they share.
        """
        self.seed = seed
        self.zookeeper = zookeeper
        if plan is None:
            plan = self.draw_plan(seed, ZOOKEEPER_KINDS if zookeeper else USUAL_KINDS)
        self.plan = plan
        rots = any(fault.kind == rot.KIND for fault in self.plan)
        self.settings = {**SETTINGS, **(rot.SETTINGS if rots else {}), **(settings or {})}
        self.sync_before_ack = self.settings.get("log.flush.before.ack") == "true"
        self.ids = tuple(range(1, brokers + 1))
        self.hosts = [f"broker{each}" for each in self.ids]
        drawn = random.Random(f"{seed} partitions").choice(PARTITIONS)
        self.places = [Place(TOPIC, each) for each in range(partitions or drawn)]
        self.moved = list(self.places)  # whose leadership moves
        self.struck = self.places[:1]  # whose leader is meant by a fault of `leader`
        self.churns = random.Random(f"{seed} churn").random() < CHURN_SHARE
        self.replicas = min(REPLICAS, brokers)
        self.min_isr = MIN_ISR
        self.session_timeout_s = float(str(self.settings["broker.session.timeout.ms"])) / 1000
        self.ensemble: SimulatedEnsemble | None = None
        self.ensemble_faults: EnsembleFaults | None = None
        self.history = History()
        self.done = False
        self.deleted: set[bytes] = set()  # ids of topics whose deletion was answered
        self.timeline: list[str] = []
        self.problems: list[str] = []
        self.producers: list[asyncio.Task[None]] = []
        self.readers: list[Reader] = []
        self.machines: dict[int, Machine] = {}
        self.view = View(self.machines)
        self.rot = rot.Rot(self.machines)
        self.invariants = Invariants(self.problem)

    @classmethod
    def draw_plan(cls, seed: int, kinds: Sequence[str] = USUAL_KINDS) -> Plan:
        """The faults of a seed."""
        return draw_plan(seed, kinds, faults=cls.faults_max, seconds=cls.faults_s)

    def run(self) -> Outcome:
        """Run it all, and judge it."""
        self.simulation = Simulation(self.seed, latency_s=0.0005, jitter_s=0.003, split_share=0.05)
        injector = Injector(self)
        report = Report()
        listener = _Listener(self)
        logging.getLogger("ottla").addHandler(listener)
        try:
            with self.simulation:
                self._prepare()
                scenario = self.operator.task(self._scenario(injector))
                self.simulation.run_until(lambda: scenario.done() or bool(self.problems))
                if scenario.done():
                    scenario.result()
                else:
                    self.simulation.run_for(AFTER_FINDING_S)
                report = self._judge()
        except AssertionError as error:
            self.problem(str(error) + (f": {error.__cause__!r}" if error.__cause__ else ""))
        finally:
            logging.getLogger("ottla").removeHandler(listener)
        return Outcome(
            self.seed,
            self.plan,
            "\n  ".join(self.problems) or None,
            self.timeline,
            self.simulation.now_s,
            self.simulation.steps,
            injector.injected.total(),
            self.simulation.digest,
            report,
        )

    def _prepare(self) -> None:
        self.operator = self.simulation.node("operator")
        self.admin = Admin(self.operator, self.hosts, random.Random(f"{self.seed} admin"))
        shared = SimulatedDisk()
        if self.zookeeper:
            self.ensemble = SimulatedEnsemble(self.simulation)
            self.ensemble_faults = EnsembleFaults(self, self.ensemble)
        for broker_id in self.ids:
            self.machines[broker_id] = Machine(
                self.simulation,
                broker_id,
                self.settings,
                shared,
                changed=self.invariants.changed,
                note=self.note,
                ensemble=self.ensemble,
            )

    async def _scenario(self, injector: Injector) -> None:
        for machine in self.machines.values():
            machine.first_start()
        await asyncio.wait_for(self._begin(), START_S_MAX)
        await asyncio.sleep(CLIENTS_S - self.simulation.now_s)
        self._start_clients()
        comparing = asyncio.create_task(self._compare_often())
        await asyncio.gather(*(injector.inject(fault) for fault in self.plan))
        injector.heal()
        self.note("all is healed")
        await self._heal()
        comparing.cancel()

    async def _begin(self) -> None:
        """Wait for all brokers, and create the topic."""
        while not all(each.ready for each in self.machines.values()):
            await asyncio.sleep(0.01)
        await self.admin.create_topic(TOPIC, len(self.places), self.replicas, TOPIC_CONFIGS)

    def _start_clients(self) -> None:
        simulation, seed = self.simulation, self.seed
        self._start_producers(max(PRODUCERS, len(self.places)))
        node = simulation.node("careless")
        self.producers.append(node.task(CarelessProducer(self, node, self.places[0], seed).run()))
        if self.churns:
            node = simulation.node("churn")
            self.producers.append(node.task(Churn(self, node, self.replicas, seed).run()))
        self._start_readers(max(READERS, len(self.places)))

    def _start_producers(self, count: int) -> None:
        for number in range(count):
            node = self.simulation.node(f"producer{number}")
            place = self.places[number % len(self.places)]
            producer = Producer(self, node, place, FIRST_PRODUCER_ID + number, self.seed)
            self.producers.append(node.task(producer.run()))

    def _start_readers(self, count: int) -> None:
        for number in range(count):
            node = self.simulation.node(f"reader{number}")
            reader = Reader(self, node, self.places[number % len(self.places)], self.seed)
            self.readers.append(reader)
            node.task(reader.run())

    # What the faults and clients use

    def add_place(self, place: Place) -> None:
        """A partition was added: write and read it like the others."""
        if place in self.places:
            return
        self.places.append(place)
        self.moved.append(place)
        node = self.simulation.node(f"producer of {place}")
        producer_id = FIRST_ADDED_ID + place.number
        self.producers.append(node.task(Producer(self, node, place, producer_id, self.seed).run()))
        node = self.simulation.node(f"reader of added {place}")
        reader = Reader(self, node, place, self.seed)
        self.readers.append(reader)
        node.task(reader.run())

    def note(self, text: str) -> None:
        """Add a line to the timeline, with the first partition as it is decided."""
        controller = self.view.controller
        now = self.view.partition(self.places[0])
        known = (
            ""
            if now is None
            else (f"; leader {now.leader} epoch {now.leader_epoch} isr {now.isr} elr {now.elr}")
        )
        at = "none" if controller is None else controller.id
        self.timeline.append(f"{self.simulation.now_s:8.3f} {text}{known} controller {at}")

    def problem(self, text: str) -> None:
        """Something that must not be."""
        if text not in self.problems and len(self.problems) < PROBLEMS_MAX:
            self.problems.append(text)
            self.timeline.append(f"{self.simulation.now_s:8.3f} FINDING: {text}")

    def compare(self) -> None:
        """Compare the logs of all replicas."""
        self.invariants.compare()

    # The end

    async def _compare_often(self) -> None:
        while True:
            await asyncio.sleep(COMPARE_EVERY_S)
            self.compare()

    async def _heal(self) -> None:
        """Producers go on, then end; every replica is in the ISR again; readers reach the end."""
        await asyncio.sleep(WRITE_ON_S)
        self.done = True
        waited_s = 0.0
        while not self.problems:
            missing = self._missing()
            if missing is None:
                break
            if waited_s >= HEAL_S_MAX:
                self.problem(f"not healed {HEAL_S_MAX:g} s after the last fault: {missing}")
                break
            await asyncio.sleep(0.1)
            waited_s += 0.1
        self.note(f"healed after {waited_s:.1f} s")
        self.compare()

    def _missing(self) -> str | None:
        """What is not healed yet."""
        if not all(task.done() for task in self.producers):
            return "a producer waits for an answer"
        for place in self.places:
            missing = self._missing_of(place)
            if missing is not None:
                return missing
        if damaged := self.rot.left():
            return f"brokers {sorted(damaged)} have damaged batches"
        return self._left_of_deleted()

    def _left_of_deleted(self) -> str | None:
        """A topic that was deleted and is not gone everywhere."""
        for topic in self.view.image.topics.values():
            if topic.id in self.deleted:
                return f"{topic.name} was deleted and is there"
        if self.view.image.deletions:
            return f"deletions of {sorted(self.view.image.deletions.values())} are not confirmed"
        for machine in self.machines.values():
            for folder in machine.folders():
                if is_left(folder, machine.topic_id(folder), self.view.image.topics):
                    return f"broker {machine.id} has {folder}"
        return None

    def _missing_of(self, place: Place) -> str | None:
        image = self.view.partition(place)
        leader = self.machines.get(image.leader) if image is not None else None
        leading = leader.partition(place) if leader is not None else None
        if image is None or leading is None:
            return f"{place} has no leader"
        if image.adding_replicas or image.removing_replicas:
            return f"{place} is being reassigned"
        if len(leading.in_sync) < len(image.replicas):
            return f"the ISR of {place} is {leading.in_sync}"
        if leading.high_watermark < leading.end_offset:
            return f"the high watermark of {place} is {leading.high_watermark}"
        for replica in image.replicas:
            partition = self.machines[replica].partition(place)
            if partition is None or partition.end_offset != leading.end_offset:
                return f"{replica} has not all of {place}"
        for machine in self.machines.values():
            if machine.id not in image.replicas and machine.partition(place) is not None:
                return f"{machine.id} still has {place}"
        for reader in self.readers:
            if reader.place == place and reader.offset < leading.end_offset:
                return f"a reader of {place} is at {reader.offset} of {leading.end_offset}"
        return None

    def _judge(self) -> Report:
        for place in self.places:
            replicas = [each.partition(place) for each in self.machines.values()]
            there = [each for each in replicas if each is not None]
            if self.problems:
                break
            if len({content(each) for each in there}) > 1:
                self.problem(f"the replicas of {place} differ at the end")
            elif len({producer_states(each) for each in there}) > 1:
                self.problem(f"the replicas of {place} know other producers at the end")
        report = check(self.history)
        for fault in report.faults:
            self.problem(str(fault))
        if report.unseen and not self.problems:  # every reader has reached the end
            self.problem(f"lost: {report.unseen} acknowledged records are beyond the log's end")
        return report


class _Listener(logging.Handler):
    """Puts what the brokers log into the timeline."""

    def __init__(self, run: ClusterRun) -> None:
        super().__init__(logging.WARNING)
        self._run = run

    def emit(self, record: logging.LogRecord) -> None:
        loop = asyncio._get_running_loop()
        name = loop.name if isinstance(loop, SimulatedLoop) else "?"
        self._run.timeline.append(
            f"{self._run.simulation.now_s:8.3f} {name}: {record.getMessage()}"
        )

"""A simulated cluster: real brokers on simulated machines, clients, faults, and what must hold.

`ClusterRun(seed).run()` starts three brokers with one replicated partition, lets producers and
readers work while it crashes brokers and cuts links, heals everything, and checks the history of
the clients and the logs of the replicas.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.broker.broker import Broker
from ottla.log.helper import JOBS
from ottla.metrics import Metrics
from ottla.replica.partition import Partition
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.seams.simulated.simulation import Node, Simulation
from ottla.server.listener import Endpoint
from ottla.server.server import Server
from ottla.settings import Settings
from ottla.testing.history import History, Outcome, check
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, read_records, write_batch
from tests.broker.harness import DATA, fetch_request, produce_request, whole_batches
from tests.sim.controller import MIN_ISR, TOPIC, Channel, FixedController
from tests.sim.harness import PORT, Connection

BROKERS = (1, 2, 3)
PRODUCERS = 3
READERS = 2
FAULTS = 8
KINDS = ("kill", "kill", "power", "cut", "controller", "pause", "move")
FAULT_EVERY_S = 1.5  # on average
DETECTION_S = 0.3  # until the controller knows that a process is dead
HEAL_S_MAX = 60.0
MOVES = 4
SETTINGS = {
    "log.dirs": DATA,
    "min.insync.replicas": MIN_ISR,
    "replica.lag.time.max.ms": 1500,
    "replica.fetch.wait.max.ms": 200,
    "replica.fetch.backoff.ms": 50,
    "replica.socket.timeout.ms": 1000,
}
TOPIC_CONFIGS = {"min.insync.replicas": str(MIN_ISR), "internal.segment.bytes": "8192"}


class BatchId(NamedTuple):
    """What tells one batch of a log from any other."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int


class ClusterBroker:
    """One broker of the cluster: its machine, and its process while it is alive."""

    def __init__(self, run: ClusterRun, broker_id: int) -> None:
        self.id = broker_id
        self.name = f"broker{broker_id}"
        self.node = run.simulation.node(self.name, disk=SimulatedDisk(), jobs=JOBS)
        self._run = run
        self.broker: Broker | None = None

    @property
    def alive(self) -> bool:
        return self.node.alive

    def start(self) -> None:
        if not self.node.alive:
            self.node.start()
        self.node.task(self._start())

    def crash(self, *, power: bool) -> None:
        self.node.crash(power=power)
        self.broker = None

    async def _start(self) -> None:
        node = self.node
        broker = Broker(
            Settings.from_properties({**SETTINGS, **self._run.settings, "node.id": self.id}),
            clock=node.clock,
            disk=node.disk,
            chance=node.chance,
            background=node.background,
            metrics=Metrics(),
            network=node.network,
            channel=Channel(self._run.controller, node, self.id),
        )
        endpoint = Endpoint("PLAINTEXT", node.name, PORT)
        server = Server(
            node.network, node.clock, lambda *each: broker.dispatcher.handle(*each), [endpoint]
        )
        server.open()
        await broker.start({endpoint.name: (node.name, PORT)})
        server.accept()
        self.broker = broker

    @property
    def partition(self) -> Partition | None:
        return None if self.broker is None else self.broker.partitions.get(TOPIC, 0)


def log_of(partition: Partition) -> list[BatchId]:
    """All batches of a replica, in order."""
    return [
        BatchId(batch.base_offset, batch.last_offset, batch.leader_epoch, batch.crc)
        for segment in partition.log.segments
        if segment.size_bytes
        for batch in segment.batches()
    ]


class ClusterRun:
    """One history of a cluster, from one seed."""

    def __init__(
        self,
        seed: int,
        *,
        faults: int = FAULTS,
        kinds: tuple[str, ...] = KINDS,
        **settings: object,
    ) -> None:
        self.seed = seed
        self.faults = faults
        self.kinds = kinds
        self.settings = {key.replace("_", "."): value for key, value in settings.items()}
        self.rng = random.Random(f"{seed} faults")
        self.controller = FixedController(
            BROKERS, {"min.insync.replicas": str(MIN_ISR), "internal.segment.bytes": "8192"}
        )
        self.history = History()
        self.problems: list[str] = []
        self.timeline: list[str] = []
        self.committed: list[BatchId] = []
        self.leaders: dict[int, int] = {}
        self.done = False

    def run(self) -> str:
        """Run it all; raises AssertionError with the timeline. Returns the fingerprint."""
        with Simulation(
            self.seed, latency_s=0.0005, jitter_s=0.003, split_share=0.05
        ) as self.simulation:
            self.brokers = {each: ClusterBroker(self, each) for each in BROKERS}
            for broker in self.brokers.values():
                broker.start()
            self.simulation.run_for(1)
            self._start_clients()
            for _ in range(self.faults):
                self.simulation.run_for(self.rng.uniform(0.1, 2 * FAULT_EVERY_S - 0.1))
                self.inspect()
                self._fault()
            self._heal()
            self._judge()
            return self.simulation.digest

    # Clients

    def _start_clients(self) -> None:
        simulation = self.simulation
        self.producers = []
        for number in range(PRODUCERS):
            node = simulation.node(f"producer{number}")
            self.producers.append(node.task(self._produce(node, number)))
        self.readers = []
        for number in range(READERS):
            node = simulation.node(f"reader{number}")
            self.readers.append(node.task(self._read(node, f"reader{number}")))
        self.reached: dict[str, int] = {}

    async def _produce(self, node: Node, number: int) -> None:
        """One batch after the other, each sent again until it is acknowledged."""
        rng = random.Random(f"{self.seed} {node.name}")
        client = Client(node, rng)
        sequence = 0
        while not self.done:
            value = f"{node.name} {sequence}"
            batch = write_batch(
                [Record(value.encode(), timestamp=node.clock.now_ms())],
                producer_id=1000 + number,
                producer_epoch=0,
                base_sequence=sequence,
            )
            offset = await self._send(client, batch, value)
            if offset is None:
                self.history.sent(node.name, TOPIC, value, outcome=Outcome.UNKNOWN)
                return
            self.history.sent(node.name, TOPIC, value, offset=offset)
            sequence += 1
            await asyncio.sleep(rng.uniform(0, 0.25))

    async def _send(self, client: Client, batch: bytes, value: str) -> int | None:
        fatal = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH)
        while True:
            answer = await client.ask(produce_request(TOPIC, 0, batch), 9)
            if answer is not None:
                found = answer.responses[0].partition_responses[0]
                if not found.error_code:
                    return int(found.base_offset)
                if found.error_code in fatal:
                    self.problems.append(f"{value}: {ErrorCode(found.error_code).name}")
                    return None
                client.elsewhere()
            await asyncio.sleep(0.05)

    async def _read(self, node: Node, name: str) -> None:
        rng = random.Random(f"{self.seed} {node.name}")
        client = Client(node, rng)
        offset = 0
        while True:
            request = fetch_request((TOPIC, 0, offset), max_wait_ms=300)
            answer = await client.ask(request, 10)  # of a leader: before KIP-392
            if answer is None:
                await asyncio.sleep(0.05)
                continue
            data = answer.responses[0].partitions[0]
            if data.error_code:
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self.problems.append(f"{name}: offset {offset} is out of range")
                client.elsewhere()
                await asyncio.sleep(0.05)
                continue
            found = [each for each in records_in(data.records) if each[0] >= offset]
            if found:
                self.history.polled(name, TOPIC, found)
                offset = found[-1][0] + 1
                self.reached[name] = offset

    # Faults

    def note(self, text: str) -> None:
        now = self.controller.partition
        self.timeline.append(
            f"{self.simulation.now_s:8.3f} {text}; leader {now.leader} epoch {now.leader_epoch} "
            f"isr {now.isr} elr {sorted(self.controller.elr)}"
        )

    def _fault(self) -> None:
        kind = self.rng.choice(self.kinds)
        alive = [each for each in self.brokers.values() if each.alive and each.broker is not None]
        if not alive:
            return
        leader = self.controller.partition.leader
        broker = self.rng.choice(alive)
        if leader in self.brokers and self.brokers[leader] in alive and self.rng.random() < 0.5:
            broker = self.brokers[leader]
        getattr(self, f"_{kind}")(broker)

    def _kill(self, broker: ClusterBroker) -> None:
        self._crash(broker, power=False)

    def _power(self, broker: ClusterBroker) -> None:
        """Un-synced bytes are lost; only while all others are in the ISR, which is the promise."""
        others = set(BROKERS) - {broker.id}
        self._crash(broker, power=others <= set(self.controller.partition.isr))

    def _crash(self, broker: ClusterBroker, *, power: bool) -> None:
        self.note(f"{'power cut' if power else 'kill'} of {broker.id}")
        broker.crash(power=power)
        if self.rng.random() < 0.8:
            self.simulation.run_for(self.rng.uniform(0, DETECTION_S))
            self.controller.fence(broker.id)
        self.simulation.run_for(self.rng.uniform(0, 2))
        self.note(f"start of {broker.id}")
        broker.start()

    def _cut(self, broker: ClusterBroker) -> None:
        """The links to the other brokers are cut, both ways or one, for a while."""
        both_ways = self.rng.random() < 0.7
        others = [each for each in self.brokers.values() if each is not broker]
        self.note(f"links of {broker.id} are cut")
        for other in others:
            self.simulation.network.cut(broker.name, other.name, both_ways=both_ways)
        self.simulation.run_for(self.rng.uniform(0.1, 4))
        for other in others:
            self.simulation.network.heal(broker.name, other.name)
        self.note(f"links of {broker.id} are healed")

    def _controller(self, broker: ClusterBroker) -> None:
        """A broker that the controller cannot reach: it is taken for dead, and knows nothing."""
        self.note(f"{broker.id} cannot reach the controller")
        self.controller.unreachable.add(broker.id)
        if self.rng.random() < 0.6:
            self.simulation.run_for(self.rng.uniform(0, DETECTION_S))
            self.controller.fence(broker.id)
            self.note(f"{broker.id} is taken for dead")
        self.simulation.run_for(self.rng.uniform(0.1, 3))
        self.inspect()
        self.controller.unreachable.discard(broker.id)
        self.controller.alive.add(broker.id)
        self.controller.fence(-1)
        self.note(f"{broker.id} reaches the controller again")

    def _move(self, broker: ClusterBroker) -> None:
        """Leadership moves, twice in a row, so that some brokers learn of both at once."""
        for _ in range(MOVES):
            self.note("leadership moves")
            for leader in self.rng.sample(BROKERS, len(BROKERS)):
                self.controller.move(leader)
            self.simulation.run_for(self.rng.uniform(0.05, 0.3))

    def _pause(self, broker: ClusterBroker) -> None:
        self.note(f"{broker.id} is stopped")
        broker.node.pause()
        if self.rng.random() < 0.5:
            self.simulation.run_for(self.rng.uniform(0, DETECTION_S))
            self.controller.fence(broker.id)
        self.simulation.run_for(self.rng.uniform(0.1, 3))
        broker.node.resume()
        self.controller.alive.add(broker.id)
        self.note(f"{broker.id} goes on")

    # What must hold

    def inspect(self) -> None:
        """Compare the replicas: one leader in an epoch, matching logs, nothing committed gone."""
        logs: dict[int, list[BatchId]] = {}
        for broker in self.brokers.values():
            partition = broker.partition
            if partition is None or partition.offline is not None:
                if partition is not None:
                    self.problems.append(f"{broker.id} is offline: {partition.offline}")
                continue
            logs[broker.id] = log = log_of(partition)
            if partition.is_leader:
                known = self.leaders.setdefault(partition.leader_epoch, broker.id)
                if known != broker.id:
                    self._problem(f"{known} and {broker.id} lead epoch {partition.leader_epoch}")
                if partition.leader_epoch == self.controller.partition.leader_epoch:
                    self._check_committed(broker.id, partition, log)
        self._check_matching(logs)

    def _check_committed(self, broker_id: int, partition: Partition, log: list[BatchId]) -> None:
        if log[: len(self.committed)] != self.committed:
            at = next(
                (n for n, each in enumerate(self.committed) if n >= len(log) or log[n] != each)
            )
            self._problem(
                f"leader {broker_id} of epoch {partition.leader_epoch} lacks {self.committed[at]},"
                f" which was committed; it has {log[at : at + 1]}"
            )
        committed = [each for each in log if each.last_offset < partition.high_watermark]
        if len(committed) > len(self.committed):
            self.committed = committed

    def _check_matching(self, logs: dict[int, list[BatchId]]) -> None:
        """Two logs that have a batch of one epoch at one offset are the same up to there."""
        for one, first in logs.items():
            for other, second in logs.items():
                if one >= other:
                    continue
                places = {(each.base_offset, each.leader_epoch): n for n, each in enumerate(first)}
                for n, each in reversed(list(enumerate(second))):
                    at = places.get((each.base_offset, each.leader_epoch))
                    if at is not None:
                        if first[: at + 1] != second[: n + 1]:
                            self._problem(f"the logs of {one} and {other} differ below {each}")
                        break

    def _problem(self, text: str) -> None:
        if text not in self.problems:
            self.problems.append(text)
            self.note(f"PROBLEM {text}")

    def _heal(self) -> None:
        """End all faults; every replica is in the ISR again, and readers reach the end."""
        simulation = self.simulation
        self.note("all is healed")
        self.done = True
        simulation.run_until(
            lambda: all(task.done() for task in self.producers) or bool(self.problems),
            limit_s=HEAL_S_MAX,
        )
        simulation.run_until(lambda: self._whole() or bool(self.problems), limit_s=HEAL_S_MAX)
        self.inspect()

    def _whole(self) -> bool:
        broker = self.brokers.get(self.controller.partition.leader)
        leader = broker.partition if broker is not None else None
        if leader is None or len(leader.in_sync) < len(BROKERS):
            return False
        partitions = [each.partition for each in self.brokers.values()]
        ends = {None if each is None else each.end_offset for each in partitions}
        return (
            ends == {leader.end_offset}
            and leader.high_watermark == leader.end_offset
            and all(self.reached.get(f"reader{n}", 0) >= leader.end_offset for n in range(READERS))
        )

    def _judge(self) -> None:
        logs = [log_of(each.partition) for each in self.brokers.values() if each.partition]
        if not self.problems and not all(log == logs[0] for log in logs):
            self.problems.append("the replicas differ at the end")
        report = check(self.history)
        self.problems += map(str, report.faults)
        self.report = report
        if self.problems:
            lines = "\n  ".join([*self.problems[:10], "timeline:", *self.timeline])
            raise AssertionError(f"seed {self.seed}: {report}\n  {lines}")


class Client:
    """Asks one broker after the other until one answers."""

    def __init__(self, node: Node, rng: random.Random) -> None:
        self._node = node
        self._at = rng.randrange(len(BROKERS))
        self._connection: Connection | None = None

    def elsewhere(self) -> None:
        """The broker is not the leader, or has no leader: ask the next one."""
        self._at = (self._at + 1) % len(BROKERS)
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def ask(self, request: Any, version: int) -> Any:
        """The answer, or None when there is none."""
        try:
            async with asyncio.timeout(2):
                if self._connection is None:
                    host = f"broker{BROKERS[self._at]}"
                    self._connection = await Connection.open(self._node, host)
                return await self._connection.ask(request, version)
        except (OSError, TimeoutError):
            self.elsewhere()
            return None


def records_in(data: Any) -> Iterator[tuple[int, str]]:
    """Offsets and values of the whole batches."""
    view = memoryview(bytes(data or b""))
    for start, end in whole_batches(view):
        for record in read_records(view[start:end]):
            assert record.value is not None
            yield record.offset, bytes(record.value).decode()

"""Several real brokers on simulated machines, and a controller that decides what the test says.

    with Brokers(3) as brokers:
        brokers.lead(1)
        answer = brokers.produce(1, b"value")
        brokers.run_until(lambda: answer.ready)

The feed reaches each broker after `feed_s` of its own, so that one may be behind the others. ISR
changes that a leader proposes are accepted, unless `accepts` is false: `refusal` is the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from ottla.broker.broker import Broker
from ottla.broker.dispatch import Peer, Pending
from ottla.cluster.channel import IsrOutcome
from ottla.cluster.feed import Batch, Snapshot
from ottla.cluster.image import (
    BrokerInfo,
    BrokerRegistered,
    Change,
    ClusterImage,
    ControllerChanged,
    PartitionImage,
    PartitionsChanged,
    TopicCreated,
    TopicImage,
)
from ottla.log.helper import JOBS
from ottla.metrics import Metrics
from ottla.replica.partition import Partition
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.seams.simulated.simulation import Simulation
from ottla.server.listener import Endpoint
from ottla.server.server import Server
from ottla.settings import Settings
from ottla.wire.errors import ErrorCode
from ottla.wire.header import start_request
from ottla.wire.records import Record, write_batch
from ottla.wire.schema import writer
from tests.broker.harness import API_BY_REQUEST, DATA, Answer, fetch_request, produce_request
from tests.broker.harness import values as values_of

TOPIC = "t"
TOPIC_ID = b"replicated topic"
PORT = 9092
START_S = 1.0
WAIT_S_MAX = 60.0  # virtual
POLL_S = 5.0
NO_LEADER = -1
ASKER = Peer("PLAINTEXT", "127.0.0.1:50000")


class Script:
    """The controller: its image, and what leaders asked it for."""

    def __init__(self, ids: tuple[int, ...], partitions: int, configs: dict[str, str]) -> None:
        self.image = ClusterImage(cluster_id="scripted")
        self.batches: list[Batch] = []
        self.accepts = True
        self.refusal = ErrorCode.REQUEST_TIMED_OUT
        self.proposals: list[tuple[int, ...]] = []
        self._waiting: list[asyncio.Future[None]] = []
        self.feed_s = dict.fromkeys(ids, 0.002)
        states = tuple(PartitionImage(n, NO_LEADER, 0, 0, ids, ids) for n in range(partitions))
        topic = TopicImage(TOPIC, TOPIC_ID, states)
        self.publish(ControllerChanged(99, 1), TopicCreated(topic, configs))

    def publish(self, *changes: Change) -> None:
        """The next change of the feed."""
        number = self.image.number + 1
        self.image = self.image.apply(number, changes)
        self.batches.append(Batch(number, self.image.controller_epoch, changes))
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            loop = each.get_loop()
            if not each.done() and not loop.is_closed():
                loop.call_soon(each.set_result, None)

    def state(self, index: int) -> PartitionImage:
        """A partition as it is decided."""
        return self.image.topics[TOPIC].partitions[index]

    def decide(self, index: int, **fields: Any) -> None:
        """Change a partition: another leader is another leader epoch."""
        old = self.state(index)
        new = old._replace(**fields, partition_epoch=old.partition_epoch + 1)
        if "leader" in fields:
            new = new._replace(leader_epoch=old.leader_epoch + 1)
        self.publish(PartitionsChanged(TOPIC, TOPIC_ID, (new,)))

    def fence(self, broker_id: int) -> None:
        """A broker is known to be dead."""
        self.move(broker_id, fenced=True)

    def unfence(self, broker_id: int) -> None:
        """A broker is alive after all."""
        self.move(broker_id, fenced=False)

    def move(self, broker_id: int, **fields: Any) -> None:
        """Change what is registered of a broker."""
        self.publish(BrokerRegistered(self.image.brokers[broker_id]._replace(**fields)))

    # The channel of a broker

    async def poll(
        self, broker_id: int, number: int, controller_epoch: int, *_: Any
    ) -> Sequence[Batch] | Snapshot:
        if self.image.number <= number:
            changed = asyncio.get_running_loop().create_future()
            self._waiting.append(changed)
            await asyncio.wait([changed], timeout=POLL_S)
        image, batches = self.image, list(self.batches[number:])
        await asyncio.sleep(self.feed_s[broker_id])
        return Snapshot(image) if controller_epoch != image.controller_epoch else batches

    def leave(self, broker_id: int) -> None:
        pass

    async def register_broker(self, broker: BrokerInfo, *_: Any) -> BrokerInfo:
        broker = broker._replace(epoch=self.image.number + 1)
        self.publish(BrokerRegistered(broker))
        return broker

    async def alter_partition(
        self,
        broker_id: int,
        broker_epoch: int,
        topic_id: bytes,
        index: int,
        leader_epoch: int,
        partition_epoch: int,
        isr: Sequence[tuple[int, int]],
        *_: Any,
    ) -> IsrOutcome:
        await asyncio.sleep(0.002)
        members = tuple(sorted(member for member, _ in isr))
        self.proposals.append(members)
        now = self.state(index)
        if not self.accepts:
            return IsrOutcome(self.refusal)
        if (leader_epoch, partition_epoch) != (now.leader_epoch, now.partition_epoch):
            return IsrOutcome(ErrorCode.INVALID_UPDATE_VERSION)
        self.decide(index, isr=members)
        return IsrOutcome(0, members, self.state(index).partition_epoch)

    async def confirm_deletions(self, broker_id: int, topic_ids: Sequence[bytes]) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(f"the script does not do {name}")


class Brokers:
    """A cluster of brokers, started; no partition has a leader yet.

    With a seed, whatever may happen in another order does.
    """

    def __init__(
        self,
        count: int = 3,
        *,
        partitions: int = 1,
        configs: dict[str, str] | None = None,
        latency_s: float = 0.001,
        seed: int | None = None,
        **settings: object,
    ) -> None:
        self.ids = tuple(range(1, count + 1))
        self.script = Script(self.ids, partitions, configs or {})
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        jitter_s = 0.0 if seed is None else latency_s
        self.simulation = Simulation(seed, latency_s=latency_s, jitter_s=jitter_s)
        self.brokers: dict[int, Broker] = {}
        self.nodes = {
            each: self.simulation.node(f"broker{each}", disk=SimulatedDisk(), jobs=JOBS)
            for each in self.ids
        }
        for each in self.ids:
            self.nodes[each].task(self._start(each))
        self.run(START_S)

    def __enter__(self) -> Brokers:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        self.simulation.close()
        if error is None:
            self.simulation.check()

    async def _start(self, broker_id: int) -> None:
        node = self.nodes[broker_id]
        properties = {"log.dirs": DATA, **self.settings, "node.id": broker_id}
        broker = Broker(
            Settings.from_properties(properties),
            clock=node.clock,
            disk=node.disk,
            chance=node.chance,
            background=node.background,
            metrics=Metrics(),
            network=node.network,
            channel=self.script,  # type: ignore[arg-type]
        )
        endpoint = Endpoint("PLAINTEXT", node.name, PORT)
        server = Server(
            node.network, node.clock, lambda *each: broker.dispatcher.handle(*each), [endpoint]
        )
        server.open()
        await broker.start({endpoint.name: (node.name, PORT)})
        server.accept()
        self.brokers[broker_id] = broker

    # Time and faults

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.simulation.run_for(seconds)

    def run_until(self, done: Callable[[], bool]) -> float:
        """Let time pass until it is so; how much has."""
        begun_s = self.simulation.now_s
        self.simulation.run_until(done, limit_s=WAIT_S_MAX)
        return self.simulation.now_s - begun_s

    def crash(self, broker_id: int, *, power: bool = False) -> None:
        """End the process, or the machine with it."""
        self.nodes[broker_id].crash(power=power)
        del self.brokers[broker_id]

    def start(self, broker_id: int) -> None:
        """Start a process that was ended, and wait until it is there."""
        self.nodes[broker_id].start()
        self.nodes[broker_id].task(self._start(broker_id))
        self.run_until(lambda: broker_id in self.brokers)

    def cut(self, broker_id: int) -> None:
        """Nothing passes between this broker and the others."""
        for other in self.ids:
            if other != broker_id:
                self.simulation.network.cut(f"broker{broker_id}", f"broker{other}")

    def heal(self, broker_id: int) -> None:
        """All passes again."""
        for other in self.ids:
            if other != broker_id:
                self.simulation.network.heal(f"broker{broker_id}", f"broker{other}")

    # Decisions

    def lead(self, broker_id: int, index: int = 0, **fields: Any) -> None:
        """Give a partition its leader and wait until all brokers that are there know it."""
        self.script.decide(index, leader=broker_id, **fields)
        epoch = self.script.state(index).leader_epoch
        self.run_until(
            lambda: all(self.at(each, index).leader_epoch == epoch for each in self.brokers)
        )

    def at(self, broker_id: int, index: int = 0) -> Partition:
        """The replica of a broker."""
        partition = self.brokers[broker_id].partitions.get(TOPIC, index)
        assert partition is not None
        return partition

    # Requests

    def post(self, broker_id: int, request: Any, version: int) -> Answer:
        """Send a request to a broker; its answer comes when it comes."""
        api = API_BY_REQUEST[type(request).__name__]
        out = start_request(api.key, version, 7, "test")
        writer(type(request), version)(request, out)
        answer = Answer(api, version)
        broker = self.brokers[broker_id]

        async def inside_the_loop() -> None:
            frame = memoryview(bytearray(out[4:]))
            result = broker.dispatcher.handle(frame, ASKER)
            if isinstance(result, Pending):
                result.then(answer.arrived)
            else:
                answer.arrived(result)

        self.nodes[broker_id].run(inside_the_loop())
        return answer

    def ask(self, broker_id: int, request: Any, version: int) -> Any:
        """Send a request to a broker and wait for its answer."""
        answer = self.post(broker_id, request, version)
        self.run_until(lambda: answer.ready)
        return answer.response

    def produce(
        self, broker_id: int, *values: bytes, index: int = 0, acks: int = -1, **options: Any
    ) -> Answer:
        """Send one batch of these values."""
        timeout_ms = options.pop("timeout_ms", 10_000)
        now_ms = self.nodes[broker_id].clock.now_ms()
        batch = write_batch([Record(value, timestamp=now_ms) for value in values], **options)
        request = produce_request(TOPIC, index, batch, acks=acks, timeout_ms=timeout_ms)
        return self.post(broker_id, request, 10)

    def produced(self, broker_id: int, *values: bytes, **options: Any) -> int:
        """Produce and wait for the acknowledgement; the offset."""
        answer = self.produce(broker_id, *values, **options)
        self.run_until(lambda: answer.ready)
        assert error_of(answer) == 0, ErrorCode(error_of(answer))
        return int(answer.response.responses[0].partition_responses[0].base_offset)

    def read(self, broker_id: int, offset: int = 0, index: int = 0) -> list[bytes | None]:
        """What a consumer reads at a broker from an offset on."""
        response = self.ask(broker_id, fetch_request((TOPIC, index, offset)), 11)
        assert response.responses[0].partitions[0].error_code == 0, response
        return values_of(response)[TOPIC, index]


def error_of(answer: Answer) -> ErrorCode:
    """The error code of a produce answer."""
    return ErrorCode(answer.response.responses[0].partition_responses[0].error_code)

"""A whole broker in memory, without a network: requests go through the dispatcher.

`BrokerHarness` runs a broker on a node of a simulation: time stands still until the test lets it
pass, the disk is simulated, and a test is a plain function. `harness.ask(request, version)` returns
the response as a client would decode it, `harness.post(...)` an answer that may come later.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.broker import Broker
from ottla.broker.dispatch import Peer, Pending
from ottla.cluster.requests import NewTopic
from ottla.log.helper import JOBS
from ottla.metrics import Metrics
from ottla.replica.partition import Partition
from ottla.seams.chance import SeededChance
from ottla.seams.clock import Clock
from ottla.seams.simulated.background import NO_TIME, Durations
from ottla.seams.simulated.clock import EPOCH_MS
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.seams.simulated.simulation import Simulation
from ottla.settings import Settings
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.api.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.apis import EVERY_API
from ottla.wire.header import start_request
from ottla.wire.out import Out
from ottla.wire.records import Record, read_records, write_batch
from ottla.wire.schema import reader, writer

DATA = "/data"
WORK_S_MAX = 60.0  # virtual; more than any background work takes
API_BY_REQUEST = {f"{api.name}Request": api for api in EVERY_API.values()}


class Answer:
    """What came back for one request, or nothing yet."""

    def __init__(self, api: Any, version: int) -> None:
        self.api = api
        self.version = version
        self.ready = False
        self.pending: Pending | None = None
        self._out: Out | None = None

    def arrived(self, out: Out | None) -> None:
        assert not self.ready, "answered twice"
        self.ready = True
        self._out = out

    @property
    def response(self) -> Any:
        """The response, decoded from the bytes that would have been sent; None for nothing."""
        assert self.ready, "no answer yet"
        if self._out is None:
            return None
        data = sent(self._out)
        assert int.from_bytes(data[:4], "big") == len(data) - 4
        position = 9 if self.api.flexible_response(self.version) else 8
        message, end = reader(self.api.response, self.version)(memoryview(data), position)
        assert end == len(data)
        return message


class BrokerHarness:
    """A started broker; close it (or use `with`).

    With `clock` its wall clock goes on from there, as after a restart. `order` is the seed of what
    asyncio leaves open, None for first come, first served; `durations` let background work take
    time.
    """

    def __init__(
        self,
        *,
        disk: SimulatedDisk | None = None,
        clock: Clock | None = None,
        seed: int = 1,
        order: int | None = None,
        durations: Durations = NO_TIME,
        endpoints: dict[str, tuple[str, int]] | None = None,
        **settings: object,
    ) -> None:
        self.simulation = Simulation(order)
        self.node = self.simulation.node(
            "broker",
            disk=disk,
            jobs=JOBS,
            durations=durations,
            wall_ms=EPOCH_MS if clock is None else clock.now_ms(),
        )
        self.disk = self.node.disk
        self.clock = self.node.clock
        self._patience_s = 0 if durations == NO_TIME else WORK_S_MAX
        self.peer = Peer("PLAINTEXT", "127.0.0.1:50000")
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.broker = Broker(
            Settings.from_properties({"log.dirs": DATA, **named}),
            clock=self.clock,
            disk=self.disk,
            chance=SeededChance(seed),
            background=self.node.background,
            metrics=Metrics(),
        )
        self.run(self.broker.start(endpoints or {"PLAINTEXT": ("127.0.0.1", 9092)}))

    def __enter__(self) -> BrokerHarness:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the broker cleanly."""
        if self.node.alive:
            self.run(self.broker.stop())
            self.kill()
            self.simulation.check()

    def kill(self) -> None:
        """End as SIGKILL or a power cut would: nothing is finished or announced."""
        self.node.crash()
        self.simulation.close()

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine to its end; only background work may let time pass."""
        return self.node.run(coroutine, limit_s=self._patience_s)

    def settle(self) -> None:
        """Run whatever can run without time passing."""
        self.simulation.run_ready()

    def advance(self, ms: float) -> None:
        """Let time pass, and run what is due."""
        self.simulation.run_for(ms / 1000)

    def handle(self, frame: bytes, peer: Peer | None = None) -> Out | Pending | None:
        """A raw request, without its length."""

        async def inside_the_loop() -> Out | Pending | None:
            return self.broker.dispatcher.handle(memoryview(bytearray(frame)), peer or self.peer)

        return self.node.run(inside_the_loop())

    def post(
        self,
        request: Any,
        version: int,
        *,
        client_id: str | None = "test",
        peer: Peer | None = None,
    ) -> Answer:
        """Send a request; the answer may be there or come later."""
        api = API_BY_REQUEST[type(request).__name__]
        out = start_request(api.key, version, 7, client_id)
        writer(type(request), version)(request, out)
        answer = Answer(api, version)
        result = self.handle(bytes(out[4:]), peer)
        if isinstance(result, Pending):
            answer.pending = result
            result.then(answer.arrived)
        else:
            answer.arrived(result)
        return answer

    def ask(self, request: Any, version: int, **options: Any) -> Any:
        """Send a request whose answer needs no time to pass."""
        answer = self.post(request, version, **options)
        self.simulation.run_until(lambda: answer.ready, limit_s=self._patience_s)
        return answer.response

    # What most tests need

    def create(self, topic: str, partitions: int = 1, **configs: str) -> bytes:
        """Create a topic; its id."""
        named = [(name.replace("_", "."), value) for name, value in configs.items()]
        outcomes = self.run(
            self.broker.controller.create_topics([NewTopic(topic, partitions, 1, configs=named)])
        )
        assert outcomes[0].error_code == 0, outcomes
        return self.broker.image.topics[topic].id

    def partition(self, topic: str, index: int = 0) -> Partition:
        """A partition of the broker."""
        partition = self.broker.partitions.get(topic, index)
        assert partition is not None
        return partition

    def produce(
        self, topic: str, index: int = 0, *values: bytes, acks: int = -1, version: int = 9
    ) -> PartitionProduceResponse:
        """Produce one batch of these values."""
        request = produce_request(topic, index, self.batch(*(values or (b"value",))), acks=acks)
        response = self.ask(request, version)
        answer: PartitionProduceResponse = response.responses[0].partition_responses[0]
        return answer

    def batch(self, *values: bytes, **options: Any) -> bytes:
        """A batch of these values, stamped now."""
        now_ms = self.clock.now_ms()
        return write_batch([Record(value, timestamp=now_ms) for value in values], **options)


def sent(out: Out) -> bytes:
    """The bytes of a frame on the wire, its file ranges in their places."""
    data, last = bytearray(), 0
    for position, blob in out.blobs:
        data += out[last:position]
        data += blob.file.pread(blob.size, blob.position)
        last = position
    return bytes(data + out[last:])


def produce_request(
    topic: str | bytes, index: int, records: bytes | None, *, acks: int = -1, timeout_ms: int = 1000
) -> ProduceRequest:
    """One partition's batch, for a topic by name or by id."""
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=topic if isinstance(topic, str) else "",
                topic_id=topic if isinstance(topic, bytes) else bytes(16),
                partition_data=[PartitionProduceData(index=index, records=records)],
            )
        ],
    )


def fetch_request(
    *wanted: tuple[str | bytes, int, int], bytes_max: int = 1 << 20, **fields: Any
) -> FetchRequest:
    """Partitions as (topic name or id, index, offset), each with the same limit."""
    topics: list[FetchTopic] = []
    for topic, index, offset in wanted:
        name = topic if isinstance(topic, str) else ""
        topic_id = topic if isinstance(topic, bytes) else bytes(16)
        one = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=bytes_max)
        if topics and (topics[-1].topic, topics[-1].topic_id) == (name, topic_id):
            topics[-1].partitions.append(one)
        else:
            topics.append(FetchTopic(topic=name, topic_id=topic_id, partitions=[one]))
    fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20} | fields
    return FetchRequest(topics=topics, **fields)


def values(response: FetchResponse) -> dict[tuple[str | bytes, int], list[bytes | None]]:
    """The values of the records in a fetch response, by topic (name or id) and partition."""
    found: dict[tuple[str | bytes, int], list[bytes | None]] = {}
    for topic in response.responses:
        for partition in topic.partitions:
            key = (topic.topic or topic.topic_id, partition.partition_index)
            found[key] = values_in(partition.records)
    return found


def values_in(data: Any) -> list[bytes | None]:
    """The values in whole batches; a torn last one is left out, as clients do."""
    found: list[bytes | None] = []
    data = memoryview(bytes(data or b""))
    for start, end in whole_batches(data):
        records = read_records(data[start:end])
        found += [None if record.value is None else bytes(record.value) for record in records]
    return found


def whole_batches(data: memoryview) -> list[tuple[int, int]]:
    """Where the batches lie that are there whole."""
    found, position = [], 0
    while position + 12 <= len(data):
        end = position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if end > len(data):
            break
        found.append((position, end))
        position = end
    return found

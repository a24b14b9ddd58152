"""The `kafka` channel: a topic between sources and sinks, also of other agents and of Flume's.

What sources put goes through a Kafka sink, in transactions with the sources' positions: it is in
the topic once. What sinks take is read by a consumer group, whose offsets are committed after
delivery: at least once. Each half starts only if there is a source or a sink.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping, Sequence

from ottla.client.structs import TopicPartition

from ..config.client_options import check_security
from ..config.options import Options
from ..config.promises import CONSUMER, PRODUCER
from ..context import Context
from ..delivery import Delivery
from ..events import EventBatch, Position
from ..flume_event import check_available
from ..parts import TAKE_BYTES_MAX
from ..positions import SinkIdentity
from ..sinks.kafka import KafkaSink
from ..sinks.routing import Routing
from .memory import MemoryChannel
from .topic_reader import Offsets, TopicReader
from .waiting import WaitingLine

PUT_EVENTS_MAX = 10_000
GROUP = "flume"
DEFAULTS: dict[str, object] = {
    "group.id": GROUP,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
}


class PutQueue(MemoryChannel):
    """What was put and is not in the topic yet."""

    def __init__(self, name: str) -> None:
        super().__init__(name, PUT_EVENTS_MAX)
        self._done: dict[int, asyncio.Future[None]] = {}

    async def put_and_wait(self, batch: EventBatch) -> None:
        """Returns when the batch is in the topic."""
        done = self._done[id(batch)] = asyncio.get_running_loop().create_future()
        try:
            await self.put(batch)
            await done
        finally:
            del self._done[id(batch)]

    def commit(self, batches: Sequence[EventBatch]) -> None:
        super().commit(batches)
        for batch in batches:
            done = self._done.get(id(batch))
            if done is not None and not done.done():
                done.set_result(None)


class KafkaChannel:
    durable = True
    takes_group_positions = False
    begins_alone = False  # it is where the sinks' brokers are
    capacity = 0  # a topic has none

    def __init__(
        self,
        name: str,
        routing: Routing,
        producer_options: Mapping[str, object],
        consumer_options: Mapping[str, object],
        identity: SinkIdentity,
        *,
        flume_format: bool = True,
        poll_ms: int = 500,
    ) -> None:
        self.name = name
        self.events = 0  # read and not taken
        self.events_taken = 0  # and committed
        self._flume_format = flume_format
        sink = KafkaSink(name, routing, producer_options, identity, flume_format=flume_format)
        self._queue = PutQueue(name)
        self._delivery = Delivery(sink, self._queue, PUT_EVENTS_MAX)
        self._has_source = False
        self._wanted = asyncio.Event()  # a sink takes: the reader starts
        self._taking = WaitingLine()
        self._read: deque[EventBatch] = deque()
        self._places: dict[int, tuple[EventBatch, TopicPartition, int]] = {}
        self._offsets = Offsets()
        self._reader = TopicReader(
            routing.topic,
            {**DEFAULTS, **consumer_options, "enable.auto.commit": False},
            flume_format=flume_format,
            poll_ms=poll_ms,
            arrived=self._arrived,
        )

    @property
    def events_put(self) -> int:
        return self._queue.events_taken

    async def start(
        self, delivered: Mapping[str, Position] | None, has_source: bool
    ) -> Mapping[str, Position]:
        if self._flume_format:
            check_available()
        self._has_source = has_source
        return dict(await self._delivery.start()) if has_source else {}

    async def run(self) -> None:
        """Both halves, until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                if self._has_source:
                    tasks.create_task(self._delivery.run())
                tasks.create_task(self._read_topic())
        except ExceptionGroup as both:
            raise both.exceptions[0] from None  # who runs the agent looks at what it is

    async def _read_topic(self) -> None:
        await self._wanted.wait()
        await self._reader.run()

    async def put(self, batch: EventBatch) -> None:
        """A source that can read again goes on at once: its position is in the transaction."""
        if batch.position is not None:
            await self._queue.put(batch)
        else:
            await self._queue.put_and_wait(batch)

    def _arrived(self, batch: EventBatch, place: tuple[TopicPartition, int]) -> None:
        self._offsets.read(*place)
        self._places[id(batch)] = (batch, *place)
        self._read.append(batch)
        self.events += len(batch)
        self._taking.wake()

    async def take(self, events_max: int, bytes_max: int = TAKE_BYTES_MAX) -> list[EventBatch]:
        self._wanted.set()
        await self._taking.wait_for(lambda: bool(self._read))
        taken: list[EventBatch] = []
        events = size = 0
        while self._read and (not taken or (events < events_max and size < bytes_max)):
            batch = self._read.popleft()
            events += len(batch)
            size += batch.byte_count()
            taken.append(batch)
        self.events -= events
        self._reader.took(size)
        self._taking.wake()
        return taken

    def holds(self, stream: str, offset: int) -> bool:
        position = self._delivery.positions.get(stream)
        return position is not None and position.offset >= offset

    def commit(self, batches: Sequence[EventBatch]) -> None:
        for batch in batches:
            _, partition, offset = self._places.pop(id(batch))
            moved = self._offsets.delivered(partition, offset)
            if moved is not None:
                self._reader.commit(partition, moved)
            self.events_taken += len(batch)

    def roll_back(self, batches: Sequence[EventBatch]) -> None:
        for batch in reversed(batches):
            self._read.appendleft(batch)
            self.events += len(batch)
            self._reader.took(-batch.byte_count())
        self._taking.wake()

    async def drain(self) -> None:
        """Until all that was put is in the topic."""
        while self._has_source and not (self._queue.events == 0 and self._delivery.idle):
            self._delivery.delivered.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._delivery.delivered.wait(), 0.1)

    async def close(self) -> None:
        if self._has_source:
            await self._delivery.stop()


def from_options(name: str, options: Options, context: Context) -> KafkaChannel:
    servers = options.text("kafka.bootstrap.servers")
    for family in (PRODUCER, CONSUMER):
        check_security(family, options.family(family))
    routing = Routing(
        options.text("kafka.topic"),
        allow_topic_override=False,
        default_partition=options.number_or_none("defaultPartitionId"),
        partition_header=options.text_or_none("partitionIdHeader"),
    )
    return KafkaChannel(
        name,
        routing,
        {**options.family("kafka.producer."), "acks": "all", "bootstrap.servers": servers},
        {**options.family("kafka.consumer."), "bootstrap.servers": servers},
        SinkIdentity(context.instance, context.agent, f"channel-{name}"),
        flume_format=options.flag("parseAsFlumeEvent"),
        poll_ms=options.number("kafka.pollTimeout"),
    )

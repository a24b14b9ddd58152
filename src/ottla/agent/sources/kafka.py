"""The Kafka source: the records of topics, shared with the other agents of its consumer group.

Headers are Flume's: topic, partition, offset, timestamp, key, and those that `header.NAME` takes
from the headers of records. Where a Kafka sink of the same cluster delivers exactly once the
offsets are in its transactions (see group_offsets.py); elsewhere they are committed once all sinks
have the events.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..config.client_options import check_security
from ..config.options import Options
from ..config.patterns import python_pattern
from ..config.promises import CONSUMER, SERVERS
from ..context import Context
from ..events import FORGET, EventBatch, Position
from ..flume_event import NotAFlumeEvent, check_available, decode_event
from ..group_offsets import GroupOffsets
from ..in_thread import run_in_thread
from ..matching.cost import subject_max
from ..parts import Output
from .group_reader import GroupReader, Record

logger = logging.getLogger(__name__)
TOPIC_NAME_MAX = 249  # characters
TIMESTAMP, PARTITION, OFFSET, KEY = "timestamp", "partition", "offset", "key"
DEFAULTS: dict[str, object] = {
    "client.id": "ottla-agent",
    "isolation.level": "read_committed",  # what was given up is no event; Flume reads it
    "bootstrap.timeout.ms": 5_000,
}


@dataclass(frozen=True)
class RecordForm:
    """How a record becomes an event."""

    topic_header: str | None = "topic"
    flume_format: bool = False
    record_headers: Mapping[str, str] = field(default_factory=dict)  # header of the event: its name

    def batch_of(self, records: Sequence[Record]) -> EventBatch:
        """Records of one partition. One that is no Flume event though all should be is left out
        with an error, as in Flume."""
        first = records[0]
        shared = {PARTITION: str(first.partition)}
        if self.topic_header is not None:
            shared[self.topic_header] = first.topic
        bodies: list[bytes] = []
        own: list[Mapping[str, str]] = []
        ends: list[int] = []
        for record in records:
            try:
                headers, body = self._event_of(record)
            except NotAFlumeEvent as problem:
                logger.error(
                    "%s-%d: the record at offset %d is left out: %s",
                    record.topic,
                    record.partition,
                    record.offset,
                    problem,
                )
                continue
            bodies.append(body)
            own.append(headers)
            ends.append(record.offset + 1)
        return EventBatch(bodies, shared, own, ends=ends)

    def _event_of(self, record: Record) -> tuple[dict[str, str], bytes]:
        headers: dict[str, str] = {}
        body = record.value or b""
        if self.flume_format:
            headers, body = decode_event(body)
        headers.setdefault(TIMESTAMP, str(record.timestamp))
        for name, wanted in self.record_headers.items():
            for found, value in record.headers:
                if found == wanted and value is not None:
                    headers[name] = value.decode(errors="replace")
        headers.setdefault(OFFSET, str(record.offset))
        if record.key is not None:
            headers[KEY] = record.key.decode(errors="replace")
        return headers, body


class KafkaSource:
    replays = True

    def __init__(self, name: str, groups: GroupOffsets, reader: GroupReader) -> None:
        self.name = name
        self.groups = groups
        self.reader = reader
        # Bounded by the reader, which pauses while too many bytes wait.
        self._waiting: asyncio.Queue[EventBatch] = asyncio.Queue()

    async def run(self, output: Output, positions: Mapping[str, Position]) -> None:
        loop = asyncio.get_running_loop()

        def arrived(batch: EventBatch) -> None:
            loop.call_soon_threadsafe(self._waiting.put_nowait, batch)

        def read() -> None:
            self.reader.read(arrived)

        reading = asyncio.create_task(run_in_thread(read, self.reader.stop, f"source-{self.name}"))
        putting = asyncio.create_task(self._put_forever(output))
        try:
            done, _ = await asyncio.wait({reading, putting}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            # What was read is still put while the reader ends, so that it can be committed.
            for task in (reading, putting):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _put_forever(self, output: Output) -> None:
        while True:
            batch = await self._waiting.get()
            position = batch.position
            assert position is not None
            if position.offset == FORGET or self.groups.holds(position.stream):
                await output.put(batch)
                self.groups.was_put(position)
            self.reader.put(batch.byte_count())


def static_member(context: Context, source: str) -> str:
    """The name by which an agent that starts again gets its partitions back at once."""
    name = f"ottla-agent-{context.instance}-{context.agent}-{source}"
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[-249:]


def from_options(name: str, options: Options, context: Context) -> KafkaSource:
    groups = context.groups[name]
    flume_format = options.flag("useFlumeEventFormat")
    if flume_format:
        check_available()
    pattern = options.text_or_none("kafka.topics.regex")
    consumer: dict[str, object] = {
        **DEFAULTS,
        "group.instance.id": static_member(context, name),
        **options.family(CONSUMER),
        "bootstrap.servers": options.text(SERVERS),
        "group.id": groups.group,
        "enable.auto.commit": False,
    }
    check_security(CONSUMER, consumer)
    form = RecordForm(
        options.text("topicHeader") if options.flag("setTopicHeader") else None,
        flume_format,
        options.family("header."),
    )
    reader = GroupReader(
        consumer,
        groups,
        form.batch_of,
        topics=options.names("kafka.topics"),
        pattern=None if pattern is None else names_pattern(pattern),
        batch_size=options.number("batchSize"),
    )
    return KafkaSource(name, groups, reader)


def names_pattern(java: str) -> str:
    """The client's pattern is for the beginning of a name, Java's for all of it. The client has no
    limit of time: ValueError for a pattern that may take long."""
    pattern = rf"(?:{python_pattern(java)})\Z"
    if subject_max(pattern, 0, whole=True) < TOPIC_NAME_MAX:
        raise ValueError(
            "kafka.topics.regex may take for ever for some names: write it without repetitions "
            "within repetitions"
        )
    return pattern

"""`KafkaSink`: events become records; with exactly once their positions are in the transaction.

A position is a record of the compacted topic `__ottla_agent_positions` (see positions.py). Data and
positions are committed together, so what a reader sees as committed is what a restart does not send
again. A transaction whose end got no answer is settled by `recover`: a new epoch ends what was
open, then the positions that are committed say what happened. Offsets of a Kafka source are
committed for its consumer group instead (see group_offsets.py).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.client.errors import KafkaError
from ottla.client.producer.raw_producer import RawProducer

from ..config.client_options import check_security
from ..config.options import Options
from ..config.promises import PRODUCER, producer_options
from ..context import Context
from ..escapes import event_ms
from ..events import NO_HEADERS, EventBatch, Position, bytes_of, is_of_group
from ..flume_event import check_available, encode_event
from ..group_offsets import Commit, GroupOffsets
from ..positions import PositionTopic, SinkIdentity
from .record_batches import EncodedBatch, RecordBatches
from .routing import Routing

logger = logging.getLogger(__name__)

DEFAULTS: dict[str, object] = {
    "client.id": "ottla-agent",
    # Deliveries are bounded before they reach the producer: see delivery.py.
    "buffer.memory": 16 * 1024 * 1024,
    "bootstrap.timeout.ms": 5_000,  # then it is tried again, unless the agent stops
}
# A transaction lasts well below a second. A dead agent's must not hold up readers for a minute.
TRANSACTION_TIMEOUT_MS = 15_000
START_TRIES = 5  # against an older process of the same instance that has not noticed yet


class Prepared(NamedTuple):
    """One delivery, encoded."""

    batches: list[EncodedBatch]
    positions: dict[str, Position]
    offsets: dict[str, int]  # of groups, by stream


class KafkaSink:
    def __init__(
        self,
        name: str,
        routing: Routing | str,
        producer_options: Mapping[str, object],
        identity: SinkIdentity | None,
        *,
        flume_format: bool = False,
        timestamp_header: str | None = None,
        record_headers: Mapping[str, str] = NO_HEADERS,
        groups: Sequence[GroupOffsets] = (),
    ) -> None:
        """With an identity delivery is exactly once; without, at least once. `record_headers` are
        the names that headers of events get as headers of records, `groups` those whose offsets
        go into the transactions."""
        self.name = name
        self.routing = Routing(routing) if isinstance(routing, str) else routing
        self.keeps_positions = identity is not None
        self._options = {**DEFAULTS, **producer_options}
        self._flume_format = flume_format
        self._timestamp_header = timestamp_header
        self._record_headers = dict(record_headers)
        self._groups = groups
        self._positions: PositionTopic | None = None
        if identity is not None:
            self._options.setdefault("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)
            self._options["transactional.id"] = identity.transactional_id
            self._positions = PositionTopic(self._options, identity)
        self._producer: RawProducer | None = None
        self._encoder: RecordBatches | None = None
        self._stopped = False

    def start(self) -> Mapping[str, Position]:
        if self._flume_format:
            check_available()
        if self._positions is not None:
            self._positions.ensure_exists()
        return self.recover()

    def recover(self) -> Mapping[str, Position]:
        for tries_left in reversed(range(START_TRIES)):
            self._close()
            self._open()
            try:
                return self._read_positions()
            except KafkaError as problem:
                if problem.retriable or not tries_left:
                    raise
                logger.info("Sink %s: initialized again after %s", self.name, problem)
        raise AssertionError

    def _open(self) -> None:
        producer = RawProducer(self._options)
        if self._stopped:
            producer.close(0)
            raise KafkaError("the sink was stopped")
        self._producer = producer
        self._encoder = RecordBatches(
            lambda topic: len(producer.partitions_for(topic)),
            codec=producer.config["compression_type"],
            level=producer.config["compression_level"],
            batch_bytes=producer.config["batch_size"],
        )

    def _read_positions(self) -> Mapping[str, Position]:
        assert self._producer is not None
        if self._positions is None:
            return {}
        # First the fence, then the positions: nobody else commits one after they were read.
        self._producer.init_transactions()
        found = self._positions.read(self._producer)
        for group in self._groups:
            partitions = [claim.partition for claim in group.claims()]
            if partitions:
                own = group.group_of(self.name)
                committed = self._producer.committed(own, partitions=partitions)
                found.update(group.positions_of(self.name, committed))
        return found

    def prepare(self, batches: Sequence[EventBatch]) -> Prepared:
        encoder = self._encoder
        assert encoder is not None
        now_ms = int(time.time() * 1000)
        positions: dict[str, Position] = {}
        offsets: dict[str, int] = {}
        for batch in batches:
            wanted: EventBatch | None = batch
            for position in (batch.position, batch.source_position):
                if position is None:
                    continue
                if not is_of_group(position):
                    positions[position.stream] = position
                elif (wanted := self._wanted(batch, position)) is not None:
                    offsets[position.stream] = position.offset
            if wanted is not None and wanted.bodies:
                self._encode(encoder, wanted, now_ms)
        return Prepared(encoder.finish(), positions, offsets)

    def _wanted(self, batch: EventBatch, position: Position) -> EventBatch | None:
        """What of a batch of a group is delivered."""
        if self._positions is None:
            return batch
        group = self._group_of(position.stream)
        return None if group is None else group.wanted(batch, position, self.name)

    def _group_of(self, stream: str) -> GroupOffsets | None:
        return next((each for each in self._groups if stream.startswith(f"{each.source}/")), None)

    def _commits(self, offsets: Mapping[str, int]) -> list[Commit]:
        """What goes into the transaction for the groups. Raises `ClaimIsOver`."""
        commits: list[Commit] = []
        for group in self._groups:
            mine = {s: offset for s, offset in offsets.items() if self._group_of(s) is group}
            commits += group.commits(mine, self.name)
        return commits

    def _encode(self, encoder: RecordBatches, batch: EventBatch, now_ms: int) -> None:
        bodies = batch.bodies
        if self._flume_format:
            bodies = [
                encode_event(batch.headers_of(index), body) for index, body in enumerate(bodies)
            ]
        if batch.own_headers is None:
            size = sum(map(len, bodies)) if self._flume_format else batch.byte_count()
            self._add(encoder, batch.headers, bodies, size, now_ms)
            return
        for index, body in enumerate(bodies):
            self._add(encoder, batch.headers_of(index), (body,), len(body), now_ms)

    def _add(
        self,
        encoder: RecordBatches,
        headers: Mapping[str, str],
        bodies: Sequence[bytes],
        size: int,
        now_ms: int,
    ) -> None:
        """Events with the same headers."""
        route = self.routing.route(headers, now_ms)
        timestamp_ms = now_ms
        if self._timestamp_header is not None:
            timestamp_ms = event_ms(headers, now_ms, self._timestamp_header)
            if timestamp_ms < 0:  # a record has no time before 1970
                timestamp_ms = now_ms
        carried = None
        if self._record_headers:
            carried = [
                (name, bytes_of(headers[header]))
                for header, name in self._record_headers.items()
                if header in headers
            ]
        encoder.add(route, bodies, timestamp_ms, size, carried)

    def deliver(self, batches: Sequence[EventBatch]) -> None:
        self.deliver_prepared(self.prepare(batches))

    def deliver_prepared(self, prepared: Prepared) -> None:
        producer = self._producer
        assert producer is not None
        if self._positions is None:
            self._send(producer, prepared.batches)
            return
        commits = self._commits(prepared.offsets)
        # An error leaves the transaction as it is: `recover` ends it and finds out what happened.
        producer.begin_transaction()
        for topic, partition, data, records in prepared.batches:
            producer.send_batch(topic, partition, data, records)
        self._positions.send(producer, prepared.positions.values())
        for offsets, member in commits:
            producer.send_offsets_to_transaction(offsets, member)
        producer.commit_transaction()

    def _send(self, producer: RawProducer, batches: Sequence[EncodedBatch]) -> None:
        outcomes = [
            producer.send_batch(topic, partition, data, records)
            for topic, partition, data, records in batches
        ]
        for outcome in outcomes:
            outcome.stored()

    def stop(self) -> None:
        self._stopped = True
        self._close()

    def _close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(0)


def from_options(name: str, options: Options, context: Context) -> KafkaSink:
    producer = producer_options(options, exactly_once=context.exactly_once)
    check_security(PRODUCER, producer)
    identity = None
    if context.exactly_once:
        identity = SinkIdentity(context.instance, context.agent, name)
    routing = Routing(
        options.text("kafka.topic"),
        options.flag("allowTopicOverride"),
        options.text("topicHeader"),
        options.number_or_none("defaultPartitionId"),
        options.text_or_none("partitionIdHeader"),
    )
    return KafkaSink(
        name,
        routing,
        producer,
        identity,
        flume_format=options.flag("useFlumeEventFormat"),
        timestamp_header=options.text_or_none("timestampHeader"),
        record_headers=options.family("header."),
        groups=[group for group in context.groups.values() if name in group.sinks],
    )

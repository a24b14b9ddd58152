"""Measures of share groups (KIP-932): four members on four partitions, records of 100 bytes.

The members are bare sockets of one process that open no record: they say what became of what they
got with their next fetch, as Kafka's own share consumer does. The batches are those that Kafka's
producer makes by default (16 KB), and a fetch asks for 500 records, Kafka's `max.poll.records`.
"""

from __future__ import annotations

import selectors
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import confluent_kafka as ck

from benchmarks import clients
from benchmarks.measures import Run
from benchmarks.members import accepted_connection, ask, decode, encode, wait_for_coordinator
from benchmarks.servers import BOTH, Broker
from ottla.client.admin import Admin, ConfigResource
from ottla.wire.api.share_fetch import (
    AcknowledgementBatch,
    AcquiredRecords,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from ottla.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest

PARTITIONS = 4
MEMBERS = 4
VALUE = b"x" * 100
BATCH_BYTES = 16_384
POLL_RECORDS = 500
FETCH_WAIT_MS = 500
HEARTBEAT_S = 1.0
GIVE_UP_S = 300.0
ACCEPT, RELEASE = 1, 2
RETRIABLE = {14, 15, 16}
SETTINGS = {
    "group.share.min.heartbeat.interval.ms": "1000",
    "group.share.heartbeat.interval.ms": "1000",
}

Batches = list[AcknowledgementBatch]


class Place(NamedTuple):
    """A partition by its topic's id."""

    topic_id: bytes
    partition: int


class ShareMember:
    """One member and its share session."""

    def __init__(self, port: int, group: str, topic: str) -> None:
        self.sock = accepted_connection(port)
        self.beats = accepted_connection(port)
        self.group = group
        self.topic = topic
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.session_epoch = 0
        self.assigned: list[Place] = []
        self.to_say: dict[Place, Batches] = {}
        self.later: dict[Place, Batches] = {}

    def beat(self) -> None:
        asked = ShareGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=self.epoch
        )
        if self.epoch == 0:
            asked.subscribed_topic_names = [self.topic]
        answer = ask(self.beats, asked)
        if answer.error_code in RETRIABLE:
            return
        assert answer.error_code == 0, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.assigned = [
                Place(topic.topic_id, index)
                for topic in answer.assignment.topic_partitions
                for index in topic.partitions
            ]

    def leave(self) -> None:
        self.epoch = -1
        ask(
            self.beats,
            ShareGroupHeartbeatRequest(
                group_id=self.group, member_id=self.member_id, member_epoch=-1
            ),
        )
        self.sock.close()
        self.beats.close()

    def fetch(self) -> None:
        """Ask for records, and say what became of the last ones."""
        places = self.assigned if self.session_epoch == 0 else list(self.to_say)
        topics: dict[bytes, list[FetchPartition]] = {}
        for place in places:
            topics.setdefault(place.topic_id, []).append(
                FetchPartition(
                    partition_index=place.partition,
                    acknowledgement_batches=self.to_say.get(place, []),
                )
            )
        asked = ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.session_epoch,
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=50 << 20,
            max_records=POLL_RECORDS,
            batch_size=POLL_RECORDS,
            topics=[
                FetchTopic(topic_id=topic_id, partitions=found)
                for topic_id, found in topics.items()
            ],
        )
        self.to_say, self.later = self.later, {}
        self.session_epoch += 1
        self.sock.sendall(encode(asked))


# What a member says of the records it got: now, and with the fetch after the next.
Verdict = Callable[[AcquiredRecords], tuple[Batches, Batches]]


def accept_all(got: AcquiredRecords) -> tuple[Batches, Batches]:
    return [batch(got.first_offset, got.last_offset, [ACCEPT])], []


def every_second(got: AcquiredRecords) -> tuple[Batches, Batches]:
    """Every second record by itself, then the others."""
    each = [batch(at, at, [ACCEPT]) for at in range(got.first_offset, got.last_offset + 1)]
    return each[::2], each[1::2]


def release_every_second(got: AcquiredRecords) -> tuple[Batches, Batches]:
    """Every second record is given back; when it comes again, it is accepted."""
    if got.delivery_count > 1:
        return accept_all(got)
    count = got.last_offset - got.first_offset + 1
    types = ([ACCEPT, RELEASE] * (count // 2 + 1))[:count]
    return [batch(got.first_offset, got.last_offset, types)], []


def batch(first: int, last: int, types: list[int]) -> AcknowledgementBatch:
    return AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)


class Consumed(NamedTuple):
    """What came of one group that read everything."""

    delivery_count: int
    seconds: float
    cpu_s: float


def consume(broker: Broker, group: str, topic: str, count: int, verdict: Verdict) -> Consumed:
    """A new group processes all records; deliveries that were repeated count as well."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        configs = {"share.auto.offset.reset": "earliest"}
        admin.alter_configs([ConfigResource("group", group, configs)])
    wait_for_coordinator(broker.port, group)
    members = [ShareMember(broker.port, group, topic) for _ in range(MEMBERS)]
    deadline = time.monotonic() + GIVE_UP_S
    while {place for each in members for place in each.assigned} != all_places(members) or not all(
        each.assigned for each in members
    ):
        assert time.monotonic() < deadline, "the members got no partitions"
        for each in members:
            each.beat()
        time.sleep(0.05)
    accepted = [0]
    deliveries = [0]
    before, began = broker.cpu_s(), time.perf_counter()
    with selectors.DefaultSelector() as selector:
        for each in members:
            selector.register(each.sock, selectors.EVENT_READ, each)
            each.fetch()
        beaten_s = time.monotonic()
        while accepted[0] < count:
            assert time.monotonic() < deadline, f"{accepted[0]} of {count} records"
            for key, _ in selector.select(0.2):
                take(key.data, verdict, accepted, deliveries)
                key.data.fetch()
            if time.monotonic() - beaten_s > HEARTBEAT_S:
                beaten_s = time.monotonic()
                for each in members:
                    each.beat()
        seconds = time.perf_counter() - began
        cpu_s = broker.cpu_s() - before
        for each in members:
            decode(each.sock, "ShareFetch")
            each.leave()
    return Consumed(deliveries[0], seconds, cpu_s)


def all_places(members: list[ShareMember]) -> set[Place]:
    """All partitions of the topic, once one of them is known."""
    known = {place.topic_id for each in members for place in each.assigned}
    return {Place(each, index) for each in known for index in range(PARTITIONS)} or {Place(b"", 0)}


def take(member: ShareMember, verdict: Verdict, accepted: list[int], deliveries: list[int]) -> None:
    answer: Any = decode(member.sock, "ShareFetch")
    assert answer.error_code == 0, answer
    for topic in answer.responses:
        for part in topic.partitions:
            assert not part.error_code, part
            assert not part.acknowledge_error_code, part
            place = Place(topic.topic_id, part.partition_index)
            for got in part.acquired_records:
                deliveries[0] += got.last_offset - got.first_offset + 1
                now, later = verdict(got)
                for found, where in ((now, member.to_say), (later, member.later)):
                    if found:
                        where.setdefault(place, []).extend(found)
                        accepted[0] += sum(accepts(each) for each in found)
    for said in member.to_say.values():
        said.sort(key=lambda each: each.first_offset)


def accepts(said: AcknowledgementBatch) -> int:
    types = said.acknowledge_types
    if len(types) > 1:
        return types.count(ACCEPT)
    return (said.last_offset - said.first_offset + 1) * (types[0] == ACCEPT)


def fill(broker: Broker, topic: str, count: int) -> None:
    producer = ck.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "acks": 1,
            "linger.ms": 5,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for i in range(count):
        while True:
            try:
                producer.produce(topic, VALUE, partition=i % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
    assert producer.flush(120) == 0


NAMED: tuple[tuple[str, Verdict, float], ...] = (
    ("share groups", accept_all, 1.0),
    ("share groups, every second record by itself", every_second, 0.2),
    ("share groups, every second record released", release_every_second, 0.2),
)


def share_groups(run: Run) -> None:
    """Deliveries a second, CPU for a million, memory after all of it."""
    count = 1000 * run.megabytes
    for kind in BOTH:
        broker = kind(SETTINGS)
        try:
            broker.start()
            clients.make_topic(broker.bootstrap, "queue", partitions=PARTITIONS)
            clients.make_topic(broker.bootstrap, "individual", partitions=PARTITIONS)
            fill(broker, "queue", count)
            fill(broker, "individual", count // 5)
            for number in range(run.rounds + 1):  # the first warms
                for name, verdict, part in NAMED:
                    topic = "queue" if part == 1.0 else "individual"
                    total = count if part == 1.0 else count // 5
                    found = consume(broker, f"{verdict.__name__}-{number}", topic, total, verdict)
                    if number:
                        rate = found.delivery_count / found.seconds
                        cpu_s = found.cpu_s / found.delivery_count * 1e6
                        run.record(f"{name}: deliveries/s", broker.name, rate)
                        run.record(f"{name}: CPU s per million", broker.name, cpu_s)
            run.record("share groups: memory after the load, MB", broker.name, broker.memory_mb())
        finally:
            broker.remove()


MEASURES: dict[str, Callable[[Run], None]] = {"share-groups": share_groups}

"""A cluster whole over SASL_SSL with ACLs: what holds without them holds with them.

Three broker processes reach each other, the controller among them, over TLS and by a login. Clients
are librdkafka's and ours; `ottla.testing.history` judges what they saw.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla import Consumer, Producer
from ottla.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourceType,
)
from ottla.client.structs import TopicPartition
from ottla.testing.history import History, Outcome, check
from tests import needs
from tests.crash.test_cluster import KILLS, PARTITIONS, TOPIC, load
from tests.waiting import GIVE_UP_S, eventually

from .clusters import SHOP, SecuredCluster, client_options, secured_cluster

pytestmark = pytest.mark.xdist_group("cluster")

SALES = "sales"  # written in transactions
MOVED = "moved"  # one replica, which goes from broker to broker
RECORDS_MOVED = 300
OPTIONS: dict[str, object] = {
    **KILLS,
    "offsets_topic_num_partitions": 3,
    "transaction_state_log_num_partitions": 3,
    "group_initial_rebalance_delay_ms": 0,
}
ROUNDS = needs.rounds(1, 20)
CLIENT = SHOP


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SecuredCluster]:
    with secured_cluster(tmp_path, OPTIONS) as running:
        yield running


class Seller(threading.Thread):
    """Transactions of four records in two partitions, every third of which is aborted."""

    def __init__(self, servers: str, history: History, options: dict[str, str]) -> None:
        super().__init__(name="seller", daemon=True)
        self.committed: set[str] = set()
        self.problems: list[str] = []
        self._history = history
        self._ended = threading.Event()
        self._producer = ck.Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": "seller",
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 0,
                **options,
            }
        )

    def run(self) -> None:
        try:
            self._producer.init_transactions(GIVE_UP_S)
            number = 0
            while not self._ended.is_set():
                self._sell(number, commit=number % 3 != 2)
                number += 1
        except Exception as problem:
            self.problems.append(repr(problem))

    def _sell(self, number: int, *, commit: bool) -> None:
        producer, history = self._producer, self._history
        values = [f"{number}.{each}" for each in range(4)]

        def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
            history.sent(
                "seller",
                message.partition(),
                message.value().decode(),
                outcome=Outcome.OK if error is None else Outcome.UNKNOWN,
                transaction=number,
            )

        producer.begin_transaction()
        for place, value in enumerate(values):
            producer.produce(SALES, value, partition=place % 2, on_delivery=delivered)
        history.ending(number, commit=commit)
        if commit:
            producer.flush(GIVE_UP_S)
            committed = self._ended_by(producer.commit_transaction)
        else:
            committed = False
        if committed:
            self.committed.update(values)
        else:
            self._ended_by(producer.abort_transaction)
        history.ended(number, commit=committed)

    @staticmethod
    def _ended_by(end: Callable[[float], None]) -> bool:
        """False: the transaction has to be aborted."""
        while True:
            try:
                end(GIVE_UP_S)
                return True
            except ck.KafkaException as error:
                if error.args[0].txn_requires_abort():
                    return False
                if not error.args[0].retriable():
                    raise

    def sell_more(self, count: int = 24) -> None:
        """Return when that many more records are committed."""
        before = len(self.committed)
        eventually(
            lambda: self.problems or len(self.committed) >= before + count, "transactions end"
        )
        assert not self.problems, self.problems

    def finish(self) -> None:
        self._ended.set()
        self.join(GIVE_UP_S)
        assert not self.is_alive(), "a transaction does not end"
        assert not self.problems, self.problems


def rights() -> list[ACL]:
    """What the client needs, and no more: as an operator would give it to one application."""
    whole, prefix = ACLResourcePatternType.LITERAL, ACLResourcePatternType.PREFIXED
    cluster = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster", whole)
    allowed = [(ACLOperation.CREATE, cluster)]
    for name in (TOPIC, SALES, MOVED):
        topic = ResourcePattern(ResourceType.TOPIC, name, whole)
        allowed += [(ACLOperation.READ, topic), (ACLOperation.WRITE, topic)]
    allowed += [
        (ACLOperation.READ, ResourcePattern(ResourceType.GROUP, "readers-", prefix)),
        (ACLOperation.WRITE, ResourcePattern(ResourceType.TRANSACTIONAL_ID, "seller", whole)),
    ]
    return [
        ACL(f"User:{SHOP}", "*", operation, ACLPermissionType.ALLOW, pattern)
        for operation, pattern in allowed
    ]


def create_topics(cluster: SecuredCluster) -> None:
    with cluster.admin() as operator:
        made = operator.create_acls(rights())
        assert len(made["succeeded"]) == len(rights())
    client = AdminClient(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "log_level": 0,
            **cluster.librdkafka(CLIENT),
        }
    )
    topics = [
        NewTopic(TOPIC, PARTITIONS),
        NewTopic(SALES, 2),
        NewTopic(MOVED, 1, 1, config={"min.insync.replicas": "1"}),
    ]
    for each in client.create_topics(topics).values():
        each.result(GIVE_UP_S)


def read_committed(cluster: SecuredCluster, history: History, count: int) -> None:
    """Notes what a reader of committed records sees of the first `count`, and what follows."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "readers-of-sales",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "log_level": 0,
            **cluster.librdkafka(CLIENT),
        }
    )
    consumer.subscribe([SALES])
    seen = 0
    try:

        def all_seen() -> bool:
            nonlocal seen
            for message in consumer.consume(500, 0.2):
                if message.error() is None:
                    seen += 1
                    place = (message.offset(), message.value().decode())
                    history.polled("reader of sales", message.partition(), [place])
            return seen >= count

        eventually(all_seen, "all that was committed is read")
        for message in consumer.consume(500, 0.2):
            if message.error() is None:
                place = (message.offset(), message.value().decode())
                history.polled("reader of sales", message.partition(), [place])
    finally:
        consumer.close()


def move_on(cluster: SecuredCluster, producer: Producer) -> int:
    """The replica of MOVED to the next broker, with all that is in it and more: how many more."""
    sent = [producer.send(MOVED, b"a record that moves") for _ in range(RECORDS_MOVED)]
    assert all(each.get(GIVE_UP_S) for each in sent)
    before = cluster.leader(MOVED)
    target = before % len(cluster.node_ids) + 1
    with cluster.admin() as client:
        client.alter_partition_reassignments({TopicPartition(MOVED, 0): [target]})
    eventually(lambda: cluster.leader(MOVED) == target, f"{MOVED} has moved to {target}")
    return RECORDS_MOVED


@pytest.mark.timeout(300 * ROUNDS)
def test_nothing_acknowledged_is_lost(cluster: SecuredCluster) -> None:
    """SIGKILL of a leader, then of the controller, amid an idempotent producer's sends, its
    successor's transactions and a replica that moves between brokers.

    Every acknowledged record is read once and in order, of transactions those that were committed
    and no others, and each killed broker comes back and is in sync again.
    """
    chance = random.Random(2029)
    create_topics(cluster)
    sales, librdkafka = History(), cluster.librdkafka(CLIENT)
    ours = {
        "bootstrap_servers": cluster.bootstrap_servers,
        **client_options(cluster.trusted, CLIENT),
    }
    moved = 0
    with load(cluster, History(), **librdkafka) as writer, Producer(**ours, acks="all") as producer:
        seller = Seller(cluster.bootstrap_servers, sales, librdkafka)
        seller.start()
        for _ in range(ROUNDS):
            for victim_of in (lambda: cluster.leader(TOPIC, 0), cluster.controller):
                seller.sell_more()
                writer.write_more(chance.randint(100, 300))
                moved += move_on(cluster, producer)
                victim = victim_of()
                cluster.kill(victim)
                writer.write_more(chance.randint(100, 300))
                assert cluster.leader(TOPIC, 0) not in (victim, -1)
                cluster.restart(victim)
                for topic, count in ((TOPIC, PARTITIONS), (SALES, 2)):
                    for partition in range(count):
                        cluster.wait_for_isr(topic, partition)
        seller.sell_more()
        seller.finish()
    with Consumer(MOVED, **ours, auto_offset_reset="earliest") as consumer:
        assert [next(consumer).offset for _ in range(moved)] == list(range(moved))
    read_committed(cluster, sales, len(seller.committed))
    report = check(sales)
    assert report, str(report)
    assert report.unseen == 0, str(report)
    assert report.read == len(seller.committed)

"""Finished batches while connections are cut and brokers killed, judged by the checker."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ottla.client.errors import KafkaError, KafkaTimeoutError
from ottla.client.producer.raw_producer import RawProducer
from ottla.client.structs import OffsetAndMetadata, TopicPartition
from ottla.testing import broker
from ottla.testing.history import History, Outcome, check
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, write_batch
from tests.client.cutting import cut_off
from tests.client.reading import make_topic, read_all, record_all
from tests.live import Server, free_port

WAIT_S = 60
TOPIC = "raw"
SETTINGS = {"transaction.state.log.num.partitions": 2, "offsets.topic.num.partitions": 2}
QUICK = {"reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 50, "retry_backoff_ms": 10}


class Workload:
    """One producer of batches of several records: in transactions, or one after the other."""

    def __init__(self, bootstrap: str, seed: int, *, transactional: bool) -> None:
        self.bootstrap = bootstrap
        self.chance = random.Random(seed)
        self.history = History()
        self.stop = threading.Event()
        self.ended: Counter[bool] = Counter()
        self.problems: list[BaseException] = []
        self.transactional = transactional
        self.number = 0
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        options: dict[str, Any] = {"transactional_id": "raw"} if self.transactional else {}
        try:
            with RawProducer(bootstrap_servers=self.bootstrap, **QUICK, **options) as producer:
                if self.transactional:
                    producer.init_transactions()
                turn = 0
                while not (self.stop.is_set() and self._enough()):
                    turn += 1
                    if self.transactional:
                        self._transaction(producer, turn)
                    else:
                        self._send(producer, None)
                        time.sleep(0.001)
                producer.flush(WAIT_S)
        except BaseException as problem:
            self.problems.append(problem)
            raise

    def _enough(self) -> bool:
        """Whether the run has seen enough to mean something; on a slow machine it goes on."""
        return not self.transactional or (self.ended[True] > 10 and self.ended[False] > 2)

    def _transaction(self, producer: RawProducer, turn: int) -> None:
        producer.begin_transaction()
        for _ in range(self.chance.randint(1, 12)):
            self._send(producer, turn)
        place = TopicPartition(TOPIC, 0)
        producer.send_offsets_to_transaction({place: OffsetAndMetadata(turn, "", -1)}, "ledger")
        commit = self.chance.random() < 0.7
        if commit:
            producer.flush()
        self.history.ending(turn, commit=commit)
        producer.commit_transaction() if commit else producer.abort_transaction()
        self.history.ended(turn, commit=commit)
        self.ended[commit] += 1

    def _send(self, producer: RawProducer, transaction: int | None) -> None:
        """A batch of a few numbers; the history has each record with its own offset."""
        partition = self.chance.randint(0, 1)
        values = [str(self.number + i) for i in range(self.chance.randint(1, 5))]
        self.number += len(values)
        data = write_batch([Record(value.encode(), timestamp=1) for value in values])

        def delivered(metadata: Any, error: Exception | None) -> None:
            for index, value in enumerate(values):
                self.history.sent(
                    0,
                    partition,
                    value,
                    offset=None if metadata is None else metadata.offset + index,
                    outcome=Outcome.OK if error is None else Outcome.UNKNOWN,
                    transaction=transaction,
                )

        future = producer.send_batch(TOPIC, partition, data, len(values))
        future._when_done(delivered)

    def judge(self) -> None:
        self.stop.set()
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive()
        assert not self.problems
        record_all(self.history, self.bootstrap, TOPIC)
        report = check(self.history, may_skip=self.transactional)
        assert report, str(report)
        assert report.unseen == 0, str(report)
        if self.transactional:
            assert self._enough()
        else:
            assert report.acknowledged == report.sent > 500, str(report)


@pytest.mark.parametrize("transactional", [False, True], ids=["idempotent", "transactional"])
def test_batches_survive_cut_connections(tmp_path: Path, transactional: bool) -> None:
    """Lost answers of Produce, EndTxn and all others: each batch is there once and in order."""
    outside = free_port()
    settings = {**SETTINGS, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{outside}"}
    with (
        Server(tmp_path / "data", settings=settings) as server,
        cut_off(outside, server.port, TOPIC, partitions=2, seed=4, answers_between_cuts=12) as (
            bootstrap,
            proxy,
        ),
    ):
        proxy.quiet.clear()
        work = Workload(bootstrap, 4, transactional=transactional)
        time.sleep(2.0)
        proxy.quiet.set()
        work.judge()
        assert proxy.cuts > 5


@pytest.mark.parametrize("transactional", [False, True], ids=["idempotent", "transactional"])
def test_batches_survive_killed_brokers(tmp_path: Path, transactional: bool) -> None:
    """SIGKILL and restart, three times in the middle of it."""
    with Server(tmp_path / "data", settings=SETTINGS) as server:
        make_topic(server.bootstrap, TOPIC, partitions=2)
        work = Workload(server.bootstrap, 5, transactional=transactional)
        for _ in range(3):
            time.sleep(0.6)
            server.kill()
            server.start()
        time.sleep(0.5)
        work.judge()


def test_batches_are_read_through_a_restart(tmp_path: Path) -> None:
    """A reader of raw batches goes on when the broker is back."""
    with Server(tmp_path / "data", settings=SETTINGS) as server:
        make_topic(server.bootstrap, TOPIC, partitions=1)
        with RawProducer(bootstrap_servers=server.bootstrap, **QUICK) as producer:
            batches = [write_batch([Record(b"%d" % n, timestamp=1)]) for n in range(10)]
            offsets = [producer.send_batch(TOPIC, 0, data).get(60).offset for data in batches]
            found = producer.read_batches(TOPIC, 0, reversed(offsets))
            first = bytes(next(found))
            server.kill()
            server.start()
            values = [bytes(data)[61:] for data in (first, *found)]
    assert values == [data[61:] for data in reversed(batches)]


def test_a_damaged_batch_is_refused_by_the_broker(bootstrap: str, topic: str) -> None:
    """The checksum is carried over, not made anew: what broke on the way stays broken."""
    data = bytearray(write_batch([Record(b"x" * 100, timestamp=1)]))
    data[80] ^= 1
    with RawProducer(bootstrap_servers=bootstrap) as producer:
        with pytest.raises(KafkaError, match="damaged before it was sent"):
            producer.send_batch(topic, 0, data).get(60)
        assert producer.send_batch(topic, 0, write_batch([Record(b"y")])).get(60).offset == 0
    assert [record.value for record in read_all(bootstrap, topic)] == [b"y"]


def test_memory_is_bounded(tmp_path: Path) -> None:
    """With the broker gone, send_batch waits for memory and then raises; later it goes on."""
    with Server(tmp_path / "data", settings=SETTINGS) as server:
        make_topic(server.bootstrap, TOPIC, partitions=1)
        data = write_batch([Record(b"x" * 100_000, timestamp=1)])
        options: dict[str, Any] = {"buffer_memory": 300_000, "max_block_ms": 300}
        with RawProducer(bootstrap_servers=server.bootstrap, **QUICK, **options) as producer:
            producer.send_batch(TOPIC, 0, data).get(60)
            server.kill()
            futures = [producer.send_batch(TOPIC, 0, data) for _ in range(2)]
            with pytest.raises(KafkaTimeoutError, match="buffer_memory"):
                producer.send_batch(TOPIC, 0, data)
            server.start()
            assert [future.get(WAIT_S).offset for future in futures] == [1, 2]


def test_what_follows_a_first_batch_never_overtakes_it() -> None:
    """The very first request of a producer is refused: a broker that knows no number of it yet
    would take the second one's, so nothing may be under way behind the first."""
    with broker() as running:
        make_topic(running.bootstrap_servers, TOPIC)
        running.fail("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, times=1)
        with RawProducer(bootstrap_servers=running.bootstrap_servers, **QUICK) as producer:
            futures = [
                producer.send_batch(TOPIC, 0, write_batch([Record(b"%d" % n, timestamp=1)]))
                for n in range(8)
            ]
            assert [future.get(WAIT_S).offset for future in futures] == list(range(8))
        values = [record.value for record in read_all(running.bootstrap_servers, TOPIC)]
    assert values == [b"%d" % n for n in range(8)]

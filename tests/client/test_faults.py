"""The producer when things break: cut connections, killed brokers, brokers that are not there."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ottla import Producer
from ottla.client import errors
from ottla.testing.history import History, Outcome, check
from tests import needs
from tests.apache.kafka import ApacheKafka
from tests.client.cutting import cut_off
from tests.client.reading import make_topic, read_all, record_all
from tests.live import Server, free_port

WAIT_S = 60
QUICK = {"reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 50, "retry_backoff_ms": 10}


class Workload:
    """Writers that send numbered values to as many partitions, and record the outcomes."""

    def __init__(self, bootstrap: str, topic: str, writers: int, **options: Any) -> None:
        self.history = History()
        self.topic = topic
        self.stop = threading.Event()
        self.bootstrap = bootstrap
        self.options = options
        self.problems: list[BaseException] = []
        self.threads = [
            threading.Thread(target=self._write, args=(number,)) for number in range(writers)
        ]
        for thread in self.threads:
            thread.start()

    def _write(self, number: int) -> None:
        try:
            with Producer(bootstrap_servers=self.bootstrap, **QUICK, **self.options) as producer:
                value = 0
                while not self.stop.is_set():
                    for _ in range(8):
                        for partition in range(len(self.threads)):
                            self._send(producer, number, partition, f"{number}-{value}")
                        value += 1
                    time.sleep(0.004)
                producer.flush(WAIT_S)
        except BaseException as problem:
            self.problems.append(problem)
            raise

    def _send(self, producer: Producer[Any, Any], number: int, partition: int, value: str) -> None:
        def delivered(metadata: Any, error: Exception | None) -> None:
            self.history.sent(
                number,
                partition,
                value,
                offset=None if metadata is None else metadata.offset,
                outcome=Outcome.OK if error is None else Outcome.UNKNOWN,
            )

        producer.send(self.topic, value.encode(), partition=partition, on_delivery=delivered)

    def finish(self, bootstrap: str) -> History:
        self.stop.set()
        for thread in self.threads:
            thread.join(WAIT_S * 2)
            assert not thread.is_alive()
        assert not self.problems
        record_all(self.history, bootstrap, self.topic)
        return self.history


def judge(history: History, at_least: int) -> None:
    report = check(history)
    assert report, str(report)
    assert report.acknowledged > at_least, str(report)
    assert report.acknowledged == report.sent, str(report)
    assert report.unseen == 0, str(report)


def cut_and_judge(port: int, outside: int, seed: int) -> None:
    """Load through a proxy that cuts, to a broker that advertises the proxy."""
    with cut_off(outside, port, "cut", partitions=2, seed=seed, answers_between_cuts=12) as (
        bootstrap,
        proxy,
    ):
        proxy.quiet.clear()
        work = Workload(bootstrap, "cut", 2, batch_size=500, linger_ms=0)
        time.sleep(2.0)
        proxy.quiet.set()
        judge(work.finish(bootstrap), 1000)
        assert proxy.cuts > 5


@pytest.mark.parametrize("seed", [1, 2])
def test_cut_connections_neither_lose_nor_double_nor_reorder(tmp_path: Path, seed: int) -> None:
    """Answers are lost again and again after the broker wrote; every record is there once."""
    outside = free_port()
    advertised = f"PLAINTEXT://127.0.0.1:{outside}"
    with Server(tmp_path / "data", settings={"advertised.listeners": advertised}) as server:
        cut_and_judge(server.port, outside, seed)


def test_cut_connections_with_apache_kafka(tmp_path: Path) -> None:
    """The same holds with Apache Kafka behind the proxy."""
    needs.apache()
    outside = free_port()

    class Advertised(ApacheKafka):
        def _properties(self) -> dict[str, str]:
            advertised = f"PLAINTEXT://127.0.0.1:{outside}"
            return super()._properties() | {"advertised.listeners": advertised}

    with Advertised(tmp_path) as kafka:
        cut_and_judge(kafka.port, outside, 3)


def test_killed_brokers_neither_lose_nor_double_nor_reorder(tmp_path: Path) -> None:
    """SIGKILL and restart under idempotent producers, several times: every record is there once."""
    with Server(tmp_path / "data") as server:
        make_topic(server.bootstrap, "kill", partitions=3)
        work = Workload(server.bootstrap, "kill", 3, batch_size=2000, compression_type="lz4")
        for _ in range(3):
            time.sleep(0.4)
            server.kill()
            server.start()
        time.sleep(0.3)
        judge(work.finish(server.bootstrap), 1000)


def test_no_broker_is_said_with_advice(caplog: pytest.LogCaptureFixture) -> None:
    """A port where nobody listens: a warning at once, an error in time, both say what to do."""
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(errors.NoBrokersAvailable, match=f"{address}.*refused") as caught:
        Producer(bootstrap_servers=address, bootstrap_timeout_ms=500)
    assert "ottla server" in str(caught.value)
    assert any("trying again" in record.message for record in caplog.records)
    with pytest.raises(errors.NoBrokersAvailable, match="no-such-host"):
        Producer(bootstrap_servers="no-such-host.invalid:9092", bootstrap_timeout_ms=300)


def test_one_good_bootstrap_server_is_enough(bootstrap: str, topic: str) -> None:
    """Dead addresses in the list do not matter, whatever their place."""
    dead = f"127.0.0.1:{free_port()}"
    with Producer(bootstrap_servers=[dead, bootstrap, dead]) as producer:
        assert producer.send(topic, b"").get(WAIT_S).offset == 0


def test_a_record_that_cannot_be_delivered_fails_in_time(tmp_path: Path) -> None:
    """With the broker gone a record fails after delivery_timeout_ms, and says what was tried."""
    with Server(tmp_path / "data") as server:
        producer = Producer(
            bootstrap_servers=server.bootstrap,
            request_timeout_ms=300,
            delivery_timeout_ms=800,
            **QUICK,
        )
        producer.send("late", b"one").get(WAIT_S)
        server.kill()
        future = producer.send("late", b"two")
        with pytest.raises(errors.KafkaTimeoutError, match="delivery_timeout_ms=800"):
            future.get(WAIT_S)
        server.start()
        assert producer.send("late", b"three").get(WAIT_S).offset in (1, 2)
        producer.close()
        values = [record.value for record in read_all(server.bootstrap, "late")]
        assert values[0] == b"one"
        assert values[-1] == b"three"


def test_a_broker_that_lost_the_producers_state_gets_a_new_epoch(tmp_path: Path) -> None:
    """A topic made anew knows nothing of the sequence: the epoch goes up and the queue goes on."""
    from confluent_kafka.admin import AdminClient

    with Server(tmp_path / "data") as server:
        make_topic(server.bootstrap, "anew")
        with Producer(bootstrap_servers=server.bootstrap, **QUICK) as producer:
            for index in range(3):
                producer.send("anew", b"%d" % index).get(WAIT_S)
            admin = AdminClient({"bootstrap.servers": server.bootstrap})
            admin.delete_topics(["anew"])["anew"].result(WAIT_S)
            make_topic(server.bootstrap, "anew")
            for index in range(3, 6):
                producer.send("anew", b"%d" % index).get(WAIT_S)
        assert [r.value for r in read_all(server.bootstrap, "anew")] == [b"3", b"4", b"5"]

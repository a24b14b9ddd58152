"""Many clients on one live broker at once, and idempotent producers whose answers get lost."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import confluent_kafka as ck
import pytest

from tests.compat.proxy import CuttingProxy
from tests.compat.test_confluent import WAIT_S, consume, make_topic
from tests.live import Server, free_port

PRODUCERS = CONSUMERS = 10
RECORDS_EACH = 2_000
PARTITIONS = 4


def test_ten_producers_and_ten_consumers(bootstrap: str, new_name: Callable[[str], str]) -> None:
    """Ten write while ten read: each reader sees all, once, each producer's in order."""
    topic = new_name("crowd")
    make_topic(bootstrap, topic, PARTITIONS)
    total = PRODUCERS * RECORDS_EACH
    faults: list[str] = []

    def write(number: int) -> None:
        producer = ck.Producer({"bootstrap.servers": bootstrap, "linger.ms": 2})
        for i in range(RECORDS_EACH):
            producer.produce(topic, b"%d:%d" % (number, i), partition=(number + i) % PARTITIONS)
            producer.poll(0)
        if producer.flush(WAIT_S):
            faults.append(f"producer {number} could not flush")

    def read(number: int) -> None:
        consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": f"crowd-{number}"})
        consumer.assign([ck.TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        last: dict[tuple[int, bytes], int] = defaultdict(lambda: -1)
        offsets = [0] * PARTITIONS
        count = 0
        while count < total:
            messages = consumer.consume(1000, WAIT_S)
            if not messages:
                faults.append(f"consumer {number} saw {count} of {total}")
                break
            for message in messages:
                if message.error():
                    faults.append(f"consumer {number}: {message.error()}")
                    continue
                partition, value = message.partition(), message.value()
                writer, _, i = value.partition(b":")
                if int(i) <= last[partition, writer]:
                    faults.append(f"consumer {number}: {value!r} after {last[partition, writer]}")
                if message.offset() != offsets[partition]:
                    faults.append(f"consumer {number}: offset {message.offset()} skips")
                offsets[partition] += 1
                last[partition, writer] = int(i)
                count += 1
        consumer.close()

    threads = [
        threading.Thread(target=work, args=(number,))
        for work, crowd in ((read, CONSUMERS), (write, PRODUCERS))
        for number in range(crowd)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


@pytest.mark.parametrize("seed", [1, 2])
def test_idempotent_producer_through_lost_answers(tmp_path: Path, seed: int) -> None:
    """Connections cut between the broker's write and its response: nothing twice, in order."""
    inside, outside = free_port(), free_port()
    settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{outside}"}
    with Server(tmp_path / "data", settings=settings, port=inside):
        proxy = CuttingProxy(outside, inside, seed=seed, answers_between_cuts=40)
        bootstrap = f"127.0.0.1:{outside}"
        proxy.quiet.set()
        make_topic(bootstrap, "once")
        proxy.quiet.clear()
        failures: list[object] = []
        producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "max.in.flight.requests.per.connection": 5,
                "batch.num.messages": 5,
                "retry.backoff.ms": 5,
                "reconnect.backoff.ms": 5,
                "reconnect.backoff.max.ms": 20,
            }
        )
        for i in range(3_000):
            producer.produce(
                "once", b"%d" % i, partition=0, on_delivery=lambda e, _: e and failures.append(e)
            )
            producer.poll(0)
        assert producer.flush(60) == 0
        assert failures == []
        assert proxy.cuts >= 5, "the proxy cut too little for this to prove anything"
        proxy.quiet.set()
        values = [message.value() for message in consume(bootstrap, "once", 3_000)]
        assert values == [b"%d" % i for i in range(3_000)]
        consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
        assert consumer.get_watermark_offsets(ck.TopicPartition("once", 0), WAIT_S) == (0, 3_000)
        consumer.close()
        proxy.close()

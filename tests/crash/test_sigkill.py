"""Real server processes killed with SIGKILL at random moments under load.

Producers record what was acknowledged. After each restart everything acknowledged so far is read
back: all there, in order, once. The page cache outlives a killed process, so this holds without
fsync too; what a power cut does is tested through the disk seam.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka as ck
import pytest

from tests.compat.test_confluent import make_topic
from tests.live import Server

ROUNDS = 400 if os.environ.get("OTTLA_LONG") else 20
WAIT_S = 20.0
PRODUCERS = 3
TOPIC = "survivor"
# Small segments and a small index interval: kills fall into rolls and index writes as well.
SETTINGS = {"log.segment.bytes": 1_048_576, "log.index.interval.bytes": 512}


@dataclass
class Writer:
    """One idempotent producer with its own partition: what it sent, what was acknowledged."""

    bootstrap: str
    partition: int
    next_value: int = 0
    acknowledged: list[tuple[int, int]] = field(default_factory=list)  # (value, offset)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        producer = ck.Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "compression.type": "lz4" if self.partition == 1 else "none",
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "message.timeout.ms": 60_000,
                "log_level": 0,
            }
        )
        while not self.stop.is_set():
            value = self.next_value
            self.next_value += 1
            try:
                producer.produce(
                    TOPIC,
                    b"%d" % value + b" " * 500,
                    partition=self.partition,
                    on_delivery=lambda error, message, value=value: self._delivered(
                        value, error, message
                    ),
                )
            except BufferError:
                self.next_value -= 1
                producer.poll(0.05)
            producer.poll(0)
            if value % 50 == 0:
                time.sleep(0.002)
        assert producer.flush(WAIT_S * 2) == 0

    def _delivered(self, value: int, error: ck.KafkaError | None, message: ck.Message) -> None:
        assert error is None, error
        self.acknowledged.append((value, message.offset()))


def read_all(bootstrap: str, partition: int) -> Iterator[tuple[int, int]]:
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "log_level": 0})
    target = ck.TopicPartition(TOPIC, partition, 0)
    _, end = consumer.get_watermark_offsets(target, WAIT_S)
    consumer.assign([target])
    offset = -1
    while offset < end - 1:
        messages = consumer.consume(5000, WAIT_S)
        assert messages, f"partition {partition}: nothing after offset {offset} of {end}"
        for message in messages:
            assert message.error() is None, message.error()
            offset = message.offset()
            yield int(message.value()), offset
    consumer.close()


def check(bootstrap: str, writer: Writer, acknowledged: list[tuple[int, int]]) -> None:
    found = list(read_all(bootstrap, writer.partition))
    assert [offset for _, offset in found] == list(range(len(found))), "offsets are not dense"
    values = [value for value, _ in found]
    assert values == sorted(set(values)), "reordered or duplicated"
    assert values == list(range(len(values))), "a hole before a later record"
    by_value = dict(found)
    lost = [entry for entry in acknowledged if by_value.get(entry[0]) != entry[1]]
    assert not lost, f"acknowledged but lost or moved: {lost[:5]} of {len(lost)}"


@pytest.mark.timeout(150 if ROUNDS == 20 else 3600)
def test_every_acknowledged_record_survives_sigkill(tmp_path: Path) -> None:
    """SIGKILL at random moments under load: all acknowledged is there, in order, once."""
    chance = random.Random(20_26)
    server = Server(tmp_path / "data", settings=SETTINGS).start()
    make_topic(server.bootstrap, TOPIC, PRODUCERS)
    writers = [Writer(server.bootstrap, partition) for partition in range(PRODUCERS)]
    threads = [threading.Thread(target=writer.run) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        for round_number in range(ROUNDS):
            time.sleep(chance.uniform(0.1, 0.7))
            server.kill()
            server.start()
            if round_number % 5 == 4:
                for writer in writers:
                    check(server.bootstrap, writer, list(writer.acknowledged))
    finally:
        for writer in writers:
            writer.stop.set()
        for thread in threads:
            thread.join()
    for writer in writers:
        assert len(writer.acknowledged) == writer.next_value, "a send was never answered"
        check(server.bootstrap, writer, writer.acknowledged)
    assert sum(len(writer.acknowledged) for writer in writers) > 20 * ROUNDS
    assert server.stop() == 0

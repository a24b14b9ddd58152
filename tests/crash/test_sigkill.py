"""Real server processes killed with SIGKILL, or stopped, at random moments under load.

Producers record what was acknowledged. After each restart everything acknowledged so far is read
back: all there, in order, once. The page cache outlives a killed process, so this holds without
fsync too; what a power cut does is tested through the disk seam.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka as ck
import pytest

from tests import needs
from tests.compat.test_confluent import make_topic
from tests.live import Server

ROUNDS = needs.rounds(12, 400)
RECORDS = 600  # of each writer between two stops: the load follows the rounds, not the machine
WAIT_S = 60.0
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
    allowed: int = RECORDS
    acknowledged: list[tuple[int, int]] = field(default_factory=list)  # (value, offset)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        producer = ck.Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 20,  # many requests, so that a kill falls between them
                "compression.type": "lz4" if self.partition == 1 else "none",
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "message.timeout.ms": 60_000,
                "log_level": 0,
            }
        )
        while not self.stop.is_set():
            if self.next_value >= self.allowed:
                producer.poll(0.01)
                continue
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
        assert producer.flush(WAIT_S) == 0

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
        # It waits for as many as are asked for, so no more than there are.
        messages = consumer.consume(min(5000, end - 1 - offset), WAIT_S)
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


@contextmanager
def written_to(server: Server) -> Iterator[list[Writer]]:
    """Writers at work while the server comes and goes; it must run when they end."""
    make_topic(server.bootstrap, TOPIC, PRODUCERS)
    writers = [Writer(server.bootstrap, partition) for partition in range(PRODUCERS)]
    threads = [threading.Thread(target=writer.run) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        yield writers
    finally:
        for writer in writers:
            writer.stop.set()
        for thread in threads:
            thread.join()


def load(writers: list[Writer], chance: random.Random) -> None:
    """Let all write more, and return amid that: when some of it has been acknowledged."""
    for writer in writers:
        writer.allowed += RECORDS
    wanted = chance.randint(1, 2 * RECORDS)
    before = sum(len(writer.acknowledged) for writer in writers)
    deadline = time.monotonic() + WAIT_S
    while sum(len(writer.acknowledged) for writer in writers) < before + wanted:
        assert time.monotonic() < deadline, "nothing is acknowledged"
        time.sleep(0.002)


def check_all(server: Server, writers: list[Writer]) -> None:
    for writer in writers:
        assert len(writer.acknowledged) == writer.next_value, "a send was never answered"
        check(server.bootstrap, writer, writer.acknowledged)


@pytest.mark.timeout(3600)
def test_every_acknowledged_record_survives_sigkill(tmp_path: Path) -> None:
    """SIGKILL at random moments under load: all acknowledged is there, in order, once."""
    chance = random.Random(20_26)
    server = Server(tmp_path / "data", settings=SETTINGS).start()
    with written_to(server) as writers:
        for round_number in range(ROUNDS):
            load(writers, chance)
            server.kill()
            server.start()
            if round_number % 5 == 4:
                for writer in writers:
                    check(server.bootstrap, writer, list(writer.acknowledged))
    check_all(server, writers)
    assert server.stop() == 0


def test_a_clean_stop_under_load(tmp_path: Path) -> None:
    """SIGTERM or SIGINT amid requests: exit code 0, nothing lost, and nothing to recover."""
    chance = random.Random(20_27)
    server = Server(tmp_path / "data", settings=SETTINGS).start()
    with written_to(server) as writers:
        for number in (signal.SIGTERM, signal.SIGINT) * 2:
            load(writers, chance)
            assert server.stop(number) == 0
            assert (server.directory / ".kafka_cleanshutdown").exists()
            server.start()
    check_all(server, writers)
    assert server.stop() == 0
    assert "recovered" not in server.errors()
    assert "WARNING" not in server.errors()

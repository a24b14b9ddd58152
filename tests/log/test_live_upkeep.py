"""On a live server: compaction, retention, deletion, kills amid compactions, as clients see it."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import needs
from tests.live import Server

confluent_kafka = pytest.importorskip("confluent_kafka")
admin = pytest.importorskip("confluent_kafka.admin")

QUICK = {
    "log.cleaner.backoff.ms": 100,
    "log.retention.check.interval.ms": 200,
    "log.initial.task.delay.ms": 100,
    "log.segment.delete.delay.ms": 200,
}

ROUNDS = needs.rounds(4, 60)


def make_topic(server: Server, name: str, **config: str) -> None:
    client = admin.AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
    config = {key.replace("_", "."): value for key, value in config.items()}
    client.create_topics([admin.NewTopic(name, 1, 1, config=config)])[name].result(30)


def produce(server: Server, topic: str, records: list[tuple[bytes | None, bytes | None]]) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": server.bootstrap, "log_level": 0, "batch.num.messages": 10}
    )
    for key, value in records:
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(30) == 0


def read_all(server: Server, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "none",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    found = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error():
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            break
        found.append((message.offset(), message.key(), message.value()))
    consumer.close()
    return found


def until(met: Callable[[], bool], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def updates(rounds: int) -> list[tuple[bytes | None, bytes | None]]:
    return [(b"key %d" % key, b"%d" % round_) for round_ in range(rounds) for key in range(20)]


def segments(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.log"))


def test_a_compacted_topic_is_compacted(tmp_path: Path) -> None:
    """A client sees each key's last value; producing and reading go on; a restart keeps it."""
    with Server(tmp_path / "data", settings=QUICK) as server:
        make_topic(
            server, "compacted", cleanup_policy="compact", segment_ms="50",
            min_cleanable_dirty_ratio="0.01",
        )  # fmt: skip
        for _ in range(3):
            produce(server, "compacted", updates(5))
            time.sleep(0.06)
        produce(server, "compacted", [(b"last", b"one")])
        until(lambda: len(read_all(server, "compacted")) <= 41, "nothing was compacted")
        found = read_all(server, "compacted")
        values = {key: value for _, key, value in found}
        assert values == {b"key %d" % key: b"4" for key in range(20)} | {b"last": b"one"}
        assert found[-1][0] == 300
        server.stop()
        server.start()
        assert read_all(server, "compacted")[-1] == (300, b"last", b"one")
        assert "Traceback" not in server.errors()


def test_old_segments_go_while_clients_are_served(tmp_path: Path) -> None:
    """With a short retention the log's start moves, the files go, and new records are readable."""
    with Server(tmp_path / "data", settings=QUICK) as server:
        make_topic(server, "short", retention_ms="300", segment_ms="50")
        produce(server, "short", updates(2))
        until(lambda: read_all(server, "short") == [], "old records stay")
        produce(server, "short", [(b"k", b"new")])
        directory = tmp_path / "data" / "short-0"
        until(lambda: segments(directory)[0] != "00000000000000000000.log", "old files stay")
        until(lambda: not list(directory.glob("*.deleted")), "deleted files stay")
        assert "Traceback" not in server.errors()


def test_a_deleted_topic_leaves_the_disk(tmp_path: Path) -> None:
    """Its folder is gone soon, and a topic of the same name begins at offset 0."""
    with Server(tmp_path / "data", settings=QUICK) as server:
        make_topic(server, "gone")
        produce(server, "gone", updates(1))
        client = admin.AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
        client.delete_topics(["gone"])["gone"].result(30)
        until(lambda: not list((tmp_path / "data").glob("gone-*")), "the folder stays")
        make_topic(server, "gone")
        produce(server, "gone", [(b"k", b"again")])
        assert read_all(server, "gone") == [(0, b"k", b"again")]


def test_kills_amid_compactions_lose_nothing(tmp_path: Path) -> None:
    """SIGKILL while segments are rewritten and swapped: every last value is there each time."""
    server = Server(tmp_path / "data", settings=QUICK | {"log.cleaner.backoff.ms": 1})
    expected: dict[bytes | None, bytes | None] = {}
    with server:
        make_topic(
            server, "compacted", cleanup_policy="compact", segment_ms="10",
            min_cleanable_dirty_ratio="0.01",
        )  # fmt: skip
        for round_ in range(ROUNDS):
            for part in range(4):
                records = [(b"key %d" % key, b"%d %d" % (round_, part)) for key in range(15)]
                produce(server, "compacted", records)  # type: ignore[arg-type]
                expected.update(records)  # type: ignore[arg-type]
                time.sleep(0.02)
            time.sleep(0.03 * round_)
            server.kill()
            server.start()
            found = read_all(server, "compacted")
            assert {key: value for _, key, value in found} == expected
            offsets = [offset for offset, _, _ in found]
            assert offsets == sorted(set(offsets))

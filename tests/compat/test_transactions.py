"""Transactions with real clients: confluent-kafka (the classic generation) and Apache's Java
producer (transaction.version 2).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka as ck
import kafka
import pytest
from aiokafka.structs import TopicPartition as AioTopicPartition

from tests import needs
from tests.apache import java
from tests.apache.batches import TRANSACTIONAL, batch
from tests.apache.client import RawClient
from tests.compat.test_confluent import make_topic, produce
from tests.live import Server

WAIT_S = 60.0
NewName = Callable[[str], str]


@contextlib.contextmanager
def transactional(
    bootstrap: str, transactional_id: str, **options: object
) -> Iterator[ck.Producer]:
    """A producer that has fenced all earlier ones of its name."""
    config = {
        "bootstrap.servers": bootstrap,
        "transactional.id": transactional_id,
        "linger.ms": 0,
        **{name.replace("_", "."): value for name, value in options.items()},
    }
    producer = ck.Producer(config)
    producer.init_transactions(WAIT_S)
    yield producer


def read_all(
    bootstrap: str, topic: str, partitions: int = 1, *, committed: bool = True
) -> dict[int, list[bytes]]:
    """Every value up to the end that a reader of this isolation level may see."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    consumer.assign([ck.TopicPartition(topic, index, 0) for index in range(partitions)])
    found: dict[int, list[bytes]] = {index: [] for index in range(partitions)}
    at_end: set[int] = set()
    while len(at_end) < partitions:
        message: Any = consumer.poll(WAIT_S)
        assert message is not None, "no end in sight"
        if message.error():
            assert message.error().code() == ck.KafkaError._PARTITION_EOF, message.error()
            at_end.add(message.partition())
        else:
            found[message.partition()].append(message.value())
    consumer.close()
    return found


def raw(bootstrap: str) -> RawClient:
    return RawClient(int(bootstrap.rsplit(":", 1)[1]))


def test_committed_is_seen_aborted_is_not(bootstrap: str, new_name: NewName) -> None:
    """A reader of committed records sees whole transactions, and none that was aborted."""
    topic = new_name("transactions")
    make_topic(bootstrap, topic, 2)
    with transactional(bootstrap, new_name("id")) as producer:
        for number in range(6):
            producer.begin_transaction()
            for index in range(10):
                producer.produce(topic, b"%d-%d" % (number, index), partition=index % 2)
            producer.flush()
            if number % 2:
                producer.abort_transaction(WAIT_S)
            else:
                producer.commit_transaction(WAIT_S)
    expected = {
        index: [b"%d-%d" % (number, i) for number in (0, 2, 4) for i in range(index, 10, 2)]
        for index in (0, 1)
    }
    assert read_all(bootstrap, topic, 2) == expected
    assert sum(map(len, read_all(bootstrap, topic, 2, committed=False).values())) == 60


def test_an_open_transaction_holds_readers_back(bootstrap: str, new_name: NewName) -> None:
    """Behind the first record of an open transaction nothing is shown, not even what is plain."""
    topic = new_name("open")
    make_topic(bootstrap, topic, 1)
    produce(bootstrap, topic, [{"value": b"before"}])
    with transactional(bootstrap, new_name("id")) as producer:
        producer.begin_transaction()
        producer.produce(topic, b"inside")
        producer.flush()
        produce(bootstrap, topic, [{"value": b"after"}])
        assert read_all(bootstrap, topic) == {0: [b"before"]}
        assert read_all(bootstrap, topic, committed=False) == {0: [b"before", b"inside", b"after"]}
        producer.commit_transaction(WAIT_S)
    assert read_all(bootstrap, topic) == {0: [b"before", b"inside", b"after"]}


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_count_if_the_transaction_does(
    bootstrap: str, new_name: NewName, commit: bool
) -> None:
    """Offsets sent to a transaction are committed with it, or were never there."""
    topic, group = new_name("input"), new_name("group")
    make_topic(bootstrap, topic, 1)
    produce(bootstrap, topic, [{"value": b"%d" % i} for i in range(5)])
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    assert len(consumer.consume(5, WAIT_S)) == 5
    place = ck.TopicPartition(topic, 0)
    with transactional(bootstrap, new_name("id")) as producer:
        producer.begin_transaction()
        end = [ck.TopicPartition(topic, 0, 5)]
        producer.send_offsets_to_transaction(end, consumer.consumer_group_metadata(), WAIT_S)
        with raw(bootstrap) as client:
            asked = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}
            answer = client.ask("OffsetFetch", 8, {"groups": [asked], "require_stable": True})
            [pending] = answer["groups"][0]["topics"][0]["partitions"]
            assert pending["error_code"] == 88  # UNSTABLE_OFFSET_COMMIT
        if commit:
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)
    [found] = consumer.committed([place], WAIT_S)
    assert found.offset == (5 if commit else ck.OFFSET_INVALID)
    consumer.close()


def test_a_newer_producer_fences_the_older(bootstrap: str, new_name: NewName) -> None:
    """At whatever step the older one wakes up, it is fenced, and nothing of it is seen."""
    topic = new_name("fenced")
    make_topic(bootstrap, topic, 1)
    for step in ("begin", "produce", "commit", "abort"):
        name = new_name("id")
        with transactional(bootstrap, name) as old:
            if step != "begin":
                old.begin_transaction()
                old.produce(topic, b"old " + step.encode())
                old.flush()
            with transactional(bootstrap, name) as fresh:
                with pytest.raises(ck.KafkaException) as fenced:
                    wake_up(old, topic, step)
                error = fenced.value.args[0]
                assert error.code() in (ck.KafkaError._FENCED, ck.KafkaError._STATE), error
                fresh.begin_transaction()
                fresh.produce(topic, b"new " + step.encode())
                fresh.commit_transaction(WAIT_S)
    steps = (b"begin", b"produce", b"commit", b"abort")
    assert read_all(bootstrap, topic) == {0: [b"new " + step for step in steps]}


def wake_up(old: ck.Producer, topic: str, step: str) -> None:
    """What a producer that was fenced meanwhile goes on to do."""
    if step == "begin":
        old.begin_transaction()
    if step in ("begin", "produce"):
        old.produce(topic, b"late " + step.encode())
        old.flush()
    if step == "abort":
        old.abort_transaction(WAIT_S)
    else:
        old.commit_transaction(WAIT_S)


def test_a_deleted_topic_does_not_hold_up_a_transaction(bootstrap: str, new_name: NewName) -> None:
    """A partition that is gone needs no marker."""
    gone, kept = new_name("gone"), new_name("kept")
    make_topic(bootstrap, gone, 1)
    make_topic(bootstrap, kept, 1)
    with transactional(bootstrap, new_name("id")) as producer:
        producer.begin_transaction()
        producer.produce(gone, b"1")
        producer.produce(kept, b"1")
        producer.flush()
        with raw(bootstrap) as client:
            client.ask("DeleteTopics", 3, {"topic_names": [gone], "timeout_ms": 5000})
        producer.commit_transaction(WAIT_S)
        producer.begin_transaction()
        producer.produce(kept, b"2")
        producer.commit_transaction(WAIT_S)
    assert read_all(bootstrap, kept) == {0: [b"1", b"2"]}


@pytest.mark.apache
def test_apaches_producer_speaks_the_second_generation(bootstrap: str, new_name: NewName) -> None:
    """Every end bumps the epoch; partitions come in by being written to; zombies are fenced."""
    needs.apache()
    source, output, name = new_name("source"), new_name("output"), new_name("java")
    make_topic(bootstrap, source, 1)
    make_topic(bootstrap, output, 2)
    produce(bootstrap, source, [{"value": b"%d" % i} for i in range(10)])
    program = Path(__file__).with_name("Transactions.java")
    lines = java.run_json(program, bootstrap, source, output, name)
    steps = [(line["step"], line.get("state"), line.get("epoch")) for line in lines]
    assert steps[:7] == [
        ("begin", "Empty", 0),
        ("commit", "CompleteCommit", 1),
        ("abort", "CompleteAbort", 2),
        ("commit", "CompleteCommit", 3),
        ("abort", "CompleteAbort", 4),
        ("commit", "CompleteCommit", 5),
        ("abort", "CompleteCommit", 5),  # nothing was written: the producer does not ask
    ]
    by_step = {line["step"]: line for line in lines}
    assert by_step["transformed"] == {"step": "transformed", "count": 10, "committed": 10}
    assert by_step["transform"]["epoch"] >= 4  # at most three records each
    assert by_step["zombie"]["outcome"] in (
        "ProducerFencedException",
        "InvalidProducerEpochException",
        "KafkaException",
    )
    assert by_step["fresh"]["state"] == "CompleteCommit"
    found = read_all(bootstrap, output, 2)
    kept = [b"%d-%d" % (i, j) for i in (0, 2, 4) for j in (0, 2)]
    assert found[0] == [*kept, *(b"did %d" % i for i in range(10))]
    assert found[1] == [*(b"%d-%d" % (i, j) for i in (0, 2, 4) for j in (1, 3)), b"fresh"]


def test_aiokafka_in_the_lowest_versions(bootstrap: str, new_name: NewName) -> None:
    """It asks in version 0 of every API: commit, abort, and offsets in a transaction."""
    topic, group = new_name("aiokafka"), new_name("group")
    make_topic(bootstrap, topic, 1)

    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=new_name("id")
        )
        await producer.start()
        try:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"committed")
                place = AioTopicPartition(topic, 0)
                await producer.send_offsets_to_transaction({place: 7}, group)
            with contextlib.suppress(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"aborted")
                    raise ZeroDivisionError
        finally:
            await producer.stop()

    asyncio.run(run())
    assert read_all(bootstrap, topic) == {0: [b"committed"]}
    assert committed_offset(bootstrap, group, topic) == 7


def test_kafka_python_in_transactions(bootstrap: str, new_name: NewName) -> None:
    """Commit, abort, and offsets in a transaction."""
    topic, group = new_name("kafka-python"), new_name("group")
    make_topic(bootstrap, topic, 1)
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=new_name("id"))
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"committed")
    offsets = {kafka.TopicPartition(topic, 0): kafka.OffsetAndMetadata(7, "", -1)}
    producer.send_offsets_to_transaction(offsets, group)
    producer.commit_transaction()
    producer.begin_transaction()
    producer.send(topic, b"aborted")
    producer.flush()
    producer.abort_transaction()
    producer.close()
    assert read_all(bootstrap, topic) == {0: [b"committed"]}
    assert committed_offset(bootstrap, group, topic) == 7


def committed_offset(bootstrap: str, group: str, topic: str) -> int:
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    [found] = consumer.committed([ck.TopicPartition(topic, 0)], WAIT_S)
    consumer.close()
    return int(found.offset)


@pytest.mark.apache
def test_apaches_tool_finds_and_ends_what_hangs(tmp_path: Path) -> None:
    """kafka-transactions: a transaction that no coordinator knows is found and aborted."""
    needs.apache()
    settings = {"transaction.partition.verification.enable": "false"}
    with Server(tmp_path / "data", settings=settings) as server:
        make_topic(server.bootstrap, "hanging", 1)
        with raw(server.bootstrap) as client:
            records = batch(
                1,
                attributes=TRANSACTIONAL,
                producer_id=77,
                producer_epoch=3,
                base_sequence=0,
                base_timestamp=int(time.time() * 1000) - 3_600_000,
            )
            data = [{"name": "hanging", "partition_data": [{"index": 0, "records": records}]}]
            fields = {"transactional_id": "x", "acks": -1, "timeout_ms": 5000, "topic_data": data}
            answer = client.ask("Produce", 9, fields)
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
        produce(server.bootstrap, "hanging", [{"value": b"behind"}])
        assert read_all(server.bootstrap, "hanging") == {0: []}
        tool = ("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server")
        found = java.run(*tool, server.bootstrap, "find-hanging", "--topic", "hanging")
        assert re.search(r"hanging\s+0\s+77\s+3\s+-1\s+0\s", found), found
        place = ("--topic", "hanging", "--partition", "0", "--start-offset", "0")
        java.run(*tool, server.bootstrap, "abort", *place)
        assert read_all(server.bootstrap, "hanging") == {0: [b"behind"]}

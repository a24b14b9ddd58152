"""AlterReplicaLogDirs: replicas move between the data directories of a broker (KIP-113)."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.seams.simulated.background import Durations
from ottla.wire.api.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.wire.api.describe_log_dirs import DescribeLogDirsPartition, DescribeLogDirsRequest
from ottla.wire.errors import ErrorCode
from tests.broker.harness import BrokerHarness, fetch_request, produce_request
from tests.broker.harness import values as values_of

A, B, C = "/data", "/more", "/most"


def two_directories(**settings: Any) -> BrokerHarness:
    return BrokerHarness(**{"log_dirs": f"{A},{B},{C}", **settings})


@pytest.fixture
def harness() -> Iterator[BrokerHarness]:
    with two_directories() as harness:
        harness.create("first", 1)
        assert folder(harness) == f"{A}/first-0"
        yield harness


def alter(harness: BrokerHarness, path: str, topic: str = "first", index: int = 0) -> int:
    """The error code of a request to move one replica."""
    topics = [AlterReplicaLogDirTopic(name=topic, partitions=[index])]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
    response = harness.ask(request, 2)
    [result] = response.results
    [partition] = result.partitions
    assert (result.topic_name, partition.partition_index) == (topic, index)
    return int(partition.error_code)


def values(harness: BrokerHarness) -> list[bytes | None]:
    """All values of the partition."""
    response = harness.ask(fetch_request(("first", 0, 0)), 11)
    return values_of(response)["first", 0]


def folder(harness: BrokerHarness) -> str:
    return harness.partition("first").log.directory


def described(harness: BrokerHarness) -> dict[str, list[DescribeLogDirsPartition]]:
    """What DescribeLogDirs says of the topic, by directory."""
    response = harness.ask(DescribeLogDirsRequest(topics=None), 4)
    return {
        each.log_dir: partitions
        for each in response.results
        if (partitions := [p for topic in each.topics for p in topic.partitions])
    }


def test_a_replica_moves_while_clients_write_and_read(harness: BrokerHarness) -> None:
    """The request is answered at once; records written before, meanwhile and after are there."""
    harness.produce("first", 0, b"before")
    assert alter(harness, B) == ErrorCode.NONE
    harness.produce("first", 0, b"meanwhile")
    harness.settle()
    assert folder(harness) == f"{B}/first-0"
    harness.produce("first", 0, b"after")
    assert values(harness) == [b"before", b"meanwhile", b"after"]
    assert list(described(harness)) == [B]


@pytest.mark.parametrize(
    ("path", "topic", "index", "code"),
    [
        ("/nowhere", "first", 0, ErrorCode.LOG_DIR_NOT_FOUND),
        ("more", "first", 0, ErrorCode.LOG_DIR_NOT_FOUND),
        (f"{B}/", "first", 0, ErrorCode.LOG_DIR_NOT_FOUND),
        ("/nowhere", "unknown", 0, ErrorCode.LOG_DIR_NOT_FOUND),
        (B, "unknown", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (B, "first", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (A, "first", 0, ErrorCode.NONE),
        (B, "x" * 213, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (B, "x" * 214, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_errors_are_kafkas(
    harness: BrokerHarness, path: str, topic: str, index: int, code: ErrorCode
) -> None:
    """Each as Apache Kafka 4.3 answers it, in the order of its checks."""
    assert alter(harness, path, topic, index) == code


def test_a_replica_that_is_offline_does_not_move(harness: BrokerHarness) -> None:
    """KAFKA_STORAGE_ERROR, and no copy is begun."""
    harness.disk.fail("write", "first-0/", errno.EIO)
    harness.produce("first", 0, b"fails")
    harness.disk.heal()
    assert alter(harness, B) == ErrorCode.KAFKA_STORAGE_ERROR
    assert not harness.broker.logs.moves.futures()


def test_a_topic_that_is_created_later_begins_in_the_directory_that_was_asked_for(
    harness: BrokerHarness,
) -> None:
    """The request fails, and the directory is remembered: once, for this partition."""
    for path in (B, C):
        assert alter(harness, path, "later", 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    harness.create("later", 3)
    directories = [harness.partition("later", index).log.directory for index in range(3)]
    assert directories[1] == f"{C}/later-1"


def slow_down(harness: BrokerHarness, bytes_per_second: int) -> None:
    configs = {"replica.alter.log.dirs.io.max.bytes.per.second": str(bytes_per_second)}
    harness.broker.logs.reconfigure(harness.broker.settings.with_dynamic({}, configs))


def test_the_copy_is_shown_with_its_lag(harness: BrokerHarness) -> None:
    """`is_future_key` and how many offsets are missing, until the copy is the log."""
    for _ in range(5):
        harness.produce("first", 0, b"x" * 100_000)
    slow_down(harness, 100_000)
    assert alter(harness, B) == ErrorCode.NONE
    found = described(harness)
    [current], [future] = found[A], found[B]
    assert (current.is_future_key, current.offset_lag) == (False, 0)
    assert (future.is_future_key, future.offset_lag) == (True, 3)
    assert 200_000 < future.partition_size < 201_000
    harness.advance(60_000)
    [current] = described(harness)[B]
    assert (current.is_future_key, current.offset_lag) == (False, 0)


def test_a_second_request_replaces_the_first() -> None:
    """To another directory: the first copy goes. To the one that the log is in: all copies go."""
    with two_directories() as harness:
        harness.create("first", 1)
        for _ in range(5):
            harness.produce("first", 0, b"x" * 100_000)
        slow_down(harness, 100_000)
        assert alter(harness, B) == ErrorCode.NONE
        assert list(described(harness)) == [A, B]
        assert alter(harness, C) == ErrorCode.NONE
        assert list(described(harness)) == [A, C]
        assert alter(harness, C) == ErrorCode.NONE
        assert alter(harness, A) == ErrorCode.NONE
        assert list(described(harness)) == [A]
        harness.advance(60_000)
        assert folder(harness) == f"{A}/first-0"
        names = [*harness.disk.listdir(B), *harness.disk.listdir(C)]
        assert not [name for name in names if name.startswith("first-0")]


def test_acknowledgements_wait_for_the_sync_of_the_directory_in_use() -> None:
    """With log.flush.before.ack a produce request during a move is answered, and after it too."""
    settings = {"log_flush_before_ack": "true", "durations": Durations(thread_s=0.01)}
    with two_directories(**settings) as harness:
        harness.create("first", 1)
        harness.produce("first", 0, b"0")
        assert alter(harness, B) == ErrorCode.NONE
        for number in range(1, 20):
            assert harness.produce("first", 0, b"%d" % number).error_code == ErrorCode.NONE
            harness.advance(1)
        harness.advance(1_000)
        assert folder(harness) == f"{B}/first-0"
        assert values(harness) == [b"%d" % number for number in range(20)]


def test_the_rate_slows_the_copy_down() -> None:
    """`replica.alter.log.dirs.io.max.bytes.per.second` holds for the copies of a broker."""
    with two_directories() as harness:
        harness.create("first", 1)
        for _ in range(40):
            harness.produce("first", 0, b"x" * 50_000)
        slow_down(harness, 100_000)
        assert alter(harness, B) == ErrorCode.NONE
        harness.advance(10_000)
        [future] = described(harness)[B]
        assert future.is_future_key
        assert 700_000 < future.partition_size < 1_500_000
        harness.advance(12_000)
        assert folder(harness) == f"{B}/first-0"


def test_a_full_target_is_counted(harness: BrokerHarness) -> None:
    """The move is given up: the log stays, and the metric says so."""
    harness.produce("first", 0, b"value")
    harness.disk.fail("write", "-future", errno.ENOSPC)
    assert alter(harness, B) == ErrorCode.NONE
    harness.settle()
    assert folder(harness) == f"{A}/first-0"
    name = "kafka_server_ReplicaAlterLogDirsManager_FailedPartitionsCount"
    text = harness.broker.metrics.text()
    assert f'{name}{{clientId="ReplicaAlterLogDirs"}} 1' in text
    assert values(harness) == [b"value"]


def test_the_rate_does_not_hold_back_acknowledgements() -> None:
    """With log.flush.before.ack: what came while the copy was synced is copied without a rest."""
    settings = {"log_flush_before_ack": "true", "durations": Durations(thread_s=0.01)}
    with two_directories(**settings) as harness:
        harness.create("first", 1)
        harness.produce("first", 0, b"0")
        slow_down(harness, 1_000)
        log = harness.partition("first").log
        assert alter(harness, B) == ErrorCode.NONE
        harness.simulation.run_until(lambda: log.holds_syncs, limit_s=1.0)
        requests = [
            produce_request("first", 0, harness.batch(b"x" * 200_000), timeout_ms=30_000)
            for _ in range(3)
        ]
        answers = [harness.post(request, 9) for request in requests]
        harness.advance(5_000)
        assert [answer.ready for answer in answers] == [True] * 3
        codes = [each.response.responses[0].partition_responses[0].error_code for each in answers]
        assert codes == [ErrorCode.NONE] * 3
        assert folder(harness) == f"{B}/first-0"

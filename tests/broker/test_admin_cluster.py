"""DescribeCluster, DescribeTopicPartitions, DescribeLogDirs, UpdateFeatures."""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.context import Peer
from ottla.cluster.image import PartitionImage, PartitionsChanged
from ottla.wire.api.describe_cluster import DescribeClusterRequest
from ottla.wire.api.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.wire.api.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from ottla.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.errors import ErrorCode
from tests.broker.harness import DATA, BrokerHarness

NOT_ASKED = -(1 << 31)


@pytest.fixture
def harness() -> Iterator[BrokerHarness]:
    with BrokerHarness() as harness:
        yield harness


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described_in_every_version(harness: BrokerHarness, version: int) -> None:
    """Id, controller and brokers; operations only when asked for."""
    response = harness.ask(DescribeClusterRequest(), version)
    assert response.error_code == ErrorCode.NONE
    assert response.cluster_id == harness.broker.image.cluster_id
    assert response.controller_id == 1
    [broker] = response.brokers
    assert (broker.broker_id, broker.host, broker.port) == (1, "127.0.0.1", 9092)
    assert response.cluster_authorized_operations == NOT_ASKED
    asked = harness.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    assert asked.cluster_authorized_operations == 8096


def test_a_client_gets_the_address_of_its_own_listener() -> None:
    """Two listeners, two answers."""
    endpoints = {"PLAINTEXT": ("127.0.0.1", 9092), "OUTSIDE": ("kafka.example", 443)}
    with BrokerHarness(endpoints=endpoints) as harness:
        outside = harness.ask(DescribeClusterRequest(), 1, peer=Peer("OUTSIDE"))
        assert (outside.brokers[0].host, outside.brokers[0].port) == ("kafka.example", 443)


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_controllers_are_not_described_here(
    harness: BrokerHarness, endpoint_type: int, code: int
) -> None:
    """KIP-919: a broker does not answer for controllers."""
    response = harness.ask(DescribeClusterRequest(endpoint_type=endpoint_type), 1)
    assert response.error_code == code
    assert (response.cluster_id, response.controller_id, response.brokers) == ("", -1, [])


def page(
    harness: BrokerHarness,
    names: list[str],
    limit: int = 2000,
    cursor: tuple[str, int] | None = None,
) -> Any:
    at = None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1])
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=at,
    )
    return harness.ask(request, 0)


def shape(response: Any) -> tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]:
    topics = [
        (topic.name, topic.error_code, [each.partition_index for each in topic.partitions])
        for topic in response.topics
    ]
    cursor = response.next_cursor
    return topics, None if cursor is None else (cursor.topic_name, cursor.partition_index)


def test_partitions_come_page_by_page(harness: BrokerHarness) -> None:
    """Sorted by name, cut at the limit, continued at the cursor, until there is none."""
    harness.create("b", 3)
    harness.create("a", 2)
    assert shape(page(harness, [])) == ([("a", 0, [0, 1]), ("b", 0, [0, 1, 2])], None)
    assert shape(page(harness, [], 3)) == ([("a", 0, [0, 1]), ("b", 0, [0])], ("b", 1))
    assert shape(page(harness, [], 3, ("b", 1))) == ([("b", 0, [1, 2])], None)
    assert shape(page(harness, ["b", "a"], 2)) == ([("a", 0, [0, 1])], ("b", 0))
    assert shape(page(harness, [], 0)) == ([("a", 0, [0])], ("a", 1))
    assert shape(page(harness, ["a", "a"])) == ([("a", 0, [0, 1])], None)
    # The cursor's topic was deleted meanwhile: the next one begins at its first partition.
    assert shape(page(harness, [], 9, ("aa", 7))) == ([("b", 0, [0, 1, 2])], None)
    assert shape(page(harness, ["a"], 9, ("a", 9))) == ([("a", 0, [])], None)


def test_a_page_has_a_limit_of_its_own() -> None:
    """max.request.partition.size.limit, whatever the client asks for."""
    with BrokerHarness(max_request_partition_size_limit=2) as harness:
        harness.create("a", 5)
        assert shape(page(harness, [])) == ([("a", 0, [0, 1])], ("a", 2))


def test_a_page_tells_of_topics_that_are_not_there(harness: BrokerHarness) -> None:
    """With their own errors, and a cursor that makes no sense is one for all."""
    harness.create("a")
    topics, _ = shape(page(harness, ["zz", "a", "a b"]))
    assert topics == [("a", 0, [0]), ("a b", 17, []), ("zz", 3, [])]
    assert shape(page(harness, ["a"], 9, ("a", -1)))[0] == [("a", 42, [])]
    assert shape(page(harness, ["z", "a"], 9, ("b", 0)))[0] == [("z", 42, []), ("a", 42, [])]
    assert shape(page(harness, [""]))[0] == [("", -1, [])]


def test_a_partition_tells_its_leader_and_replicas(harness: BrokerHarness) -> None:
    """And ELR lists that are empty, not null (KIP-966)."""
    topic_id = harness.create("a")
    [topic] = page(harness, ["a"]).topics
    assert (topic.topic_id, topic.is_internal) == (topic_id, False)
    assert topic.topic_authorized_operations == 3576
    [partition] = topic.partitions
    assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, [1], [1])
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])
    assert partition.offline_replicas == []


def test_a_partition_without_a_leader_tells_who_may_lead(harness: BrokerHarness) -> None:
    """The ELR and the last known leader (KIP-966)."""
    topic_id = harness.create("a")
    broker = harness.broker
    offline = PartitionImage(0, -1, 3, 4, (1, 2), (), elr=(2,), last_known_leader=1)
    change = PartitionsChanged("a", topic_id, (offline,))
    broker.image = broker.image.apply(broker.image.number, [change])
    [partition] = page(harness, ["a"]).topics[0].partitions
    assert (partition.leader_id, partition.isr_nodes) == (-1, [])
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([2], [1])
    assert partition.offline_replicas == [2]


def sizes(
    harness: BrokerHarness, asked: dict[str, list[int]] | None, version: int = 4
) -> dict[Any, int]:
    topics = None
    if asked is not None:
        topics = [DescribableLogDirTopic(topic=name, partitions=p) for name, p in asked.items()]
    response = harness.ask(DescribeLogDirsRequest(topics=topics), version)
    [result] = response.results
    assert (result.error_code, result.log_dir) == (0, DATA)
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in result.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 6))
def test_log_dirs_tell_the_size_of_partitions(harness: BrokerHarness, version: int) -> None:
    """All, or the requested ones that exist; free space on the disk since version 4."""
    harness.create("a", 2)
    harness.create("b")
    harness.produce("a", 1, b"value" * 100)
    size = harness.partition("a", 1).log.size_bytes
    assert size > 500
    assert sizes(harness, None, version) == {("a", 0): 0, ("a", 1): size, ("b", 0): 0}
    assert sizes(harness, {"a": [1, 7], "zz": [0]}, version) == {("a", 1): size}
    assert sizes(harness, {}, version) == {}
    result = harness.ask(DescribeLogDirsRequest(topics=[]), version).results[0]
    assert (result.usable_bytes >= 0) == (version >= 4)
    assert (result.total_bytes >= max(0, result.usable_bytes)) == (version >= 4)


def test_log_dirs_know_logs_that_nobody_has_opened(harness: BrokerHarness) -> None:
    """After a clean stop logs are opened on demand; their sizes come from the disk."""
    harness.create("a")
    harness.produce("a", 0, b"value" * 100)
    size = harness.partition("a").log.size_bytes
    harness.close()
    with BrokerHarness(disk=harness.disk) as again:
        assert again.broker.logs.opened() == []
        assert sizes(again, None) == {("a", 0): size}
        assert again.broker.logs.opened() == []


def update(
    harness: BrokerHarness, *updates: tuple[str, int, int], version: int = 1, dry: bool = False
) -> Any:
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade)
            for name, level, upgrade in updates
        ],
        validate_only=dry,
    )
    return harness.ask(request, version)


def test_features_go_up_and_down(harness: BrokerHarness) -> None:
    """All or none; each feature has a result up to version 1, and none since 2."""
    response = update(harness, ("transaction.version", 1, 2))
    assert (response.error_code, response.error_message) == (0, None)
    [result] = response.results
    assert (result.feature, result.error_code) == ("transaction.version", 0)
    assert harness.broker.image.features.levels["transaction.version"] == 1
    response = update(harness, ("transaction.version", 2, 1), version=2)
    assert (response.error_code, response.results) == (0, [])
    assert harness.broker.image.features.levels["transaction.version"] == 2
    assert update(harness, ("transaction.version", 1, 2), dry=True).error_code == 0
    assert harness.broker.image.features.levels["transaction.version"] == 2
    assert update(harness, version=0).error_code == 0


@pytest.mark.parametrize(
    ("name", "level", "upgrade", "reason"),
    [
        ("nope", 1, 1, "Local controller 1 does not support this feature."),
        ("transaction.version", 9, 1, "Local controller 1 only supports versions 0-2"),
        ("transaction.version", 1, 1, "Can't downgrade the version of this feature without"),
        ("transaction.version", 1, 9, "The controller does not support the given upgrade type."),
    ],
)
def test_a_feature_that_cannot_be_says_why(
    harness: BrokerHarness, name: str, level: int, upgrade: int, reason: str
) -> None:
    """INVALID_UPDATE_VERSION for the request as a whole."""
    before = harness.broker.image.features
    response = update(harness, ("group.version", 1, 1), (name, level, upgrade))
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert response.error_message.startswith("The update failed for all features since")
    assert reason in response.error_message
    assert response.results == []
    assert harness.broker.image.features == before

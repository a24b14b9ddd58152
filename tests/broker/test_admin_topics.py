"""CreateTopics, DeleteTopics, CreatePartitions as Kafka answers them, in every version."""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.wire.api.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.wire.api.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.errors import ErrorCode
from tests.broker.harness import BrokerHarness

NO_ID = bytes(16)


@pytest.fixture
def harness() -> Iterator[BrokerHarness]:
    with BrokerHarness() as harness:
        yield harness


def topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    assignments: dict[int, list[int]] | None = None,
    **configs: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in (assignments or {}).items()
        ],
        configs=[
            CreatableTopicConfig(name=config.replace("_", "."), value=value)
            for config, value in configs.items()
        ],
    )


def create(
    harness: BrokerHarness, *topics: CreatableTopic, version: int = 7, dry: bool = False
) -> Any:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=1000, validate_only=dry)
    return {result.name: result for result in harness.ask(request, version).topics}


def delete(harness: BrokerHarness, *names: str, version: int = 5) -> Any:
    if version < 6:
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=1000)
    else:
        states = [DeleteTopicState(name=name) for name in names]
        request = DeleteTopicsRequest(topics=states, timeout_ms=1000)
    return {result.name: result for result in harness.ask(request, version).responses}


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_created_in_every_version(harness: BrokerHarness, version: int) -> None:
    """What the answer tells grows with the version: sizes and configs since 5, the id since 7."""
    result = create(harness, topic("first", 3, retention_ms="5"), version=version)["first"]
    assert result.error_code == ErrorCode.NONE
    assert result.error_message is None
    image = harness.broker.image.topics["first"]
    assert len(image.partitions) == 3
    assert harness.partition("first", 2).log.config.retention_ms == 5
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        configs = {config.name: config for config in result.configs}
        assert len(configs) == 33
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5", 1)
        assert configs["segment.ms"].config_source == 5
        assert list(configs) == sorted(configs)
    assert result.topic_id == (image.id if version >= 7 else NO_ID)


def test_minus_one_asks_for_the_brokers_defaults() -> None:
    """num.partitions and default.replication.factor."""
    with BrokerHarness(num_partitions=4) as harness:
        result = create(harness, topic("a", -1, -1))["a"]
        assert (result.num_partitions, result.replication_factor) == (4, 1)


def test_validating_creates_nothing(harness: BrokerHarness) -> None:
    """The answer is the same, even an id is drawn, as Kafka does."""
    result = create(harness, topic("a", 2), dry=True)["a"]
    assert result.error_code == ErrorCode.NONE
    assert result.num_partitions == 2
    assert "a" not in harness.broker.image.topics
    assert create(harness, topic("a b"), dry=True)["a b"].error_code == 17


def test_a_name_given_twice_is_refused_once_and_the_others_are_created(
    harness: BrokerHarness,
) -> None:
    """INVALID_REQUEST for the double, nothing of it is made."""
    results = create(harness, topic("d"), topic("e"), topic("d"))
    assert results["d"].error_code == ErrorCode.INVALID_REQUEST
    assert results["d"].error_message == "Duplicate topic name."
    assert results["e"].error_code == ErrorCode.NONE
    assert list(harness.broker.image.topics) == ["e"]


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        (topic("a b"), 17, "Topic name is invalid: 'a b' contains one or more characters"),
        (topic(""), 17, "Topic name is invalid: the empty string is not allowed"),
        (topic("there"), 36, "Topic 'there' already exists."),
        (topic("n", 0), 37, "Number of partitions was set to an invalid non-positive value."),
        (topic("n", 1, 0), 38, "Replication factor must be larger than 0, or -1"),
        (topic("n", 1, 2), 38, "Unable to replicate the partition 2 time(s)"),
        (topic("n", 1, -1, {0: [1]}), 42, "numPartitions was not set to -1."),
        (topic("n", -1, -1, {1: [1]}), 39, "consecutive 0-based integer sequence"),
        (topic("n", -1, -1, {0: [9]}), 39, "includes broker 9, but no such broker"),
        (topic("n", nope="1"), 40, "Unknown topic config name: nope"),
        (topic("n", retention_ms=None), 40, "Null value not supported for topic configs"),
        (topic("n", segment_bytes="x"), 40, "Invalid value x for configuration segment.bytes"),
        (topic("n", remote_storage_enable="true"), 40, "Tiered Storage functionality is disabled"),
        (
            topic("n", min_compaction_lag_ms="10", max_compaction_lag_ms="5"),
            40,
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (topic("__cluster_metadata"), 42, "Creation of internal topic __cluster_metadata"),
    ],
)
def test_what_cannot_be_created_says_why(
    harness: BrokerHarness, wanted: CreatableTopic, code: int, message: str
) -> None:
    """Kafka's code and words, no id, no sizes, no configs."""
    harness.create("there")
    result = create(harness, wanted)[wanted.name]
    assert result.error_code == code
    assert message in result.error_message
    assert (result.num_partitions, result.replication_factor, result.configs) == (-1, -1, [])
    assert result.topic_id == NO_ID
    assert list(harness.broker.image.topics) == ["there"]


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_request_without_time_is_not_begun(harness: BrokerHarness, timeout_ms: int) -> None:
    """REQUEST_TIMED_OUT, and nothing is created, grown or deleted."""
    harness.create("kept")
    made = CreateTopicsRequest(topics=[topic("new")], timeout_ms=timeout_ms)
    assert harness.ask(made, 7).topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    gone = DeleteTopicsRequest(topic_names=["kept"], timeout_ms=timeout_ms)
    assert harness.ask(gone, 5).responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    more = CreatePartitionsTopic(name="kept", count=2, assignments=None)
    grown = CreatePartitionsRequest(topics=[more], timeout_ms=timeout_ms)
    assert harness.ask(grown, 3).results[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert list(harness.broker.image.topics) == ["kept"]
    assert len(harness.broker.image.topics["kept"].partitions) == 1


def test_a_manual_assignment_decides_how_many_partitions(harness: BrokerHarness) -> None:
    """Two assigned partitions are two partitions."""
    result = create(harness, topic("m", -1, -1, {0: [1], 1: [1]}))["m"]
    assert (result.num_partitions, result.replication_factor) == (2, 1)


@pytest.mark.parametrize("version", range(1, 7))
def test_a_topic_is_deleted_in_every_version(harness: BrokerHarness, version: int) -> None:
    """By name; the answer of version 6 tells the id too."""
    topic_id = harness.create("gone")
    results = delete(harness, "gone", "never", version=version)
    assert results["gone"].error_code == ErrorCode.NONE
    assert results["never"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert harness.broker.image.topics == {}
    if version == 6:
        assert results["gone"].topic_id == topic_id


def test_a_topic_is_deleted_by_its_id(harness: BrokerHarness) -> None:
    """The name comes back; an unknown id, and saying both or neither, have their own errors."""
    topic_id = harness.create("gone")
    harness.create("stays")
    request = DeleteTopicsRequest(
        topics=[
            DeleteTopicState(name=None, topic_id=topic_id),
            DeleteTopicState(name=None, topic_id=b"x" * 16),
            DeleteTopicState(name=None, topic_id=NO_ID),
            DeleteTopicState(name="stays", topic_id=topic_id),
        ],
        timeout_ms=1000,
    )
    answers = {
        (each.name, each.topic_id): each.error_code for each in harness.ask(request, 6).responses
    }
    assert answers == {
        ("gone", topic_id): ErrorCode.NONE,
        (None, b"x" * 16): ErrorCode.UNKNOWN_TOPIC_ID,
        (None, NO_ID): ErrorCode.INVALID_REQUEST,
        ("stays", topic_id): ErrorCode.INVALID_REQUEST,
    }
    assert list(harness.broker.image.topics) == ["stays"]


@pytest.mark.parametrize(("version", "code"), [(1, 42), (2, 42), (3, 73), (6, 73)])
def test_deletion_can_be_switched_off(version: int, code: int) -> None:
    """TOPIC_DELETION_DISABLED since version 3, INVALID_REQUEST for clients that do not know it."""
    with BrokerHarness(delete_topic_enable=False) as harness:
        harness.create("kept")
        assert delete(harness, "kept", version=version)["kept"].error_code == code
        assert "kept" in harness.broker.image.topics


def test_a_topic_of_the_same_name_is_another_topic(harness: BrokerHarness) -> None:
    """Deleted and created again at once: a new id, an empty log."""
    old = harness.create("again")
    harness.produce("again", 0, b"old")
    delete(harness, "again")
    assert harness.create("again") != old
    assert harness.partition("again").log.end_offset == 0


def grow(
    harness: BrokerHarness,
    name: str,
    count: int,
    assignments: list[list[int]] | None = None,
    *,
    version: int = 3,
    dry: bool = False,
) -> Any:
    given = None
    if assignments is not None:
        given = [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    wanted = CreatePartitionsTopic(name=name, count=count, assignments=given)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=1000, validate_only=dry)
    return harness.ask(request, version).results[0]


@pytest.mark.parametrize("version", range(4))
def test_a_topic_grows_in_every_version(harness: BrokerHarness, version: int) -> None:
    """The new partitions can be written to at once."""
    harness.create("grows")
    result = grow(harness, "grows", 3, version=version)
    assert (result.name, result.error_code, result.error_message) == ("grows", 0, None)
    assert harness.produce("grows", 2).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("count", "assignments", "code", "message"),
    [
        (2, None, 37, "Topic already has 2 partition(s)."),
        (1, None, 37, "The topic grows currently has 2 partition(s); 1 would not be an increase."),
        (3, [[1], [1]], 39, "Attempted to add 1 additional partition(s), but only 2"),
        (3, [[9]], 39, "includes broker 9, but no such broker is registered."),
        (3, [[]], 39, "includes an empty replica list."),
    ],
)
def test_growing_that_is_none_says_why(
    harness: BrokerHarness, count: int, assignments: list[list[int]] | None, code: int, message: str
) -> None:
    """Kafka's code and words, per topic."""
    harness.create("grows", 2)
    result = grow(harness, "grows", count, assignments)
    assert result.error_code == code
    assert message in result.error_message
    assert len(harness.broker.image.topics["grows"].partitions) == 2
    assert grow(harness, "nobody", 2).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_growing_can_be_tried_out(harness: BrokerHarness) -> None:
    """validate_only changes nothing."""
    harness.create("grows")
    assert grow(harness, "grows", 5, [[1]] * 4, dry=True).error_code == ErrorCode.NONE
    assert len(harness.broker.image.topics["grows"].partitions) == 1

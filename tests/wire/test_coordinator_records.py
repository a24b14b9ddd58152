"""Keys and values of the coordinators' logs, and the opaque bytes of consumers."""

from __future__ import annotations

import pytest

from ottla.wire.consumer_group_records import CONSUMER_GROUP_RECORDS
from ottla.wire.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    read_assignment,
    read_subscription,
    write_versioned,
)
from ottla.wire.coordinator_records import (
    GROUP_RECORDS,
    TRANSACTION_RECORDS,
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    TransactionLogKey,
    read_key,
    read_value,
    write_key,
    write_value,
)
from ottla.wire.malformed import MalformedMessage, UnsupportedVersion


def test_a_key_begins_with_its_type() -> None:
    """The bytes are those of Kafka: type 1 for an offset, 2 for a group, 0 for a transaction."""
    key = OffsetCommitKey(group="g", topic="t", partition=7)
    assert write_key(key) == b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x07"
    assert read_key(GROUP_RECORDS, write_key(key)) == (key, OffsetCommitValue)
    assert write_key(GroupMetadataKey(group="g")) == b"\x00\x02\x00\x01g"
    transaction = TransactionLogKey(transactional_id="t")
    found = read_key(TRANSACTION_RECORDS, write_key(transaction))
    assert found is not None
    assert found[0] == transaction


@pytest.mark.parametrize("version", range(5))
def test_a_value_begins_with_its_version(version: int) -> None:
    """Any version that Kafka has written is read."""
    value = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9)
    data = write_value(value, version)
    assert data[:2] == version.to_bytes(2, "big")
    assert read_value(OffsetCommitValue, data) == value


def test_types_and_versions_of_the_future() -> None:
    """An unknown type is skipped, an unknown version is an error."""
    assert read_key(GROUP_RECORDS, b"\x00\x63abc") is None
    with pytest.raises(MalformedMessage, match="version 99"):
        read_value(OffsetCommitValue, b"\x00\x63" + bytes(30))
    with pytest.raises(UnsupportedVersion):
        write_value(OffsetCommitValue(), 99)


def test_damage_is_refused() -> None:
    """Too short, or longer than the message."""
    data = write_value(OffsetCommitValue(), 3)
    for size in range(len(data)):
        with pytest.raises(MalformedMessage):
            read_value(OffsetCommitValue, data[:size])
    with pytest.raises(MalformedMessage, match="left over"):
        read_value(OffsetCommitValue, data + b"x")
    with pytest.raises(MalformedMessage):
        read_key(GROUP_RECORDS, b"\x00")


def test_tables_agree_with_the_declarations() -> None:
    """Each type leads to the key and value that were declared with it."""
    for table in (GROUP_RECORDS, TRANSACTION_RECORDS, CONSUMER_GROUP_RECORDS):
        for kind, (key, value) in table.items():
            assert key.__schema__.key == value.__schema__.key == kind


@pytest.mark.parametrize("version", range(4))
def test_subscriptions_and_assignments_come_back(version: int) -> None:
    """In every version, and one of the future is read as the newest that we know."""
    subscription = ConsumerProtocolSubscription(topics=["a", "b"], user_data=b"u")
    data = write_versioned(subscription, version)
    assert read_subscription(data) == subscription
    partitions = [TopicPartition(topic="a", partitions=[0, 1])]
    assignment = ConsumerProtocolAssignment(assigned_partitions=partitions)
    assert read_assignment(write_versioned(assignment, version)) == assignment
    newer = b"\x00\x09" + write_versioned(subscription)[2:] + b"what else there may be"
    assert read_subscription(newer) == subscription


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff", b"\x00\x00\x00"])
def test_damaged_subscriptions_are_refused(data: bytes) -> None:
    """Clients put what they like into these bytes."""
    with pytest.raises(MalformedMessage):
        read_subscription(data)

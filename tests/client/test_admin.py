"""The admin client, on Ottla and on Apache Kafka; its names are kafka-python's."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any

import kafka
import pytest

import ottla
from ottla.client.admin import (
    AbortTransactionSpec,
    Admin,
    AlterConfigOp,
    ConfigResource,
    ElectionType,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    OffsetTimestamp,
)
from ottla.client.admin.configs import operations
from ottla.client.errors import (
    ElectionNotNeededError,
    GroupIdNotFoundError,
    IllegalArgumentError,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    KafkaConfigurationError,
    NoBrokersAvailable,
    NoReassignmentInProgressError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from ottla.client.producer import Producer
from ottla.client.structs import OffsetAndMetadata, TopicPartition
from tests.waiting import eventually

# What kafka-python's admin has and ours has not: one line each in SKIPPED.md.
SKIPPED = {
    "describe_metadata_quorum",
}


@pytest.fixture
def admin(any_bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=any_bootstrap) as made:
        yield made


def fill(admin: Admin, topic: str, count: int = 10, partitions: int = 2) -> int:
    """A topic with records a second apart; gives the time of the first."""
    admin.create_topics({topic: {"num_partitions": partitions}}, wait_for_metadata=True)
    began_ms = int(time.time()) * 1000 - 100_000
    with Producer(bootstrap_servers=admin.config["bootstrap_servers"]) as producer:
        for i in range(count):
            producer.send(topic, b"%d" % i, partition=0, timestamp_ms=began_ms + i * 1000)
    return began_ms


def test_topics_are_created_described_grown_and_deleted(admin: Admin, topic: str) -> None:
    """By name, by NewTopic and by dict; errors are raised, or given when asked so."""
    first, second, third = (f"{topic}-{x}" for x in "abc")
    made = admin.create_topics([first, NewTopic(second, 2, 1, topic_configs={"retention.ms": "9"})])
    assert [each["error_code"] for each in made["topics"]] == [0, 0]
    admin.create_topics({third: {"assignments": {0: [1]}}}, wait_for_metadata=True)
    assert {first, second, third} <= set(admin.list_topics())
    with pytest.raises(TopicAlreadyExistsError, match=first):
        admin.create_topics([first])
    assert admin.create_topics([first], raise_errors=False)["topics"][0]["error_code"] == 36
    with pytest.raises(InvalidReplicationFactorError):
        admin.create_topics([NewTopic(f"{topic}-d", 1, 9)], validate_only=True)
    admin.create_partitions({second: 3})
    admin.create_partitions({second: NewPartitions(4)})
    admin.create_partitions({second: {"count": 5, "assignments": [[1]]}})
    deadline = time.monotonic() + 60  # Kafka answers before its metadata has the news
    while len((described := admin.describe_topics([second])[0])["partitions"]) < 5:
        assert time.monotonic() < deadline
    by_id = admin.describe_topics([described["topic_id"]])
    assert by_id[0]["name"] == second
    page = admin.describe_topic_partitions([second], response_partition_limit=2)
    assert len(page["topics"][0]["partitions"]) == 2
    assert page["next_cursor"]["partition_index"] == 2
    assert admin.describe_topics([f"{topic}-none"])[0]["error_code"] == 3
    gone = admin.delete_topics([first, described["topic_id"], third])
    assert [each["error_code"] for each in gone["topics"]] == [0, 0, 0]
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([first])
    with pytest.raises(TypeError, match="takes a list"):
        admin.create_topics(first)


def described(
    admin: Admin, topic: str, is_applied: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """The configs of a topic; Apache's broker applies a change after it was answered."""
    for _ in range(200):
        found: dict[str, Any] = admin.describe_configs([ConfigResource("topic", topic)])["topic"][
            topic
        ]
        if is_applied(found):
            break
        time.sleep(0.02)
    return found


def test_configs_are_set_described_and_reset(admin: Admin, topic: str) -> None:
    """Incrementally, with operations; only what was set is shown unless all is asked for."""
    admin.create_topics([topic], wait_for_metadata=True)
    changes = {"retention.ms": 1000, "cleanup.policy": (AlterConfigOp.SET, "compact")}
    assert admin.alter_configs([ConfigResource("topic", topic, changes)]) == {
        "topic": {topic: "OK"}
    }
    admin.alter_configs(
        [ConfigResource("topic", topic, {"cleanup.policy": (AlterConfigOp.APPEND, "delete")})]
    )
    both = "compact,delete"
    found = described(admin, topic, lambda now: now.get("cleanup.policy", {}).get("value") == both)
    assert found["retention.ms"]["value"] == "1000"
    assert found["retention.ms"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    assert found["cleanup.policy"]["value"] == both
    one = admin.describe_configs([ConfigResource("topic", topic, ["segment.ms"])], True, "all")
    assert list(one["topic"][topic]) == ["segment.ms"]
    with pytest.raises(ValueError, match="has no config nonsense"):
        admin.alter_configs([ConfigResource("topic", topic, {"nonsense": 1})])
    unknown = [ConfigResource("topic", topic, {"nonsense": 1})]
    assert "INVALID_CONFIG" in admin.alter_configs(unknown, raise_on_unknown=False)["topic"][topic]
    admin.reset_configs([ConfigResource("topic", topic)])
    modified = described(admin, topic, lambda now: "retention.ms" not in now)
    assert "retention.ms" not in modified
    brokers = admin.describe_configs([ConfigResource("broker", 1)], config_filter="all")["broker"]
    assert "num.partitions" in brokers["1"]
    assert topic in admin.list_config_resources(["topic"])["topic"]


def test_records_and_their_offsets(admin: Admin, topic: str) -> None:
    """First, last, latest timestamp and by time; deletion moves the beginning."""
    began_ms = fill(admin, topic)
    place, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)

    def offset(spec: int) -> int:
        return admin.list_partition_offsets({place: spec})[place].offset

    assert [offset(OffsetSpec.EARLIEST), offset(OffsetSpec.LATEST)] == [0, 10]
    assert offset(OffsetSpec.MAX_TIMESTAMP) == 9
    assert offset(OffsetTimestamp(began_ms + 2500)) == 3
    assert admin.list_partition_offsets({empty: began_ms})[empty].offset == -1
    ends = admin.replica_end_offsets(1, [place, empty, TopicPartition(topic, 9)])
    assert ends == {place: 10, empty: 0}
    assert admin.delete_records({place: 4})[place]["low_watermark"] == 4
    assert admin.delete_records({place: -1})[place]["low_watermark"] == 10
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.list_partition_offsets({TopicPartition(topic, 9): OffsetSpec.LATEST}, timeout_ms=300)


def test_groups_and_their_offsets(admin: Admin, topic: str) -> None:
    """Set, list, reset by spec, time and number, delete; a group is described and deleted."""
    began_ms = fill(admin, topic)
    group = f"{topic}-group"
    place, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    set_to = {place: OffsetAndMetadata(5, "note"), other: 0}
    assert admin.alter_group_offsets(group, set_to) == {place: None, other: None}
    assert admin.list_group_offsets({group: None})[group][place][:2] == (5, "note")
    assert list(admin.list_group_offsets({group: [other]})[group]) == [other]
    assert group in [each["group_id"] for each in admin.list_groups(states_filter=["Empty"])]
    assert group not in [each["group_id"] for each in admin.list_groups(states_filter=["Stable"])]
    described = admin.describe_groups([group])[group]
    assert (described["group_state"], described["members"]) == ("Empty", [])
    for spec, expected in (
        (OffsetSpec.EARLIEST, 0),
        (OffsetSpec.LATEST, 10),
        (OffsetTimestamp(began_ms + 2500), 3),
        (7, 7),
        (99, 10),
    ):
        outcome = admin.reset_group_offsets(group, {place: spec})[place]
        assert (outcome["error"], outcome["offset"]) == (None, expected)
    assert admin.delete_group_offsets(group, [place]) == {place: None}
    assert admin.delete_groups([group, f"{group}-none"]) == {
        group: "OK",
        f"{group}-none": "GroupIdNotFoundError",
    }
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_group_offsets(group, [place])


def test_members_are_described_and_removed(admin: Admin, topic: str) -> None:
    """What a member wants and has; a static member can be made to leave."""
    from ottla.client.consumer import Consumer

    fill(admin, topic, 1)
    group = f"{topic}-group"
    consumer = Consumer(
        bootstrap_servers=admin.config["bootstrap_servers"],
        group_id=group,
        group_instance_id="fixed",
    )
    try:
        consumer.subscribe(topics=[topic])
        deadline = time.monotonic() + 60
        while not consumer.assignment() and time.monotonic() < deadline:
            consumer.poll(timeout_ms=100)
        member = admin.describe_groups([group])[group]["members"][0]
        assert member["member_metadata"]["topics"] == [topic]
        assert member["member_assignment"]["assigned_partitions"][0]["partitions"] == [0, 1]
        assert admin.delete_groups([group]) == {group: "NonEmptyGroupError"}
        leaving = MemberToRemove(group_instance_id="fixed")
        assert admin.remove_group_members(group, [leaving]) == {leaving: None}
        assert admin.describe_groups([group])[group]["members"] == []
    finally:
        consumer.close(autocommit=False, timeout_ms=1000)


def test_transactions_are_listed_described_and_ended(admin: Admin, topic: str) -> None:
    """An open transaction is found by its id and on its partition, and can be aborted there."""
    fill(admin, topic, 1)
    place = TopicPartition(topic, 0)
    producer: Producer[bytes, bytes] = Producer(
        bootstrap_servers=admin.config["bootstrap_servers"], transactional_id=topic
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"open", partition=0)
    producer.flush()
    listed = [each for found in admin.list_transactions().values() for each in found]
    assert topic in [each.transactional_id for each in listed if each.state == "Ongoing"]
    found = admin.describe_transactions([topic])[topic]
    assert (found.state, found.topic_partitions) == ("Ongoing", {place})
    assert admin.find_hanging_transactions() == []
    states = admin.describe_producers([place])[place].active_producers
    state = next(each for each in states if each.current_transaction_start_offset >= 0)
    admin.abort_transaction(AbortTransactionSpec(place, state.producer_id, state.producer_epoch))
    states = admin.describe_producers([place], broker_id=1)[place].active_producers
    assert all(each.current_transaction_start_offset < 0 for each in states)
    admin.force_terminate_transaction(topic)
    producer._client.close()


def test_the_cluster_is_described(admin: Admin, topic: str) -> None:
    """Brokers, directories, versions and features."""
    fill(admin, topic)
    cluster = admin.describe_cluster()
    assert [broker["node_id"] for broker in cluster["brokers"]] == [1]
    directories = admin.describe_log_dirs([TopicPartition(topic, 0)])
    sizes = [
        part["partition_size"]
        for broker in directories
        for each in broker["log_dirs"]
        for found in each["topics"]
        for part in found["partitions"]
    ]
    assert len(sizes) == 1
    assert sizes[0] > 0
    assert admin.api_versions()[18][1] >= 4
    features = admin.describe_features()["features"]
    assert features["transaction.version"]["finalized"] == 2
    assert admin.update_features({"transaction.version": (1, "safe_downgrade")}, True) == {
        "transaction.version": "OK"
    }


def test_it_says_what_is_wrong() -> None:
    """An unknown option, a server that is not there, names where values are needed."""
    with pytest.raises(KafkaConfigurationError, match="did you mean 'bootstrap_servers'"):
        Admin(bootstrap_server="x")
    with pytest.raises(NoBrokersAvailable, match="Try: start one"):
        Admin(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=200)
    with pytest.raises(ValueError, match="config_filter"):
        Admin.describe_configs(None, [], config_filter="some")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"must be \{name: value\} \(got \['retention.ms'\]\)"):
        operations(ConfigResource("topic", "orders", ["retention.ms"]))


def test_leaders_are_elected(admin: Admin, topic: str) -> None:
    """By names, by partitions and of all; what is not needed is no error, what is unknown is."""
    admin.create_topics({topic: {"num_partitions": 2}}, wait_for_metadata=True)
    both = {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    for chosen in ([topic], sorted(both), {topic: [0, 1]}):
        found = admin.elect_leaders("preferred", chosen)
        assert set(found) == both
        assert {type(error) for error in found.values()} == {ElectionNotNeededError}
    assert not both & set(admin.elect_leaders(ElectionType.UNCLEAN))
    unknown = TopicPartition(topic, 9)
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.elect_leaders(0, [unknown])
    found = admin.elect_leaders(0, [unknown], raise_errors=False)
    assert isinstance(found[unknown], UnknownTopicOrPartitionError)
    with pytest.raises(UnknownTopicOrPartitionError, match="never"):
        admin.elect_leaders(0, ["never"])


def test_directories_are_described_by_topic(admin: Admin, topic: str) -> None:
    """The name of a topic stands for all its partitions, as in kafka-python."""
    admin.create_topics({topic: {"num_partitions": 2}}, wait_for_metadata=True)

    def described() -> list[tuple[int, int, bool]]:
        (broker,) = admin.describe_log_dirs([topic])
        return sorted(
            (each["partition_index"], each["offset_lag"], each["is_future_key"])
            for found in broker["log_dirs"][0]["topics"]
            for each in found["partitions"]
        )

    # Kafka makes the folders a moment after the topic is known.
    eventually(lambda: described() == [(0, 0, False), (1, 0, False)], "both are described")


def public(cls: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(member)
        for name, member in inspect.getmembers(cls, callable)
        if not name.startswith("_")
    }


def test_kafka_pythons_names_are_here() -> None:
    """Every method of kafka-python's admin is here with its parameters, or is listed as skipped."""
    theirs, ours = public(kafka.KafkaAdminClient), public(ottla.KafkaAdminClient)
    assert set(theirs) - set(ours) == SKIPPED
    for name, signature in theirs.items():
        if name in SKIPPED:
            continue
        found = ours[name].parameters
        assert list(found)[: len(signature.parameters)] == list(signature.parameters), name
        for each in signature.parameters.values():
            needed = each.default is inspect.Parameter.empty
            assert needed or found[each.name].default == each.default, (name, each)


def test_kafka_pythons_options_are_taken(bootstrap: str) -> None:
    """The defaults of its admin can be given to ours."""
    theirs = dict(kafka.KafkaAdminClient.DEFAULT_CONFIG)
    with ottla.KafkaAdminClient(**theirs | {"bootstrap_servers": bootstrap}) as admin:
        assert admin.config["request_timeout_ms"] == 30_000


def test_reassignments_begin_end_and_are_cancelled(admin: Admin, topic: str) -> None:
    """On one broker nothing has to be copied: done at once; each partition has its own error."""
    admin.create_topics({topic: {"num_partitions": 2}}, wait_for_metadata=True)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    none = TopicPartition(f"{topic}-none", 0)
    assert admin.alter_partition_reassignments({first: [1], second: [1, 7], none: [1]}) == {
        first: None,
        second: InvalidReplicationAssignmentError,
        none: UnknownTopicOrPartitionError,
    }
    assert admin.alter_partition_reassignments({first: None}) == {
        first: NoReassignmentInProgressError
    }
    error = admin.reassignment_errors({none: None})[none]
    assert f"Unable to find a topic named {none.topic}." in str(error)
    for chosen in (None, [first, second], {topic: [0, 1]}, [topic]):
        assert admin.list_partition_reassignments(chosen) == {}
    with pytest.raises(IllegalArgumentError, match="None, to cancel"):
        admin.alter_partition_reassignments({first: []})

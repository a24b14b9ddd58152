"""Metadata and ApiVersions: a client's first requests, in every version."""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.dispatch import HANDLERS, Peer
from ottla.wire.api.api_versions import ApiVersionsRequest
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.apis import API
from ottla.wire.errors import ErrorCode
from tests.broker.harness import BrokerHarness

VERSIONS = range(14)


@pytest.fixture
def harness() -> Iterator[BrokerHarness]:
    with BrokerHarness(num_partitions=2) as harness:
        yield harness


def named(*names: str | None, **fields: Any) -> MetadataRequest:
    """A request for topics by name."""
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **fields)


class TestMetadata:
    """Brokers, topics, leaders."""

    @pytest.mark.parametrize("version", VERSIONS)
    def test_a_topic_and_its_broker(self, harness: BrokerHarness, version: int) -> None:
        """Everything a client needs to go on, in every version."""
        topic_id = harness.create("t", 2)
        response = harness.ask(named("t"), version)
        assert [(node.node_id, node.host, node.port) for node in response.brokers] == [
            (1, "127.0.0.1", 9092)
        ]
        assert response.controller_id == (1 if version >= 1 else -1)
        cluster_id = harness.broker.image.cluster_id if version >= 2 else None
        assert response.cluster_id == cluster_id
        (topic,) = response.topics
        assert (topic.error_code, topic.name, topic.is_internal) == (0, "t", False)
        assert topic.topic_id == (topic_id if version >= 10 else bytes(16))
        for index, partition in enumerate(topic.partitions):
            assert (partition.error_code, partition.partition_index) == (0, index)
            assert partition.leader_id == 1
            assert partition.leader_epoch == (0 if version >= 7 else -1)
            assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
            assert partition.offline_replicas == []

    @pytest.mark.parametrize("version", VERSIONS)
    def test_all_topics(self, harness: BrokerHarness, version: int) -> None:
        """A null list, and in version 0 an empty one."""
        harness.create("a")
        harness.create("b")
        request = MetadataRequest(topics=[] if version == 0 else None)
        assert sorted(topic.name for topic in harness.ask(request, version).topics) == ["a", "b"]

    @pytest.mark.parametrize("version", VERSIONS[1:])
    def test_no_topics(self, harness: BrokerHarness, version: int) -> None:
        """An empty list asks for brokers only, since version 1."""
        harness.create("a")
        response = harness.ask(MetadataRequest(topics=[]), version)
        assert (response.topics, len(response.brokers)) == ([], 1)

    def test_every_listener_tells_its_own_address(self) -> None:
        """The response has the address of the listener that the client connected to."""
        endpoints = {"INSIDE": ("10.0.0.1", 9092), "OUTSIDE": ("example.org", 19092)}
        with BrokerHarness(
            endpoints=endpoints,
            listeners="INSIDE://127.0.0.1:9092,OUTSIDE://127.0.0.1:19092",
            listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            inter_broker_listener_name="INSIDE",
        ) as harness:
            for name, (host, port) in endpoints.items():
                response = harness.ask(named(), 9, peer=Peer(name))
                assert [(node.host, node.port) for node in response.brokers] == [(host, port)]

    def test_a_listener_that_the_leader_does_not_have(self, harness: BrokerHarness) -> None:
        """LISTENER_NOT_FOUND since version 6, LEADER_NOT_AVAILABLE before."""
        harness.create("t")
        for version, error in (
            (5, ErrorCode.LEADER_NOT_AVAILABLE),
            (6, ErrorCode.LISTENER_NOT_FOUND),
        ):
            response = harness.ask(named("t"), version, peer=Peer("ELSEWHERE"))
            partition = response.topics[0].partitions[0]
            assert (partition.error_code, partition.leader_id) == (error, -1)
            assert (response.brokers, partition.offline_replicas) == ([], [1])

    def test_by_id(self, harness: BrokerHarness) -> None:
        """Since version 12; an unknown id is echoed with its own error."""
        topic_id, other = harness.create("t"), bytes(range(16))
        topics = [MetadataRequestTopic(topic_id=each, name=None) for each in (topic_id, other)]
        response = harness.ask(MetadataRequest(topics=topics), 12)
        answers = {topic.topic_id: (topic.error_code, topic.name) for topic in response.topics}
        assert answers == {topic_id: (0, "t"), other: (ErrorCode.UNKNOWN_TOPIC_ID, None)}

    @pytest.mark.parametrize("version", [10, 11])
    def test_by_id_is_too_early(self, harness: BrokerHarness, version: int) -> None:
        """The field was there before the feature: INVALID_REQUEST."""
        topics = [MetadataRequestTopic(topic_id=harness.create("t"), name=None)]
        response = harness.ask(MetadataRequest(topics=topics), version)
        assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REQUEST]

    def test_operations_a_client_may_do(self, harness: BrokerHarness) -> None:
        """Only when asked for, as bits; without an authorizer, all."""
        harness.create("t")
        response = harness.ask(named("t"), 8)
        assert response.topics[0].topic_authorized_operations == -(2**31)
        request = named(
            "t",
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        )
        response = harness.ask(request, 8)
        assert response.topics[0].topic_authorized_operations == 0b110111111000
        assert response.cluster_authorized_operations == 0b1111110100000

    def test_a_name_asked_for_twice_is_answered_once(self, harness: BrokerHarness) -> None:
        """And the order of the request is kept."""
        harness.create("a")
        harness.create("b")
        response = harness.ask(named("b", "a", "b"), 9)
        assert [topic.name for topic in response.topics] == ["b", "a"]


class TestAutoCreation:
    """Topics made by being asked for."""

    @pytest.mark.parametrize("version", VERSIONS)
    def test_a_topic_is_created_with_the_brokers_defaults(
        self, harness: BrokerHarness, version: int
    ) -> None:
        """And is in this very answer, with its leader."""
        response = harness.ask(named("new"), version)
        assert response.topics[0].error_code == 0
        assert [each.leader_id for each in response.topics[0].partitions] == [1, 1]

    def test_not_when_the_client_says_no(self, harness: BrokerHarness) -> None:
        """allow_auto_topic_creation=false, since version 4."""
        response = harness.ask(named("new", allow_auto_topic_creation=False), 9)
        assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "new" not in harness.broker.image.topics

    def test_not_when_the_broker_says_no(self) -> None:
        """auto.create.topics.enable=false."""
        with BrokerHarness(auto_create_topics_enable="false") as harness:
            response = harness.ask(named("new"), 9)
            assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ü", "x" * 250])
    def test_a_bad_name_is_reported(self, harness: BrokerHarness, name: str) -> None:
        """INVALID_TOPIC_EXCEPTION, whether or not topics may be created."""
        for allowed in (True, False):
            request = named("good", name, allow_auto_topic_creation=allowed)
            answers = {topic.name: topic.error_code for topic in harness.ask(request, 9).topics}
            assert answers[name] == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert set(harness.broker.image.topics) == {"good"}

    def test_many_clients_at_once(self, harness: BrokerHarness) -> None:
        """All get the same topic."""
        answers = [harness.post(named("new"), 12) for _ in range(5)]
        harness.settle()
        assert len({answer.response.topics[0].topic_id for answer in answers}) == 1
        assert all(answer.response.topics[0].error_code == 0 for answer in answers)


class TestApiVersions:
    """What this broker serves."""

    @pytest.mark.parametrize("version", range(5))
    def test_everything_served_is_listed(self, harness: BrokerHarness, version: int) -> None:
        """Sorted, with Kafka's ranges; Produce from 0 on."""
        request = ApiVersionsRequest(client_software_name="a-b.c", client_software_version="1.0")
        response = harness.ask(request, version)
        ranges = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        assert list(ranges) == sorted(HANDLERS)
        assert ranges == {key: API[key].advertised for key in HANDLERS}
        assert (ranges[0], ranges[1], ranges[18]) == ((0, 13), (4, 18), (0, 4))
        assert response.throttle_time_ms == 0

    @pytest.mark.parametrize("version", [3, 4])
    def test_features(self, harness: BrokerHarness, version: int) -> None:
        """One whose lowest level is 0 is not sent before version 4."""
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        response = harness.ask(request, version)
        lowest = {each.name: each.min_version for each in response.supported_features}
        assert (0 in lowest.values()) == (version == 4)
        finalized = {each.name: each.max_version_level for each in response.finalized_features}
        assert finalized == dict(harness.broker.image.features.levels)
        assert response.finalized_features_epoch == harness.broker.image.features.epoch
        assert response.zk_migration_ready is False

    @pytest.mark.parametrize(
        ("name", "version"),
        [("", "1"), ("a", ""), ("-a", "1"), ("a", "1."), ("a b", "1"), ("a", "ü"), ("a\n", "1")],
    )
    def test_odd_software_names_are_refused(
        self, harness: BrokerHarness, name: str, version: str
    ) -> None:
        """INVALID_REQUEST, since version 3 (KIP-511)."""
        request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        response = harness.ask(request, 3)
        assert (response.error_code, response.api_keys) == (ErrorCode.INVALID_REQUEST, [])

    def test_the_clients_name_is_remembered(self, harness: BrokerHarness) -> None:
        """With its connection."""
        request = ApiVersionsRequest(client_software_name="kcat", client_software_version="1.7")
        harness.ask(request, 3)
        assert (harness.peer.client_software_name, harness.peer.client_software_version) == (
            "kcat",
            "1.7",
        )

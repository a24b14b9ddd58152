"""A broker with quotas, in simulated time: who is held to what rate, and what is said to whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.client_quotas import Metered, size_of_shared
from ottla.broker.context import Context, Peer
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.security.principal import user
from ottla.wire.api import share_fetch
from ottla.wire.api.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from ottla.wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.metadata import MetadataRequest
from ottla.wire.errors import ErrorCode
from ottla.wire.out import BytesFile, FileRange

from .cluster_harness import Cluster
from .harness import BrokerHarness, produce_request

QUOTA_EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class Client(Peer):
    """A connection that remembers how long it was told to be quiet."""

    __slots__ = ("waits_s",)

    def __init__(self, name: str = "alice") -> None:
        super().__init__("PLAINTEXT", "10.0.0.1:50000")
        self.principal = user(name)
        self.waits_s: list[float] = []
        self.throttle = self.waits_s.append

    def waited_ms(self) -> int:
        """Since it was last asked."""
        found = round(sum(self.waits_s) * 1000)
        self.waits_s.clear()
        return found


@pytest.fixture
def broker() -> Iterator[BrokerHarness]:
    with BrokerHarness() as harness:
        yield harness


def limit(harness: BrokerHarness, parts: dict[str, str | None], /, **quotas: float | None) -> None:
    entity = [EntityData(entity_type=kind, entity_name=name) for kind, name in parts.items()]
    ops = [
        OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()
    ]
    request = AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=ops)])
    [entry] = harness.ask(request, 1).entries
    assert (entry.error_code, entry.error_message) == (0, None)


def produce(harness: BrokerHarness, client: Client, size: int, *, acks: int = -1) -> Any:
    request = produce_request("t", 0, harness.batch(b"x" * size), acks=acks)
    return harness.ask(request, 9, peer=client)


def fetch(
    harness: BrokerHarness,
    client: Client,
    *,
    epoch: int = -1,
    session: int = 0,
    bytes_max: int = 1 << 30,
) -> Any:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 30)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=bytes_max,
        session_id=session,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", partitions=[partition])] if epoch <= 0 else [],
    )
    return harness.ask(request, 11, peer=client)


def records_in(response: Any) -> int:
    return sum(
        len(each.records or b"") for topic in response.responses for each in topic.partitions
    )


def test_a_producer_is_held_to_its_rate(broker: BrokerHarness) -> None:
    """Who waits as long as the answers say sends as much as is allowed, and not more."""
    broker.create("t")
    limit(broker, {"user": "alice"}, producer_byte_rate=100_000)
    client, sent, waited_ms = Client(), 0, 0
    while waited_ms < 60_000:
        response = produce(broker, client, 50_000)
        sent += 50_000
        told_ms = response.throttle_time_ms
        assert client.waited_ms() == told_ms
        waited_ms += max(told_ms, 1)
        broker.advance(max(told_ms, 1))
    # Ten windows may come at once.
    assert 100_000 * 60 <= sent <= 100_000 * (60 + 12)


def test_without_quotas_nothing_is_measured(broker: BrokerHarness) -> None:
    """Handlers get a plain context; one that measures only while there is a quota for clients."""
    broker.create("t")
    request, seen = MetadataRequest(topics=None), []
    broker.ask(request, 9)
    [route] = [each for each in broker.broker.dispatcher._routes.values() if each.api.key == 3]
    handle = route.handle
    route.handle = lambda asked, context: seen.append(type(context)) or handle(asked, context)
    broker.ask(request, 9)
    limit(broker, {"ip": "10.0.0.1"}, connection_creation_rate=5)
    broker.ask(request, 9)
    assert broker.broker.quotas.active is None
    limit(broker, {"client-id": "nobody"}, producer_byte_rate=5)
    broker.ask(request, 9)
    limit(broker, {"client-id": "nobody"}, producer_byte_rate=None)
    broker.ask(request, 9)
    assert seen == [Context, Context, Metered, Context]


def test_others_are_not_throttled(broker: BrokerHarness) -> None:
    """A quota of one user is nobody else's."""
    broker.create("t")
    limit(broker, {"user": "alice"}, producer_byte_rate=1)
    bob, alice = Client("bob"), Client()
    assert produce(broker, bob, 1000).throttle_time_ms == 0
    assert produce(broker, alice, 1000).throttle_time_ms > 0
    assert bob.waited_ms() == 0
    limit(broker, {"user": "alice"}, producer_byte_rate=None)
    assert broker.broker.quotas.active is None
    assert produce(broker, alice, 1000).throttle_time_ms == 0


def test_a_producer_without_answers_waits_too(broker: BrokerHarness) -> None:
    """With acks=0 nothing can say so; the connection is not read from all the same."""
    broker.create("t")
    limit(broker, {"client-id": "test"}, producer_byte_rate=1000)
    client = Client()
    assert produce(broker, client, 30_000, acks=0) is None
    assert client.waited_ms() > 10_000


def test_an_answer_that_comes_later_is_counted_too(tmp_path: object) -> None:
    """When it is there: of a request that waits for the disk."""
    with BrokerHarness(log_flush_before_ack="true") as harness:
        harness.create("t")
        limit(harness, {"user": "alice"}, producer_byte_rate=1000)
        client = Client()
        response = produce(harness, client, 30_000)
        assert response.throttle_time_ms == client.waited_ms() > 10_000


def test_a_consumer_over_its_quota_gets_nothing_until_later(broker: BrokerHarness) -> None:
    """An empty answer that says when; and no answer is larger than the windows allow."""
    broker.create("t")
    for _ in range(50):
        produce(broker, Client("bob"), 10_000)
    limit(broker, {"user": "alice"}, consumer_byte_rate=30_000)
    client = Client()
    first = fetch(broker, client)
    # As much as ten windows allow, and what is around it: a moment later, as with Kafka.
    assert first.throttle_time_ms == client.waited_ms() < 10
    broker.advance(first.throttle_time_ms)
    first = fetch(broker, client)
    assert 200_000 < records_in(first) <= 300_000
    second = fetch(broker, client)
    assert second.responses == []
    assert second.throttle_time_ms == client.waited_ms() > 0
    # What did not go out was not counted.
    broker.advance(second.throttle_time_ms + 1000)
    fetched, waited_ms = 0, 0
    while waited_ms < 60_000:
        response = fetch(broker, client, bytes_max=30_000)
        fetched += records_in(response)
        waited_ms += max(response.throttle_time_ms, 1)
        broker.advance(max(response.throttle_time_ms, 1))
    assert 30_000 * 50 <= fetched <= 30_000 * 70


def test_a_throttled_session_loses_nothing(broker: BrokerHarness) -> None:
    """The records come with the next answer that may have some."""
    broker.create("t")
    client = Client()
    begun = fetch(broker, client, epoch=0)
    assert begun.session_id > 0
    produce(broker, Client("bob"), 5000)
    limit(broker, {"user": "alice"}, consumer_byte_rate=1000)
    quotas = broker.broker.quotas
    meter = quotas._all.client("alice", "test", quotas.now_ms).fetch
    assert meter is not None
    meter.rate.record(20_000, quotas.now_ms)
    throttled = fetch(broker, client, epoch=1, session=begun.session_id)
    assert throttled.session_id == begun.session_id
    assert throttled.responses == []
    assert throttled.throttle_time_ms > 10_000
    broker.advance(throttled.throttle_time_ms + 12_000)
    later = fetch(broker, client, epoch=2, session=begun.session_id)
    assert records_in(later) > 5000


def test_followers_are_not_consumers(broker: BrokerHarness) -> None:
    """The quota of all users does not hold up replication."""
    broker.create("t")
    limit(broker, {"user": None}, consumer_byte_rate=1, producer_byte_rate=1)
    client = Client()
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_id=9, max_wait_ms=0, topics=[FetchTopic(topic="t", partitions=[partition])]
    )
    response = broker.ask(request, 11, peer=client)
    assert response.responses
    assert response.throttle_time_ms == client.waited_ms() == 0


def test_time_of_requests_is_a_quota_of_its_own(broker: BrokerHarness) -> None:
    """Also in answers that are encoded for many clients at once, which others get as they are."""
    broker.create("t")
    limit(broker, {"user": "alice"}, request_percentage=1)
    quotas, client = broker.broker.quotas, Client()
    meter = quotas._all.client("alice", "test", quotas.now_ms).request
    assert meter is not None
    meter.rate.record(1000, quotas.now_ms)  # percent in one second: ten seconds of work
    for version in (9, 12):
        told = broker.ask(MetadataRequest(topics=None), version, peer=client)
        # Never longer than one window.
        assert told.throttle_time_ms == client.waited_ms() == 1000
        assert [topic.name for topic in told.topics] == ["t"]
        others = broker.ask(MetadataRequest(topics=None), version, peer=Client("bob"))
        assert others.throttle_time_ms == 0
    produced = produce(broker, client, 10)
    assert produced.throttle_time_ms == client.waited_ms() == 1000
    assert produced.responses[0].partition_responses[0].error_code == 0


def create(harness: BrokerHarness, client: Client, version: int, *topics: str, count: int) -> Any:
    wanted = [
        CreatableTopic(name=each, num_partitions=count, replication_factor=1) for each in topics
    ]
    return harness.ask(CreateTopicsRequest(topics=wanted, timeout_ms=1000), version, peer=client)


def codes(results: Any) -> dict[str, int]:
    return {each.name: each.error_code for each in results}


def test_topic_changes_beyond_the_quota_are_refused(broker: BrokerHarness) -> None:
    """As long as tokens are missing; the request that takes the last of them is carried out."""
    limit(broker, {"user": "alice"}, controller_mutation_rate=2)
    client = Client()
    first = create(broker, client, 7, "a", "b", count=15)
    # 22 tokens, of which 30 are taken: nothing is throttled yet.
    assert codes(first.topics) == {"a": 0, "b": 0}
    assert first.throttle_time_ms == client.waited_ms() == 0
    second = create(broker, client, 7, "a", "c", count=1)
    assert codes(second.topics) == {
        "a": ErrorCode.TOPIC_ALREADY_EXISTS,  # which costs nothing
        "c": QUOTA_EXCEEDED,
    }
    assert second.topics[1].error_message is None
    assert second.throttle_time_ms == client.waited_ms() == 4000
    assert "c" not in broker.broker.image.topics
    more = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="a", count=16, assignments=None)], timeout_ms=1000
    )
    response = broker.ask(more, 3, peer=client)
    assert codes(response.results) == {"a": QUOTA_EXCEEDED}
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=1000)
    response = broker.ask(deletion, 6, peer=client)
    assert codes(response.responses) == {"a": QUOTA_EXCEEDED}
    assert response.throttle_time_ms == 4000
    broker.advance(4000)
    response = broker.ask(more, 3, peer=client)
    assert codes(response.results) == {"a": 0}
    assert len(broker.broker.image.topics["a"].partitions) == 16


def test_older_clients_wait_instead(broker: BrokerHarness) -> None:
    """They do not know the error: what they ask is done, and then they are quiet (KIP-599)."""
    limit(broker, {"user": "alice"}, controller_mutation_rate=2)
    client = Client()
    first = create(broker, client, 5, "a", count=30)
    assert codes(first.topics) == {"a": 0}
    assert first.throttle_time_ms == client.waited_ms() == 4000
    deletion = DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000)
    response = broker.ask(deletion, 4, peer=client)
    assert codes(response.responses) == {"a": 0}
    assert response.throttle_time_ms == client.waited_ms() == 19_000


def test_what_is_only_validated_creates_nothing(broker: BrokerHarness) -> None:
    """It takes tokens all the same, as with Kafka."""
    limit(broker, {"user": "alice"}, controller_mutation_rate=2)
    topics = [CreatableTopic(name="a", num_partitions=30, replication_factor=1)]
    request = CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=True)
    assert codes(broker.ask(request, 7, peer=Client()).topics) == {"a": 0}
    assert codes(broker.ask(request, 7, peer=Client()).topics) == {"a": QUOTA_EXCEEDED}
    assert not broker.broker.image.topics


def test_records_of_a_share_group_count_too() -> None:
    """Whether they go out from a file or from memory."""
    parts = [
        share_fetch.PartitionData(records=FileRange(BytesFile(b"x" * 90), 10, 40)),
        share_fetch.PartitionData(records=b"y" * 5),
        share_fetch.PartitionData(),
    ]
    topics = [share_fetch.ShareFetchableTopicResponse(partitions=parts)]
    response = share_fetch.ShareFetchResponse(responses=topics)
    assert size_of_shared(response) == 45 + 3 * 60


def test_a_quota_holds_at_every_broker() -> None:
    """Also at those that do not host the controller; each measures what comes to it."""
    with Cluster(3) as cluster:
        entity = [EntityData(entity_type="user", entity_name=None)]
        ops = [OpData(key="producer_byte_rate", value=5.0)]
        request = AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=ops)])
        assert cluster.ask(3, request, 1).entries[0].error_code == 0
        for number in (1, 2, 3):
            broker = cluster.brokers[number].broker
            cluster.wait(lambda broker=broker: broker.quotas.active is not None)
            meter = broker.quotas._all.client("anybody", "", broker.quotas.now_ms).produce
            assert meter is not None
            assert meter.limit == 5


def test_quotas_are_there_after_a_restart() -> None:
    """They are kept in the tree."""
    disk = SimulatedDisk()
    with BrokerHarness(disk=disk) as first:
        limit(first, {"user": "a/b <c>", "client-id": None}, consumer_byte_rate=5)
        limit(first, {"ip": "2001:db8::1"}, connection_creation_rate=6)
        before = first.broker.image.entity_configs
        assert len(before) == 2
    with BrokerHarness(disk=disk) as second:
        assert second.broker.image.entity_configs == before
        assert second.broker.quotas.active is not None


def test_metrics_have_kafkas_names(broker: BrokerHarness) -> None:
    """What passed, and how long clients were to wait, for each quota that is in use."""
    broker.create("t")
    limit(broker, {"user": "alice"}, producer_byte_rate=1000)
    produce(broker, Client(), 30_000)
    text = broker.broker.metrics.text()
    labels = '{user="alice",client_id=""}'
    name = f"kafka_server_Produce_byte_rate{labels} "
    [rate] = [line for line in text.splitlines() if line.startswith(name)]
    assert 3000 < float(rate.split()[-1]) < 3100
    assert f"kafka_server_Produce_throttle_time_ms_sum{labels}" in text

"""Metadata answers put together from kept parts: equal to those written in one piece, and cheap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker import metadata_answers
from ottla.broker.endpoints import nodes
from ottla.broker.metadata_answers import MetadataAnswers, Variant, described
from ottla.cluster.image import BrokerInfo, ClusterImage, Endpoint, PartitionImage, TopicImage
from ottla.cluster.names import INTERNAL
from ottla.wire.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from ottla.wire.out import Out
from ottla.wire.schema import writer
from tests.broker.harness import BrokerHarness
from tests.broker.test_fetch import delete

VERSIONS = range(14)
NOT_ASKED = -(1 << 31)

broker_ids = st.integers(0, 4)
ids = st.lists(broker_ids, min_size=1, max_size=3, unique=True).map(tuple)


@st.composite
def images(draw: st.DrawFn) -> ClusterImage:
    """Some brokers on one listener or two, some fenced; topics with any leaders and replicas."""
    brokers = {
        broker_id: BrokerInfo(
            broker_id,
            {name: Endpoint("host", 9092) for name in draw(st.sampled_from(("A", "AB", "B")))},
            draw(st.none() | st.just("rack")),
            fenced=draw(st.booleans()),
        )
        for broker_id in draw(st.sets(broker_ids))
    }
    topics = {}
    names = st.sampled_from(("t", "ü" * 50, "__consumer_offsets", "x" * 249))
    for name in draw(st.lists(names, unique=True)):
        some = draw(st.lists(states, min_size=1, max_size=3))
        partitions = tuple(
            PartitionImage(index, *some[index % len(some)])
            for index in range(draw(st.sampled_from((1, 4, 130))))
        )
        topics[name] = TopicImage(name, name.encode()[:16].ljust(16, b"i"), partitions)
    return ClusterImage(
        cluster_id="cluster",
        controller_id=1,
        brokers=brokers,
        topics=topics,
        topics_by_id={topic.id: topic for topic in topics.values()},
    )


states = st.tuples(broker_ids | st.just(-1), st.integers(0, 2), st.just(0), ids, ids)


def in_one_piece(
    image: ClusterImage, version: int, topics: list[Any], operations: int, cluster: int
) -> bytes:
    """The dumb way: every object made, everything written."""
    reached = nodes(image, "A")
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=each.id, host=each.host, port=each.port, rack=each.rack)
            for each in reached
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=[
            topic
            if isinstance(topic, MetadataResponseTopic)
            else MetadataResponseTopic(
                name=topic.name,
                topic_id=topic.id,
                is_internal=topic.name in INTERNAL,
                partitions=[
                    described(each, {node.id for node in reached}, image.brokers, version)
                    for each in topic.partitions
                ],
                topic_authorized_operations=operations,
            )
            for topic in topics
        ],
        cluster_authorized_operations=cluster,
    )
    for topic in response.topics:
        topic.topic_authorized_operations = operations
    out = Out()
    writer(MetadataResponse, version)(response, out)
    return bytes(out)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=15)
@given(image=images(), asked=st.booleans())
def test_parts_make_the_same_answer(version: int, image: ClusterImage, asked: bool) -> None:
    """For every version, listener and state of partitions; with unknown topics between them."""
    operations = 0xDF8 if asked and version >= 8 else NOT_ASKED
    cluster = 0x1FA0 if asked and 8 <= version <= 10 else NOT_ASKED
    unknown = MetadataResponseTopic(error_code=3, name="unknown")
    variant = MetadataAnswers().variant(image, "A", version, operations)
    topics: list[Any] = [*image.topics.values(), unknown]
    expected = in_one_piece(image, version, topics, operations, cluster)
    for _ in ("encoded", "kept"):
        parts: list[bytes] = []
        for _ in variant.encode(topics, parts):
            pass
        assert variant.answer(image, parts, cluster) == expected


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of partitions that were encoded, call by call."""
    counts: list[int] = []
    real = Variant._partitions

    def counted(self: Variant, partitions: Any) -> bytes:
        counts.append(len(partitions))
        return real(self, partitions)

    monkeypatch.setattr(Variant, "_partitions", counted)
    return counts


@pytest.fixture
def harness() -> Iterator[BrokerHarness]:
    with BrokerHarness() as harness:
        yield harness


def names_in(response: MetadataResponse) -> dict[str | None, int]:
    return {topic.name: len(topic.partitions) for topic in response.topics}


ALL = MetadataRequest(topics=None)


def by_name(*names: str) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def test_only_what_changed_is_encoded_again(harness: BrokerHarness, encoded: list[int]) -> None:
    """A second request encodes nothing, a change of one topic that topic."""
    harness.create("a", 7)
    harness.create("b", 5)
    everything = {"a": 7, "b": 5}
    assert names_in(harness.ask(ALL, 12)) == everything
    assert names_in(harness.ask(ALL, 12)) == everything
    assert names_in(harness.ask(by_name("b", "a"), 12)) == everything
    assert encoded == [7, 5]
    harness.create("c", 3)
    assert names_in(harness.ask(ALL, 12)) == everything | {"c": 3}
    assert encoded == [7, 5, 3]
    delete(harness, "a")
    assert names_in(harness.ask(ALL, 12)) == {"b": 5, "c": 3}
    assert encoded == [7, 5, 3]
    harness.create("a", 2)
    assert names_in(harness.ask(ALL, 12)) == {"b": 5, "c": 3, "a": 2}
    assert encoded == [7, 5, 3, 2]
    assert names_in(harness.ask(ALL, 11)) == {"b": 5, "c": 3, "a": 2}
    assert len(encoded) == 7, "another version has its own bytes"


def test_much_is_encoded_in_slices(
    harness: BrokerHarness, encoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop runs between two slices, and whoever asks meanwhile waits for the first."""
    monkeypatch.setattr(metadata_answers, "PARTITIONS_PER_TURN", 50)
    harness.create("large", 220)
    harness.create("small", 1)
    answers = [harness.post(ALL, 12) for _ in range(3)]
    assert answers[0].pending is not None, "it is not answered in one go"
    harness.settle()
    for answer in answers:
        assert names_in(answer.response) == {"large": 220, "small": 1}
    assert max(encoded) <= 50
    assert sum(encoded) == 40 + 220 + 1, "the first slice twice, all others once"
    assert harness.post(ALL, 12).ready, "and the next one is answered at once"


def test_what_is_kept_is_limited(
    harness: BrokerHarness, encoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the number of variants and by bytes; answers are right all the same."""
    harness.create("a", 100)
    monkeypatch.setattr(metadata_answers, "VARIANTS_MAX", 2)
    answers = harness.broker.metadata_answers
    for version in (9, 10, 11, 12):
        assert names_in(harness.ask(ALL, version)) == {"a": 100}
        assert len(answers._variants) <= 2
    monkeypatch.setattr(metadata_answers, "ENCODED_BYTES_MAX", 3000)
    for version in (7, 8, 7, 8):
        assert names_in(harness.ask(ALL, version)) == {"a": 100}
        kept = sum(variant.encoded_bytes for variant in answers._variants.values())
        assert kept <= 3000


def test_bytes_of_topics_that_are_gone_are_given_back(harness: BrokerHarness) -> None:
    """However many topics come and go, what is kept is what there is."""
    harness.create("stays", 10)
    harness.ask(ALL, 12)
    [variant] = harness.broker.metadata_answers._variants.values()
    before = variant.encoded_bytes
    for number in range(5):
        harness.create(f"t{number}", 10)
        harness.ask(ALL, 12)
        delete(harness, f"t{number}")
        harness.ask(ALL, 12)
    assert variant.encoded_bytes == before


def test_brokers_are_those_of_the_listener_and_of_now() -> None:
    """Each listener's clients get its addresses; the body of a large answer is not copied."""
    endpoints = {"PLAINTEXT": ("127.0.0.1", 9092), "OTHER": ("example.org", 19092)}
    with BrokerHarness(endpoints=endpoints) as harness:
        harness.create("large", 2000)
        for listener, (host, port) in endpoints.items():
            harness.peer.listener_name = listener
            response = harness.ask(ALL, 12)
            assert [(each.host, each.port) for each in response.brokers] == [(host, port)]
            answer = harness.post(ALL, 12)
            assert answer._out is not None
            assert len(answer._out) < 100
            assert len(answer._out.blobs) == 1

"""What is wrong is said in a sentence, with what to try: types, names, topics, brokers."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla import Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.client import errors
from ottla.client.network import cluster_client as client
from tests.client.reading import make_topic
from tests.waiting import ends, eventually

NOT_THERE = TopicPartition("not-there", 0)


def knows(producer: Producer, topic: str) -> bool:
    try:
        return bool(producer.partitions_for(topic))
    except errors.KafkaTimeoutError:
        return False


@pytest.fixture(scope="module")
def clients(client_server: Any) -> Iterator[dict[str, Any]]:
    """One of each, and a topic of one partition."""
    place = {"bootstrap_servers": client_server.bootstrap}
    make_topic(client_server.bootstrap, "refusals")
    with (
        Producer(**place) as producer,
        Producer(**place, allow_auto_create_topics=False, max_block_ms=2000) as careful,
        Consumer(**place, group_id="refusals", allow_auto_create_topics=False) as consumer,
        Admin(**place) as admin,
    ):
        eventually(lambda: knows(careful, "refusals"), "a connection")
        yield {"producer": producer, "careful": careful, "consumer": consumer, "admin": admin}


def send(**options: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda clients: clients["producer"].send("refusals", b"x", **options).get(60)


@pytest.mark.parametrize(
    ("deed", "kind", "words"),
    [
        (send(headers={"a": b"1"}), TypeError, r"list of pairs.*Try: headers="),
        (send(headers=[("a", "1")]), TypeError, r"list of pairs.*\('a', '1'\)"),
        (send(headers=["ab"]), TypeError, "list of pairs"),
        (send(timestamp_ms=-5), ValueError, "0 or more .got -5"),
        (send(timestamp_ms=1.5), TypeError, "whole number of milliseconds .got 1.5"),
        (send(partition=7), ValueError, "no partition 7: it has 1, from 0 to 0"),
        (send(partition="0"), TypeError, "partition must be a whole number .got '0'"),
        (lambda c: c["producer"].send(None, b"x"), TypeError, "topic must be a string .got None"),
        (lambda c: c["producer"].send("a b", b"x"), errors.InvalidTopicError, "is no name"),
        (lambda c: c["producer"].send("\ud800", b"x"), ValueError, "is no name"),
        (lambda c: c["producer"].send("refusals", "x"), TypeError, "Try: .*value_serializer='str'"),
        (lambda c: c["producer"].send("refusals", b"", 3), TypeError, "Try: .*key_serializer='"),
        (lambda c: c["careful"].send("not-there", b"x"), errors.KafkaTimeoutError,
         "max_block_ms=2000: there is no topic 'not-there'.*Try: ottla topics --create"),
        (lambda c: c["consumer"].poll("10"), TypeError, "a number of milliseconds .got '10'"),
        (lambda c: c["consumer"].poll(10), errors.IllegalStateError, "Try: consumer.subscribe"),
        (lambda c: c["consumer"].subscribe("t"), TypeError, r"Try: subscribe\(\['t'\]\)"),
        (lambda c: c["consumer"].subscribe(pattern="("), ValueError, "'\\(' is no pattern: .*Try:"),
        (lambda c: c["consumer"].subscribe(["t"], pattern="t"), errors.IllegalStateError, "either"),
        (lambda c: c["consumer"].assign("t"), TypeError, "must be a TopicPartition .*Try: from"),
        (lambda c: c["consumer"].seek(NOT_THERE, 5), ValueError, "not assigned .*Try: assign"),
        (lambda c: c["consumer"].commit([1]), TypeError, "offsets must be {TopicPartition"),
        (lambda c: c["consumer"].end_offsets([NOT_THERE], timeout_ms=100),
         errors.UnknownTopicOrPartitionError, "there is no topic 'not-there'"),
        (lambda c: c["admin"].create_topics("t"), TypeError, r"Try: create_topics\(\['t'\]\)"),
        (lambda c: c["admin"].delete_topics("t"), TypeError, r"Try: delete_topics\(\['t'\]\)"),
        (lambda c: c["admin"].describe_groups("g"), TypeError, r"Try: describe_groups\(\['g'\]\)"),
        (lambda c: c["admin"].delete_topics(["gone"]), errors.UnknownTopicOrPartitionError, "gone"),
        (lambda c: c["admin"].create_topics([NewTopic("refusals", 1, 1)]),
         errors.TopicAlreadyExistsError, "'refusals' already exists"),
        (lambda c: Producer("localhost:9092"), TypeError, "Try: Producer.bootstrap_servers="),
        (lambda c: Admin("localhost:9092"), TypeError, "Try: Admin.bootstrap_servers="),
        (lambda c: Consumer(config="localhost:9092"), TypeError, "Try: Consumer.bootstrap_server"),
        (lambda c: Consumer(["t"]), TypeError, "a topic must be a string"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(
    clients: dict[str, Any], deed: Callable[[dict[str, Any]], Any], kind: type, words: str
) -> None:
    """The fact, what was given, and where it helps a line that begins with Try."""
    with pytest.raises(kind, match=f"(?s){words}"):
        deed(clients)


def test_a_refused_record_leaves_nothing_behind(clients: dict[str, Any], bootstrap: str) -> None:
    """Records before and after one that was refused are as they were sent."""
    producer: Producer[Any, Any] = clients["producer"]
    with pytest.raises(ValueError, match="is no name"):
        producer.send("\ud800", b"0")
    make_topic(bootstrap, "refused-between")
    first = producer.send("refused-between", b"1", headers=[("a", None)])
    with pytest.raises(TypeError):
        producer.send("refused-between", b"2", headers=[("a", 5)])  # type: ignore[list-item]
    last = producer.send("refused-between", b"3")
    assert (first.get(60).offset, last.get(60).offset) == (0, 1)


def test_a_topic_that_stays_unknown_is_not_waited_for_long(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistyped name fails after a few seconds (here less), not after `request_timeout_ms`."""
    assert client.UNKNOWN_S_MAX < 10
    monkeypatch.setattr(client, "UNKNOWN_S_MAX", 0.3)
    with (
        Admin(bootstrap_servers=bootstrap, request_timeout_ms=600_000) as admin,
        pytest.raises(errors.UnknownTopicOrPartitionError, match="there is no topic 'not-there'"),
    ):
        ends(lambda: admin.delete_records({NOT_THERE: 1}))


def test_a_server_that_says_nothing() -> None:
    """Somebody listens, nobody answers: the address is in the error."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(errors.NoBrokersAvailable, match=f"{place}.*\n?.*Try: start one"):
            Admin(bootstrap_servers=place, bootstrap_timeout_ms=300)

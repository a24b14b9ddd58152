"""Consumers that read from followers (KIP-392)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.replica_selection import LEADER, RACK_AWARE, Candidate, in_rack
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.errors import ErrorCode
from tests.broker.harness import fetch_request, values
from tests.replica.brokers import TOPIC, Brokers


def test_the_leader_is_chosen_where_it_is_near() -> None:
    """In its own rack, and where no replica is nearer."""
    near = Candidate(10, 0.0, 2)
    assert in_rack("a", "a", [("a", near)]) is None
    assert in_rack("b", "a", [("c", near)]) is None


def test_the_replica_with_most_of_the_log_is_chosen() -> None:
    """Then the one that caught up last, then the one with the highest number, as in Kafka."""
    candidates = [
        ("b", Candidate(10, 5.0, 2)),
        ("b", Candidate(12, 1.0, 3)),
        ("b", Candidate(12, 3.0, 4)),
        ("b", Candidate(12, 3.0, 5)),
        ("c", Candidate(99, 9.0, 6)),
    ]
    assert in_rack("b", "a", candidates) == 5
    assert in_rack("b", "a", candidates[:2]) == 3


def fetch(brokers: Brokers, broker_id: int, rack: str, offset: int = 0, version: int = 11) -> Any:
    request = fetch_request((TOPIC, 0, offset), rack_id=rack)
    return brokers.ask(broker_id, request, version)


def racks(brokers: Brokers) -> None:
    """Put each broker into a rack of its own: `rack 1`, `rack 2`, …"""
    for each in brokers.ids:
        brokers.script.move(each, rack=f"rack {each}")
    brokers.run(0.1)


def test_a_consumer_is_sent_to_its_rack() -> None:
    """The leader's answer names the replica and has no records; the replica has them."""
    with Brokers(3, replica_selector_class=RACK_AWARE) as brokers:
        racks(brokers)
        brokers.lead(1)
        brokers.produced(1, b"value")
        brokers.run(1)
        answer = fetch(brokers, 1, "rack 3")
        data = answer.responses[0].partitions[0]
        assert (data.preferred_read_replica, bytes(data.records or b"")) == (3, b"")
        assert (data.high_watermark, data.error_code) == (1, ErrorCode.NONE)
        assert values(fetch(brokers, 3, "rack 3"))[TOPIC, 0] == [b"value"]


@pytest.mark.parametrize("rack", ["", "rack 1", "elsewhere"])
def test_a_consumer_stays_with_the_leader_otherwise(rack: str) -> None:
    """Without a rack, in the leader's, or in one without a replica."""
    with Brokers(3, replica_selector_class=RACK_AWARE) as brokers:
        racks(brokers)
        brokers.lead(1)
        brokers.produced(1, b"value")
        answer = fetch(brokers, 1, rack)
        assert answer.responses[0].partitions[0].preferred_read_replica == -1
        assert values(answer)[TOPIC, 0] == [b"value"]


@pytest.mark.parametrize("selector", [None, LEADER])
def test_the_leader_serves_all_without_a_selector(selector: str | None) -> None:
    """Kafka's default; its LeaderSelector says the same."""
    options = {} if selector is None else {"replica_selector_class": selector}
    with Brokers(3, **options) as brokers:
        racks(brokers)
        brokers.lead(1)
        brokers.produced(1, b"value")
        brokers.run(1)
        assert values(fetch(brokers, 1, "rack 3"))[TOPIC, 0] == [b"value"]


def test_a_replica_that_is_not_in_sync_is_not_named() -> None:
    """It would serve old records for as long as it lags."""
    with Brokers(3, replica_selector_class=RACK_AWARE, replica_lag_time_max_ms=1000) as brokers:
        racks(brokers)
        brokers.lead(1)
        brokers.cut(3)
        brokers.produced(1, b"value")
        brokers.run_until(lambda: brokers.at(1).in_sync == (1, 2))
        answer = fetch(brokers, 1, "rack 3")
        assert answer.responses[0].partitions[0].preferred_read_replica == -1


def test_a_follower_shows_what_it_knows_to_be_committed() -> None:
    """Not its log's end; what is beyond its log is out of range there."""
    with Brokers(3, min_insync_replicas=2) as brokers:
        brokers.lead(1)
        brokers.produced(1, b"committed")
        brokers.run(1)
        brokers.cut(3)
        waiting = brokers.produce(1, b"not committed", acks=1)
        assert waiting.ready
        brokers.run(0.2)
        assert brokers.at(2).end_offset == 2
        assert values(fetch(brokers, 2, ""))[TOPIC, 0] == [b"committed"]
        beyond = fetch(brokers, 2, "", offset=3).responses[0].partitions[0]
        assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_long_poll_at_a_follower_ends_when_its_watermark_moves() -> None:
    """As at the leader."""
    with Brokers(3) as brokers:
        brokers.lead(1)
        brokers.run(1)
        request = fetch_request((TOPIC, 0, 0), max_wait_ms=30_000)
        answer = brokers.post(2, request, 11)
        brokers.run(1)
        assert not answer.ready
        brokers.produced(1, b"value")
        assert brokers.run_until(lambda: answer.ready) < 0.05
        assert values(answer.response)[TOPIC, 0] == [b"value"]


def test_old_consumers_and_old_epochs_must_ask_the_leader() -> None:
    """Before version 11 a client cannot know of followers; an old epoch is fenced anywhere."""
    with Brokers(3) as brokers:
        brokers.lead(1)
        brokers.lead(2)
        brokers.run(1)
        old = fetch(brokers, 1, "", version=10).responses[0].partitions[0]
        assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        asked = FetchPartition(partition=0, current_leader_epoch=1, partition_max_bytes=1000)
        request = FetchRequest(topics=[FetchTopic(topic=TOPIC, partitions=[asked])])
        fenced = brokers.ask(1, request, 11).responses[0].partitions[0]
        assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH

"""Topic patterns of consumer groups (KIP-848) match what the member may describe."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import pytest

from ottla.broker.context import Peer
from ottla.coordinator.group_patterns import SLICE_MATCHES, Resolution
from ottla.security.acls import Operation, ResourceType
from ottla.wire.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.wire.api.find_coordinator import FindCoordinatorRequest

from .harness import BrokerHarness
from .test_authorization import ADMIN, allow, peer_of, secured

DESCRIBE, TOPIC = Operation.DESCRIBE, ResourceType.TOPIC
# More than the time for which the patterns of a group are not resolved again.
PAUSE_MS = 11_000
BEAT_MS = 1_000  # that much time passes with each heartbeat


class Subscriber:
    """A member of the group `g` with the pattern `p-.*`."""

    def __init__(self, broker: BrokerHarness, peer: Peer, name: str) -> None:
        self.broker, self.peer, self.name = broker, peer, name
        self.epoch = 0
        self.owned: list[Any] = []
        broker.ask(FindCoordinatorRequest(key="g"), 1, peer=ADMIN)
        broker.settle()

    def beat(self) -> set[str]:
        """Say everything, and let what it began be done; the topics that it has been given."""
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=self.name,
            member_epoch=self.epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[],
            subscribed_topic_regex="p-.*",
            topic_partitions=self.owned,
        )
        answer = self.broker.ask(request, 1, peer=self.peer)
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        assert answer.error_code == 0, answer
        self.broker.settle()
        self.broker.advance(BEAT_MS)
        self.epoch = answer.member_epoch
        assert answer.assignment is not None
        self.owned = answer.assignment.topic_partitions
        names = self.broker.broker.image.topic_name
        return {names(each.topic_id) or "" for each in self.owned}

    def topics(self) -> set[str]:
        """What it has when what its first heartbeat began has been done."""
        self.beat()
        return self.beat()


def test_a_pattern_matches_what_the_member_may_describe(caplog: pytest.LogCaptureFixture) -> None:
    """Topics that it may not describe are not assigned, and are no denials in the log; when it may,
    they are assigned as soon as the group's patterns are resolved again."""
    with secured() as broker:
        for name in ("p-open", "p-shut", "other"):
            broker.create(name)
        allow(broker, "alice", Operation.READ, ResourceType.GROUP, "g")
        allow(broker, "alice", DESCRIBE, TOPIC, "p-open")
        allow(broker, "alice", DESCRIBE, TOPIC, "other")
        alice = Subscriber(broker, peer_of("alice"), "alice")
        with caplog.at_level(logging.INFO, "ottla.authorizer"):
            assert alice.topics() == {"p-open"}
        assert not [each for each in caplog.records if each.name == "ottla.authorizer"]
        broker.advance(PAUSE_MS)
        assert alice.topics() == {"p-open"}
        allow(broker, "alice", DESCRIBE, TOPIC, "p-shut")
        assert alice.topics() == {"p-open"}  # as Kafka: an ACL is no reason to resolve again
        broker.create("p-new")
        assert alice.topics() == {"p-open", "p-shut"}


def test_the_rights_are_those_of_the_member_that_has_them_resolved() -> None:
    """As in Kafka, where a resolution is made for all patterns of the group with one context."""
    with secured() as broker:
        for name in ("p-open", "p-shut"):
            broker.create(name)
        allow(broker, "alice", Operation.READ, ResourceType.GROUP, "g")
        admin = Subscriber(broker, ADMIN, "admin")
        assert admin.topics() == {"p-open", "p-shut"}
        alice = Subscriber(broker, peer_of("alice"), "alice")
        alice.beat()
        broker.advance(PAUSE_MS)
        broker.create("p-new")
        alice.beat()  # has them resolved, to nothing
        for _ in range(2):
            assert admin.beat() == set()
            assert alice.beat() == set()


def test_all_topics_match_without_an_authorizer() -> None:
    """Nobody is asked then."""
    with BrokerHarness() as broker:
        for name in ("p-1", "p-2"):
            broker.create(name)
        assert Subscriber(broker, peer_of("anybody"), "m").topics() == {"p-1", "p-2"}


def test_topics_are_asked_for_in_slices_and_as_often_as_they_match() -> None:
    """No turn of the loop asks for more than so many, and each counts once for each pattern."""
    names = [f"a-{number:04}" for number in range(SLICE_MATCHES + 10)] + ["b"]
    asked: list[list[str]] = []

    def describable(some: Iterable[str]) -> list[str]:
        asked.append(list(some))
        return [name for name in asked[-1] if name != "a-0007"]

    resolution = Resolution(["a-.*", "a-000.", "b"], names, 1, 0, describable)
    while resolution.advance():
        pass
    assert [len(set(some)) for some in asked] == [SLICE_MATCHES, 11]
    counts = {name: some.count(name) for some in asked for name in set(some)}
    assert {name for name, count in counts.items() if count == 2} == set(names[:10])
    found = {pattern: each.topics for pattern, each in resolution.found.items()}
    assert found == {
        "a-.*": set(names) - {"a-0007", "b"},
        "a-000.": set(names[:10]) - {"a-0007"},
        "b": {"b"},
    }

"""Heartbeats of members with nothing to do: answered on a short path, as the whole one would."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ottla.broker.dispatch import REPEATED_BYTES_MAX, REPEATED_MAX, RepeatedRequests
from ottla.coordinator.consumer_heartbeat import Asking
from ottla.coordinator.effects import Effects
from ottla.wire.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from tests.broker.harness import BrokerHarness

GROUP, VERSION, CLIENT = "steady", 1, "test"
STEPS = 150


class Members:
    """A group's members as they know themselves, on one connection."""

    def __init__(self, harness: BrokerHarness, chance: random.Random) -> None:
        self.harness, self.chance = harness, chance
        self.epochs: dict[str, int] = {}
        self.assigned: dict[str, list[TopicPartitions]] = {}
        self.made = 0

    def coordinator(self) -> Any:
        return self.harness.broker.coordinators.groups.coordinator_for(GROUP)

    def ask(self, member_id: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields
        )
        response = self.harness.ask(request, VERSION, client_id=CLIENT)
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if response.error_code == 0 and epoch >= 0:
            self.epochs[member_id] = response.member_epoch
            if response.assignment is not None:
                self.assigned[member_id] = response.assignment.topic_partitions
        return response

    def join(self) -> None:
        self.made += 1
        topics = self.chance.choice((["one"], ["one", "two"], ["later-1"]))
        self.ask(
            f"member-{self.made}",
            0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=topics,
            topic_partitions=[],
        )

    def leave(self) -> None:
        if self.epochs:
            member_id = self.chance.choice(sorted(self.epochs))
            del self.epochs[member_id]
            self.assigned.pop(member_id, None)
            self.ask(member_id, -1)

    def beat(self, *, owned: bool) -> None:
        for member_id, epoch in list(self.epochs.items()):
            fields = {"topic_partitions": self.assigned.get(member_id, [])} if owned else {}
            if self.ask(member_id, epoch, **fields).error_code:
                del self.epochs[member_id]
                self.assigned.pop(member_id, None)


@pytest.mark.parametrize("seed", range(4))
def test_the_short_path_answers_as_the_whole_one(seed: int) -> None:
    """Where a heartbeat is answered at once, the whole decision gives the same response and the
    same timer, and makes no record; and most heartbeats of a group at rest are answered so."""
    chance = random.Random(seed)
    with BrokerHarness() as harness:
        harness.create("one", 3)
        harness.create("two", 2)
        harness.post(FindCoordinatorRequest(key=GROUP), 3)
        harness.advance(5000)
        members = Members(harness, chance)
        members.join()
        short, later = 0, 0
        for _ in range(STEPS):
            match chance.randrange(12):
                case 0:
                    members.join()
                case 1:
                    members.leave()
                case 2 if later < 3:
                    later += 1
                    harness.create(f"later-{later}", 2)
                case 3 | 4:
                    members.beat(owned=True)
                case _:
                    members.beat(owned=False)
            harness.advance(chance.choice((10, 300, 1500)))
            short += compare(members)
        assert short > STEPS // 2


def compare(members: Members) -> int:
    """How many of the group's members would be answered on the short path."""
    coordinator = members.coordinator()
    consumers = coordinator.shard.consumers
    group = consumers.get(GROUP)
    found = 0
    owned = [None, [], [TopicPartitions(topic_id=bytes(16), partitions=[0, 1])]]
    for member in list(group.members.values()) if group is not None else ():
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=member.member_id,
            member_epoch=member.epoch,
            topic_partitions=members.chance.choice(owned),
        )
        for host in ("/127.0.0.1", "/127.0.0.2"):
            short = consumers.still_there(request, CLIENT, host)
            if short is None:
                continue
            response, key, timeout_ms = short
            effects = Effects()
            asking = Asking(request, CLIENT, host, "", None)
            now_ms = members.harness.clock.now_ms()
            assert response == consumers.heartbeat(asking, effects, now_ms)
            assert effects.timers == {key: timeout_ms}
            assert not effects.records
            found += 1
    return found


def test_a_heartbeat_that_was_answered_at_once_keeps_the_member() -> None:
    """The session goes on for as long as heartbeats come, and ends without them."""
    with BrokerHarness() as harness:
        harness.create("one", 3)
        harness.post(FindCoordinatorRequest(key=GROUP), 3)
        harness.advance(5000)
        members = Members(harness, random.Random(0))
        members.join()
        for _ in range(60):
            harness.advance(2000)
            members.beat(owned=False)
            assert members.epochs
        harness.advance(60_000)
        [member_id] = members.epochs
        assert members.ask(member_id, members.epochs[member_id]).error_code == 25


def test_equal_requests_are_decoded_once_and_only_small_ones_are_kept() -> None:
    """What is remembered has a limit in number and in size."""
    calls = []

    def read(frame: memoryview, position: int) -> tuple[bytes, int]:
        calls.append(bytes(frame[position:]))
        return bytes(frame[position:]), len(frame)

    repeated = RepeatedRequests(read)
    first, _ = repeated.read(memoryview(b"head-body"), 5)
    again, _ = repeated.read(memoryview(b"HEAD-body"), 5)
    assert first is again
    assert calls == [b"body"]
    large = bytes(REPEATED_BYTES_MAX + 1)
    repeated.read(memoryview(large), 0)
    repeated.read(memoryview(large), 0)
    assert calls[1:] == [large, large]
    for number in range(2 * REPEATED_MAX):
        repeated.read(memoryview(b"%d" % number), 0)
        assert len(repeated._known) <= REPEATED_MAX

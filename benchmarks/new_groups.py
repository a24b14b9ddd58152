"""Measures of groups of the new protocol (KIP-848): 1,000 members of one group on 1,000 partitions.

The members are bare sockets of one process, a connection each. They do what a consumer does: send
what they have when they are told to have something else, and else a heartbeat a second.
"""

from __future__ import annotations

import heapq
import selectors
import time
import uuid
from collections.abc import Callable, Collection
from typing import Any

from benchmarks import clients
from benchmarks.measures import Run
from benchmarks.members import accepted_connection, ask, decode, encode, wait_for_coordinator
from benchmarks.servers import BOTH, Broker
from ottla.wire.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)

MEMBERS = 1000
PARTITIONS = 1000
HEARTBEAT_MS = 1000
BEATS_S = 10.0
GIVE_UP_S = 180.0
RETRY_S = 0.1
COORDINATOR_ERRORS = {14, 15, 16}
LEAVING = -1
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
}
# Else both wait for a second before they assign: all that have joined meanwhile.
AT_ONCE = {"group.consumer.assignment.interval.ms": "0"}
SUBJECT = "1,000 members on 1,000 partitions"


class NewMember:
    """One member: its epoch, what it has, and when it sends next."""

    def __init__(self, port: int, group: str, topic: str) -> None:
        self.sock = accepted_connection(port)
        self.group = group
        self.topic = topic
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.owned: frozenset[tuple[bytes, int]] = frozenset()
        self.sent_s = 0.0

    def request(self, *, epoch: int | None = None) -> ConsumerGroupHeartbeatRequest:
        asked = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
        )
        if asked.member_epoch == 0:
            asked.rebalance_timeout_ms = 60_000
            asked.subscribed_topic_names = [self.topic]
            asked.topic_partitions = []
        return asked

    def with_owned(self) -> ConsumerGroupHeartbeatRequest:
        """The heartbeat that says what the member has now."""
        asked = self.request()
        by_topic: dict[bytes, list[int]] = {}
        for topic_id, index in sorted(self.owned):
            by_topic.setdefault(topic_id, []).append(index)
        asked.topic_partitions = [
            TopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in by_topic.items()
        ]
        return asked

    def answered(self) -> bool:
        """Whether the answer changes what the member has: it must say so at once."""
        answer: Any = decode(self.sock, "ConsumerGroupHeartbeat")
        if answer.error_code in COORDINATOR_ERRORS:
            return False
        assert answer.error_code == 0, answer
        self.epoch = answer.member_epoch
        if answer.assignment is None:
            return False
        owned = frozenset(
            (topic.topic_id, index)
            for topic in answer.assignment.topic_partitions
            for index in topic.partitions
        )
        changed = owned != self.owned
        self.owned = owned
        return changed


class Members:
    """All of them in one loop."""

    def __init__(self, members: list[NewMember]) -> None:
        self.members = members
        self.request_count = 0
        self._due: list[tuple[float, int]] = []
        self._selector = selectors.DefaultSelector()
        for number, member in enumerate(members):
            self._selector.register(member.sock, selectors.EVENT_READ, number)
            heapq.heappush(self._due, (0.0, number))

    def run_until(self, done: Callable[[], bool], give_up_s: float) -> float:
        """Heartbeats go on until `done`, which is asked after each answer; the seconds taken."""
        began = time.perf_counter()
        while not done():
            now = time.perf_counter()
            if now - began > give_up_s:
                raise TimeoutError(f"not settled after {give_up_s:.0f} s")
            while self._due and self._due[0][0] <= now:
                self._send(heapq.heappop(self._due)[1])
            wait_s = max(0.0, self._due[0][0] - now) if self._due else 1.0
            for key, _ in self._selector.select(min(wait_s, 0.05)):
                self._answered(key.data)
        return time.perf_counter() - began

    def _send(self, number: int, *, says_owned: bool = False) -> None:
        member = self.members[number]
        member.sent_s = time.perf_counter()
        member.sock.sendall(encode(member.with_owned() if says_owned else member.request()))
        self.request_count += 1

    def _answered(self, number: int) -> None:
        member = self.members[number]
        if member.answered():
            self._send(number, says_owned=True)
            return
        delay_s = RETRY_S if member.epoch == 0 else HEARTBEAT_MS / 1000
        heapq.heappush(self._due, (member.sent_s + delay_s, number))

    def take_out_last(self) -> NewMember:
        """The member that joined last sends nothing any more."""
        gone = self.members.pop()
        self._selector.unregister(gone.sock)
        self._due = [each for each in self._due if each[1] != len(self.members)]
        heapq.heapify(self._due)
        return gone

    def close(self) -> None:
        self._selector.close()
        for member in self.members:
            member.sock.close()


def is_settled(members: Collection[NewMember]) -> bool:
    """Whether every partition has one member, and all members are in the same epoch."""
    first = next(iter(members))
    if any(each.epoch != first.epoch or not each.owned for each in members):
        return False
    owned = [place for each in members for place in each.owned]
    return len(owned) == len(set(owned)) == PARTITIONS


def new_protocol(run: Run) -> None:
    """A group settles from nothing, beats for a while, and loses a member."""
    measured(run, SUBJECT, SETTINGS)
    measured(run, f"{SUBJECT}, assigned at every change", SETTINGS | AT_ONCE)


def measured(run: Run, subject: str, settings: dict[str, str]) -> None:
    for kind in BOTH:
        broker = kind(settings)
        try:
            broker.start()
            clients.make_topic(broker.bootstrap, "wide", partitions=PARTITIONS)
            wait_for_coordinator(broker.port, "warm-0")
            for number in range(run.rounds + 1):
                found = one_group(broker, f"group-{number}")
                for measure, value in found.items() if number else ():  # the first warms
                    run.record(f"{subject}: {measure}", broker.name, value)
        finally:
            broker.remove()


def one_group(broker: Broker, group: str) -> dict[str, float]:
    """What was measured of one group, by its name."""
    everybody = Members([NewMember(broker.port, group, "wide") for _ in range(MEMBERS)])
    found: dict[str, float] = {}
    try:
        before = broker.cpu_s()
        found["settle, s"] = everybody.run_until(
            Throttled(lambda: is_settled(everybody.members)), GIVE_UP_S
        )
        found["settle, CPU s"] = broker.cpu_s() - before
        before, began = broker.cpu_s(), time.perf_counter()
        everybody.run_until(lambda: time.perf_counter() - began >= BEATS_S, GIVE_UP_S)
        share = (broker.cpu_s() - before) / (time.perf_counter() - began) * 100
        found["a heartbeat a second each, % of a core"] = share
        found["one leaves, others moved"] = leave(broker, everybody)
    finally:
        everybody.close()
    return found


def leave(broker: Broker, everybody: Members) -> int:
    """One member leaves; how many of the others have other partitions afterwards."""
    gone = everybody.take_out_last()
    rest = everybody.members
    had = {each.member_id: each.owned for each in rest}
    with accepted_connection(broker.port) as sock:
        answer = ask(sock, gone.request(epoch=LEAVING))
        assert answer.error_code == 0, answer
    everybody.run_until(Throttled(lambda: is_settled(rest)), GIVE_UP_S)
    return sum(had[each.member_id] != each.owned for each in rest)


class Throttled:
    """Asks an expensive question a few times a second."""

    EVERY_S = 0.02

    def __init__(self, question: Callable[[], bool]) -> None:
        self._question = question
        self._next_s = 0.0

    def __call__(self) -> bool:
        if time.perf_counter() < self._next_s:
            return False
        found = self._question()
        self._next_s = time.perf_counter() + self.EVERY_S
        return found


MEASURES: dict[str, Callable[[Run], None]] = {"new-protocol": new_protocol}

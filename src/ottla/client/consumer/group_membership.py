"""A member of a consumer group, classic protocol: join, sync, heartbeat, leave.

What talks to the coordinator runs in the background thread, so heartbeats go on while the caller
works. What concerns the caller (the listener, giving partitions up, taking them) is done by
rebalance.py in the caller's thread, from inside `poll`: it sees `rejoin`, prepares, calls `start`,
and later finds the assignment in `arrived`.

A join that was overtaken (left, unsubscribed, started anew) differs from the present one in its
number.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.api.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from ottla.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.api.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from ottla.wire.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    read_assignment,
    read_subscription,
    write_versioned,
)
from ottla.wire.consumer_protocol import TopicPartition as TopicNumbers
from ottla.wire.errors import ErrorCode
from ottla.wire.malformed import WireError
from ottla.wire.schema import RequestFor, Struct

from ..assignors import Assignor, Member, by_topic, check_assignment, is_cooperative
from ..errors import KafkaError, error_for
from ..futures import done, then
from ..network.cluster_client import ConsumerClient
from ..network.cluster_metadata import Cluster
from ..network.coordinators import COORDINATOR_GONE
from ..network.io_thread import Timer
from ..structs import ConsumerGroupMetadata, TopicPartition
from .subscription import Subscription

log = logging.getLogger("ottla.client")

CHANNEL = "coordinator"
JOIN_CHANNEL = "join"  # a join waits for the other members: nothing else may wait behind it
JOIN_EXTRA_MS = 5_000
SUBSCRIPTION_VERSION_MAX = 3
MISSING_TOPIC_WAIT_S = 0.5

S = TypeVar("S", bound=Struct)
RESET = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
TRY_AGAIN = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS)


class Arrived(NamedTuple):
    """An assignment that waits for the caller's thread."""

    generation: int
    assignor: Assignor
    partitions: list[TopicPartition]


class Group:
    """This client as a member of its group."""

    def __init__(
        self, client: ConsumerClient, subscription: Subscription, changed: Callable[[], object]
    ) -> None:
        config = client.config
        self.client = client
        self.subscription = subscription
        self.changed = changed
        assert config["group_id"] is not None
        self.group_id: str = config["group_id"]
        self.instance_id: str | None = config["group_instance_id"]
        self.assignors: Sequence[Assignor] = config["partition_assignment_strategy"]
        self.cooperative = is_cooperative(self.assignors)
        self.member_id = ""
        self.generation = -1
        self.protocol = ""
        self.rejoin = False  # a rebalance is wanted
        self.joining = False
        self.lost = False  # thrown out: what was assigned is another's now
        self.arrived: Arrived | None = None
        self.problem: KafkaError | None = None
        self.fenced: KafkaError | None = None
        self.attempt = 0
        self.counts: dict[str, int] | None = None  # the leader's: partitions of each topic
        self.looking = False  # for a topic that is not there
        self.polled_at = time.monotonic()
        self.timer: Timer | None = None
        self.heartbeat_open = False
        self.rebalance_count = 0
        client.metadata.listeners.append(self._received_metadata)

    def identity(self) -> ConsumerGroupMetadata:
        """As whom to commit."""
        return ConsumerGroupMetadata(
            self.group_id, self.generation, self.member_id, self.instance_id
        )

    # The way into the group

    def start(self) -> None:
        """Begin to join; from the caller's thread."""
        self.joining = True
        self.rejoin = False
        self.attempt += 1
        self.client.call_soon(self._begin, self.attempt)

    def _begin(self, attempt: int, tries: int = 0) -> None:
        if attempt != self.attempt or self.client.closed:
            return
        if self.timer is None:
            self._beat_later()
        if self.subscription.pattern is not None:  # which topics it means, it must know first
            self.client.refresh().add_done_callback(lambda _: self._find(attempt, tries))
        else:
            self._find(attempt, tries)

    def _find(self, attempt: int, tries: int) -> None:
        if self.client.closed:
            return
        asked = self.client.coordinator(self.group_id)

        def found(future: Future[int]) -> None:
            problem = future.exception()
            if problem is not None:
                self._failed(attempt, tries, problem)
            elif attempt == self.attempt:
                self._join(attempt, tries, future.result())

        asked.add_done_callback(found)

    def _join(self, attempt: int, tries: int, node_id: int) -> None:
        config = self.client.config
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=config["session_timeout_ms"],
            rebalance_timeout_ms=config["max_poll_interval_ms"],
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name=each.name, metadata=self._wishes(each))
                for each in self.assignors
            ],
            reason="",
        )
        asked = self._submit_rebalance(node_id, request)
        asked.add_done_callback(lambda future: self._joined(future, attempt, tries, node_id))

    def _submit_rebalance(self, node_id: int, request: RequestFor[S]) -> Future[S]:
        """A request that the coordinator answers when the other members have sent theirs."""
        config = self.client.config
        waits_ms = config["max_poll_interval_ms"] + JOIN_EXTRA_MS
        timeout_ms = max(waits_ms, config["request_timeout_ms"])
        return self.client.submit(node_id, request, timeout_ms=timeout_ms, channel=JOIN_CHANNEL)

    def _wishes(self, assignor: Assignor) -> bytes:
        """What this member tells the leader."""
        topics = sorted(self.subscription.topics)
        owned = list(self.subscription.states) if self.cooperative else []
        return write_versioned(
            ConsumerProtocolSubscription(
                topics=topics,
                user_data=assignor.user_data(topics, owned, self.generation),
                owned_partitions=[
                    TopicNumbers(topic=topic, partitions=numbers)
                    for topic, numbers in by_topic(owned).items()
                ],
                generation_id=self.generation,
                rack_id=self.client.config["client_rack"] or None,
            )
        )

    def _joined(
        self, future: Future[JoinGroupResponse], attempt: int, tries: int, node_id: int
    ) -> None:
        if attempt != self.attempt:
            return
        problem = future.exception()
        answer = None if problem is not None else future.result()
        if answer is not None and answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self._join(attempt, tries, node_id)
            return
        if answer is None or answer.error_code:
            code = 0 if answer is None else answer.error_code
            self._failed(attempt, tries, problem or error_for(code))
            return
        self.member_id = answer.member_id
        self.generation = answer.generation_id
        self.protocol = answer.protocol_name or ""
        self.counts = None
        if answer.leader == answer.member_id:
            self._lead(answer, attempt, tries, node_id)
        else:
            self._sync(attempt, tries, node_id, {})

    def _lead(self, answer: JoinGroupResponse, attempt: int, tries: int, node_id: int) -> None:
        """Divide the partitions, once it is known how many there are."""
        members: dict[str, Member] = {}
        version = SUBSCRIPTION_VERSION_MAX
        for each in answer.members:
            try:
                members[each.member_id] = member_of(each)
                version = min(version, struct.unpack_from(">h", each.metadata)[0])
            except (WireError, struct.error) as problem:
                text = (
                    f"what member {each.member_id!r} of group {self.group_id!r} wants cannot be "
                    f"read: {problem}\nTry: a group of its own for what is no consumer"
                )
                self._failed(attempt, tries, KafkaError(text))
                return
        topics = {topic for member in members.values() for topic in member.topics}

        def known(_: object) -> None:
            if attempt != self.attempt:
                return
            self.counts = counted(self.client.cluster, topics)
            if answer.skip_assignment:  # a static leader came back: all keep what they have
                self._sync(attempt, tries, node_id, {})
                return
            try:
                shares = self._divide(members, version)
            except Exception as problem:
                log.exception("the assignor %r failed", self.protocol)
                text = f"the assignor {self.protocol!r} failed: {problem!r}"
                self._failed(attempt, tries, KafkaError(text))
                return
            self._sync(attempt, tries, node_id, shares)

        self.client.refresh(topics).add_done_callback(known)

    def _divide(self, members: dict[str, Member], version: int) -> dict[str, bytes]:
        assert self.counts is not None
        assignor = self._assignor()
        result = assignor.assign({t: range(n) for t, n in self.counts.items() if n}, members)
        check_assignment(assignor, result, members)
        return {
            member_id: write_versioned(
                ConsumerProtocolAssignment(
                    assigned_partitions=[
                        TopicNumbers(topic=topic, partitions=numbers)
                        for topic, numbers in by_topic(result.get(member_id, ())).items()
                    ],
                ),
                max(0, version),
            )
            for member_id in members
        }

    def _assignor(self) -> Assignor:
        return next(each for each in self.assignors if each.name == self.protocol)

    def _sync(self, attempt: int, tries: int, node_id: int, shares: dict[str, bytes]) -> None:
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=self.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=share)
                for member_id, share in shares.items()
            ],
        )
        asked = self._submit_rebalance(node_id, request)
        asked.add_done_callback(lambda future: self._synced(future, attempt, tries))

    def _synced(self, future: Future[SyncGroupResponse], attempt: int, tries: int) -> None:
        if attempt != self.attempt:
            return
        problem = future.exception()
        answer = None if problem is not None else future.result()
        if answer is None or answer.error_code:
            code = 0 if answer is None else answer.error_code
            self._failed(attempt, tries, problem or error_for(code))
            return
        share = bytes(answer.assignment)
        try:
            got = read_assignment(share).assigned_partitions if share else []
        except WireError as malformed:
            text = f"what the leader of group {self.group_id!r} assigned cannot be read: "
            self._failed(attempt, tries, KafkaError(f"{text}{malformed}"))
            return
        partitions = [TopicPartition(each.topic, n) for each in got for n in each.partitions]
        self.arrived = Arrived(self.generation, self._assignor(), partitions)
        self.joining = False
        self.rebalance_count += 1
        self._look_for_topics()
        self.changed()

    def _failed(self, attempt: int, tries: int, problem: BaseException) -> None:
        """Try again, begin anew, or give up and tell the caller."""
        if attempt != self.attempt or self.client.closed:
            return
        code = getattr(problem, "errno", None)
        if code in RESET:
            self._reset(forget_member=code == ErrorCode.UNKNOWN_MEMBER_ID)
            if self.subscription.states:  # the caller's thread must give them up first
                self.joining = False
                self.rejoin = self.lost = True
                self.changed()
                return
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self._fenced()
            return
        elif code in COORDINATOR_GONE or (code is None and _retriable(problem)):
            self.client.coordinators.forget(self.group_id)
        elif code not in TRY_AGAIN and not _retriable(problem):
            self.problem = problem if isinstance(problem, KafkaError) else KafkaError(repr(problem))
            self.joining = False
            self.rejoin = True
            self.changed()
            return
        at_once = code == ErrorCode.REBALANCE_IN_PROGRESS and not tries
        pause_s = 0.0 if at_once else self.client.backoff_s(tries)
        self.client.call_later(pause_s, self._begin, attempt, tries + 1)

    # Staying in it

    def _beat_later(self) -> None:
        if not self.client.closed:
            delay_s = self.client.config["heartbeat_interval_ms"] / 1000
            self.timer = self.client.call_later(delay_s, self._beat)

    def _beat(self) -> None:
        """Say that this member lives, unless the caller has not polled for too long."""
        self._beat_later()
        idle_s = time.monotonic() - self.polled_at
        limit_ms = self.client.config["max_poll_interval_ms"]
        if (self.generation >= 0 or self.joining) and idle_s * 1000 > limit_ms:
            log.warning(
                "no poll for %.0f ms, max_poll_interval_ms is %d: leaving group %r\n"
                "Try: a larger max_poll_interval_ms, or a smaller max_poll_records",
                idle_s * 1000, limit_ms, self.group_id,
            )  # fmt: skip
            self.leave("the time between polls was longer than max_poll_interval_ms")
            self.rejoin = self.lost = True
            return
        if self.generation < 0 or self.joining or self.heartbeat_open:
            return
        node_id = self.client.coordinators.known.get(("group", self.group_id))
        if node_id is None:
            self.client.coordinator(self.group_id)  # known by the next time
            return
        generation = self.generation
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        self.heartbeat_open = True
        asked = self.client.submit(
            node_id,
            request,
            timeout_ms=min(
                self.client.config["session_timeout_ms"], self.client.config["request_timeout_ms"]
            ),
            channel=CHANNEL,
        )
        asked.add_done_callback(lambda future: self._beaten(future, generation))

    def _beaten(self, future: Future[HeartbeatResponse], generation: int) -> None:
        self.heartbeat_open = False
        if generation != self.generation or self.joining or self.client.closed:
            return
        if future.exception() is not None:
            self.client.coordinators.forget(self.group_id)
            return
        self.on_group_error(future.result().error_code)

    def on_group_error(self, code: int) -> None:
        """What an answer to a heartbeat or a commit says about the membership."""
        if self.generation < 0 or self.joining:
            return  # no member, or the join will report the same
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin = True
        elif code in RESET:
            self._reset(forget_member=code == ErrorCode.UNKNOWN_MEMBER_ID)
            self.rejoin = self.lost = True
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self._fenced()
        elif code in COORDINATOR_GONE:
            self.client.coordinators.forget(self.group_id)
        if code:
            self.changed()

    def _reset(self, *, forget_member: bool) -> None:
        self.generation = -1
        self.arrived = None
        if forget_member:
            self.member_id = ""

    def _fenced(self) -> None:
        self.joining = False
        self._reset(forget_member=True)
        self.lost = True
        self.fenced = error_for(
            ErrorCode.FENCED_INSTANCE_ID,
            f"another consumer of group {self.group_id!r} has the group_instance_id "
            f"{self.instance_id!r} now\nTry: a group_instance_id of its own for each consumer",
        )
        self.changed()

    # The way out

    def leave(self, reason: str = "the consumer is being closed") -> Future[None]:
        """Leave, so that the others need not wait; a static member stays until its session ends."""
        self.attempt += 1
        self.joining = False
        member_id = self.member_id
        node_id = self.client.coordinators.known.get(("group", self.group_id))
        self._reset(forget_member=True)
        if not member_id or self.instance_id is not None or node_id is None:
            return done(None)
        request = LeaveGroupRequest(
            group_id=self.group_id,
            member_id=member_id,
            members=[MemberIdentity(member_id=member_id, reason=reason)],
        )
        asked = self.client.submit(node_id, request, channel=CHANNEL, timeout_ms=5_000)
        return then(asked, lambda answer: None)

    # News of topics

    def _received_metadata(self, cluster: Cluster) -> None:
        """A topic that the pattern means, or a number of partitions, may be new."""
        if self.subscription.pattern is not None:
            topics = self.subscription.matching(cluster)
            if topics != self.subscription.topics:
                self.subscription.topics = topics
                if self.generation >= 0 and not self.joining:
                    self.rejoin = True
                    self.changed()
        if self.counts is None or self.generation < 0 or self.joining:
            return
        if counted(cluster, self.counts) != self.counts:
            self.rejoin = True
            self.changed()
        else:
            self._look_for_topics()

    def _look_for_topics(self) -> None:
        """While the leader misses a topic it asks for it again and again: it may be made."""
        if self.counts is None or all(self.counts.values()) or self.looking:
            return
        self.looking = True

        def look() -> None:
            self.looking = False
            if self.counts is not None and not self.client.closed:
                self.client.refresh()

        self.client.call_later(MISSING_TOPIC_WAIT_S, look)


def member_of(answer: JoinGroupResponseMember) -> Member:
    """What a member wants, out of the leader's list."""
    wishes = read_subscription(answer.metadata)
    return Member(
        answer.member_id,
        list(wishes.topics),
        None if wishes.user_data is None else bytes(wishes.user_data),
        [TopicPartition(t.topic, n) for t in wishes.owned_partitions for n in t.partitions],
        wishes.generation_id,
        answer.group_instance_id,
        wishes.rack_id,
    )


def counted(cluster: Cluster, topics: Iterable[str]) -> dict[str, int]:
    """How many partitions each topic has; 0 if it is not there."""
    found = {}
    for name in topics:
        topic = cluster.topics.get(name)
        found[name] = 0 if topic is None or topic.error_code else len(topic.partitions)
    return found


def _retriable(problem: BaseException) -> bool:
    return isinstance(problem, KafkaError) and problem.retriable

"""A member of a consumer group, consumer protocol (KIP-848): the broker assigns, by heartbeats.

One heartbeat after the other runs in the background thread. It says what has changed since the last
one that was answered, and everything after any doubt; the answer may have another assignment. What
concerns the caller (the listener, giving partitions up, taking them) is done by reconciliation.py
in the caller's thread: it finds the assignment in `arrived` and says by `reconciled` what it has.
"""

from __future__ import annotations

import base64
import logging
import re
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

from ottla.client.randomness import RANDOM
from ottla.wire.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.wire.errors import ErrorCode

from ..errors import KafkaError, UnsupportedVersionError, error_for
from ..futures import done, then
from ..network.cluster_client import ConsumerClient
from ..network.cluster_metadata import Cluster
from ..network.coordinators import COORDINATOR_GONE
from ..network.io_thread import Timer
from ..structs import ConsumerGroupMetadata, TopicPartition
from .subscription import Subscription

log = logging.getLogger("ottla.client")

CHANNEL = "coordinator"
JOINING, LEAVING, LEAVING_STATIC = 0, -1, -2
LOST = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
# A pattern that means one of these is resolved by the client, which leaves them out.
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")
INITIAL_INTERVAL_S = 5.0

Partitions = dict[bytes, tuple[int, ...]]


class Said(NamedTuple):
    """What a heartbeat said, or would say, of what may change."""

    names: tuple[str, ...]
    pattern: str
    owned: tuple[tuple[bytes, tuple[int, ...]], ...]


class BrokerAssignment:
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
        # KIP-1082: the member draws its id, and keeps it as long as it lives.
        self.member_id = base64.urlsafe_b64encode(RANDOM.randbytes(16))[:22].decode()
        self.epoch = JOINING
        self.active = False  # it is in the group, or on its way
        self.rejoin = False  # the caller's thread has to call `start`
        self.lost = False  # thrown out: what was assigned is another's now
        self.arrived: list[TopicPartition] | None = None
        self.problem: KafkaError | None = None
        self.fenced: KafkaError | None = None
        self.attempt = 0  # rises when the member leaves: answers to earlier heartbeats do not count
        self.said: Said | None = None  # in the last heartbeat that was answered; None: say all
        self.assigned: Partitions = {}
        self.owned: Partitions = {}
        self.interval_s = INITIAL_INTERVAL_S
        self.open = False  # a heartbeat is under way
        self.again = False  # something has changed since
        self.tries = 0
        self.timer: Timer | None = None
        self.polled_at = time.monotonic()
        self.rebalance_count = 0
        client.metadata.listeners.append(self._received_metadata)

    def identity(self) -> ConsumerGroupMetadata:
        """As whom to commit."""
        epoch = self.epoch
        if epoch <= JOINING:
            return ConsumerGroupMetadata(self.group_id, -1, "", self.instance_id)
        return ConsumerGroupMetadata(self.group_id, epoch, self.member_id, self.instance_id)

    # For the caller's thread

    def start(self) -> None:
        """Join, or say soon what is wished for now."""
        self.rejoin = False
        self.active = True
        self.client.call_soon(self._beat_now)

    def reconciled(self, partitions: list[TopicPartition]) -> None:
        """The caller has these partitions now, and has given up all others."""
        self.rebalance_count += 1
        topics = self.client.cluster.topics
        owned: dict[bytes, list[int]] = {}
        for each in sorted(partitions):
            topic = topics.get(each.topic)
            if topic is not None:
                owned.setdefault(topic.topic_id, []).append(each.partition)
        self.owned = {topic_id: tuple(numbers) for topic_id, numbers in owned.items()}
        self.client.call_soon(self._beat_if_news)

    # Heartbeats

    def _wishes(self) -> Said:
        pattern = self.broker_pattern
        names = () if pattern else tuple(sorted(self.subscription.topics))
        return Said(names, pattern, tuple(sorted(self.owned.items())))

    @property
    def broker_pattern(self) -> str:
        """The pattern that the broker resolves; "" if there is none, or the client does."""
        pattern = self.subscription.pattern
        if pattern is None or self.subscription.pattern_is_compiled:
            return ""
        if self.subscription.exclude_internal and any(map(pattern.match, INTERNAL_TOPICS)):
            return ""  # the broker would assign internal topics too
        # A pattern is matched from the beginning of a name, RE2's on the whole of it.
        return f"(?:{pattern.pattern}).*"

    def _beat_if_news(self) -> None:
        if self.said is None or self._wishes() != self.said:
            self._beat_now()

    def _beat_now(self) -> None:
        if self.open:
            self.again = True
            return
        self._beat_later(0.0)

    def _beat_later(self, delay_s: float) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.active and not self.client.closed:
            self.timer = self.client.call_later(delay_s, self._beat)

    def _beat(self) -> None:
        self.timer = None
        if not self.active or self.open or self.client.closed:
            return
        if self._left_idle():
            return
        if self._must_look_first():
            self.open = True
            self.client.refresh().add_done_callback(lambda _: self._go_on())
            return
        self.open = True
        attempt = self.attempt
        asked = self.client.coordinator(self.group_id)

        def found(future: Future[int]) -> None:
            problem = future.exception()
            if problem is not None:
                self._failed(attempt, problem)
            elif attempt == self.attempt:
                self._send(future.result(), attempt)

        asked.add_done_callback(found)

    def _must_look_first(self) -> bool:
        """Which topics its own pattern means, the client must know before it joins."""
        subscription = self.subscription
        resolves = subscription.pattern is not None and not self.broker_pattern
        return resolves and self.epoch == JOINING and not subscription.topics and not self.tries

    def _go_on(self) -> None:
        self.open = False
        self.tries += 1
        self._beat_now()

    def _left_idle(self) -> bool:
        """Leave if the caller has not polled for too long; the next poll joins again."""
        idle_ms = (time.monotonic() - self.polled_at) * 1000
        limit_ms = self.client.config["max_poll_interval_ms"]
        if idle_ms <= limit_ms:
            return False
        log.warning(
            "no poll for %.0f ms, max_poll_interval_ms is %d: leaving group %r\n"
            "Try: a larger max_poll_interval_ms, or a smaller max_poll_records",
            idle_ms, limit_ms, self.group_id,
        )  # fmt: skip
        self.leave()
        self.rejoin = self.lost = True
        return True

    def _send(self, node_id: int, attempt: int) -> None:
        config = self.client.config
        now = self._wishes()
        said = None if self.epoch == JOINING else self.said
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
        )
        if said is None:
            request.rack_id = config["client_rack"] or None
            request.rebalance_timeout_ms = config["max_poll_interval_ms"]
            request.server_assignor = config["group_remote_assignor"]
        if said is None or now.names != said.names:
            request.subscribed_topic_names = list(now.names)
        if said is None or now.pattern != said.pattern:
            request.subscribed_topic_regex = now.pattern
        if said is None or now.owned != said.owned:
            request.topic_partitions = [
                TopicPartitions(topic_id=topic_id, partitions=list(numbers))
                for topic_id, numbers in now.owned
            ]
        self.again = False
        asked = self.client.submit(node_id, request, channel=CHANNEL)
        asked.add_done_callback(lambda future: self._answered(future, attempt, now))

    def _answered(
        self, future: Future[ConsumerGroupHeartbeatResponse], attempt: int, said: Said
    ) -> None:
        if attempt != self.attempt:
            return
        problem = future.exception()
        if problem is not None:
            self._failed(attempt, problem)
            return
        answer = future.result()
        if answer.error_code:
            text = answer.error_message or ErrorCode(answer.error_code).message
            self._failed(attempt, error_for(answer.error_code, text))
            return
        self.open = False
        self.tries = 0
        self.said = said
        self.epoch = answer.member_epoch
        self.member_id = answer.member_id or self.member_id
        self.interval_s = answer.heartbeat_interval_ms / 1000
        if answer.assignment is not None:
            self.assigned = {
                each.topic_id: tuple(each.partitions) for each in answer.assignment.topic_partitions
            }
            self._name_topics(attempt)
        self._beat_later(0.0 if self.again else self.interval_s)

    def _failed(self, attempt: int, problem: BaseException) -> None:
        """Try again, begin anew, or give up and tell the caller."""
        if attempt != self.attempt or self.client.closed:
            return
        self.open = False
        self.said = None
        code = getattr(problem, "errno", None)
        if code in LOST:
            self._thrown_out()
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self._fenced()
        elif (
            code in COORDINATOR_GONE
            or code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            or (isinstance(problem, KafkaError) and problem.retriable)
        ):
            if code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                self.client.coordinators.forget(self.group_id)
            self._beat_later(self.client.backoff_s(self.tries))
            self.tries += 1
        else:
            self._give_up(problem)

    def _give_up(self, problem: BaseException) -> None:
        """The next poll raises this, and the one after it tries again."""
        if isinstance(problem, UnsupportedVersionError):
            problem = UnsupportedVersionError(
                f"the brokers do not know group_protocol='consumer' ({problem})\n"
                "Try: group_protocol='classic'"
            )
        elif not isinstance(problem, KafkaError):
            problem = KafkaError(repr(problem))
        self.problem = problem
        self.active = False
        self.rejoin = True
        self.changed()

    def on_group_error(self, code: int) -> None:
        """What an answer to a commit says about the membership."""
        if code in COORDINATOR_GONE:
            self.client.coordinators.forget(self.group_id)
        elif code == ErrorCode.UNKNOWN_MEMBER_ID and self.epoch > JOINING:
            self.client.call_soon(self._beat_now)  # which will say the same, or that all is well

    def _thrown_out(self) -> None:
        self._forget()
        self.lost = self.rejoin = True
        self.changed()

    def _fenced(self) -> None:
        self._forget()
        self.lost = True
        self.fenced = error_for(
            ErrorCode.FENCED_INSTANCE_ID,
            f"another consumer of group {self.group_id!r} has the group_instance_id "
            f"{self.instance_id!r} now\nTry: a group_instance_id of its own for each consumer",
        )
        self.changed()

    def _forget(self) -> None:
        self.attempt += 1
        self.active = self.open = False
        self.epoch = JOINING
        self.said = None
        self.arrived = None
        self.assigned, self.owned = {}, {}

    # The way out

    def leave(self, reason: str = "") -> Future[None]:
        """Leave; a static member keeps its partitions until its session ends."""
        was_in = self.epoch > JOINING or self.open
        self._forget()
        node_id = self.client.coordinators.known.get(("group", self.group_id))
        if not was_in or node_id is None:
            return done(None)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=LEAVING if self.instance_id is None else LEAVING_STATIC,
            instance_id=self.instance_id,
        )
        asked = self.client.submit(node_id, request, channel=CHANNEL, timeout_ms=5_000)
        return then(asked, lambda answer: None)

    # Topics

    def _name_topics(self, attempt: int, tries: int = 0) -> None:
        """Hand the assignment over; topics whose names are not known follow when they are."""
        if attempt != self.attempt or self.client.closed:
            return
        names = self.client.cluster.names
        self.arrived = [
            TopicPartition(names[topic_id], number)
            for topic_id, numbers in self.assigned.items()
            if topic_id in names
            for number in numbers
        ]
        self.changed()
        if self.assigned.keys() <= names.keys():
            return

        def again(_: object) -> None:
            # A topic that has been deleted stays unknown until the next assignment.
            pause_s = 0.0 if not tries else self.client.backoff_s(tries)
            self.client.call_later(pause_s, self._name_topics, attempt, tries + 1)

        self.client.refresh().add_done_callback(again)

    def _received_metadata(self, cluster: Cluster) -> None:
        """A topic that the client's own pattern means may be new."""
        pattern: re.Pattern[str] | None = self.subscription.pattern
        if pattern is None or self.broker_pattern:
            return
        topics = self.subscription.matching(cluster)
        if topics != self.subscription.topics:
            self.subscription.topics = topics
            if self.epoch > JOINING:
                self._beat_if_news()

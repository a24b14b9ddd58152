"""A member of a share group (KIP-932): heartbeats, and the partitions that it may read.

All of it runs in the client's background thread. A share group has no rebalance to wait for: a
partition may have several members, so what a heartbeat assigns is read at once.
"""

from __future__ import annotations

import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable
from concurrent.futures import Future
from uuid import uuid4

from ottla.wire.api.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from ottla.wire.errors import ErrorCode

from ..errors import KafkaError, error_for
from ..futures import done
from ..network.cluster_client import Client
from ..network.coordinators import COORDINATOR_GONE
from ..network.io_thread import Timer
from ..typed_config import ShareConsumerConfig

log = logging.getLogger("ottla.client")

CHANNEL = "coordinator"
JOINING, LEAVING = 0, -1
REJOIN = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
}
TRY_AGAIN = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, *COORDINATOR_GONE}
FIRST_INTERVAL_MS = 1000
EMPTY_INTERVAL_MS = 100

Assigned = set[tuple[bytes, int]]  # partitions by topic id


class Membership:
    """This client in its group."""

    def __init__(self, client: Client[ShareConsumerConfig], changed: Callable[[], object]) -> None:
        self.client = client
        self.changed = changed
        self.group_id = client.config["group_id"]
        self.member_id = urlsafe_b64encode(uuid4().bytes)[:22].decode()
        self.epoch = JOINING
        self.topics: list[str] = []
        self.assigned: Assigned = set()
        self.problem: KafkaError | None = None
        self._say_topics = True
        self._open = False
        self._again = False
        self._tries = 0
        self._interval_ms = FIRST_INTERVAL_MS
        self._timer: Timer | None = None

    def subscribe(self, topics: list[str]) -> None:
        """Read these topics from now on."""
        self.topics = sorted(topics)
        self._say_topics = True
        self._beat()

    def leave(self) -> Future[object]:
        """Say that this member goes; the future never fails."""
        self._stop_timer()
        if self.epoch == JOINING:
            return done(None)
        self.epoch = LEAVING
        over: Future[object] = Future()
        node_id = self.client.coordinators.known.get(("group", self.group_id))
        if node_id is None:
            return done(None)
        request = ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=LEAVING
        )
        asked = self.client.submit(node_id, request, channel=CHANNEL)
        asked.add_done_callback(lambda _: over.set_result(None))
        return over

    def _beat(self) -> None:
        if self.client.closed or self.epoch == LEAVING or not self.topics:
            return
        if self._open:
            self._again = True
            return
        self._open = True
        self._stop_timer()
        self.client.coordinator(self.group_id).add_done_callback(self._found)

    def _found(self, found: Future[int]) -> None:
        problem = found.exception()
        if problem is not None:
            self._failed(problem)
            return
        request = ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch
        )
        if self._say_topics or self.epoch == JOINING:
            request.subscribed_topic_names = self.topics
            request.rack_id = self.client.config["client_rack"] or None
            self._say_topics = False
        asked = self.client.submit(found.result(), request, channel=CHANNEL)
        asked.add_done_callback(self._answered)

    def _answered(self, answer: Future[ShareGroupHeartbeatResponse]) -> None:
        if self.epoch == LEAVING:
            return
        problem = answer.exception()
        if problem is not None:
            self._failed(problem)
            return
        response = answer.result()
        if response.error_code:
            self._failed(error_for(response.error_code, response.error_message))
            return
        self._open = False
        self._tries = 0
        self.epoch = response.member_epoch
        self._interval_ms = response.heartbeat_interval_ms
        if response.assignment is not None:
            self.assigned = {
                (topic.topic_id, each)
                for topic in response.assignment.topic_partitions
                for each in topic.partitions
            }
            self.changed()
        # Until there are partitions the next heartbeat is soon: a new group's first epochs follow
        # each other.
        self._later(
            self._interval_ms / 1000 if self.assigned else min(self._interval_ms, 100) / 1000
        )

    def _failed(self, problem: BaseException) -> None:
        self._open = False
        self._say_topics = True
        code = getattr(problem, "errno", None)
        if code in REJOIN:
            log.info("group %r: this member joins again: %s", self.group_id, problem)
            self.epoch = JOINING
            self.assigned = set()
            self.changed()
        elif code in TRY_AGAIN or (isinstance(problem, KafkaError) and problem.retriable):
            self.client.coordinators.forget(self.group_id)
        else:
            self.problem = problem if isinstance(problem, KafkaError) else KafkaError(repr(problem))
            self.changed()
        self._later(self.client.backoff_s(self._tries))
        self._tries += 1

    def _later(self, delay_s: float) -> None:
        if self._again:
            self._again, delay_s = False, 0.0
        if not self.client.closed:
            self._timer = self.client.call_later(delay_s, self._beat)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

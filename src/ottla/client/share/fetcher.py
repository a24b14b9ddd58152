"""Keeps one share session for each broker that leads something of this member's; background thread.

Records are asked for when the caller wants some, not ahead: what is acquired and waits here uses up
its time.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from ottla.wire.api.share_fetch import ShareFetchResponse
from ottla.wire.errors import ErrorCode

from ..errors import KafkaError, error_for
from ..futures import settled
from ..network.cluster_client import Client
from ..network.cluster_metadata import Cluster
from ..structs import TopicPartition
from ..typed_config import ShareConsumerConfig
from .broker_session import LOST, Answer, BrokerSession, Place, Said
from .delivery import Delivered
from .membership import Membership
from .structs import Batch

log = logging.getLogger("ottla.client")

MOVED = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}


class ShareFetcher:
    """The sessions, and what they have brought."""

    def __init__(
        self,
        client: Client[ShareConsumerConfig],
        membership: Membership,
        changed: Callable[[], object],
    ) -> None:
        self.client = client
        self.membership = membership
        self.changed = changed
        self.arrived: deque[Delivered] = deque()
        self.problem: KafkaError | None = None
        self._sessions: dict[int, BrokerSession] = {}
        self._wants_records = False
        self._names: dict[bytes, str] = {}
        self._tries = 0
        client.metadata.listeners.append(self._metadata_changed)

    def assigned(self) -> None:
        """The assignment has changed."""
        unknown = {topic_id for topic_id, _ in self.membership.assigned} - self._names.keys()
        if unknown - self.client.cluster.names.keys():
            self.client.refresh(self.membership.topics)
        self._metadata_changed(self.client.cluster)
        self.changed()

    def _metadata_changed(self, cluster: Cluster) -> None:
        by_node: dict[int, set[Place]] = {}
        for topic_id, index in self.membership.assigned:
            name = cluster.names.get(topic_id)
            if name is None:
                continue
            self._names[topic_id] = name
            leader = cluster.leader(name, index)
            if leader >= 0:
                by_node.setdefault(leader, set()).add((topic_id, index))
        for node_id, session in self._sessions.items():
            session.wanted = by_node.get(node_id, set())
        for node_id, places in by_node.items():
            self._session(node_id).wanted = places
        if self._wants_records:
            self.fetch()

    def _session(self, node_id: int) -> BrokerSession:
        session = self._sessions.get(node_id)
        if session is None:
            session = self._sessions[node_id] = BrokerSession(
                self.client,
                node_id,
                self.membership.group_id,
                self.membership.member_id,
                self._fetched,
                self._failed,
            )
        return session

    def fetch(self) -> None:
        """The caller waits for records: ask every broker that is not asked yet."""
        self._wants_records = True
        for session in self._sessions.values():
            if not session.busy and session.wanted:
                session.fetch()

    def say(self, place: Place, batches: list[Batch], answer: Answer) -> None:
        """Send acknowledgements to the partition's leader."""
        name = self._names.get(place[0])
        leader = -1 if name is None else self.client.cluster.leader(name, place[1])
        if leader < 0:
            answer(error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        self._session(leader).say([Said(place, batches, answer)])

    def close(self) -> Future[list[Future[None]]]:
        """End all sessions, with what is still to be said."""
        self._wants_records = False
        return settled([session.close() for session in self._sessions.values()])

    def _fetched(self, session: BrokerSession, response: ShareFetchResponse) -> None:
        self._tries = 0
        moved = False
        for topic in response.responses:
            name = self._names.get(topic.topic_id)
            for each in topic.partitions:
                if each.error_code:
                    moved |= self._partition_failed(each.error_code, each.error_message)
                elif each.acquired_records and name is not None:
                    partition = TopicPartition(name, each.partition_index)
                    records = each.records
                    assert isinstance(records, memoryview)
                    self.arrived.append(
                        Delivered(partition, topic.topic_id, records, each.acquired_records)
                    )
        if self.arrived or self.problem is not None:
            self._wants_records = False
            self.changed()
        elif self._wants_records:
            if moved:
                self._later()
            else:
                session.fetch()

    def _partition_failed(self, code: int, message: str | None) -> bool:
        if code in MOVED:
            self.client.refresh()
            return True
        self.problem = error_for(code, message)
        return False

    def _failed(self, session: BrokerSession, problem: BaseException) -> None:
        code = getattr(problem, "errno", None)
        if code in LOST:
            log.info("the share session with broker %d is gone: a new one", session.node_id)
        elif isinstance(problem, KafkaError) and problem.retriable:
            self.client.refresh()
        else:
            self.problem = problem if isinstance(problem, KafkaError) else KafkaError(str(problem))
            self.changed()
            return
        if self._wants_records:
            self._later()

    def _later(self) -> None:
        self.client.call_later(self.client.backoff_s(self._tries), self._retry)
        self._tries += 1

    def _retry(self) -> None:
        if self._wants_records and not self.client.closed:
            self.fetch()

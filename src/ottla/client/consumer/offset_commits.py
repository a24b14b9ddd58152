"""Committed offsets of a group: OffsetCommit and OffsetFetch at the coordinator.

One attempt each (`send`, `fetch`), from any thread, and their waiting forms that try again. Commits
go over one connection in the order of the calls. Who commits (member and generation) is read when
a commit is sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import TypeVar

from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.exchange import VERSION_MAX
from ottla.wire.schema import RequestFor, Struct

from ..errors import (
    NO_LONGER_MEMBER,
    CommitFailedError,
    KafkaConnectionError,
    KafkaError,
    error_for,
)
from ..futures import then, then_wait
from ..network.cluster_client import AnyClient
from ..network.cluster_metadata import NO_UUID
from ..network.coordinators import COORDINATOR_GONE
from ..structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

CHANNEL = "coordinator"
NAMES_VERSION_MAX = 9  # from 10 on, both requests name topics by id


S = TypeVar("S", bound=Struct)
Committed = dict[TopicPartition, OffsetAndMetadata]


class Commits:
    """The offsets of one group; `identity` says as whom to commit."""

    def __init__(
        self,
        client: AnyClient,
        group_id: str,
        identity: Callable[[], ConsumerGroupMetadata],
        on_error: Callable[[int], object] = lambda code: None,
        stable: bool = False,
    ) -> None:
        self.client = client
        self.group_id = group_id
        self.identity = identity
        self.on_error = on_error  # called with what the coordinator answers about the membership
        # Wait for open transactions, so that no offset is given that one of them will replace.
        self.stable = stable

    # Committing

    def send(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Future[None]:
        """Commit once."""
        who = self.identity()
        request, version_max = self._commit_request(offsets, who)
        asked = self._ask(request, version_max)
        return then(asked, lambda answer: self._read_commit(answer, who))

    def commit(
        self,
        what: Callable[[], Mapping[TopicPartition, OffsetAndMetadata]],
        timeout_ms: float | None = None,
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Commit what `what` says, again and again while that may help; waits, and tells what it
        was. Each time it is asked anew: a topic may be gone."""

        def attempt(left_ms: float) -> Mapping[TopicPartition, OffsetAndMetadata]:
            offsets = what()
            if offsets:
                self.client.wait(self.send(offsets), left_ms)
            return offsets

        return self.client.retrying(attempt, timeout_ms)

    def _commit_request(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], who: ConsumerGroupMetadata
    ) -> tuple[OffsetCommitRequest, int]:
        topics: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
        for partition, offset in offsets.items():
            topics[partition.topic].append(
                OffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    committed_metadata=offset.metadata or "",
                )
            )
        ids, version_max = self._topic_ids(topics)
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=who.generation_id,
            member_id=who.member_id,
            group_instance_id=who.group_instance_id,
            topics=[
                OffsetCommitRequestTopic(name=name, topic_id=ids[name], partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        return request, version_max

    def _read_commit(self, answer: OffsetCommitResponse, who: ConsumerGroupMetadata) -> None:
        worst: tuple[int, str] | None = None
        for topic in answer.topics:
            name = topic.name or self.client.cluster.names.get(topic.topic_id, "?")
            for partition in topic.partitions:
                if partition.error_code and (worst is None or worst[0] not in NO_LONGER_MEMBER):
                    worst = partition.error_code, f"{name}-{partition.partition_index}"
        if worst is None:
            return
        code, where = worst
        if code in COORDINATOR_GONE:
            self.client.coordinators.forget(self.group_id)
        if self.identity() == who:  # else it is news of a membership that is over
            self.on_error(code)
        if code in NO_LONGER_MEMBER:
            raise CommitFailedError(
                f"offset of {where} not committed: group {self.group_id!r} has given its "
                f"partitions to others ({ErrorCode(code).name})\n"
                "Try: poll() more often than max_poll_interval_ms, with a smaller "
                "max_poll_records, or commit in on_partitions_revoked"
            )
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            raise error_for(
                code,
                f"offset of {where} not committed: group {self.group_id!r} is rebalancing\n"
                "Try: poll(), then commit again what is still assigned",
            )
        raise error_for(code, f"offset of {where} not committed: {ErrorCode(code).message}")

    # Fetching

    def fetch_all(self) -> Future[Committed]:
        """All that the group has committed; asked once, and by names, for ids may not be known."""
        request = OffsetFetchRequest(
            group_id=self.group_id,
            topics=None,
            groups=[OffsetFetchRequestGroup(group_id=self.group_id, topics=None)],
            require_stable=self.stable,
        )
        return then(self._ask(request, NAMES_VERSION_MAX), lambda answer: self._read(answer, {}))

    def fetch(self, partitions: Iterable[TopicPartition]) -> Future[Committed]:
        """Ask once; what was never committed is left out."""
        topics: dict[str, list[int]] = defaultdict(list)
        for partition in partitions:
            topics[partition.topic].append(partition.partition)
        ids, version_max = self._topic_ids(topics)
        request = OffsetFetchRequest(
            group_id=self.group_id,
            topics=[
                OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
                for name, indexes in topics.items()
            ],
            groups=[
                OffsetFetchRequestGroup(
                    group_id=self.group_id,
                    topics=[
                        OffsetFetchRequestTopics(
                            name=name, topic_id=ids[name], partition_indexes=indexes
                        )
                        for name, indexes in topics.items()
                    ],
                )
            ],
            require_stable=self.stable,
        )
        names = {topic_id: name for name, topic_id in ids.items()}
        return then(self._ask(request, version_max), lambda answer: self._read(answer, names))

    def committed(
        self, partitions: Iterable[TopicPartition] | None, timeout_ms: float | None = None
    ) -> Committed:
        """What the group has committed, for these partitions or all; waits."""
        wanted = None if partitions is None else list(partitions)
        return self.client.retrying(
            lambda left_ms: self.client.wait(
                self.fetch_all() if wanted is None else self.fetch(wanted), left_ms
            ),
            timeout_ms,
        )

    def _read(self, answer: OffsetFetchResponse, names: Mapping[bytes, str]) -> Committed:
        group = answer.groups[0] if answer.groups else answer
        self._check(group.error_code)
        found: Committed = {}
        for topic in group.topics:
            name = topic.name or names.get(getattr(topic, "topic_id", NO_UUID), "")
            for each in topic.partitions:
                self._check(each.error_code)
                if each.committed_offset >= 0:
                    found[TopicPartition(name, each.partition_index)] = OffsetAndMetadata(
                        each.committed_offset, each.metadata or "", each.committed_leader_epoch
                    )
        return found

    # Both

    def _check(self, code: int) -> None:
        if code in COORDINATOR_GONE:
            self.client.coordinators.forget(self.group_id)
        if code:
            raise error_for(code)

    def _topic_ids(self, topics: Iterable[str]) -> tuple[dict[str, bytes], int]:
        """The ids of topics, and the highest version that can be sent with what is known."""
        known = self.client.cluster.topics
        ids = {name: known[name].topic_id if name in known else NO_UUID for name in topics}
        return ids, NAMES_VERSION_MAX if NO_UUID in ids.values() else VERSION_MAX

    def _ask(self, request: RequestFor[S], version_max: int) -> Future[S]:
        asked = then_wait(
            self.client.coordinator(self.group_id),
            lambda node_id: self.client.submit(
                node_id, request, channel=CHANNEL, version_max=version_max
            ),
        )
        asked.add_done_callback(self._on_response)
        return asked

    def _on_response(self, future: Future[S]) -> None:
        """A broken connection may mean another coordinator."""
        if isinstance(future.exception(), KafkaConnectionError):
            self.client.coordinators.forget(self.group_id)


def offsets_to_commit(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a caller gives to `commit`, checked; a plain number will do for an offset."""
    found = {}
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets must be {{TopicPartition: OffsetAndMetadata}} (got {offsets!r})")
    for partition, offset in offsets.items():
        if not isinstance(partition, TopicPartition):
            raise TypeError(f"a partition must be a TopicPartition (got {partition!r})")
        if isinstance(offset, int):
            offset = OffsetAndMetadata(offset)
        elif isinstance(offset, tuple):
            offset = OffsetAndMetadata(*offset)
        else:
            raise TypeError(f"an offset must be an OffsetAndMetadata (got {offset!r})")
        if offset.offset < 0:
            raise ValueError(f"an offset to commit must be 0 or more (got {offset.offset})")
        found[partition] = offset._replace(
            leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch
        )
    return found


__all__ = ["Commits", "KafkaError", "offsets_to_commit"]

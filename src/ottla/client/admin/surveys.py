"""Whole clusters at a glance: the same question to every broker at once, for programs that watch.

Nothing is retried and nobody is waited for longer than `timeout_ms`: what a broker does not answer
is an error beside the answers of the others. Requests are cut so that none holds a broker's loop.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ottla.wire.exchange import VERSION_MAX
from ottla.wire.schema import RequestFor, Struct

from ..errors import KafkaError, KafkaTimeoutError, error_for
from ..network.cluster_client import ANY
from ..structs import OffsetAndMetadata, TopicPartition
from .base import AdminBase, by_topic
from .groups import BY_NAME, committed_in, described_group
from .new_groups import share_offset
from .types import OffsetSpec, ShareOffset, TransactionDescription, TransactionState

if TYPE_CHECKING:
    from ottla.wire.api.describe_log_dirs import DescribeLogDirsResult
    from ottla.wire.api.list_groups import ListedGroup
    from ottla.wire.api.metadata import MetadataResponse

T = TypeVar("T")
S = TypeVar("S", bound=Struct)

PARTITIONS_PER_REQUEST = 500  # of offsets: some milliseconds of a broker's loop
GROUPS_PER_REQUEST = 50
OFFSETS_OF_MANY_GROUPS = 8  # the version of OffsetFetch that can ask for several groups
OFFSET_FETCH = 9


class Survey(NamedTuple, Generic[T]):
    """What came, and which brokers did not answer."""

    found: T
    errors: dict[int, KafkaError]


class Surveys(AdminBase):
    """The part of the admin that asks all brokers."""

    def survey_metadata(self, timeout_ms: float) -> MetadataResponse:
        """Brokers, controller and all topics, as one broker knows them."""
        from ottla.wire.api.metadata import MetadataRequest

        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        # The client's own view, too: it finds the brokers' addresses there.
        self._client.wait(self._client.refresh(), timeout_ms)
        return self._client.wait(self._client.submit(ANY, request, timeout_ms=timeout_ms))

    def survey_offsets(
        self,
        by_leader: Mapping[int, Iterable[TopicPartition]],
        spec: OffsetSpec,
        timeout_ms: float,
    ) -> Survey[dict[TopicPartition, int]]:
        """An offset of each of these partitions, asked of their leaders; a partition that another
        broker leads by now is left out."""
        from ottla.wire.api.list_offsets import (
            ListOffsetsPartition,
            ListOffsetsRequest,
            ListOffsetsTopic,
        )

        def request(partitions: Sequence[TopicPartition]) -> ListOffsetsRequest:
            topics = [
                ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsPartition(partition_index=each, timestamp=spec)
                        for each in indexes
                    ],
                )
                for name, indexes in by_topic(partitions).items()
            ]
            return ListOffsetsRequest(replica_id=-1, topics=topics, timeout_ms=int(timeout_ms))

        answers, errors = self._survey(
            {
                broker: [request(part) for part in cut(wanted, PARTITIONS_PER_REQUEST)]
                for broker, wanted in by_leader.items()
            },
            timeout_ms,
        )
        found = {
            TopicPartition(topic.name, each.partition_index): each.offset
            for answer in flat(answers)
            for topic in answer.topics
            for each in topic.partitions
            if not each.error_code and each.offset >= 0
        }
        return Survey(found, errors)

    def survey_log_dirs(
        self, brokers: Iterable[int], timeout_ms: float
    ) -> Survey[dict[int, list[DescribeLogDirsResult]]]:
        """The log directories of these brokers, with the sizes of their replicas."""
        from ottla.wire.api.describe_log_dirs import DescribeLogDirsRequest

        asked = {broker: [DescribeLogDirsRequest(topics=None)] for broker in brokers}
        answers, errors = self._survey(asked, timeout_ms)
        errors |= refused(answers)
        return Survey(
            {broker: each[0].results for broker, each in answers.items() if broker not in errors},
            errors,
        )

    def survey_groups(
        self, brokers: Iterable[int], timeout_ms: float
    ) -> Survey[dict[int, list[ListedGroup]]]:
        """The groups that each of these brokers coordinates."""
        from ottla.wire.api.list_groups import ListGroupsRequest

        asked = {broker: [ListGroupsRequest()] for broker in brokers}
        answers, errors = self._survey(asked, timeout_ms)
        errors |= refused(answers)
        return Survey(
            {broker: each[0].groups for broker, each in answers.items() if broker not in errors},
            errors,
        )

    def survey_members(
        self, by_coordinator: Mapping[int, Iterable[str]], timeout_ms: float
    ) -> Survey[dict[str, dict[str, Any]]]:
        """Groups as `describe_groups` gives them, asked of these coordinators."""
        from ottla.wire.api.describe_groups import DescribeGroupsRequest

        answers, errors = self._survey(
            {
                broker: [
                    DescribeGroupsRequest(groups=list(part))
                    for part in cut(groups, GROUPS_PER_REQUEST)
                ]
                for broker, groups in by_coordinator.items()
            },
            timeout_ms,
        )
        found = {
            group.group_id: described_group(group)
            for answer in flat(answers)
            for group in answer.groups
            if not group.error_code
        }
        return Survey(found, errors)

    def survey_new_members(
        self, by_coordinator: Mapping[int, Iterable[str]], kind: str, timeout_ms: float
    ) -> Survey[dict[str, Any]]:
        """Groups of the new protocols (KIP-848 `consumer`, KIP-932 `share`) as their coordinators
        describe them."""
        from ottla.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest
        from ottla.wire.api.share_group_describe import ShareGroupDescribeRequest

        request: type[Any] = {
            "consumer": ConsumerGroupDescribeRequest,
            "share": ShareGroupDescribeRequest,
        }[kind]
        answers: dict[int, list[Any]]
        answers, errors = self._survey(
            {
                broker: [request(group_ids=part) for part in cut(groups, GROUPS_PER_REQUEST)]
                for broker, groups in by_coordinator.items()
            },
            timeout_ms,
        )
        found = {
            group.group_id: group
            for answer in flat(answers)
            for group in answer.groups
            if not group.error_code
        }
        return Survey(found, errors)

    def survey_share_offsets(
        self, by_coordinator: Mapping[int, Iterable[str]], timeout_ms: float
    ) -> Survey[dict[str, dict[TopicPartition, ShareOffset]]]:
        """Where share groups begin in each of their partitions, and what they lack there."""
        from ottla.wire.api.describe_share_group_offsets import (
            DescribeShareGroupOffsetsRequest,
            DescribeShareGroupOffsetsRequestGroup,
        )

        answers, errors = self._survey(
            {
                broker: [
                    DescribeShareGroupOffsetsRequest(
                        groups=[
                            DescribeShareGroupOffsetsRequestGroup(group_id=each, topics=None)
                            for each in part
                        ]
                    )
                    for part in cut(groups, GROUPS_PER_REQUEST)
                ]
                for broker, groups in by_coordinator.items()
            },
            timeout_ms,
        )
        found = {
            group.group_id: {
                TopicPartition(topic.topic_name, each.partition_index): offset
                for topic in group.topics
                for each in topic.partitions
                if not each.error_code and (offset := share_offset(each)) is not None
            }
            for answer in flat(answers)
            for group in answer.groups
            if not group.error_code
        }
        return Survey(found, errors)

    def survey_committed(
        self, by_coordinator: Mapping[int, Iterable[str]], timeout_ms: float
    ) -> Survey[dict[str, dict[TopicPartition, OffsetAndMetadata]]]:
        """All committed offsets of groups, asked of these coordinators."""
        from ottla.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

        requests: dict[int, list[RequestFor[Any]]] = {}
        alone: dict[int, list[str]] = {}  # an old broker answers for one group at a time
        for broker, groups in by_coordinator.items():
            if self._version_max(broker, OFFSET_FETCH) < OFFSETS_OF_MANY_GROUPS:
                alone[broker] = list(groups)
                requests[broker] = [
                    OffsetFetchRequest(group_id=group, topics=None) for group in alone[broker]
                ]
            else:
                requests[broker] = [
                    OffsetFetchRequest(
                        groups=[
                            OffsetFetchRequestGroup(group_id=group, topics=None) for group in part
                        ]
                    )
                    for part in cut(groups, GROUPS_PER_REQUEST)
                ]
        answers, errors = self._survey(requests, timeout_ms, version_max=BY_NAME)
        found = {}
        for broker, got in answers.items():
            named: list[tuple[str, Any]]
            if broker in alone:
                named = list(zip(alone[broker], got, strict=True))
            else:
                named = [(each.group_id, each) for answer in got for each in answer.groups]
            for group, answer in named:
                if not answer.error_code:
                    try:
                        found[group] = committed_in(answer)
                    except KafkaError as error:
                        errors[broker] = error
        return Survey(found, errors)

    def survey_transactions(
        self, brokers: Iterable[int], states: Iterable[str], timeout_ms: float
    ) -> Survey[dict[str, TransactionDescription]]:
        """The transactions in these states, of all coordinators."""
        from ottla.wire.api.describe_transactions import DescribeTransactionsRequest
        from ottla.wire.api.list_transactions import ListTransactionsRequest

        filters = list(states)
        asked = {broker: [ListTransactionsRequest(state_filters=filters)] for broker in brokers}
        listed, errors = self._survey(asked, timeout_ms)
        errors |= refused(listed)
        details, more = self._survey(
            {
                broker: [
                    DescribeTransactionsRequest(transactional_ids=list(part))
                    for part in cut(
                        (each.transactional_id for each in answers[0].transaction_states),
                        GROUPS_PER_REQUEST,
                    )
                ]
                for broker, answers in listed.items()
                if broker not in errors and answers[0].transaction_states
            },
            timeout_ms,
        )
        found = {
            each.transactional_id: TransactionDescription(
                broker,
                TransactionState(each.transaction_state),
                each.producer_id,
                each.producer_epoch,
                each.transaction_timeout_ms,
                each.transaction_start_time_ms,
                {
                    TopicPartition(topic.topic, index)
                    for topic in each.topics
                    for index in topic.partitions
                },
            )
            for broker, answers in details.items()
            for answer in answers
            for each in answer.transaction_states
            if not each.error_code
        }
        return Survey(found, errors | more)

    def _survey(
        self,
        requests: Mapping[int, Sequence[RequestFor[S]]],
        timeout_ms: float,
        version_max: int = VERSION_MAX,
    ) -> tuple[dict[int, list[S]], dict[int, KafkaError]]:
        """All answers of each broker that gave all of them; the first error of each other one."""
        deadline = time.monotonic() + timeout_ms / 1000
        asked: list[tuple[int, Future[S]]] = [
            (
                broker,
                self._client.submit(
                    broker, request, timeout_ms=timeout_ms, version_max=version_max
                ),
            )
            for broker, theirs in requests.items()
            for request in theirs
        ]
        answers: dict[int, list[S]] = defaultdict(list)
        errors: dict[int, KafkaError] = {}
        for broker, future in asked:
            left_ms = max(0.0, (deadline - time.monotonic()) * 1000)
            try:
                answers[broker].append(self._client.wait(future, left_ms + GRACE_MS))
            except KafkaTimeoutError:
                errors.setdefault(broker, KafkaTimeoutError(f"no answer in {timeout_ms:.0f} ms"))
            except KafkaError as error:
                errors.setdefault(broker, error)
        return {each: got for each, got in answers.items() if each not in errors}, errors

    def _version_max(self, broker: int, key: int) -> int:
        known = self._client.connections.versions.get(broker, {})
        return known[key][1] if key in known else BY_NAME


GRACE_MS = 500  # the client ends a request by itself; the caller waits that much longer for it


def cut(whole: Iterable[T], most: int) -> list[list[T]]:
    """In pieces of at most so many."""
    items = list(whole)
    return [items[start : start + most] for start in range(0, len(items), most)]


def flat(answers: Mapping[int, Iterable[S]]) -> Iterable[S]:
    return (answer for each in answers.values() for answer in each)


def refused(answers: Mapping[int, Sequence[Any]]) -> dict[int, KafkaError]:
    """The brokers whose answer is an error."""
    return {
        broker: error_for(each[0].error_code)
        for broker, each in answers.items()
        if each[0].error_code
    }

"""Reassignments as messages: from a client to the controller, through any broker, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.cluster.requests import (
    OngoingReassignment,
    Reassignment,
    ReassignmentOutcome,
    Refusal,
)
from ottla.wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from ottla.wire.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ottla.wire.errors import ErrorCode

NOT_REFUSED = Refusal(ErrorCode.NONE)


def alter_request(
    wanted: Sequence[Reassignment], allow_factor_change: bool
) -> AlterPartitionReassignmentsRequest:
    topics: dict[str, ReassignableTopic] = {}
    for each in wanted:
        topics.setdefault(each.topic, ReassignableTopic(name=each.topic)).partitions.append(
            ReassignablePartition(
                partition_index=each.partition,
                replicas=None if each.replicas is None else list(each.replicas),
            )
        )
    return AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=allow_factor_change, topics=list(topics.values())
    )


def wanted_by(request: AlterPartitionReassignmentsRequest) -> list[Reassignment]:
    return [
        Reassignment(topic.name, each.partition_index, each.replicas)
        for topic in request.topics
        for each in topic.partitions
    ]


def alter_response(
    outcomes: Sequence[ReassignmentOutcome],
    allow_factor_change: bool,
    names: Iterable[str] = (),
    refusal: Refusal = NOT_REFUSED,
) -> AlterPartitionReassignmentsResponse:
    """The outcomes by topic, of each of these topics first, whether or not it has any."""
    topics = {name: ReassignableTopicResponse(name=name) for name in names}
    for each in outcomes:
        topic = topics.setdefault(each.topic, ReassignableTopicResponse(name=each.topic))
        topic.partitions.append(
            ReassignablePartitionResponse(
                partition_index=each.partition,
                error_code=each.error_code,
                error_message=each.error_message,
            )
        )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=allow_factor_change,
        error_code=refusal.error_code,
        error_message=refusal.error_message,
        responses=list(topics.values()),
    )


def refused(
    request: AlterPartitionReassignmentsRequest, refusal: Refusal
) -> AlterPartitionReassignmentsResponse:
    """The same error for the request and every partition."""
    outcomes = [
        ReassignmentOutcome(each.topic, each.partition, *refusal) for each in wanted_by(request)
    ]
    allowed = request.allow_replication_factor_change
    return alter_response(outcomes, allowed, refusal=refusal)


def outcomes_of(
    response: AlterPartitionReassignmentsResponse,
) -> list[ReassignmentOutcome] | Refusal:
    if response.error_code:
        return Refusal(ErrorCode(response.error_code), response.error_message)
    return [
        ReassignmentOutcome(
            topic.name, each.partition_index, ErrorCode(each.error_code), each.error_message
        )
        for topic in response.responses
        for each in topic.partitions
    ]


def list_request(
    wanted: Sequence[tuple[str, Sequence[int]]] | None,
) -> ListPartitionReassignmentsRequest:
    if wanted is None:
        return ListPartitionReassignmentsRequest(topics=None)
    return ListPartitionReassignmentsRequest(
        topics=[
            ListPartitionReassignmentsTopics(name=name, partition_indexes=list(indexes))
            for name, indexes in wanted
        ]
    )


def listed_by(
    request: ListPartitionReassignmentsRequest,
) -> list[tuple[str, Sequence[int]]] | None:
    if request.topics is None:
        return None
    return [(topic.name, topic.partition_indexes) for topic in request.topics]


def list_response(
    ongoing: Sequence[OngoingReassignment], refusal: Refusal = NOT_REFUSED
) -> ListPartitionReassignmentsResponse:
    topics: dict[str, OngoingTopicReassignment] = {}
    for each in ongoing:
        topic = topics.setdefault(each.topic, OngoingTopicReassignment(name=each.topic))
        topic.partitions.append(
            OngoingPartitionReassignment(
                partition_index=each.partition,
                replicas=list(each.replicas),
                adding_replicas=list(each.adding),
                removing_replicas=list(each.removing),
            )
        )
    return ListPartitionReassignmentsResponse(
        error_code=refusal.error_code,
        error_message=refusal.error_message,
        topics=list(topics.values()),
    )


def ongoing_in(
    response: ListPartitionReassignmentsResponse,
) -> list[OngoingReassignment] | Refusal:
    if response.error_code:
        return Refusal(ErrorCode(response.error_code), response.error_message)
    return [
        OngoingReassignment(
            topic.name,
            each.partition_index,
            tuple(each.replicas),
            tuple(each.adding_replicas),
            tuple(each.removing_replicas),
        )
        for topic in response.topics
        for each in topic.partitions
    ]

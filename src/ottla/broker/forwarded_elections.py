"""Elections of leaders in Kafka's messages: what is asked for, and what came of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.cluster.requests import ElectionOutcome, ElectionType, Refusal
from ottla.wire.api.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from ottla.wire.errors import ErrorCode


def elect_leaders_request(
    kind: ElectionType, partitions: Sequence[tuple[str, int]] | None
) -> ElectLeadersRequest:
    if partitions is None:
        return ElectLeadersRequest(election_type=kind, topic_partitions=None)
    topics: dict[str, TopicPartitions] = {}
    for name, index in partitions:
        topics.setdefault(name, TopicPartitions(topic=name)).partitions.append(index)
    return ElectLeadersRequest(election_type=kind, topic_partitions=list(topics.values()))


def partitions_asked(request: ElectLeadersRequest) -> list[tuple[str, int]] | None:
    """The partitions whose leaders are to be elected; None: of all."""
    asked = request.topic_partitions
    if asked is None:
        return None
    return [(each.topic, index) for each in asked for index in each.partitions]


def election_results(
    outcomes: Sequence[ElectionOutcome], names: Iterable[str] = ()
) -> list[ReplicaElectionResult]:
    """The results by topic, of each of these topics first, whether or not it has any."""
    topics = {name: ReplicaElectionResult(topic=name) for name in names}
    for each in outcomes:
        result = topics.setdefault(each.topic, ReplicaElectionResult(topic=each.topic))
        result.partition_result.append(
            PartitionResult(
                partition_id=each.partition,
                error_code=each.error_code,
                error_message=each.error_message,
            )
        )
    return list(topics.values())


def election_outcomes(response: ElectLeadersResponse) -> list[ElectionOutcome] | Refusal:
    if response.error_code:
        return Refusal(ErrorCode(response.error_code))
    return [
        ElectionOutcome(
            topic.topic, each.partition_id, ErrorCode(each.error_code), each.error_message
        )
        for topic in response.replica_election_results
        for each in topic.partition_result
    ]

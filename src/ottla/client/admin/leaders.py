"""Leaders of partitions: elected when somebody asks for it (KIP-460)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode

from ..errors import BrokerResponseError, error_for, raise_for
from ..structs import TopicPartition
from .base import AdminBase, Chosen
from .types import ElectionType

if TYPE_CHECKING:
    from ottla.wire.api.elect_leaders import ElectLeadersResponse


class Leaders(AdminBase):
    """The part of the admin that has leaders elected."""

    def elect_leaders(
        self,
        election_type: ElectionType | str | int,
        topic_partitions: Chosen | None = None,
        timeout_ms: int | None = None,
        raise_errors: bool = True,
    ) -> dict[TopicPartition, BrokerResponseError | None]:
        """Have leaders elected, of these partitions or of all; gives what went wrong for each.

        A partition that has the leader already is ElectionNotNeededError, which is not raised. Of
        all partitions only those that needed an election are in the result.
        """
        from ottla.wire.api.elect_leaders import ElectLeadersRequest, TopicPartitions

        if isinstance(election_type, str):
            election_type = ElectionType[election_type.upper()]
        topics = None
        if topic_partitions is not None:
            topics = [
                TopicPartitions(topic=name, partitions=indexes)
                for name, indexes in self._chosen(topic_partitions).items()
            ]
        answer = self._ask_controller(
            ElectLeadersRequest(
                election_type=ElectionType(election_type),
                topic_partitions=topics,
                timeout_ms=self._timeout(timeout_ms),
            ),
            lambda got: raise_for(got.error_code),
        )
        results = results_of(answer)
        for error in results.values() if raise_errors else ():
            if error is not None and error.errno != ErrorCode.ELECTION_NOT_NEEDED:
                raise error
        return results


def results_of(
    answer: ElectLeadersResponse,
) -> dict[TopicPartition, BrokerResponseError | None]:
    """What went wrong for each partition; None where a leader was elected."""
    return {
        TopicPartition(topic.topic, each.partition_id): error_for(
            each.error_code, each.error_message
        )
        if each.error_code
        else None
        for topic in answer.replica_election_results
        for each in topic.partition_result
    }

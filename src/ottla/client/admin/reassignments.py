"""Reassignments: partitions that move to other brokers (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict

from ..errors import IllegalArgumentError, KafkaError, error_for, raise_for
from ..structs import TopicPartition
from .base import AdminBase, Chosen


class OngoingReassignment(TypedDict):
    """A partition on its way: all its replicas, and those that come and go."""

    replicas: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]


class Reassignments(AdminBase):
    """The part of the admin that moves partitions."""

    def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Iterable[int] | None],
        timeout_ms: int | None = None,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, type[KafkaError] | None]:
        """Begin to move partitions to these replicas, the preferred leader first; None cancels.

        Returns the error of each partition, None where there is none: it has begun, and
        `list_partition_reassignments` has it until it is done. Raises what concerns all of them.
        """
        errors = self.reassignment_errors(
            reassignments, timeout_ms, allow_replication_factor_change
        )
        return {each: None if error is None else type(error) for each, error in errors.items()}

    def reassignment_errors(
        self,
        reassignments: Mapping[TopicPartition, Iterable[int] | None],
        timeout_ms: int | None = None,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, KafkaError | None]:
        """As `alter_partition_reassignments`, with the errors' own words."""
        from ottla.wire.api.alter_partition_reassignments import (
            AlterPartitionReassignmentsRequest,
            ReassignablePartition,
            ReassignableTopic,
        )

        topics: dict[str, ReassignableTopic] = {}
        for (topic, partition), given in reassignments.items():
            replicas = None if given is None else list(given)
            if replicas == []:
                raise IllegalArgumentError(
                    f"{topic}-{partition}: no replicas\nTry: None, to cancel a reassignment"
                )
            topics.setdefault(topic, ReassignableTopic(name=topic)).partitions.append(
                ReassignablePartition(partition_index=partition, replicas=replicas)
            )
        answer = self._ask_controller(
            AlterPartitionReassignmentsRequest(
                timeout_ms=self._timeout(timeout_ms),
                allow_replication_factor_change=allow_replication_factor_change,
                topics=list(topics.values()),
            ),
            lambda got: raise_for(got.error_code, got.error_message),
        )
        return {
            TopicPartition(topic.name, each.partition_index): error_for(
                each.error_code, each.error_message
            )
            if each.error_code
            else None
            for topic in answer.responses
            for each in topic.partitions
        }

    def list_partition_reassignments(
        self,
        topic_partitions: Chosen | None = None,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OngoingReassignment]:
        """What is under way of these partitions, or of all; the others are left out."""
        from ottla.wire.api.list_partition_reassignments import (
            ListPartitionReassignmentsRequest,
            ListPartitionReassignmentsTopics,
        )

        topics = None
        if topic_partitions is not None:
            topics = [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
                for name, indexes in self._chosen(topic_partitions).items()
            ]
        answer = self._ask_controller(
            ListPartitionReassignmentsRequest(timeout_ms=self._timeout(timeout_ms), topics=topics),
            lambda got: raise_for(got.error_code, got.error_message),
        )
        return {
            TopicPartition(topic.name, each.partition_index): {
                "replicas": list(each.replicas),
                "adding_replicas": list(each.adding_replicas),
                "removing_replicas": list(each.removing_replicas),
            }
            for topic in answer.topics
            for each in topic.partitions
        }

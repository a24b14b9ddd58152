"""Replicas in the data directories of their brokers: where they are, and moves (KIP-113)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from ..errors import KafkaError, error_class
from ..structs import TopicPartition, TopicPartitionReplica
from .cluster import ClusterView

# Topic, partition, broker id: a TopicPartitionReplica or a plain tuple.
Replica = TypeVar("Replica", bound=tuple[str, int, int])


class ReplicaLogDirs(NamedTuple):
    """Where a replica is, and where its copy is if it moves; None and -1 for what there is not."""

    current_log_dir: str | None = None
    current_offset_lag: int = -1
    future_log_dir: str | None = None
    future_offset_lag: int = -1


class LogDirs(ClusterView):
    """The part of the admin that moves replicas between directories."""

    def alter_replica_log_dirs(
        self, replica_assignments: Mapping[Replica, str]
    ) -> dict[TopicPartitionReplica, type[KafkaError] | None]:
        """Begin to move replicas to these directories (absolute paths) of their brokers.

        Returns the error of each, None where there is none: `describe_replica_log_dirs` has the
        copy until it has taken the replica's place. The directory that a replica is in cancels its
        move. For one that is not there yet it is remembered, and the error says so.
        """
        from ottla.wire.api.alter_replica_log_dirs import (
            AlterReplicaLogDir,
            AlterReplicaLogDirsRequest,
            AlterReplicaLogDirTopic,
        )

        wanted: dict[int, dict[str, dict[str, list[int]]]] = {}
        for (topic, partition, broker_id), path in replica_assignments.items():
            of_broker = wanted.setdefault(broker_id, {})
            of_broker.setdefault(path, {}).setdefault(topic, []).append(partition)
        found: dict[TopicPartitionReplica, type[KafkaError] | None] = {}
        for broker_id, directories in wanted.items():
            dirs = [
                AlterReplicaLogDir(
                    path=path,
                    topics=[
                        AlterReplicaLogDirTopic(name=name, partitions=partitions)
                        for name, partitions in topics.items()
                    ],
                )
                for path, topics in directories.items()
            ]
            answer = self._ask(AlterReplicaLogDirsRequest(dirs=dirs), broker_id)
            for result in answer.results:
                for each in result.partitions:
                    replica = TopicPartitionReplica(
                        result.topic_name, each.partition_index, broker_id
                    )
                    code = each.error_code
                    found[replica] = error_class(code) if code else None
        return found

    def describe_replica_log_dirs(
        self, replicas: Iterable[Replica]
    ) -> dict[TopicPartitionReplica, ReplicaLogDirs]:
        """In which directory each of these replicas is, and to which it moves."""
        wanted = [TopicPartitionReplica(*each) for each in replicas]
        found = dict.fromkeys(wanted, ReplicaLogDirs())
        for broker_id in sorted({each.broker_id for each in wanted}):
            partitions = [TopicPartition(t, p) for t, p, at in wanted if at == broker_id]
            [answer] = self.describe_log_dirs(partitions, [broker_id])
            for each in answer["log_dirs"]:
                for topic in each["topics"]:
                    for partition in topic["partitions"]:
                        index = partition["partition_index"]
                        replica = TopicPartitionReplica(topic["name"], index, broker_id)
                        if replica in found:
                            found[replica] = _with(found[replica], each["log_dir"], partition)
        return found


def _with(known: ReplicaLogDirs, path: str, partition: Mapping[str, int]) -> ReplicaLogDirs:
    lag = partition["offset_lag"]
    if partition["is_future_key"]:
        return known._replace(future_log_dir=path, future_offset_lag=lag)
    return known._replace(current_log_dir=path, current_offset_lag=lag)

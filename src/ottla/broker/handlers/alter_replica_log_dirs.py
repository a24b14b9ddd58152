"""AlterReplicaLogDirs: begins to copy replicas to other data directories of this broker (KIP-113).

It answers when the copies have begun; DescribeLogDirs shows how far they are. The checks and their
order are Kafka's. For a partition that is not here the directory is remembered all the same, and
used if the partition is created by this process later.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.broker.context import Context
from ottla.broker.partitions import missing
from ottla.log.directories import NAME_BYTES_MAX
from ottla.log.moves import future_folder
from ottla.wire.api.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

log = logging.getLogger("ottla.broker")

# Partitions that are remembered though they are not here; Kafka has no limit.
PREFERRED_MAX = 10_000
UNIQUE = "0" * 32  # as long as what makes the name of a copy's folder unique


def handle(request: AlterReplicaLogDirsRequest, context: Context) -> AlterReplicaLogDirsResponse:
    # A partition that is named twice goes where it is named last.
    wanted = {
        (topic.name, index): each.path
        for each in request.dirs
        for topic in each.topics
        for index in topic.partitions
    }
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for (topic, index), path in wanted.items():
        error = _move(context.broker, topic, index, path)
        result = AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
        results.setdefault(topic, []).append(result)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=results[name])
            for name in results
        ]
    )


def _move(broker: Broker, topic: str, index: int, path: str) -> ErrorCode:
    logs, key = broker.logs, (topic, index)
    if len(future_folder(topic, index, UNIQUE)) > NAME_BYTES_MAX:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    data_dir = next((each for each in logs.directories if each.path == path), None)
    if data_dir is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    partition = broker.partitions.get(topic, index)
    if partition is not None and partition.offline is not None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if partition is None:
        while len(logs.preferred) >= PREFERRED_MAX:
            del logs.preferred[next(iter(logs.preferred))]
        logs.preferred[key] = data_dir
        error = missing(broker.image, topic, index, broker.node_id)
        # Kafka kept this error for clients of before NOT_LEADER_OR_FOLLOWER.
        if error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        return error
    try:
        logs.moves.move(key, data_dir)
    except OSError as error:
        log.error("%s-%d: cannot be copied to %s: %s", topic, index, path, error)
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NONE


def failure(
    request: AlterReplicaLogDirsRequest, error_code: ErrorCode, context: Context
) -> AlterReplicaLogDirsResponse:
    """The same error for every partition."""
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error_code)
                    for index in topic.partitions
                ],
            )
            for each in request.dirs
            for topic in each.topics
        ]
    )

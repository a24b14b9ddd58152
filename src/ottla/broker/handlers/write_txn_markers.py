"""WriteTxnMarkers: ends transactions in partitions; answered when the markers are committed.

It is sent by transaction coordinators, and by an administrator who ends a transaction that has no
coordinator any more (kafka-transactions.sh).
"""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.broker.markers import Written, write
from ottla.coordinator.effects import Producer
from ottla.replica.offset_waits import Ordered
from ottla.wire.api.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.wire.errors import ErrorCode

Result = tuple[WritableTxnMarkerPartitionResult, Written]


def handle(request: WriteTxnMarkersRequest, context: Context) -> WriteTxnMarkersResponse | Pending:
    if any(each.producer_id < 0 or each.producer_epoch < 0 for each in request.markers):
        # No such producer can have written; Kafka fails on it.
        return failure(request, ErrorCode.UNKNOWN_SERVER_ERROR, context)
    waiting: list[Result] = []
    response = answer(request, context, waiting)
    if not waiting:
        return response
    purgatory = context.broker.purgatory
    pending = Pending()

    def attempt(expired: bool) -> bool:
        still = [each for each in waiting if not each[1].committed]
        for result, written in still:
            if written.partition.offline is not None:
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            elif written.moved:
                result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif expired:
                result.error_code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        waiting[:] = [each for each in still if not each[0].error_code]
        if waiting:
            return False
        pending.resolve(response)
        return True

    timeout_ms = context.broker.settings.integer("request.timeout.ms")
    # Of several markers in one partition the last one has the largest offset.
    offsets: dict[Ordered, int] = {each.partition: each.end_offset for _, each in waiting}
    operation = purgatory.park_until(offsets, timeout_ms, attempt)
    pending.on_cancel(lambda: purgatory.cancel(operation))
    return pending


def answer(
    request: WriteTxnMarkersRequest, context: Context, waiting: list[Result]
) -> WriteTxnMarkersResponse:
    """Write all markers. A producer with several has one entry in the response, as in Kafka."""
    by_producer: dict[int, dict[str, list[WritableTxnMarkerPartitionResult]]] = {}
    for marker in request.markers:
        producer = Producer(marker.producer_id, marker.producer_epoch)
        topics = by_producer.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for index in topic.partition_indexes:
                outcome = write(
                    context.broker,
                    (topic.name, index),
                    producer,
                    marker.transaction_result,
                    marker.coordinator_epoch,
                    marker.transaction_version,
                )
                error = outcome if isinstance(outcome, ErrorCode) else ErrorCode.NONE
                result = WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
                topics.setdefault(topic.name, []).append(result)
                if isinstance(outcome, Written) and not outcome.committed:
                    waiting.append((result, outcome))
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(name=name, partitions=results)
                    for name, results in topics.items()
                ],
            )
            for producer_id, topics in by_producer.items()
        ]
    )


def failure(
    request: WriteTxnMarkersRequest, error_code: ErrorCode, context: Context
) -> WriteTxnMarkersResponse:
    """The same error for every partition."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=error_code
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )

"""Produce (KIP-98 batches, KIP-951 leader hints, KIP-516 topic ids): records into logs.

The hottest path of the broker. Per partition: find it, look at 15 bytes of the batch header,
append, note the answer. Nothing here looks at a record. With acks=0 nothing is sent, and since an
error then cannot be told, it closes the connection. An answer waits only where the high watermark
has not passed what was appended: for other replicas (acks=-1), or for the disk with
`log.flush.before.ack`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ottla.broker import transactional
from ottla.broker.context import Context, PeerError, Pending
from ottla.broker.endpoints import current_leader
from ottla.broker.partitions import missing
from ottla.cluster.names import INTERNAL
from ottla.wire.api.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.transactional import Refusals
    from ottla.log.log import AppendResult
    from ottla.replica.partition import Partition

TOPIC_IDS_FROM = 13
LEADER_HINTS_FROM = 10
ZSTD_FROM = 7
ZSTD = 4
COMPRESSION_BITS = 0x07
TRANSACTIONAL_BIT = 0x10
MAGIC_V2 = 2
# Below this length Kafka finds a batch corrupt, whatever its format.
LEGACY_RECORD_BYTES_MIN = 14
# The one client that may write to Kafka's own topics.
ADMIN_CLIENT_ID = "__admin_client"

# Of a batch: its length (which counts from byte 12), magic and attributes.
_read_batch_start = struct.Struct(">i4xb4xh").unpack_from
_BATCH_START_POSITION = 8
_BATCH_START_BYTES = 23
_LENGTH_COUNTS_FROM = 12
_MAGIC_POSITION = 16
_read_length = struct.Struct(">i").unpack_from

NOT_REFUSED = (ErrorCode.NONE, None)

# A partition, the offset its high watermark must reach, and the answer that waits for it.
Waiting = tuple["Partition", int, PartitionProduceResponse]


class Refused(Exception):
    """The request as a whole is refused: every partition gets the same answer."""

    def __init__(self, error_code: ErrorCode, message: str | None = None) -> None:
        self.error_code = error_code
        self.message = message


def handle(request: ProduceRequest, context: Context) -> ProduceResponse | Pending | None:
    """Append every batch; answer, wait, or (acks=0) say nothing."""
    try:
        topics = request.topic_data
        if request.transactional_id is not None:
            _look_ahead(request)
            return transactional.verify(request, context, _append_all)
        if len(topics) > 1 or (topics and len(topics[0].partition_data) > 1):
            _look_ahead(request)
        return _append_all(request, context)
    except Refused as refused:
        return failure(request, refused.error_code, context, refused.message)
    except transactional.SeveralProducers:
        return failure(request, ErrorCode.INVALID_PRODUCER_ID_MAPPING, context)


def _append_all(
    request: ProduceRequest, context: Context, refusals: Refusals | None = None
) -> ProduceResponse | Pending | None:
    broker = context.broker
    version = context.api_version
    acks = request.acks
    by_id = version >= TOPIC_IDS_FROM
    topics: dict[Any, dict[int, Partition]] = (
        broker.partitions.by_id if by_id else broker.partitions.by_name
    )
    now_ms = broker.clock.now_ms()
    wake_soon = broker.waiting.wake_soon
    responses: list[TopicProduceResponse] = []
    waiting: list[Waiting] = []
    failed = False
    for topic in request.topic_data:
        partitions = topics.get(topic.topic_id if by_id else topic.name)
        answers: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            partition = partitions.get(data.index) if partitions is not None else None
            error = ErrorCode.NONE
            if partition is None:
                partition, error = _open(context, topic, data.index)
            if partition is not None:
                error = _refusal(partition, data, request, context)
                if refusals and not error:
                    error, message = refusals.get((partition.topic, data.index), NOT_REFUSED)
                    if error:
                        failed = True
                        answers.append(_error(data.index, error, message))
                        continue
            if error or partition is None:
                failed = True
                answers.append(_error(data.index, error))
                continue
            records: Any = data.records
            result = partition.append(records, acks=acks, now_ms=now_ms)
            answer = PartitionProduceResponse(
                index=data.index,
                error_code=result.error_code,
                base_offset=result.base_offset,
                log_append_time_ms=result.append_time_ms,
                log_start_offset=result.log_start_offset,
            )
            answers.append(answer)
            if result.error_code:
                failed = True
                _explain(answer, result)
                if partition.offline is not None:
                    broker.waiting.wake(partition)
            elif partition.high_watermark > result.last_offset:
                wake_soon(partition, len(records))
            else:
                waiting.append((partition, result.last_offset + 1, answer))
        if by_id:
            named = TopicProduceResponse(topic_id=topic.topic_id, partition_responses=answers)
        else:
            named = TopicProduceResponse(name=topic.name, partition_responses=answers)
        if answers:
            responses.append(named)
    if acks == 0:
        if failed:
            raise PeerError(_unsaid_errors(responses))
        return None
    response = ProduceResponse(responses=responses)
    if failed and version >= LEADER_HINTS_FROM:
        _hint_leaders(response, context)
    if waiting and (acks == -1 or broker.group_commit is not None):
        for topic in request.topic_data:
            for data in topic.partition_data:
                data.records = None  # appended: let the connection have its buffer back
        return _park(response, waiting, request.timeout_ms, context)
    return response


def failure(
    request: ProduceRequest, error_code: ErrorCode, context: Context, message: str | None = None
) -> ProduceResponse:
    """The same error for every partition; with acks=0 there is nobody to tell."""
    if request.acks == 0:
        raise PeerError(f"produce with acks=0 failed: {error_code.name}")
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    _error(each.index, error_code, message) for each in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _open(context: Context, topic: Any, index: int) -> tuple[Partition | None, ErrorCode]:
    """A partition that was not used before, or why there is none."""
    broker = context.broker
    name = topic.name
    if context.api_version >= TOPIC_IDS_FROM:
        name = broker.image.topic_name(topic.topic_id)
        if name is None:
            return None, ErrorCode.UNKNOWN_TOPIC_ID
    return broker.partitions.get(name, index), missing(broker.image, name, index)


def _refusal(
    partition: Partition, data: PartitionProduceData, request: ProduceRequest, context: Context
) -> ErrorCode:
    """Why the records are refused before the log looks at them; NONE when they are not."""
    records: Any = data.records
    if records is None or len(records) < _BATCH_START_BYTES:
        return ErrorCode.INVALID_RECORD
    length, magic, attributes = _read_batch_start(records, _BATCH_START_POSITION)
    if magic != MAGIC_V2 or length + _LENGTH_COUNTS_FROM != len(records):
        _check_start(length, magic)
        error = _not_one_batch(records, length, magic)
        if error:
            return error
        data.records = records[: length + _LENGTH_COUNTS_FROM]
    if attributes & (COMPRESSION_BITS | TRANSACTIONAL_BIT):
        if context.api_version < ZSTD_FROM and attributes & COMPRESSION_BITS >= ZSTD:
            unknown = attributes & COMPRESSION_BITS > ZSTD
            return (
                ErrorCode.UNKNOWN_SERVER_ERROR
                if unknown
                else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            )
        if attributes & TRANSACTIONAL_BIT and request.transactional_id is None:
            raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.acks not in (-1, 0, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS
    if partition.topic in INTERNAL and context.client_id != ADMIN_CLIENT_ID:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.NONE


def _look_ahead(request: ProduceRequest) -> None:
    """What refuses the whole request must be found before anything is appended."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records: Any = data.records
            if records is None or len(records) < _BATCH_START_BYTES:
                continue
            length, magic, attributes = _read_batch_start(records, _BATCH_START_POSITION)
            _check_start(length, magic)
            if attributes & TRANSACTIONAL_BIT and request.transactional_id is None:
                raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def _check_start(length: int, magic: int) -> None:
    """What Kafka finds out about a batch even before it knows what the request is."""
    if length < LEGACY_RECORD_BYTES_MIN:
        message = f"Record size {length} is less than the minimum record overhead (14)"
        raise Refused(ErrorCode.CORRUPT_MESSAGE, message)
    if not 0 <= magic <= MAGIC_V2:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")


def _not_one_batch(records: Any, length: int, magic: int) -> ErrorCode:
    """Since version 3 a client sends exactly one batch, in format 2. NONE if that is so after all.

    A torn batch behind the first is no error: Kafka drops it.
    """
    left = len(records) - length - _LENGTH_COUNTS_FROM
    if left < 0 or magic != MAGIC_V2:
        return ErrorCode.INVALID_RECORD
    if left < _LENGTH_COUNTS_FROM:
        return ErrorCode.NONE
    second = records[-left:]
    (second_length,) = _read_length(second, _BATCH_START_POSITION)
    if second_length < LEGACY_RECORD_BYTES_MIN:
        return ErrorCode.CORRUPT_MESSAGE
    if left > _MAGIC_POSITION and second[_MAGIC_POSITION] > MAGIC_V2:
        return ErrorCode.CORRUPT_MESSAGE
    whole = left >= second_length + _LENGTH_COUNTS_FROM
    return ErrorCode.INVALID_RECORD if whole else ErrorCode.NONE


def _error(
    index: int, error_code: ErrorCode, message: str | None = None
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index, error_code=error_code, base_offset=-1, error_message=message
    )


def _explain(answer: PartitionProduceResponse, result: AppendResult) -> None:
    """KIP-467: which records of the batch were the trouble."""
    answer.error_message = result.error_message
    if result.record_errors:
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in result.record_errors
        ]


def _unsaid_errors(responses: list[TopicProduceResponse]) -> str:
    errors = ", ".join(
        f"{topic.name or topic.topic_id.hex()}-{answer.index}: {error_name(answer.error_code)}"
        for topic in responses
        for answer in topic.partition_responses
        if answer.error_code
    )
    return f"a produce request with acks=0 failed, and only closing can tell the client: {errors}"


def error_name(code: int) -> str:
    """Kafka's name of an error code."""
    return next((error.name for error in ErrorCode if error == code), str(code))


def _hint_leaders(response: ProduceResponse, context: Context) -> None:
    """Tell a client that asked the wrong broker where the leader is (KIP-951)."""
    image = context.broker.image
    endpoints: dict[int, NodeEndpoint] = {}
    for topic in response.responses:
        name = topic.name or image.topic_name(topic.topic_id) or ""
        for answer in topic.partition_responses:
            if answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
            leader = current_leader(image, name, answer.index, context.peer.listener_name)
            answer.current_leader = LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch)
            if leader.node is not None:
                node_id, host, port, rack = leader.node
                endpoints[node_id] = NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
    response.node_endpoints = list(endpoints.values())


def _park(
    response: ProduceResponse, waiting: list[Waiting], timeout_ms: int, context: Context
) -> Pending:
    """Answer once every high watermark has passed what was appended, or when time is up."""

    def attempt(expired: bool) -> bool:
        still = []
        for partition, end_offset, answer in waiting:
            if partition.high_watermark >= end_offset:
                continue
            if partition.offline is not None:
                _fail(answer, ErrorCode.KAFKA_STORAGE_ERROR)
            elif not partition.is_leader:
                _fail(answer, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif expired:
                _fail(answer, ErrorCode.REQUEST_TIMED_OUT)
            else:
                still.append((partition, end_offset, answer))
        waiting[:] = still
        if still:
            return False
        pending.resolve(response)
        return True

    purgatory = context.broker.waiting
    pending = Pending()
    waiter = purgatory.park([partition for partition, _, _ in waiting], timeout_ms, attempt)
    pending.on_cancel(lambda: purgatory.cancel(waiter))
    return pending


def _fail(answer: PartitionProduceResponse, error_code: ErrorCode) -> None:
    answer.error_code = error_code
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.log_start_offset = -1

"""Produce (KIP-98 batches, KIP-951 leader hints, KIP-516 topic ids): records into logs.

The hottest path of the broker. For each partition: find it, validate the batch header, append,
note the answer. Nothing here looks at a record. With acks=0 nothing is sent, so an error closes the
connection. An answer waits only where the high watermark has not passed what was appended: for
other replicas (acks=-1), or for the disk with `log.flush.before.ack`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.broker import transactional
from ottla.broker.context import Context, PeerError, Pending
from ottla.broker.endpoints import current_leader
from ottla.broker.errors import error_name
from ottla.broker.partitions import missing
from ottla.broker.produce_validation import (
    Headers,
    InvalidRequest,
    failed_partition,
    header_of,
    read_headers,
    validate,
)
from ottla.wire.api.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.transactional import FailedPartitions
    from ottla.cluster.image import ClusterImage
    from ottla.log.log import AppendResult
    from ottla.replica.offset_waits import Ordered
    from ottla.replica.partition import Partition

TOPIC_IDS_FROM = 13
LEADER_HINTS_FROM = 10
# Time for an answer to leave before its connection ends.
SEND_AWAY_S = 0.02
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
NO_PARTITIONS: dict[int, Partition] = {}

# A partition, the leader epoch that wrote, the offset that the high watermark must reach, and the
# answer that waits for it.
Waiting = tuple["Partition", int, int, PartitionProduceResponse]


def handle(request: ProduceRequest, context: Context) -> ProduceResponse | Pending | None:
    """Append every batch; answer now, later, or (acks=0) not at all."""
    try:
        topics = request.topic_data
        if request.transactional_id is not None:
            headers = read_headers(request)
            return transactional.verify(request, headers, context, _append_all)
        if len(topics) > 1 or (topics and len(topics[0].partition_data) > 1):
            return _append_all(request, read_headers(request), context)
        return _append_all(request, None, context)
    except InvalidRequest as invalid:
        return failure(request, invalid.error_code, context, invalid.message)
    except transactional.SeveralProducers:
        return failure(request, ErrorCode.INVALID_PRODUCER_ID_MAPPING, context)


def _append_all(
    request: ProduceRequest,
    headers: Headers | None,
    context: Context,
    unverified: FailedPartitions | None = None,
) -> ProduceResponse | Pending | None:
    """Append one partition after the other; an error of one leaves the others alone.

    `headers`: those of the batches, in the request's order, if they have been read already.
    `unverified`: the answers for partitions that are not part of the transaction.
    """
    broker = context.broker
    acks = request.acks
    by_id = context.api_version >= TOPIC_IDS_FROM
    topics: dict[Any, dict[int, Partition]] = (
        broker.partitions.by_id if by_id else broker.partitions.by_name
    )
    now_ms = broker.clock.now_ms()
    responses: list[TopicProduceResponse] = []
    waiting: list[Waiting] = []
    failed = False
    unused = None if headers is None else iter(headers)
    for topic in request.topic_data:
        partitions = topics.get(topic.topic_id if by_id else topic.name, NO_PARTITIONS)
        answers: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            partition = partitions.get(data.index) or _open(context, topic, data.index)
            header = header_of(data.records) if unused is None else next(unused)
            answer: PartitionProduceResponse | None = None
            if partition is None:
                answer = failed_partition(data.index, _missing(context, topic, data.index))
            elif error := validate(partition, data, header, request, context):
                answer = failed_partition(data.index, error)
            elif unverified:
                answer = unverified.get((partition.topic, data.index))
            if answer is None and partition is not None:
                records: Any = data.records
                result = partition.append(records, acks=acks, now_ms=now_ms, header=header)
                answer = PartitionProduceResponse(
                    index=data.index,
                    error_code=result.error_code,
                    base_offset=result.base_offset,
                    log_append_time_ms=result.append_time_ms,
                    log_start_offset=result.log_start_offset,
                )
                if result.error_code:
                    _explain(answer, result)
                    if partition.cut_off and answer.error_code == NOT_LEADER:
                        _send_away(context)
                elif partition.high_watermark <= result.last_offset:
                    end_offset = result.last_offset + 1
                    waiting.append((partition, partition.leader_epoch, end_offset, answer))
            assert answer is not None
            failed = failed or answer.error_code != 0
            answers.append(answer)
        if not answers:
            continue
        if by_id:
            responses.append(
                TopicProduceResponse(topic_id=topic.topic_id, partition_responses=answers)
            )
        else:
            responses.append(TopicProduceResponse(name=topic.name, partition_responses=answers))
    return _answer(request, context, ProduceResponse(responses=responses), waiting, failed)


def _answer(
    request: ProduceRequest,
    context: Context,
    response: ProduceResponse,
    waiting: list[Waiting],
    failed: bool,
) -> ProduceResponse | Pending | None:
    """Answer now, later, or (acks=0) not at all."""
    acks = request.acks
    if failed:
        _count_errors(response, context)
        if acks == 0:
            raise PeerError(_unsent_errors(response.responses))
        if context.api_version >= LEADER_HINTS_FROM:
            _hint_leaders(response, context, context.broker.image)
    if acks == 0:
        return None
    if waiting and (acks == -1 or context.broker.group_commit is not None):
        for topic in request.topic_data:
            for data in topic.partition_data:
                data.records = None  # appended: let the connection have its buffer back
        return _park(response, waiting, acks, request.timeout_ms, context)
    return response


def failure(
    request: ProduceRequest, error_code: ErrorCode, context: Context, message: str | None = None
) -> ProduceResponse:
    """The same error for every partition; with acks=0 the connection closes."""
    if request.acks == 0:
        raise PeerError(f"produce with acks=0 failed: {error_code.name}")
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    failed_partition(each.index, error_code, message)
                    for each in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _open(context: Context, topic: TopicProduceData, index: int) -> Partition | None:
    """A partition that was not used before, if it is here."""
    broker = context.broker
    name: str | None = topic.name
    if context.api_version >= TOPIC_IDS_FROM:
        name = broker.image.topic_name(topic.topic_id)
    return None if name is None else broker.partitions.get(name, index)


def _missing(context: Context, topic: TopicProduceData, index: int) -> ErrorCode:
    broker = context.broker
    name: str | None = topic.name
    if context.api_version >= TOPIC_IDS_FROM:
        name = broker.image.topic_name(topic.topic_id)
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return missing(broker.image, name, index, broker.node_id)


def _explain(answer: PartitionProduceResponse, result: AppendResult) -> None:
    """KIP-467: name the records of the batch that are at fault."""
    answer.error_message = result.error_message
    if result.record_errors:
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in result.record_errors
        ]


def _count_errors(response: ProduceResponse, context: Context) -> None:
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code:
                context.broker.metrics.error("Produce", error_name(answer.error_code))


def _unsent_errors(responses: list[TopicProduceResponse]) -> str:
    errors = ", ".join(
        f"{topic.name or topic.topic_id.hex()}-{answer.index}: {error_name(answer.error_code)}"
        for topic in responses
        for answer in topic.partition_responses
        if answer.error_code
    )
    return f"a produce request with acks=0 failed, and nothing but closing can show it: {errors}"


def _hint_leaders(response: ProduceResponse, context: Context, image: ClusterImage) -> None:
    """Name the leader and its address to a client that asked another broker (KIP-951)."""
    endpoints: dict[int, NodeEndpoint] = {}
    for topic in response.responses:
        name = topic.name or image.topic_name(topic.topic_id) or ""
        for answer in topic.partition_responses:
            if answer.error_code != NOT_LEADER:
                continue
            partition = context.broker.partitions.by_name.get(name, NO_PARTITIONS).get(answer.index)
            if partition is not None and partition.cut_off:
                continue  # who leads now is not known here
            leader = current_leader(image, name, answer.index, context.peer.listener_name)
            answer.current_leader = LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch)
            if leader.node is not None:
                node_id, host, port, rack = leader.node
                endpoints[node_id] = NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
    response.node_endpoints = list(endpoints.values())


def _send_away(context: Context) -> None:
    """End the connection after the answer, so that another broker is asked for the leader, if no
    other one reaches this broker.
    """
    disconnect = context.peer.disconnect
    if disconnect is not None and context.broker.replication.cut_off.isolated:
        context.broker.clock.call_later(SEND_AWAY_S, disconnect, "this broker is cut off")


def _park(
    response: ProduceResponse,
    waiting: list[Waiting],
    acks: int,
    timeout_ms: int,
    context: Context,
) -> Pending:
    """Answer once every high watermark has passed what was appended, or when time is up.

    An error says beside it where the records were appended, as Kafka does.
    """
    moved = False

    def attempt(expired: bool) -> bool:
        nonlocal moved
        still = []
        for partition, leader_epoch, end_offset, answer in waiting:
            if partition.offline is not None and partition.high_watermark < end_offset:
                answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            elif not partition.is_leader or partition.leader_epoch != leader_epoch:
                # What was appended may be cut, and other records take its offsets.
                answer.error_code = NOT_LEADER
                moved = True
            elif partition.high_watermark >= end_offset:
                if acks == -1 and not partition.has_min_isr:
                    answer.error_code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            elif partition.cut_off:
                answer.error_code = NOT_LEADER
                moved = True
                _send_away(context)
            elif expired:
                answer.error_code = ErrorCode.REQUEST_TIMED_OUT
            else:
                still.append((partition, leader_epoch, end_offset, answer))
        waiting[:] = still
        if still:
            return False
        if moved and context.api_version >= LEADER_HINTS_FROM:
            # Whoever leads next is in the image that is being applied.
            _hint_leaders(response, context, context.broker.next_image)
        pending.resolve(response)
        return True

    purgatory = context.broker.purgatory
    pending = Pending()
    offsets: dict[Ordered, int] = {}
    for partition, _, end_offset, _ in waiting:
        offsets[partition] = max(end_offset, offsets.get(partition, 0))
    operation = purgatory.park_until(offsets, timeout_ms, attempt)
    pending.on_cancel(lambda: purgatory.cancel(operation))
    return pending

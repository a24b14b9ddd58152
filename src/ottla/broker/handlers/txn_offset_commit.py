"""TxnOffsetCommit: offsets that are pending until the marker of the transaction is written.

As with records, the group's partition must be part of the transaction before anything is written:
for a client of KIP-890 (version 5) it is added here, for an older one it is verified.
"""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.broker.coordinators import GROUP_TOPIC
from ottla.broker.verification import Guard, Operation, Verdicts
from ottla.coordinator.commit_fencing import Caller
from ottla.coordinator.coordinator_partition import CoordinatorPartition, CoordinatorState
from ottla.coordinator.effects import Effects, Producer
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.offsets import Committed, TopicPartition
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.wire.errors import ErrorCode

LOADING_FROM = 2
ABORTABLE_FROM = 4
ADDS_FROM = 5
# Coordinators' errors that clients of this API do not expect.
UNAVAILABLE = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)

Accepted = list[tuple[TopicPartition, TxnOffsetCommitRequestPartition]]


def handle(request: TxnOffsetCommitRequest, context: Context) -> TxnOffsetCommitResponse | Pending:
    response, accepted = sort_out(request, context)
    if not accepted:
        return response
    if not request.group_id:
        return with_error(response, ErrorCode.INVALID_GROUP_ID, context)
    coordinator = context.broker.coordinators.groups.coordinator_for(request.group_id)
    if isinstance(coordinator, ErrorCode):
        return with_error(response, coordinator, context)
    return Commit(request, context, coordinator, response, accepted).start()


class Commit:
    """One request in progress: verify, then commit. The `Reply` of the group's coordinator."""

    def __init__(
        self,
        request: TxnOffsetCommitRequest,
        context: Context,
        coordinator: CoordinatorPartition[GroupShard],
        response: TxnOffsetCommitResponse,
        accepted: Accepted,
    ) -> None:
        self.request = request
        self.context = context
        self.coordinator = coordinator
        self.response = response
        self.accepted = accepted
        self.producer = Producer(request.producer_id, request.producer_epoch)
        # Later requests of the connection may belong to the same transaction.
        self.pending = Pending(exclusive=True)

    def start(self) -> TxnOffsetCommitResponse | Pending:
        verification = self.context.broker.coordinators.verification
        operation = operation_of(self.context.api_version)
        partition = self.coordinator.partition
        guard = verification.start(partition, self.producer, -1, operation)
        if isinstance(guard, ErrorCode):
            return with_error(self.response, guard, self.context)
        if guard is None or not verification.needed(operation):
            self.commit(None)
            return self.pending
        place = (GROUP_TOPIC, partition.index)

        def verified(verdicts: Verdicts) -> None:
            error = verdicts[place]
            if error:
                self.fail(unavailable(error, operation))
            else:
                self.commit(guard)

        verification.ask(
            self.request.transactional_id, self.producer, frozenset({place}), operation, verified
        )
        return self.pending

    def commit(self, guard: Guard | None) -> None:
        request, coordinator = self.request, self.coordinator
        if coordinator.state is not CoordinatorState.ACTIVE:
            self.fail(ErrorCode.NOT_COORDINATOR)
            return
        if guard is not None:
            verification = self.context.broker.coordinators.verification
            error = verification.check(coordinator.partition, self.producer.producer_id, guard, -1)
            if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                error = ErrorCode.NOT_COORDINATOR
            if error:
                self.fail(error)
                return
        caller = Caller(request.member_id, request.group_instance_id, request.generation_id)
        errors: list[ErrorCode] = []

        def decide(effects: Effects, now_ms: int) -> None:
            offsets = [(place, committed(asked, now_ms)) for place, asked in self.accepted]
            error = coordinator.shard.commit_in_transaction(
                request.group_id, caller, offsets, self.producer, effects
            )
            errors.append(error)
            effects.reply(self, with_error(self.response, error, self.context))

        coordinator.run(decide)
        if guard is not None and not errors[0]:
            coordinator.flush()
            verification.began(coordinator.partition, self.producer.producer_id)

    def resolve(self, response: TxnOffsetCommitResponse) -> None:
        self.pending.resolve(response)

    def fail(self, error: ErrorCode) -> None:
        self.pending.resolve(with_error(self.response, error, self.context))


def operation_of(version: int) -> Operation:
    if version >= ADDS_FROM:
        return Operation.ADD
    return Operation.VERIFY if version >= ABORTABLE_FROM else Operation.VERIFY_OLD_ERRORS


def unavailable(error: ErrorCode, operation: Operation) -> ErrorCode:
    """The transaction coordinator's error as a group coordinator answers it."""
    if error in UNAVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and operation is not Operation.ADD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error


def committed(asked: TxnOffsetCommitRequestPartition, now_ms: int) -> Committed:
    return Committed(
        asked.committed_offset,
        asked.committed_leader_epoch,
        asked.committed_metadata or "",
        now_ms,
    )


def sort_out(
    request: TxnOffsetCommitRequest, context: Context
) -> tuple[TxnOffsetCommitResponse, Accepted]:
    """The response without errors of the coordinator, and the offsets that can be committed."""
    broker = context.broker
    metadata_bytes_max = broker.settings.integer("offset.metadata.max.bytes")
    accepted: Accepted = []
    topics = []
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            error = ErrorCode.NONE
            if broker.image.partition(topic.name, asked.partition_index) is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len((asked.committed_metadata or "").encode()) > metadata_bytes_max:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                accepted.append(((topic.name, asked.partition_index), asked))
            partitions.append(
                TxnOffsetCommitResponsePartition(
                    partition_index=asked.partition_index, error_code=error
                )
            )
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
    return TxnOffsetCommitResponse(topics=topics), accepted


def with_error(
    response: TxnOffsetCommitResponse, error_code: ErrorCode, context: Context
) -> TxnOffsetCommitResponse:
    """The response with this error for every partition that has none of its own."""
    if error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and context.api_version < LOADING_FROM:
        # Producers before 2.3 fail on it (KAFKA-7296).
        error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    for topic in response.topics:
        for partition in topic.partitions:
            partition.error_code = partition.error_code or error_code
    return response


def failure(
    request: TxnOffsetCommitRequest, error_code: ErrorCode, context: Context
) -> TxnOffsetCommitResponse:
    """The same error for every partition."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=error_code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )

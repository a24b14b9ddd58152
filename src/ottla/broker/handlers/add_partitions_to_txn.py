"""AddPartitionsToTxn: adds partitions to a transaction, or verifies that they are part of it.

Up to version 3 a producer sends it, for one transaction. From 4 on a broker does: for several
transactions, each to be changed or only verified (KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.context import Context, Pending
from ottla.coordinator.coordinator_partition import CoordinatorPartition
from ottla.coordinator.effects import Effects, Producer
from ottla.coordinator.transaction import EPOCH_BUMP_VERSION, TopicPartition
from ottla.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.errors import ErrorCode

BATCHED_FROM = 4
# Before it, clients do not know PRODUCER_FENCED.
FENCED_FROM = 2

Errors = dict[TopicPartition, ErrorCode]


def handle(
    request: AddPartitionsToTxnRequest, context: Context
) -> AddPartitionsToTxnResponse | Pending:
    transactions = asked(request, context)
    answers: dict[int, Errors] = {}
    pending = Pending()

    def respond() -> AddPartitionsToTxnResponse:
        return response(transactions, [answers[n] for n in range(len(transactions))], context)

    def arrived(number: int, errors: Errors) -> None:
        answers[number] = errors
        if len(answers) == len(transactions):
            pending.resolve(respond())

    for number, transaction in enumerate(transactions):
        ask(transaction, Answer(transaction, number, arrived), context)
    return respond() if not transactions else pending


class Answer:
    """The `Reply` for one of the transactions."""

    __slots__ = ("_arrived", "_number", "_partitions")

    def __init__(
        self,
        transaction: AddPartitionsToTxnTransaction,
        number: int,
        arrived: Callable[[int, Errors], object],
    ) -> None:
        self._partitions = partitions_of(transaction)
        self._number = number
        self._arrived = arrived

    def resolve(self, errors: Errors) -> None:
        self._arrived(self._number, errors)

    def fail(self, error: ErrorCode) -> None:
        self.resolve(dict.fromkeys(self._partitions, error))


def asked(
    request: AddPartitionsToTxnRequest, context: Context
) -> list[AddPartitionsToTxnTransaction]:
    if context.api_version >= BATCHED_FROM:
        # One result for each transactional id: of two entries the last one counts.
        return list({each.transactional_id: each for each in request.transactions}.values())
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
    ]


def partitions_of(transaction: AddPartitionsToTxnTransaction) -> frozenset[TopicPartition]:
    return frozenset(
        (topic.name, index) for topic in transaction.topics for index in topic.partitions
    )


def ask(transaction: AddPartitionsToTxnTransaction, answer: Answer, context: Context) -> None:
    broker = context.broker
    transactional_id = transaction.transactional_id
    partitions = partitions_of(transaction)
    unknown = {place for place in partitions if broker.image.partition(*place) is None}
    if unknown:
        # All or nothing: with one partition that does not exist none is added.
        answer.resolve(
            {
                place: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if place in unknown
                else ErrorCode.OPERATION_NOT_ATTEMPTED
                for place in partitions
            }
        )
        return
    if not transactional_id:
        answer.fail(ErrorCode.INVALID_REQUEST)
        return
    coordinator = broker.coordinators.transactions.coordinator_for(transactional_id)
    if not isinstance(coordinator, CoordinatorPartition):
        answer.fail(coordinator)
        return
    shard = coordinator.shard
    producer = Producer(transaction.producer_id, transaction.producer_epoch)

    def decide(effects: Effects, now_ms: int) -> None:
        if transaction.verify_only:
            errors = shard.verify_partitions(transactional_id, producer, partitions)
        else:
            # Only a broker sends the later versions, on behalf of a client of KIP-890.
            version = EPOCH_BUMP_VERSION if context.api_version >= BATCHED_FROM else 0
            error = shard.add_partitions(
                transactional_id, producer, partitions, version, effects, now_ms
            )
            errors = dict.fromkeys(partitions, error)
        effects.reply(answer, errors)

    coordinator.run(decide)


def response(
    transactions: list[AddPartitionsToTxnTransaction], answers: list[Errors], context: Context
) -> AddPartitionsToTxnResponse:
    if context.api_version >= BATCHED_FROM:
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id,
                    topic_results=results(transaction.topics, errors, context),
                )
                for transaction, errors in zip(transactions, answers, strict=True)
            ]
        )
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=results(transactions[0].topics, answers[0], context)
    )


def results(
    topics: list[AddPartitionsToTxnTopic], errors: Errors, context: Context
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=for_version(errors[topic.name, index], context),
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def for_version(error: ErrorCode, context: Context) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_FROM:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def failure(
    request: AddPartitionsToTxnRequest, error_code: ErrorCode, context: Context
) -> AddPartitionsToTxnResponse:
    """The same error for every partition."""
    transactions = asked(request, context)
    answers = [dict.fromkeys(partitions_of(each), error_code) for each in transactions]
    return response(transactions, answers, context)

"""DescribeTransactions (KIP-664): state, producer and partitions of transactional ids."""

from __future__ import annotations

from functools import partial

from ottla.broker.context import Context, Pending
from ottla.broker.gather import Gather, Part
from ottla.coordinator.coordinator_partition import CoordinatorPartition
from ottla.coordinator.effects import Effects
from ottla.coordinator.transaction import Transaction
from ottla.wire.api.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from ottla.wire.errors import ErrorCode


def handle(
    request: DescribeTransactionsRequest, context: Context
) -> DescribeTransactionsResponse | Pending:
    ids = request.transactional_ids
    if not ids:
        return DescribeTransactionsResponse()
    pending = Pending()

    def done(states: list[TransactionState]) -> None:
        pending.resolve(DescribeTransactionsResponse(transaction_states=states))

    gather = Gather(len(ids), done)
    for number, transactional_id in enumerate(ids):
        ask(transactional_id, gather.part(number, partial(failed, transactional_id)), context)
    return pending


def ask(transactional_id: str, part: Part, context: Context) -> None:
    if not transactional_id:
        part.fail(ErrorCode.INVALID_REQUEST)
        return
    coordinator = context.broker.coordinators.transactions.coordinator_for(transactional_id)
    if not isinstance(coordinator, CoordinatorPartition):
        part.fail(coordinator)
        return
    shard = coordinator.shard

    def decide(effects: Effects, now_ms: int) -> None:
        found = shard.transactions.get(transactional_id)
        if found is None:
            answer = failed(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        else:
            answer = described(found)
        effects.reply(part, answer)

    coordinator.run(decide)


def described(transaction: Transaction) -> TransactionState:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(index)
    return TransactionState(
        transactional_id=transaction.transactional_id,
        transaction_state=transaction.state.text,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_timestamp_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
    )


def failed(transactional_id: str, error: ErrorCode) -> TransactionState:
    return TransactionState(error_code=error, transactional_id=transactional_id)


def failure(
    request: DescribeTransactionsRequest, error_code: ErrorCode, context: Context
) -> DescribeTransactionsResponse:
    """The same error for every one of them."""
    return DescribeTransactionsResponse(
        transaction_states=[failed(each, error_code) for each in request.transactional_ids]
    )

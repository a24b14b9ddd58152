"""ListTransactions (KIP-664, KIP-994, KIP-1152): the transactional ids coordinated by this broker.

Filters: states, producer ids, for how long a transaction has been open, a pattern of the id.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.context import Context, Pending
from ottla.broker.gather import Gather
from ottla.coordinator.coordinator_partition import CoordinatorPartition
from ottla.coordinator.effects import Effects
from ottla.coordinator.patterns import Pattern, PatternError
from ottla.coordinator.transaction import TransactionState as State
from ottla.coordinator.transaction_shard import TransactionShard
from ottla.wire.api.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from ottla.wire.errors import ErrorCode

STATES = {state.text: state for state in State}


def handle(
    request: ListTransactionsRequest, context: Context
) -> ListTransactionsResponse | Pending:
    runtime = context.broker.coordinators.transactions.runtime
    if runtime.loading:
        return failure(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, context)
    pattern: Pattern | None = None
    if request.transactional_id_pattern:
        try:
            pattern = Pattern(request.transactional_id_pattern)
        except PatternError:
            return failure(request, ErrorCode.INVALID_REGULAR_EXPRESSION, context)
    unknown = [name for name in request.state_filters if name not in STATES]
    coordinators = list(runtime.all_active())
    pending = Pending()

    def done(parts: list[Any]) -> None:
        error = next((each for each in parts if isinstance(each, ErrorCode)), None)
        if error is not None:
            pending.resolve(failure(request, error, context))
            return
        pending.resolve(
            ListTransactionsResponse(
                unknown_state_filters=unknown,
                transaction_states=[state for part in parts for state in part],
            )
        )

    if not coordinators:
        return ListTransactionsResponse(unknown_state_filters=unknown)
    gather = Gather(len(coordinators), done)
    for number, coordinator in enumerate(coordinators):
        ask(request, pattern, coordinator, gather, number)
    return pending


def ask(
    request: ListTransactionsRequest,
    pattern: Pattern | None,
    coordinator: CoordinatorPartition[TransactionShard],
    gather: Gather,
    number: int,
) -> None:
    """List one partition's transactional ids; what is listed must be committed first."""

    def decide(effects: Effects, now_ms: int) -> None:
        found: list[TransactionState] | ErrorCode
        try:
            found = listed(request, pattern, coordinator.shard, now_ms)
        except PatternError:  # it would take too long
            found = ErrorCode.INVALID_REGULAR_EXPRESSION
        effects.reply(gather.part(number, lambda error: ErrorCode.NOT_COORDINATOR), found)

    coordinator.run(decide)


def listed(
    request: ListTransactionsRequest,
    pattern: Pattern | None,
    shard: TransactionShard,
    now_ms: int,
) -> list[TransactionState]:
    states = {STATES[name] for name in request.state_filters if name in STATES}
    producer_ids = set(request.producer_id_filters)
    duration_ms = request.duration_filter
    found = []
    for each in shard.transactions.values():
        if producer_ids and each.producer_id not in producer_ids:
            continue
        if request.state_filters and each.state not in states:
            continue
        if duration_ms >= 0 and now_ms - each.start_timestamp_ms <= duration_ms:
            continue
        if pattern is not None and not pattern.matches(each.transactional_id):
            continue
        found.append(
            TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.text,
            )
        )
    return found


def failure(
    request: ListTransactionsRequest, error_code: ErrorCode, context: Context
) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=error_code)

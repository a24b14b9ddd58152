"""ISR changes on their way to the controller: gathered into one AlterPartition request at a time.

As in Kafka one request is under way, and what is proposed meanwhile goes into the next: when a
broker fails, thousands of partitions lose a member at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.cluster.requests import IsrOutcome, IsrProposal
from ottla.wire.api.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    TopicData,
)
from ottla.wire.api.alter_partition_response import PartitionData as PartitionResult
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.seams.clock import Clock, Timer

PARTITIONS_PER_REQUEST_MAX = 1_000


class Waiting(NamedTuple):
    """A proposal and who waits for its outcome."""

    broker_id: int
    broker_epoch: int
    proposal: IsrProposal
    outcome: asyncio.Future[IsrOutcome]


class IsrProposals:
    """The proposals of one broker; `ask` sends a request: a response, or an ErrorCode."""

    def __init__(
        self, clock: Clock, ask: Callable[[AlterPartitionRequest], Awaitable[Any]]
    ) -> None:
        self._clock = clock
        self._ask = ask
        self._queue: list[Waiting] = []
        self._timer: Timer | None = None
        self._sending: asyncio.Task[None] | None = None

    async def propose(self, broker_id: int, broker_epoch: int, proposal: IsrProposal) -> IsrOutcome:
        """The controller's outcome; an error of the connection is one too."""
        outcome: asyncio.Future[IsrOutcome] = asyncio.get_running_loop().create_future()
        self._queue.append(Waiting(broker_id, broker_epoch, proposal, outcome))
        if self._timer is None and self._sending is None:
            # Not at once: other partitions of this turn go into the same request.
            self._timer = self._clock.call_later(0.0, self._start)
        return await outcome

    def close(self) -> None:
        """Stop sending; those who wait are cancelled by their own owner."""
        if self._timer is not None:
            self._timer.cancel()
        if self._sending is not None:
            self._sending.cancel()

    def _start(self) -> None:
        self._timer = None
        self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        try:
            while self._queue:
                batch, self._queue = take(self._queue)
                settle(batch, await self._ask(request_of(batch)))
        finally:
            self._sending = None


def take(queue: list[Waiting]) -> tuple[list[Waiting], list[Waiting]]:
    """What goes into the next request, and the rest: of one broker epoch, a partition once."""
    batch: dict[tuple[bytes, int], Waiting] = {}
    rest: list[Waiting] = []
    for each in queue:
        key = each.proposal.topic_id, each.proposal.index
        fits = len(batch) < PARTITIONS_PER_REQUEST_MAX and key not in batch
        if fits and each.broker_epoch == queue[0].broker_epoch:
            batch[key] = each
        else:
            rest.append(each)
    return list(batch.values()), rest


def request_of(batch: list[Waiting]) -> AlterPartitionRequest:
    topics: dict[bytes, TopicData] = {}
    for each in batch:
        proposal = each.proposal
        topic = topics.setdefault(proposal.topic_id, TopicData(topic_id=proposal.topic_id))
        topic.partitions.append(
            PartitionData(
                partition_index=proposal.index,
                leader_epoch=proposal.leader_epoch,
                new_isr_with_epochs=[
                    BrokerState(broker_id=broker_id, broker_epoch=epoch)
                    for broker_id, epoch in proposal.isr
                ],
                leader_recovery_state=int(proposal.recovering),
                partition_epoch=proposal.partition_epoch,
            )
        )
    return AlterPartitionRequest(
        broker_id=batch[0].broker_id,
        broker_epoch=batch[0].broker_epoch,
        topics=list(topics.values()),
    )


def settle(batch: list[Waiting], response: AlterPartitionResponse | ErrorCode) -> None:
    """Give everybody their outcome."""
    code = response if isinstance(response, ErrorCode) else response.error_code
    found: dict[tuple[bytes, int], PartitionResult] = {}
    if isinstance(response, AlterPartitionResponse):
        found = {
            (topic.topic_id, each.partition_index): each
            for topic in response.topics
            for each in topic.partitions
        }
    for each in batch:
        if each.outcome.done():
            continue
        result = found.get((each.proposal.topic_id, each.proposal.index))
        if code:
            each.outcome.set_result(IsrOutcome(code))
        elif result is None:
            each.outcome.set_result(IsrOutcome(ErrorCode.UNKNOWN_SERVER_ERROR))
        else:
            each.outcome.set_result(
                IsrOutcome(
                    result.error_code,
                    tuple(result.isr),
                    result.partition_epoch,
                    result.leader_id,
                    result.leader_epoch,
                    bool(result.leader_recovery_state),
                )
            )

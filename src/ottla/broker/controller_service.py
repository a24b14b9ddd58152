"""The controller in this process, served to the brokers of the cluster, this one among them.

Handlers of requests that only brokers send call it; the requests of this broker itself come the
same way, without a connection. A follower's request that finds nothing new is parked here until
there is something, its time is up, or the controller stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from ottla.broker.broker_sessions import Verdict, verdict
from ottla.broker.context import Pending
from ottla.broker.forwarding import FORWARDED, carry_out, is_refused_by
from ottla.broker.liveness import Liveness
from ottla.cluster.features import level_error
from ottla.cluster.feed_codec import broker_of, broker_record
from ottla.cluster.feed_messages import FeedMessages
from ottla.cluster.image import Levels
from ottla.cluster.requests import IsrOutcome, Refusal
from ottla.cluster.state import NotController, RegistrationRefused
from ottla.security.principal import Principal
from ottla.wire import feed_records
from ottla.wire.api.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from ottla.wire.api.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
)
from ottla.wire.api.alter_partition_response import PartitionData as PartitionResult
from ottla.wire.api.alter_partition_response import TopicData as TopicResult
from ottla.wire.api.confirm_deletions import ConfirmDeletionsRequest, ConfirmDeletionsResponse
from ottla.wire.api.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from ottla.wire.api.follow_feed import FollowFeedRequest, FollowFeedResponse
from ottla.wire.api.forward import ForwardRequest, ForwardResponse
from ottla.wire.api.register_broker import RegisterBrokerRequest, RegisterBrokerResponse
from ottla.wire.apis import API
from ottla.wire.errors import ErrorCode
from ottla.wire.malformed import WireError
from ottla.wire.out import Out
from ottla.wire.schema import reader, writer

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.context import Peer
    from ottla.cluster.controller import Controller
    from ottla.cluster.image import BrokerInfo
    from ottla.seams.clock import Timer
    from ottla.seams.network import Network

log = logging.getLogger("ottla.broker")

# A follower that asks for a longer wait is answered after this one: its requests are also the
# signs that it is alive.
WAIT_MS_MAX = 30_000
# Followers that wait: one request of each broker, and some of processes that are gone.
PARKED_MAX = 10_000
EPOCHS_FROM = 3  # AlterPartition


class Parked:
    """A follower's request that waits for changes."""

    __slots__ = ("pending", "request", "timer")

    def __init__(self, request: FollowFeedRequest) -> None:
        self.request = request
        self.pending = Pending()
        self.timer: Timer | None = None


class ControllerService:
    """Answers what brokers ask of one controller, until `close`."""

    def __init__(self, broker: Broker, controller: Controller, network: Network) -> None:
        self.controller = controller
        self.liveness = Liveness(broker, controller, network)
        self._clock = broker.clock
        self._messages = FeedMessages(controller.feed)
        self._parked: dict[Parked, None] = {}
        self._waking: Timer | None = None
        self._dispatcher = broker.dispatcher
        controller.feed.on_change.append(self._changed)

    def close(self) -> None:
        """The controller is one no longer: answer whoever waits."""
        self.liveness.close()
        self.controller.feed.on_change.remove(self._changed)
        if self._waking is not None:
            self._waking.cancel()
        for parked in list(self._parked):
            self._answer(parked, FollowFeedResponse(error_code=ErrorCode.NOT_CONTROLLER))

    # The feed

    def follow(self, request: FollowFeedRequest, peer: Peer) -> FollowFeedResponse | Pending:
        """The changes after those that a broker has, when there are some."""
        error = self._epoch_error(request.broker_id, request.broker_epoch)
        if error is not ErrorCode.NONE:
            return FollowFeedResponse(error_code=error)
        levels = Levels(request.lowest_level, request.highest_level)
        refusal = level_error(self.controller.image.features, levels)
        if refusal is not None:
            return FollowFeedResponse(
                error_code=refusal.error_code, error_message=refusal.error_message
            )
        if request.broker_epoch >= 0:
            self.controller.note_levels(request.broker_id, request.broker_epoch, levels)
            self.liveness.polled(request.broker_id, request.broker_epoch, peer)
            if request.controller_epoch == self.controller.image.controller_epoch:
                self.controller.caught_up(request.broker_id, request.broker_epoch, request.number)
        answer = self._update(request)
        if answer is not None:
            return answer
        if request.max_wait_ms <= 0 or len(self._parked) >= PARKED_MAX:
            return self._nothing_new()
        parked = Parked(request)
        self._parked[parked] = None
        wait_s = min(request.max_wait_ms, WAIT_MS_MAX) / 1000
        parked.timer = self._clock.call_later(wait_s, self._time_is_up, parked)
        parked.pending.on_cancel(lambda: self._forget(parked))
        return parked.pending

    def _update(self, request: FollowFeedRequest) -> FollowFeedResponse | None:
        if self.controller.feed.closed:
            return FollowFeedResponse(error_code=ErrorCode.NOT_CONTROLLER)
        answer = self._messages.answer(request)
        return None if answer is None else self._with_tree(answer)

    def _nothing_new(self) -> FollowFeedResponse:
        epoch = self.controller.image.controller_epoch
        return self._with_tree(FollowFeedResponse(controller_epoch=epoch))

    def _with_tree(self, answer: FollowFeedResponse) -> FollowFeedResponse:
        answer.tree_opened_at = self.controller.tree_opened_at
        answer.tree_writes = self.controller.tree_writes()
        return answer

    def _changed(self) -> None:
        # Several batches of one turn are one answer.
        if self._waking is None:
            self._waking = self._clock.call_later(0.0, self._wake)

    def _wake(self) -> None:
        self._waking = None
        for parked in list(self._parked):
            answer = self._update(parked.request)
            if answer is not None:
                self._answer(parked, answer)

    def _time_is_up(self, parked: Parked) -> None:
        self._answer(parked, self._nothing_new())

    def _answer(self, parked: Parked, answer: FollowFeedResponse) -> None:
        self._forget(parked)
        parked.pending.resolve(answer)

    def _forget(self, parked: Parked) -> None:
        self._parked.pop(parked, None)
        if parked.timer is not None:
            parked.timer.cancel()

    def _epoch_error(self, broker_id: int, broker_epoch: int) -> ErrorCode:
        if broker_epoch < 0:  # not registered yet: it may see the image
            return ErrorCode.NONE
        known = self.controller.image.brokers.get(broker_id)
        if known is None:
            return ErrorCode.BROKER_ID_NOT_REGISTERED
        return ErrorCode.NONE if known.epoch == broker_epoch else ErrorCode.STALE_BROKER_EPOCH

    # Requests

    def answer(self, work: Awaitable[Any]) -> Pending:
        """Run a request to its end; requests behind it on its connection do not wait for it.

        It ends when the controller stops too, with NOT_CONTROLLER.
        """
        return self._dispatcher.run(work, exclusive=False)

    async def carry_out(self, request: ForwardRequest) -> ForwardResponse:
        """An admin request that a broker received from its client."""
        kind = FORWARDED.get(request.api_key)
        if kind is None:
            message = f"API key {request.api_key} is not forwarded"
            return ForwardResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=message)
        try:
            asked, _ = reader(kind, request.api_version)(request.request_data, 0)
            requester = Principal(request.principal_type, request.principal_name)
            response = await carry_out(self.controller, asked, requester)
        except (WireError, ValueError) as error:
            return ForwardResponse(
                error_code=ErrorCode.INVALID_REQUEST, error_message=f"{kind.__name__}: {error}"
            )
        if is_refused_by(ErrorCode.NOT_CONTROLLER, response):
            return ForwardResponse(error_code=ErrorCode.NOT_CONTROLLER)
        write = writer(API[request.api_key].response, request.api_version)
        image = self.controller.image
        return ForwardResponse(
            number=image.number,
            controller_epoch=image.controller_epoch,
            response_data=bytes(write(response, Out())),
        )

    async def register_broker(self, request: RegisterBrokerRequest) -> RegisterBrokerResponse:
        try:
            broker = broker_of(feed_records.whole(feed_records.BrokerRecord, request.broker))
            levels = Levels(request.lowest_level, request.highest_level)
            broker = broker._replace(levels=levels)
        except WireError as error:
            return RegisterBrokerResponse(
                error_code=ErrorCode.INVALID_REQUEST, error_message=str(error)
            )
        try:
            await self._refuse_duplicate(broker)
            if request.highest_producer_id >= 0:
                # First: a broker that has registered may be allocated ids.
                await self.controller.skip_producer_ids(broker.id, request.highest_producer_id)
            registered = await self.controller.register_broker(
                broker, request.previous_broker_epoch
            )
        except RegistrationRefused as error:
            return RegisterBrokerResponse(error_code=error.error_code, error_message=str(error))
        except NotController as error:
            return RegisterBrokerResponse(
                error_code=ErrorCode.NOT_CONTROLLER, error_message=str(error)
            )
        return RegisterBrokerResponse(broker=feed_records.write(broker_record(registered)))

    async def _refuse_duplicate(self, broker: BrokerInfo) -> None:
        """Dial the other process that has the broker's id, if there is one.

        At the same address there is none: the port belongs to the one that registers now.
        """
        known = self.controller.image.brokers.get(broker.id)
        if known is None or known.incarnation == broker.incarnation:
            return
        if known.endpoints != broker.endpoints:
            outcome = await self.liveness.dial(broker.id)
            match verdict(outcome, fenced=known.fenced):
                case Verdict.DUPLICATE:
                    message = f"A broker with id {broker.id} is running already."
                    code = ErrorCode.DUPLICATE_BROKER_REGISTRATION
                    raise RegistrationRefused(Refusal(code, message))
                case Verdict.WAITS:
                    message = f"The session of the broker that has id {broker.id} is not over yet."
                    raise RegistrationRefused(Refusal(ErrorCode.REQUEST_TIMED_OUT, message))
        self.liveness.forget(broker.id)
        await self.liveness.replaced(known)

    async def controlled_shutdown(
        self, request: ControlledShutdownRequest
    ) -> ControlledShutdownResponse:
        outcome = await self.controller.controlled_shutdown(request.broker_id, request.broker_epoch)
        return ControlledShutdownResponse(error_code=outcome.error_code, behind=outcome.behind)

    async def confirm_deletions(self, request: ConfirmDeletionsRequest) -> ConfirmDeletionsResponse:
        await self.controller.confirm_deletions(request.broker_id, request.topic_ids)
        return ConfirmDeletionsResponse()

    async def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> AllocateProducerIdsResponse:
        error = self._epoch_error(request.broker_id, request.broker_epoch)
        if error is not ErrorCode.NONE:
            return AllocateProducerIdsResponse(error_code=error)
        block = await self.controller.allocate_producer_ids(request.broker_id)
        if isinstance(block, Refusal):
            return AllocateProducerIdsResponse(error_code=block.error_code)
        return AllocateProducerIdsResponse(
            producer_id_start=block.start, producer_id_len=len(block)
        )

    async def alter_partition(
        self, request: AlterPartitionRequest, version: int
    ) -> AlterPartitionResponse:
        """Each partition is decided by itself; all are put into the controller's queue at once."""
        if request.broker_epoch < 0:
            return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        error = self._epoch_error(request.broker_id, request.broker_epoch)
        if error is not ErrorCode.NONE:
            return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        asked = [
            (topic.topic_id, partition)
            for topic in request.topics
            for partition in topic.partitions
        ]
        outcomes = iter(
            await asyncio.gather(*(self._propose(request, *each, version) for each in asked))
        )
        return AlterPartitionResponse(
            topics=[
                TopicResult(
                    topic_id=topic.topic_id,
                    partitions=[
                        isr_result(partition.partition_index, next(outcomes))
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    async def _propose(
        self, request: AlterPartitionRequest, topic_id: bytes, data: PartitionData, version: int
    ) -> IsrOutcome:
        isr = [(each.broker_id, each.broker_epoch) for each in data.new_isr_with_epochs]
        if version < EPOCHS_FROM:
            isr = [(each, -1) for each in data.new_isr]
        return await self.controller.alter_partition(
            request.broker_id,
            request.broker_epoch,
            topic_id,
            data.partition_index,
            data.leader_epoch,
            data.partition_epoch,
            isr,
            bool(data.leader_recovery_state),
        )


def isr_result(index: int, outcome: IsrOutcome) -> PartitionResult:
    if outcome.error_code:
        return PartitionResult(partition_index=index, error_code=outcome.error_code)
    return PartitionResult(
        partition_index=index,
        leader_id=outcome.leader,
        leader_epoch=outcome.leader_epoch,
        isr=list(outcome.isr),
        leader_recovery_state=int(outcome.recovering),
        partition_epoch=outcome.partition_epoch,
    )

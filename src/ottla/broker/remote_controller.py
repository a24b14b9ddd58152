"""The controller of a cluster, wherever it runs: a `ControllerChannel` over the network.

`controller_at` says where the controller is, as far as this broker knows; it is asked for each
request, because the controller moves. While it runs in this process (`broker.controller_service`)
requests go to it without a connection.

There are three connections to the controller, opened when first needed: the long polls of the feed
have one, the ISRs of leaders another, so that neither waits behind a long admin request. Nothing
waits without end: each request has a time, after which its connection ends. A request whose answer
is lost is sent again until its own limit, as Kafka's brokers do when they forward, and what remains
is REQUEST_TIMED_OUT. An admin request is answered when this broker has applied the change that it
led to: the answer has its number, and the polls of `MetadataApplier` say what is applied.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.broker import (
    forwarded_acls,
    forwarded_credentials,
    forwarded_elections,
    forwarded_quotas,
    forwarded_reassignments,
    forwarded_tokens,
    forwarding,
)
from ottla.broker.isr_proposals import IsrProposals
from ottla.broker.network_peers import Connections
from ottla.broker.tokens import token_options
from ottla.cluster.feed import Batch, Snapshot, follow_batches
from ottla.cluster.feed_codec import broker_of, broker_record
from ottla.cluster.feed_messages import Follower
from ottla.cluster.image import BrokerInfo
from ottla.cluster.requests import (
    AdoptedTopic,
    ConfigOutcome,
    CredentialDeletion,
    CredentialUpsertion,
    DeletedAcls,
    DeletionOutcome,
    ElectionOutcome,
    ElectionType,
    FeaturesOutcome,
    FeatureUpdate,
    IsrOutcome,
    IsrProposal,
    NewPartitions,
    NewTopic,
    OngoingReassignment,
    PartitionsOutcome,
    QuotaOutcome,
    Reassignment,
    ReassignmentOutcome,
    Refusal,
    Resource,
    ShutdownOutcome,
    TokenOutcome,
    TokenRequest,
    TopicOutcome,
    TopicRef,
    UserOutcome,
)
from ottla.cluster.state import NotAllowed, NotController, RegistrationRefused
from ottla.cluster.token_writes import error_of
from ottla.seams.waiting import pause, within
from ottla.security.acls import AclBinding, AclFilter
from ottla.security.principal import Principal
from ottla.security.quotas.entities import Alteration
from ottla.wire import feed_records
from ottla.wire.api.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.wire.api.alter_partition import AlterPartitionRequest
from ottla.wire.api.confirm_deletions import ConfirmDeletionsRequest
from ottla.wire.api.controlled_shutdown import ControlledShutdownRequest
from ottla.wire.api.follow_feed import FollowFeedResponse
from ottla.wire.api.forward import ForwardRequest, ForwardResponse
from ottla.wire.api.register_broker import RegisterBrokerRequest, RegisterBrokerResponse
from ottla.wire.api.unregister_broker import UnregisterBrokerRequest
from ottla.wire.apis import API
from ottla.wire.errors import ErrorCode
from ottla.wire.malformed import WireError
from ottla.wire.out import Out
from ottla.wire.schema import Struct, reader, writer

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.seams.network import Network

log = logging.getLogger("ottla.broker")

# Until the controller is asked again, when there is none or the connection was lost.
RETRY_S = 0.05
CATCH_UPS_MAX = 100  # with changes that came while a whole image was read
# An admin request is answered after this, applied here or not: the change is made all the same.
APPLIED_S_MAX = 5.0
# The limit of a request that is sent again: Kafka's request.timeout.ms of a broker.
FORWARD_S_MAX = 30.0

FEED, ISR, ADMIN = "feed", "isr", "admin"  # the connections
GONE = (ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)
# Also when it could not write: a registration that is made twice is made once.
NOT_REGISTERED = (*GONE, ErrorCode.KAFKA_STORAGE_ERROR)
NO_ANSWER = Refusal(ErrorCode.REQUEST_TIMED_OUT, "The controller did not answer in time.")


class RemoteController:
    """The channel of one broker; see `ControllerChannel`."""

    def __init__(
        self,
        broker: Broker,
        network: Network,
        controller_at: Callable[[], tuple[str, int] | None],
    ) -> None:
        self._broker = broker
        self._clock = broker.clock
        self._controller_at = controller_at
        self._connections = Connections(network, broker.clock, broker.node_id)
        self._applied = (0, 0)  # controller epoch and number
        self._highest_producer_id = -1  # on this broker's disks, as far as it is asked for
        self._waiting: dict[asyncio.Future[None], tuple[int, int]] = {}
        self._proposals = IsrProposals(self._clock, self._ask_for_isrs)

    def moved(self) -> None:
        """The controller is somewhere else: what waits for the old one is asked of the new one."""
        for key in (FEED, ISR, ADMIN):
            self._connections.drop(key, "the controller has moved")

    def close(self) -> None:
        """End the connections; what is under way has no answer."""
        self._connections.close()
        self._proposals.close()

    # The feed

    async def poll(
        self, broker_id: int, number: int, controller_epoch: int, broker_epoch: int = -1
    ) -> Sequence[Batch] | Snapshot:
        self._note_applied(controller_epoch, number)
        wait_ms = self._integer("broker.heartbeat.interval.ms")
        levels = self._broker.levels
        follower = Follower(broker_id, broker_epoch, number, controller_epoch, levels)
        late_s = self._broker.clock.monotonic() + self._integer("broker.session.timeout.ms") / 1000
        update = await self._follow(follower, wait_ms)
        if self._broker.clock.monotonic() > late_s:
            # This process was suspended: the answer may be as old as the pause was long, and the
            # broker be fenced since.
            update = await self._follow(follower, 0)
        for _ in range(CATCH_UPS_MAX):
            if not isinstance(update, Snapshot):
                break
            # The image is as old as its first piece.
            image = update.image
            # Without an epoch: this broker has not applied it yet.
            newer = Follower(broker_id, -1, image.number, image.controller_epoch, levels)
            later = await self._follow(newer, 0)
            if not later:
                break
            update = (
                later if isinstance(later, Snapshot) else Snapshot(follow_batches(image, later))
            )
        return update

    async def _follow(self, follower: Follower, wait_ms: int) -> list[Batch] | Snapshot:
        """One update of the feed, in as many requests as its pieces need."""
        follower.request.max_wait_ms = wait_ms
        timeout_s = self._integer("broker.session.timeout.ms") / 1000
        while True:
            response = await self._ask(FEED, follower.request, timeout_s)
            if isinstance(response, ErrorCode):
                raise NotController(f"the controller does not answer: {response.name}")
            assert isinstance(response, FollowFeedResponse)
            if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
                refusal = Refusal(ErrorCode.UNSUPPORTED_VERSION, response.error_message)
                raise RegistrationRefused(refusal)
            if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                raise NotAllowed
            if response.error_code:
                raise NotController(ErrorCode(response.error_code).name)
            try:
                update = follower.answered(response)
            except WireError as error:
                raise NotController(f"the controller's answer cannot be read: {error}") from error
            if self._broker.shared is not None:
                self._broker.shared.seen.answered(response.tree_opened_at, response.tree_writes)
            if update is not None:
                return update

    def leave(self, broker_id: int) -> None:
        """Changes do not wait for brokers: nothing to say."""

    def _note_applied(self, controller_epoch: int, number: int) -> None:
        self._applied = max(self._applied, (controller_epoch, number))
        for future, wanted in list(self._waiting.items()):
            if wanted <= self._applied:
                del self._waiting[future]
                if not future.done():
                    future.set_result(None)

    async def _until_applied(self, controller_epoch: int, number: int) -> None:
        if (controller_epoch, number) <= self._applied:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = (controller_epoch, number)
        if not await within(self._clock, APPLIED_S_MAX, future):
            self._waiting.pop(future, None)
            log.warning("change %d is made, but not applied here after %g s", number, APPLIED_S_MAX)

    # Brokers

    async def register_broker(self, broker: BrokerInfo, previous_epoch: int = -1) -> BrokerInfo:
        request = RegisterBrokerRequest(
            broker=feed_records.write(broker_record(broker)),
            previous_broker_epoch=previous_epoch,
            highest_producer_id=self._highest_producer_id,
            lowest_level=broker.levels.lowest,
            highest_level=broker.levels.highest,
        )
        limit_s = self._integer("initial.broker.registration.timeout.ms") / 1000
        response = await self._ask_until(ADMIN, request, limit_s, NOT_REGISTERED)
        if isinstance(response, ErrorCode):
            raise NotController(f"broker {broker.id} cannot register: {response.name}")
        assert isinstance(response, RegisterBrokerResponse)
        if response.error_code:
            raise RegistrationRefused(
                Refusal(ErrorCode(response.error_code), response.error_message)
            )
        return broker_of(feed_records.whole(feed_records.BrokerRecord, response.broker))

    async def unregister_broker(self, broker_id: int) -> Refusal | None:
        response = await self._forward(UnregisterBrokerRequest(broker_id=broker_id))
        if isinstance(response, Refusal):
            return response
        if not response.error_code:
            return None
        return Refusal(ErrorCode(response.error_code), response.error_message)

    async def fence_broker(self, broker_id: int, broker_epoch: int) -> ErrorCode:
        """Only the controller's own process fences brokers."""
        return ErrorCode.NOT_CONTROLLER

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> ShutdownOutcome:
        request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        response = await self._ask(ADMIN, request, self._answer_s())
        if isinstance(response, ErrorCode):
            return ShutdownOutcome(response)
        return ShutdownOutcome(ErrorCode(response.error_code), response.behind)

    async def allocate_producer_ids(self, broker_id: int) -> range | Refusal:
        request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=self._broker.epoch)
        response = await self._ask_until(ADMIN, request, FORWARD_S_MAX)
        if isinstance(response, ErrorCode):
            return NO_ANSWER
        if response.error_code:
            return Refusal(ErrorCode(response.error_code))
        first = response.producer_id_start
        return range(first, first + response.producer_id_len)

    async def skip_producer_ids(self, broker_id: int, highest: int) -> None:
        """The registration carries it: before it no ids are allocated to this broker."""
        self._highest_producer_id = max(highest, self._highest_producer_id)

    # Leaders

    async def alter_partition(
        self,
        broker_id: int,
        broker_epoch: int,
        topic_id: bytes,
        index: int,
        leader_epoch: int,
        partition_epoch: int,
        isr: Sequence[tuple[int, int]],
        recovering: bool = False,
    ) -> IsrOutcome:
        proposal = IsrProposal(topic_id, index, leader_epoch, partition_epoch, isr, recovering)
        return await self._proposals.propose(broker_id, broker_epoch, proposal)

    async def _ask_for_isrs(self, request: AlterPartitionRequest) -> Any:
        response = await self._ask(ISR, request, self._answer_s())
        # Nobody knows what came of it, which BROKER_NOT_AVAILABLE does not say.
        lost = response == ErrorCode.BROKER_NOT_AVAILABLE
        return ErrorCode.NETWORK_EXCEPTION if lost else response

    async def elect_leaders(
        self, kind: ElectionType, partitions: Sequence[tuple[str, int]] | None
    ) -> list[ElectionOutcome] | Refusal:
        response = await self._forward(forwarded_elections.elect_leaders_request(kind, partitions))
        return (
            response
            if isinstance(response, Refusal)
            else forwarded_elections.election_outcomes(response)
        )

    async def alter_reassignments(
        self, wanted: Sequence[Reassignment], allow_factor_change: bool = True
    ) -> list[ReassignmentOutcome] | Refusal:
        request = forwarded_reassignments.alter_request(wanted, allow_factor_change)
        response = await self._forward(request)
        if isinstance(response, Refusal):
            return response
        return forwarded_reassignments.outcomes_of(response)

    async def list_reassignments(
        self, wanted: Sequence[tuple[str, Sequence[int]]] | None
    ) -> list[OngoingReassignment] | Refusal:
        response = await self._forward(forwarded_reassignments.list_request(wanted))
        if isinstance(response, Refusal):
            return response
        return forwarded_reassignments.ongoing_in(response)

    # Topics

    async def create_topics(
        self, topics: Sequence[NewTopic], validate_only: bool = False
    ) -> list[TopicOutcome]:
        request = forwarding.create_topics_request(topics, validate_only)
        response = await self._forward(request)
        if isinstance(response, Refusal):
            return [TopicOutcome(topic.name, *response) for topic in topics]
        return forwarding.topic_outcomes(response)

    async def adopt_topics(self, topics: Sequence[AdoptedTopic]) -> list[TopicOutcome]:
        """Only the controller's own process adopts topics, and only into a new tree."""
        refusal = Refusal(ErrorCode.INVALID_REQUEST, "A cluster's brokers adopt no topics.")
        return [TopicOutcome(topic.name, *refusal) for topic in topics]

    async def create_partitions(
        self, topics: Sequence[NewPartitions], validate_only: bool = False
    ) -> list[PartitionsOutcome]:
        request = forwarding.create_partitions_request(topics, validate_only)
        response = await self._forward(request)
        if isinstance(response, Refusal):
            return [PartitionsOutcome(topic.name, *response) for topic in topics]
        return forwarding.partitions_outcomes(response)

    async def delete_topics(self, topics: Sequence[TopicRef]) -> list[DeletionOutcome]:
        response = await self._forward(forwarding.delete_topics_request(topics))
        if isinstance(response, Refusal):
            return [DeletionOutcome(topic.name, topic.id, *response) for topic in topics]
        return forwarding.deletion_outcomes(response)

    async def confirm_deletions(self, broker_id: int, topic_ids: Sequence[bytes]) -> None:
        request = ConfirmDeletionsRequest(
            broker_id=broker_id, broker_epoch=self._broker.epoch, topic_ids=list(topic_ids)
        )
        response = await self._ask_until(ADMIN, request, FORWARD_S_MAX)
        if isinstance(response, ErrorCode):
            log.warning("%d deleted topics could not be confirmed for now", len(topic_ids))

    # ACLs

    async def create_acls(self, wanted: Sequence[AclBinding]) -> list[Refusal | None]:
        response = await self._forward(forwarded_acls.create_request(wanted))
        if isinstance(response, Refusal):
            return [response] * len(wanted)
        return forwarded_acls.create_outcomes(response)

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[DeletedAcls]:
        response = await self._forward(forwarded_acls.delete_request(filters))
        if isinstance(response, Refusal):
            return [DeletedAcls(*response)] * len(filters)
        return forwarded_acls.delete_outcomes(response)

    async def alter_client_quotas(
        self, alterations: Sequence[Alteration], validate_only: bool = False
    ) -> list[QuotaOutcome]:
        request = forwarded_quotas.alter_request(alterations, validate_only)
        response = await self._forward(request)
        if isinstance(response, Refusal):
            entities = dict.fromkeys(each.entity for each in alterations)
            return [QuotaOutcome(entity, *response) for entity in entities]
        return forwarded_quotas.alter_outcomes(response)

    # Credentials

    async def alter_scram_credentials(
        self,
        deletions: Sequence[CredentialDeletion],
        upsertions: Sequence[CredentialUpsertion],
    ) -> list[UserOutcome] | Refusal:
        response = await self._forward(forwarded_credentials.request_of(deletions, upsertions))
        if isinstance(response, Refusal):
            return response
        return forwarded_credentials.outcomes_of(response)

    # Delegation tokens

    async def change_token(self, wanted: TokenRequest) -> TokenOutcome:
        # A controller of another version may not know them, and says nothing that a client could.
        error = error_of(token_options(self._broker.settings), self._broker.image)
        if error:
            return TokenOutcome(error)
        request = forwarded_tokens.request_of(wanted)
        response = await self._forward(request, wanted.requester)
        if isinstance(response, Refusal):
            return TokenOutcome(response.error_code)
        return forwarded_tokens.outcome_of(wanted, response)

    # Configs and features

    async def alter_configs(
        self,
        resources: Sequence[tuple[Resource, Sequence[tuple[str, str | None]]]],
        validate_only: bool = False,
    ) -> list[ConfigOutcome]:
        response = await self._forward(forwarding.alter_configs_request(resources, validate_only))
        if isinstance(response, Refusal):
            return [ConfigOutcome(resource, *response) for resource, _ in resources]
        return forwarding.config_outcomes(response)

    async def incremental_alter_configs(
        self,
        resources: Sequence[tuple[Resource, Sequence[tuple[str, int, str | None]]]],
        validate_only: bool = False,
    ) -> list[ConfigOutcome]:
        request = forwarding.incremental_alter_configs_request(resources, validate_only)
        response = await self._forward(request)
        if isinstance(response, Refusal):
            return [ConfigOutcome(resource, *response) for resource, _ in resources]
        return forwarding.config_outcomes(response)

    async def update_features(
        self, updates: Sequence[FeatureUpdate], validate_only: bool = False
    ) -> FeaturesOutcome:
        request = forwarding.update_features_request(updates, validate_only)
        response = await self._forward(request)
        if isinstance(response, Refusal):
            return FeaturesOutcome(*response)
        return forwarding.features_outcome(response)

    # Asking

    async def _forward(self, request: Struct, requester: Principal | None = None) -> Any:
        """The response to an admin request, applied here; a Refusal when there is none."""
        kind = type(request)
        schema = kind.__schema__
        assert schema.key is not None
        assert schema.versions is not None
        version = schema.versions[1]
        forwarded = ForwardRequest(
            broker_id=self._broker.node_id,
            api_key=schema.key,
            api_version=version,
            request_data=bytes(writer(kind, version)(request, Out())),
        )
        if requester is not None:
            forwarded.principal_type, forwarded.principal_name = requester
        answer = await self._ask_until(ADMIN, forwarded, FORWARD_S_MAX)
        if isinstance(answer, ErrorCode):
            return NO_ANSWER
        assert isinstance(answer, ForwardResponse)
        if answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:  # not the client's fault
            return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, str(NotAllowed()))
        if answer.error_code:
            return Refusal(ErrorCode(answer.error_code), answer.error_message)
        response, _ = reader(API[schema.key].response, version)(answer.response_data, 0)
        await self._until_applied(answer.controller_epoch, answer.number)
        return response

    async def _ask_until(
        self, key: str, request: Struct, limit_s: float, again: Sequence[ErrorCode] = GONE
    ) -> Any:
        """Ask, and ask again while the answer is one of `again`: the response, or an ErrorCode."""
        end_s = self._clock.monotonic() + limit_s
        while True:
            timeout_s = min(self._answer_s(), end_s - self._clock.monotonic())
            response = await self._ask(key, request, timeout_s)
            code = response if isinstance(response, ErrorCode) else response.error_code
            if code not in again:
                return response
            if self._clock.monotonic() + RETRY_S >= end_s:
                return response if isinstance(response, ErrorCode) else ErrorCode(code)
            await pause(self._clock, RETRY_S)

    async def _ask(self, key: str, request: Struct, timeout_s: float) -> Any:
        """The response, or an ErrorCode when there is none."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answered(response: Any) -> None:
            if not future.done():
                future.set_result(response)

        if self._broker.controller_service is not None:
            self._broker.local_peers.send(self._broker.node_id, request, answered)
        else:
            address = self._controller_at()
            if address is None:
                return ErrorCode.NOT_CONTROLLER
            self._connections.send(key, address, request, answered, timeout_s)
        return await future

    def _answer_s(self) -> float:
        return self._integer("controller.socket.timeout.ms") / 1000

    def _integer(self, name: str) -> int:
        return self._broker.settings.integer(name)

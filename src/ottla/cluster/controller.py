"""The controller: the only writer of the tree. Takes requests one at a time and answers them.

Each request is decided against the newest image (pure functions in topics.py, configs.py,
features.py), written to the tree in steps (steps.py) and published in the feed; the answer is
given once the brokers beside this controller have applied it. Every write carries a check of the
controller's epoch, so that a controller that has been replaced can write nothing more.

Elections and changes of an ISR overtake the other requests that wait (request_queue.py).

When a write fails, what the tree holds is not known: before the next request the controller reads
it again, finishes what was begun, and gives its followers the whole image.

A caller that goes away (a client that disconnects) does not stop a request that has begun.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ottla.cluster import (
    acl_writes,
    config_writes,
    configs,
    leadership,
    quota_writes,
    reassignment_writes,
    registration,
    scram_writes,
    token_writes,
    topic_writes,
)
from ottla.cluster.configs import AnyConfig, ConfigRules
from ottla.cluster.election_metrics import ElectionMetrics
from ottla.cluster.features import level_error
from ottla.cluster.feed import Batch, Feed, Snapshot
from ottla.cluster.image import BrokerInfo, ClusterImage, Levels
from ottla.cluster.leadership import Proposals, Proposed
from ottla.cluster.operator_requests import OperatorRequests
from ottla.cluster.request_queue import Request, RequestQueue
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
from ottla.cluster.state import NotController, Options, RegistrationRefused, State
from ottla.metadata_store.tree import BadVersion, SessionExpired, Tree, TreeError
from ottla.metrics import Metrics
from ottla.seams.chance import Chance
from ottla.seams.clock import Clock, Timer
from ottla.seams.waiting import pause
from ottla.security.acls import AclBinding, AclFilter
from ottla.security.quotas.entities import Alteration
from ottla.wire.errors import ErrorCode

log = logging.getLogger(__name__)

# After a failed write, until the tree is read again if nobody asks for anything before.
RELOAD_S = 0.5
BUSY_S = 0.5  # until what nobody would ask for again is put into a full queue

NOT_CONTROLLER = Refusal(ErrorCode.NOT_CONTROLLER, "This is not the correct controller.")
DUPLICATE = Refusal(
    ErrorCode.DUPLICATE_BROKER_REGISTRATION, "Another broker is registered with that broker id."
)
BUSY = Refusal(ErrorCode.REQUEST_TIMED_OUT, "The controller has too many requests waiting.")


class Controller:
    """Answers every request with codes and messages; raises only when it cannot start."""

    def __init__(
        self,
        tree: Tree,
        clock: Clock,
        chance: Chance,
        options: Options | None = None,
        rules: ConfigRules | None = None,
        elections: ElectionMetrics | None = None,
    ) -> None:
        self._state = State(
            tree,
            clock,
            chance,
            options or Options(),
            rules or AnyConfig(),
            elections or ElectionMetrics(Metrics()),
        )
        # Whether a broker with that id and epoch is seen to be alive, for those who watch brokers:
        # no other process may register in its place.
        self.is_alive: Callable[[int, int], bool] = lambda broker_id, epoch: False
        # How many writes the tree had had before the election, and has had by now; -1: not counted.
        # The state counts them, unless the tree does.
        self.tree_opened_at = -1
        self.tree_writes: Callable[[], int] = lambda: self._state.writes
        # Called once when this is the controller no longer, though nobody has stopped it.
        self.on_resigned: list[Callable[[], object]] = []
        self._queue = RequestQueue()
        self._proposals: Proposals | None = None  # the ISR changes that the next request makes
        self._task: asyncio.Task[None] | None = None
        self._active = False
        self._must_load = False
        self._reload: Timer | None = None
        self._rebalance: Timer | None = None
        self._expiry: Timer | None = None  # of delegation tokens
        self._requests = OperatorRequests(
            clock, lambda act, answer: self._put(act, answer, urgent=False)
        )
        self._state.run_urgent = self._run_urgent

    @property
    def feed(self) -> Feed:
        """The numbered changes that brokers follow."""
        return self._state.feed

    @property
    def image(self) -> ClusterImage:
        """The newest image; a broker may be a little behind it."""
        return self._state.image

    @property
    def active(self) -> bool:
        """Whether it was elected, and has neither stopped nor been replaced since."""
        return self._active

    async def start(self, replace: bool = False) -> None:
        """Become the controller and read the tree. Raises TreeError, CorruptNode, NotController.

        `replace`: also in the place of another, which must be known to be gone.
        """
        await registration.elect(self._state, replace)
        self.tree_opened_at = self._state.opened_at
        self._state.tree.when_expired(self._expired)
        self._active = True
        self._task = asyncio.create_task(self._work(), name="controller")
        self._rebalance_later()
        self._expire_later()
        if self._state.options.others_write:
            self._requests.look()

    async def stop(self) -> None:
        """Finish the request under way, refuse those that wait, end the polls of followers."""
        self._active = False
        self._requests.stop()
        for timer in (self._reload, self._rebalance, self._expiry):
            if timer is not None:
                timer.cancel()
        if self._task is not None:
            self._queue.wake()
            await self._task
        self.feed.close()

    async def poll(
        self, broker_id: int, number: int, controller_epoch: int, broker_epoch: int = -1
    ) -> Sequence[Batch] | Snapshot:
        """The changes after `number`, which the broker has applied; see `ControllerChannel`."""
        feed = self.feed
        # Requests wait only for the broker in this process: others answer for themselves.
        if broker_id == self._state.options.node_id:
            feed.follow(broker_id)
        if controller_epoch == self.image.controller_epoch:
            if broker_id == self._state.options.node_id:
                feed.applied(broker_id, number)
            self.caught_up(broker_id, broker_epoch, number)
        update = await feed.after(number, controller_epoch)
        if feed.closed:
            raise NotController("the controller has stopped")
        return update

    def leave(self, broker_id: int) -> None:
        """No longer wait for this broker to apply changes."""
        self.feed.unfollow(broker_id)

    def caught_up(self, broker_id: int, broker_epoch: int, number: int) -> None:
        """A broker has applied `number`: unfence it if that is all up to its registration."""
        state = self._state
        broker = state.image.brokers.get(broker_id)
        if broker is None or broker.epoch != broker_epoch:
            return
        state.applied[broker_id] = number
        if broker.fenced and number >= state.registered_at.get(broker_id, number + 1):
            self._post(lambda s: registration.unfence_broker(s, broker_id, broker_epoch))

    async def register_broker(self, broker: BrokerInfo, previous_epoch: int = -1) -> BrokerInfo:
        """Register a broker that has started; see `ControllerChannel`.

        Does not wait for the broker to apply the change: it may start to follow afterwards.
        """

        async def act(state: State) -> BrokerInfo | Refusal:
            known = state.image.brokers.get(broker.id)
            if (
                known is not None
                and known.incarnation != broker.incarnation
                and self.is_alive(known.id, known.epoch)
            ):
                return DUPLICATE
            refusal = level_error(state.image.features, broker.levels)
            if refusal is not None:
                return refusal
            return await registration.register_broker(state, broker, previous_epoch)

        registered = accepted(broker.id, await self._submit(act, urgent=True))
        assert isinstance(registered, BrokerInfo)
        return registered

    def note_levels(self, broker_id: int, broker_epoch: int, levels: Levels) -> None:
        """A registered broker says in its polls which levels it understands."""
        known = self.image.brokers.get(broker_id)
        if known is not None and known.epoch == broker_epoch and known.levels != levels:
            self._post(lambda s: registration.note_levels(s, broker_id, broker_epoch, levels))

    async def unregister_broker(self, broker_id: int) -> Refusal | None:
        """End the registration of a broker that does not come back."""
        answer = await self._submit(lambda s: registration.unregister_broker(s, broker_id))
        assert isinstance(answer, Refusal | None)
        return answer

    async def fence_broker(self, broker_id: int, broker_epoch: int) -> ErrorCode:
        """A broker is known to be dead: others lead what it led."""
        return await self.fence_brokers([(broker_id, broker_epoch)])

    async def fence_brokers(self, gone: Sequence[tuple[int, int]]) -> ErrorCode:
        """So are several, each with its epoch, in one change."""
        answer = await self._submit(lambda s: registration.fence_brokers(s, gone), urgent=True)
        return ErrorCode(answer.error_code if isinstance(answer, Refusal) else answer)

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> ShutdownOutcome:
        """A broker wants to stop: others lead what it led."""
        answer = await self._submit(
            lambda s: registration.controlled_shutdown(s, broker_id, broker_epoch), urgent=True
        )
        if isinstance(answer, Refusal):
            return ShutdownOutcome(answer.error_code)
        assert isinstance(answer, ShutdownOutcome)
        return answer

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
        """Propose an ISR; see `ControllerChannel`. All that wait at once are one write."""
        proposal = IsrProposal(topic_id, index, leader_epoch, partition_epoch, isr, recovering)
        proposals = self._proposals
        if proposals is None or proposals.closed:
            proposals = Proposals()
            if not self._put(self._alter(proposals), proposals.answer, urgent=True):
                refusal = BUSY if self._active else NOT_CONTROLLER
                return IsrOutcome(refusal.error_code)
            self._proposals = proposals
        place = proposals.add(Proposed(broker_id, broker_epoch, proposal))
        # A caller that goes away must not take the others' answer with it.
        outcomes, _ = await asyncio.shield(proposals.answer)
        if isinstance(outcomes, Refusal):
            return IsrOutcome(outcomes.error_code)
        outcome = outcomes[place]
        assert isinstance(outcome, IsrOutcome)
        return outcome

    def _alter(self, proposals: Proposals) -> Callable[[State], Awaitable[Any]]:
        """The request that makes these changes, and takes no more from then on."""

        async def act(state: State) -> list[IsrOutcome]:
            if self._proposals is proposals:
                self._proposals = None
            return await leadership.alter_partitions(state, proposals.items)

        return act

    async def elect_leaders(
        self, kind: ElectionType, partitions: Sequence[tuple[str, int]] | None
    ) -> list[ElectionOutcome] | Refusal:
        """Answers in the order asked for."""
        answer = await self._applied(lambda s: leadership.elect_leaders(s, kind, partitions))
        return answer if isinstance(answer, Refusal) else list(answer)

    async def alter_reassignments(
        self, wanted: Sequence[Reassignment], allow_factor_change: bool = True
    ) -> list[ReassignmentOutcome] | Refusal:
        """Answers in the order asked for; answered when they are begun, not when they are done."""
        answer = await self._applied(
            lambda s: reassignment_writes.alter_reassignments(s, wanted, allow_factor_change)
        )
        return answer if isinstance(answer, Refusal) else list(answer)

    async def list_reassignments(
        self, wanted: Sequence[tuple[str, Sequence[int]]] | None
    ) -> list[OngoingReassignment] | Refusal:
        """As of now: what waits in the queue has not begun."""
        if not self._active:
            return NOT_CONTROLLER
        return list(reassignment_writes.ongoing(self.image, wanted))

    async def create_topics(
        self, topics: Sequence[NewTopic], validate_only: bool = False
    ) -> list[TopicOutcome]:
        """Answers in the order asked for; names given twice come once, at the end."""
        answer = await self._applied(lambda s: topic_writes.create_topics(s, topics, validate_only))
        if isinstance(answer, Refusal):
            return [TopicOutcome(topic.name, *answer) for topic in topics]
        return list(answer)

    async def adopt_topics(self, topics: Sequence[AdoptedTopic]) -> list[TopicOutcome]:
        """Create topics whose folders were found on disk. For the start of a broker."""
        answer = await self._submit(lambda s: topic_writes.adopt_topics(s, topics))
        if isinstance(answer, Refusal):
            return [TopicOutcome(topic.name, *answer) for topic in topics]
        return list(answer)

    async def delete_topics(self, topics: Sequence[TopicRef]) -> list[DeletionOutcome]:
        """Answered once the topics are gone from the image; their folders are removed later."""
        answer = await self._applied(lambda s: topic_writes.delete_topics(s, topics))
        if isinstance(answer, Refusal):
            return [DeletionOutcome(topic.name, topic.id, *answer) for topic in topics]
        return list(answer)

    async def confirm_deletions(self, broker_id: int, topic_ids: Sequence[bytes]) -> None:
        """The broker has moved or removed all directories of these deleted topics.

        It says so once, and again only when it gets a whole image: as after a failed write.
        """

        async def act(state: State) -> None:
            await topic_writes.confirm_deletions(state, broker_id, topic_ids)

        while await self._submit(act) == BUSY:
            await pause(self._state.clock, BUSY_S)

    async def create_partitions(
        self, topics: Sequence[NewPartitions], validate_only: bool = False
    ) -> list[PartitionsOutcome]:
        """Names given twice are answered once, first."""
        answer = await self._applied(
            lambda s: topic_writes.create_partitions(s, topics, validate_only)
        )
        if isinstance(answer, Refusal):
            return [PartitionsOutcome(topic.name, *answer) for topic in topics]
        return list(answer)

    async def alter_configs(
        self,
        resources: Sequence[tuple[Resource, Sequence[tuple[str, str | None]]]],
        validate_only: bool = False,
    ) -> list[ConfigOutcome]:
        """Replace all dynamic configs of each resource."""
        return await self._configs(
            lambda s: config_writes.alter(s, resources, configs.altered, validate_only),
            [resource for resource, _ in resources],
        )

    async def incremental_alter_configs(
        self,
        resources: Sequence[tuple[Resource, Sequence[tuple[str, int, str | None]]]],
        validate_only: bool = False,
    ) -> list[ConfigOutcome]:
        """Change some dynamic configs of each resource: (config, Op, value)."""
        decide = configs.incrementally_altered
        return await self._configs(
            lambda s: config_writes.alter(s, resources, decide, validate_only),
            [resource for resource, _ in resources],
        )

    async def create_acls(self, wanted: Sequence[AclBinding]) -> list[Refusal | None]:
        """Answers in the order asked for: None for each that there is now."""
        answer = await self._applied(lambda s: acl_writes.create_acls(s, wanted))
        return [answer] * len(wanted) if isinstance(answer, Refusal) else list(answer)

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[DeletedAcls]:
        """Answers in the order asked for."""
        answer = await self._applied(lambda s: acl_writes.delete_acls(s, filters))
        if isinstance(answer, Refusal):
            return [DeletedAcls(*answer)] * len(filters)
        return list(answer)

    async def alter_client_quotas(
        self, alterations: Sequence[Alteration], validate_only: bool = False
    ) -> list[QuotaOutcome]:
        """One answer for each entity, in the order in which they were first named."""
        answer = await self._applied(
            lambda s: quota_writes.alter_client_quotas(s, alterations, validate_only)
        )
        if isinstance(answer, Refusal):
            entities = dict.fromkeys(each.entity for each in alterations)
            return [QuotaOutcome(entity, *answer) for entity in entities]
        return list(answer)

    async def alter_scram_credentials(
        self,
        deletions: Sequence[CredentialDeletion],
        upsertions: Sequence[CredentialUpsertion],
    ) -> list[UserOutcome] | Refusal:
        """One outcome for each user."""
        answer = await self._applied(
            lambda s: scram_writes.alter_credentials(s, deletions, upsertions)
        )
        return answer if isinstance(answer, Refusal) else list(answer)

    async def change_token(self, wanted: TokenRequest) -> TokenOutcome:
        """Issue a delegation token, renew one, or let one expire."""
        answer = await self._applied(lambda s: token_writes.change_token(s, wanted))
        if isinstance(answer, Refusal):
            return TokenOutcome(answer.error_code)
        assert isinstance(answer, TokenOutcome)
        return answer

    async def update_features(
        self, updates: Sequence[FeatureUpdate], validate_only: bool = False
    ) -> FeaturesOutcome:
        """All or none, with one answer, as Kafka's controller does it."""
        answer = await self._applied(
            lambda s: config_writes.update_features(s, updates, validate_only)
        )
        if isinstance(answer, Refusal):
            return FeaturesOutcome(*answer)
        assert isinstance(answer, FeaturesOutcome)
        return answer

    async def allocate_producer_ids(self, broker_id: int) -> range | Refusal:
        """A thousand producer ids for the broker."""
        answer = await self._submit(lambda s: config_writes.allocate_producer_ids(s, broker_id))
        assert isinstance(answer, range | Refusal)
        return answer

    async def skip_producer_ids(self, broker_id: int, highest: int) -> None:
        """Allocate only ids beyond `highest`. For the start of a broker whose disks have them.

        Raises NotController and RegistrationRefused: it must not register before that is done.
        """
        accepted(
            broker_id,
            await self._submit(lambda s: config_writes.skip_producer_ids(s, broker_id, highest)),
        )

    def _rebalance_later(self) -> None:
        interval_s = self._state.options.leader_rebalance_s
        if interval_s is not None and self._active:
            self._rebalance = self._state.clock.call_later(interval_s, self._rebalance_now)

    def _rebalance_now(self) -> None:
        """Elect preferred leaders where others lead, if there are others."""

        async def act(state: State) -> None:
            if await leadership.rebalance(state):
                self._rebalance_now()

        if len(self.image.brokers) > 1:
            answer = asyncio.get_running_loop().create_future()
            self._put(act, answer, urgent=False)
        if self._rebalance is not None:
            self._rebalance.cancel()
        self._rebalance_later()

    def _expire_later(self) -> None:
        tokens = self._state.options.tokens
        if tokens.enabled and self._active:
            interval_s = tokens.check_interval_ms / 1000
            self._expiry = self._state.clock.call_later(interval_s, self._expire_now)

    def _expire_now(self) -> None:
        """Remove delegation tokens that hold no more, if there are some."""
        if self.image.tokens:
            answer = asyncio.get_running_loop().create_future()
            self._put(token_writes.remove_expired, answer, urgent=False)
        self._expire_later()

    async def _configs(
        self, act: Callable[[State], Awaitable[Any]], resources: Sequence[Resource]
    ) -> list[ConfigOutcome]:
        answer = await self._applied(act)
        if isinstance(answer, Refusal):
            return [ConfigOutcome(resource, *answer) for resource in resources]
        return list(answer)

    async def _applied(self, act: Callable[[State], Awaitable[Any]]) -> Any:
        """The answer, after the brokers beside this controller have applied what led to it."""
        answer, number = await self._queued(act)
        await self.feed.wait_applied(number)
        return answer

    async def _submit(self, act: Callable[[State], Awaitable[Any]], *, urgent: bool = False) -> Any:
        """The answer, or a Refusal, as soon as the controller has it."""
        return (await self._queued(act, urgent=urgent))[0]

    def _post(self, act: Callable[[State], Awaitable[Any]]) -> None:
        """Put a request into the queue that nobody waits for; dropped if too many wait."""
        self._put(act, asyncio.get_running_loop().create_future(), urgent=True)

    def _put(
        self,
        act: Callable[[State], Awaitable[Any]],
        answer: "asyncio.Future[tuple[Any, int]]",
        *,
        urgent: bool,
    ) -> bool:
        return self._active and self._queue.put(Request(act, answer), urgent=urgent)

    async def _queued(
        self, act: Callable[[State], Awaitable[Any]], *, urgent: bool = False
    ) -> tuple[Any, int]:
        """Put a request into the queue; its answer, and the number of the change it led to."""
        answer: asyncio.Future[tuple[Any, int]] = asyncio.get_running_loop().create_future()
        if not self._put(act, answer, urgent=urgent):
            return (BUSY if self._active else NOT_CONTROLLER), 0
        result, number = await answer
        return result, number

    async def _work(self) -> None:
        """Run one request after the other; when no longer active, refuse those that wait."""
        while self._active or self._queue:
            request = await self._queue.get()
            if request is not None:
                await self._answer(request)

    async def _answer(self, request: Request) -> None:
        result = await self._run(request.act) if self._active else NOT_CONTROLLER
        if not request.answer.done():
            request.answer.set_result((result, self.image.number))

    async def _run_urgent(self) -> bool:
        """Run the urgent requests that came during a long one; whether there were any.

        Not after a failed write: the long request must end before the tree is read again.
        """
        overtaken = False
        while not self._must_load and (request := self._queue.take_urgent()) is not None:
            await self._answer(request)
            overtaken = True
        return overtaken

    async def _run(self, act: Callable[[State], Awaitable[Any]]) -> Any:
        try:
            if self._must_load:
                # Another server of ZooKeeper's may answer now, which has not got the write yet.
                await self._state.tree.sync()
                await registration.load(self._state)
                self._must_load = False
                log.info("the metadata tree was read again after a failed write")
            return await act(self._state)
        except SessionExpired as error:
            return self._resign(error)
        except BadVersion as error:
            if error.path == "/controller_epoch":
                return self._resign(error)
            return self._failed(error)
        except TreeError as error:
            return self._failed(error)
        except Exception as error:  # one request that goes wrong must not end the controller
            log.exception("the controller failed at a request")
            self._load_soon()
            return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}")

    def _failed(self, error: TreeError) -> Refusal:
        reason = f"{type(error).__name__} {error}"  # most have no words beside the node's path
        log.error("the controller could not write to the metadata tree: %s", reason)
        self._load_soon()
        return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, reason)

    def _load_soon(self) -> None:
        """Read the tree again before the next request, or by itself when none comes.

        An election that was cut short must not wait for somebody to ask for something else.
        """
        self._must_load = True
        if self._reload is None:
            self._reload = self._state.clock.call_later(RELOAD_S, self._load_now)

    def _load_now(self) -> None:
        self._reload = None
        if self._must_load:
            self._post(nothing)

    def _expired(self) -> None:
        self._resign(SessionExpired("/controller", "the session with the tree has ended"))

    def _resign(self, error: TreeError) -> Refusal:
        if self._active:
            log.error("this node is no longer the controller: %s", error)
            self._active = False
            self._queue.wake()
            self.feed.close()  # followers ask the next controller
            for callback in self.on_resigned:
                callback()
        return NOT_CONTROLLER


def accepted(broker_id: int, answer: Any) -> Any:
    """The answer to a broker that starts. Raises NotController, RegistrationRefused."""
    if answer == NOT_CONTROLLER:
        raise NotController(f"broker {broker_id} cannot register: {answer.error_message}")
    if isinstance(answer, Refusal):
        raise RegistrationRefused(answer)
    return answer


async def nothing(state: State) -> None:
    """The request that only lets the controller read the tree again."""

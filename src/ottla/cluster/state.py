"""The controller's state: the tree, its epoch there, the feed, and how both are written.

One request at a time: the controller runs one after the other.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.cluster import nodes, steps
from ottla.cluster.configs import ELR_FEATURE, MIN_ISR, UNCLEAN_ELECTION, ConfigRules
from ottla.cluster.election_metrics import ElectionMetrics
from ottla.cluster.elections import NOBODY, Rules
from ottla.cluster.features import SUPPORTED, Supported
from ottla.cluster.feed import Feed
from ottla.cluster.image import Change, ClusterImage, TopicImage
from ottla.cluster.requests import Refusal
from ottla.cluster.steps import StateValues, Step
from ottla.cluster.topics import RECORDS_PER_OPERATION_MAX, Defaults, TopicDecisions
from ottla.metadata_store.tree import Check, Operation, Result, Set, Tree, weight
from ottla.seams.chance import Chance
from ottla.seams.clock import Clock
from ottla.security.tokens import TokenOptions, TokenTable

NOT_COUNTED = -1
# Partitions decided on before the event loop runs other work: about two milliseconds.
PARTITIONS_PER_TURN = 1_000


class Options(NamedTuple):
    """The settings that the controller needs."""

    node_id: int = 1
    num_partitions: int = 1
    default_replication_factor: int = 1
    delete_topic_enable: bool = True
    records_per_operation_max: int = RECORDS_PER_OPERATION_MAX
    supported_features: Mapping[str, Supported] = SUPPORTED
    # With eligible leader replicas this becomes a config of the cluster when that is new, as in
    # Kafka; None leaves it out.
    min_insync_replicas: int | None = None
    unclean_leader_election: bool = False
    # How often preferred leaders are elected where others lead; None: only when asked for.
    leader_rebalance_s: float | None = None
    tokens: TokenOptions = TokenOptions()
    cluster_id: str | None = None  # of the data directory; None: a new cluster draws one
    # Where this controller is reached, for brokers that find it in the tree.
    address: nodes.ControllerAddress | None = None
    # Whether others write the tree: brokers their node under /brokers/ids, each in a session of its
    # own, and operators what they ask for.
    others_write: bool = False


class NotController(Exception):
    """Another controller has been elected, or this one has not."""


class NotAllowed(NotController):
    """The controller does not take this broker for one: an operator has to mend its rights."""

    def __init__(self) -> None:
        super().__init__(
            "the controller denies this broker CLUSTER_ACTION; the user by which brokers reach "
            "each other has to be in super.users, or an ACL has to allow it and none to deny it"
        )


class RegistrationRefused(Exception):
    """A broker may not register, for example because another one of its id is alive."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.error_message)
        self.error_code = refusal.error_code


class State:
    """What requests to the controller read and write."""

    def __init__(
        self,
        tree: Tree,
        clock: Clock,
        chance: Chance,
        options: Options,
        rules: ConfigRules,
        elections: ElectionMetrics,
    ) -> None:
        self.tree = tree
        self.clock = clock
        self.chance = chance
        self.options = options
        self.rules = rules
        self.elections = elections
        self.feed = Feed()
        self.tokens = TokenTable(options.tokens)
        self.values = StateValues(0)
        self.epoch = 0
        self.epoch_version = -1
        # How many writes controllers had made before this one was elected, and have made by now,
        # where that is counted: see nodes.OURS.
        self.opened_at = NOT_COUNTED
        self.writes = NOT_COUNTED
        self.waiting: dict[str, dict[bytes, set[int]]] = {}  # see loading.Loaded
        self.last_producer_id: int | None = None
        self.last_broker_epoch = 0
        # Fenced brokers whose last stop took something from them, until they are unfenced.
        self.stopped = NOBODY
        # By broker, the change that its last registration, fencing or shutdown led to: a fenced one
        # must have applied it before it is unfenced.
        self.registered_at: dict[int, int] = {}
        self.applied: dict[int, int] = {}  # by broker, the change that its polls say it has applied
        self.decisions = TopicDecisions(
            Defaults(options.num_partitions, options.default_replication_factor), rules, chance
        )
        self.with_next: list[Operation] = []  # go with the next write
        self.run_urgent: Callable[[], Awaitable[bool]] = nothing_urgent  # set by the controller
        self._partitions_in_turn = 0

    @property
    def image(self) -> ClusterImage:
        return self.feed.image

    def rules_of(self, topic: TopicImage) -> Rules:
        """What the configs in force say about elections of the topic's partitions."""
        image = self.image
        own, default = image.configs_of(topic.name), image.broker_configs.get("", {})
        min_isr = int(
            own.get(MIN_ISR) or default.get(MIN_ISR) or self.options.min_insync_replicas or 1
        )
        unclean = own.get(UNCLEAN_ELECTION) or default.get(UNCLEAN_ELECTION)
        return Rules(
            min_isr,
            unclean.lower() == "true" if unclean else self.options.unclean_leader_election,
            bool(image.features.levels.get(ELR_FEATURE)),
        )

    async def write(self, planned: Iterable[Step]) -> int:
        """Write the steps in order, as many in one go as fit, publishing as they are done.

        The number of the last change published, for those who wait until it is applied.
        """
        for step in joined(planned, lambda: self.image):
            await self._flush(step.operations, step.changes)
        return self.image.number

    async def write_yielding(self, planned: Iterable[Step]) -> bool:
        """As `write`, but urgent requests that came meanwhile run in between; whether any did.

        Only for what no such request touches: topics and partitions that nobody knows of yet.
        """
        overtaken = False
        for step in joined(planned, lambda: self.image):
            await self._flush(step.operations, step.changes)
            overtaken |= await self.run_urgent()
        return overtaken

    async def _flush(self, operations: Sequence[Operation], changes: Sequence[Change]) -> None:
        operations = [*operations, *steps.assignments(self.image, changes)]
        if operations:
            also, self.with_next = self.with_next, []
            check = Check(nodes.CONTROLLER_EPOCH, self.epoch_version)
            results = await self.tree.multi([check, *also, *operations, *self.counting()])
            self.note_count(results)
        if changes:
            self.decisions.collisions.observe(changes)
            self.elections.observe(self.image, changes)
            self.feed.publish(changes)

    def counting(self) -> list[Operation]:
        """The operation that counts a write, at its end, where the tree does not do that itself."""
        return [Set(nodes.OURS, b"")] if self.options.others_write else []

    def note_count(self, results: Sequence[Result]) -> None:
        """A write with `counting` has had these results."""
        if self.options.others_write:
            assert isinstance(results[-1], int)
            self.writes = results[-1]

    async def take_turns(self, partition_count: int) -> None:
        """Let the event loop run other work after PARTITIONS_PER_TURN decisions."""
        self._partitions_in_turn += partition_count
        if self._partitions_in_turn >= PARTITIONS_PER_TURN:
            self._partitions_in_turn = 0
            await asyncio.sleep(0)


async def nothing_urgent() -> bool:
    """There are no urgent requests without a controller that takes them."""
    return False


def joined(planned: Iterable[Step], image: Callable[[], ClusterImage]) -> Iterator[Step]:
    """The steps, as many in one as fit with what `_flush` adds for the image as it is then."""
    operations: list[Operation] = []
    changes: list[Change] = []
    total = 0
    for step in planned:
        size = sum(map(weight, step.operations)) + steps.assignments_weight(image(), step.changes)
        if operations and total + size > steps.STEP_BYTES_MAX:
            yield Step(operations, changes)
            operations, changes, total = [], [], 0
        operations += step.operations
        changes += step.changes
        total += size
    if operations or changes:
        yield Step(operations, changes)

"""Leaders and ISRs: decided by elections.py over the whole image, written in steps."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from ottla.cluster import elections, steps
from ottla.cluster.elections import Rules, Stopped
from ottla.cluster.image import BrokerInfo, PartitionImage, TopicImage
from ottla.cluster.requests import (
    ElectionOutcome,
    ElectionType,
    IsrOutcome,
    IsrProposal,
    Refusal,
    Resource,
    ResourceType,
)
from ottla.cluster.state import State
from ottla.cluster.steps import Step
from ottla.wire.errors import ErrorCode

# So many are written before more are decided on: the first have their leaders sooner, and the event
# loop is held for a few milliseconds only.
PARTITIONS_PER_WRITE = 250
# What a partition that changes counts for against state.PARTITIONS_PER_TURN.
TURNS_PER_CHANGE = 4


# Then other requests have their turn: Kafka's limit.
ELECTIONS_PER_REBALANCE = 1_000
# ISR changes of one request: those of thousands of partitions come at once when a broker goes.
PROPOSALS_MAX = 2_000

Partitions: TypeAlias = Sequence[PartitionImage]


class Proposed(NamedTuple):
    """A proposal, and the broker that made it."""

    broker_id: int
    broker_epoch: int
    proposal: IsrProposal


class Proposals:
    """ISR changes that wait to be made together, and their common answer."""

    def __init__(self) -> None:
        self.items: list[Proposed] = []
        self.answer: asyncio.Future[tuple[Any, int]] = asyncio.get_running_loop().create_future()

    @property
    def closed(self) -> bool:
        """Whether it takes no more: one request makes no more, or it is answered already.

        It is answered before it is made when the tree, which has to be read first, cannot be read.
        """
        return len(self.items) >= PROPOSALS_MAX or self.answer.done()

    def add(self, proposed: Proposed) -> int:
        """Its place in the answer."""
        self.items.append(proposed)
        return len(self.items) - 1


async def settle(
    state: State, changed: Iterable[BrokerInfo] = (), first: Iterable[Step] = ()
) -> None:
    """Bring all partitions in line with the brokers; `first` writes those that have `changed`.

    Partitions without a leader that can lead come next, in the same write: clients wait for them,
    and one that learns of a dead leader before it can learn of the next waits longer.
    """
    brokers, stopped = dict(state.image.brokers), state.stopped
    brokers.update((each.id, each) for each in changed)
    inactive = frozenset(each.id for each in brokers.values() if not each.active)

    def decide(partition: PartitionImage, rules: Rules) -> PartitionImage | None:
        return elections.settled(partition, brokers, rules, stopped)

    def without_leader(partitions: Partitions) -> Partitions:
        return [each for each in partitions if each.leader < 0 or each.leader in inactive]

    def with_others(partitions: Partitions) -> Partitions:
        return [
            each
            for each in partitions
            if not inactive.isdisjoint(each.isr)
            or (each.elr and not stopped.unclean.isdisjoint(each.elr))
            or (stopped.wiped and not stopped.wiped.isdisjoint(each.replicas))
        ]

    began_s, elected = state.clock.monotonic(), state.elections.elected
    await change_all(state, without_leader, decide, first)
    if state.elections.elected > elected:
        state.elections.time.observe((state.clock.monotonic() - began_s) * 1000)
    if inactive:  # and so may be unclean ones
        await change_all(state, with_others, decide)


async def rebalance(state: State) -> bool:
    """Let preferred leaders lead; whether there may be more of them than one pass takes."""
    brokers = state.image.brokers
    left = ELECTIONS_PER_REBALANCE

    def moved(partitions: Partitions) -> Partitions:
        return [each for each in partitions if each.leader != each.replicas[0]] if left else []

    def decide(partition: PartitionImage, rules: Rules) -> PartitionImage | None:
        nonlocal left
        new = elections.rebalanced(partition, brokers, rules) if left else None
        left -= new is not None
        return new

    await change_all(state, moved, decide)
    return not left


def without_elr(state: State, resource: Resource) -> Iterator[Step]:
    """The ELRs of the topics whose min.insync.replicas is about to change are given up."""
    topics: Iterable[TopicImage | None] = ()
    if resource.type == ResourceType.TOPIC:
        topics = [state.image.topics.get(resource.name)]
    elif resource.type == ResourceType.BROKER and not resource.name:
        topics = state.image.topics.values()
    for topic in topics:
        decided = map(elections.without_elr, topic.partitions) if topic is not None else ()
        changed = [each for each in decided if each is not None]
        if topic is not None and changed:
            yield from steps.state_changes(topic, changed, state.values)


def isr_steps(state: State) -> Iterator[Step]:
    """ISRs take over what the ELRs know: there is about to be no such thing."""
    for topic in state.image.topics.values():
        decided = map(elections.isr_in_place_of_elr, topic.partitions)
        changed = [each for each in decided if each is not None]
        if changed:
            yield from steps.state_changes(topic, changed, state.values)


async def restart(state: State, broker: BrokerInfo, stopped: Stopped) -> None:
    """Elect the only broker of a cluster again as the leader of all it can lead."""

    def decide(partition: PartitionImage, rules: Rules) -> PartitionImage | None:
        return elections.restarted(partition, broker, rules, stopped)

    await change_all(state, lambda partitions: partitions, decide)


async def change_all(
    state: State,
    concerned: Callable[[Partitions], Partitions],
    decide: Callable[[PartitionImage, Rules], PartitionImage | None],
    first: Iterable[Step] = (),
) -> None:
    """Write `first`, and what `decide` makes of the partitions that are `concerned`, in all topics.

    Many in one go, and the first before all are decided. Other work of the event loop runs in
    between; the controller has no other request meanwhile.
    """
    planned = list(first)
    count = 0
    for topic in state.image.topics.values():
        for start in range(0, len(topic.partitions), PARTITIONS_PER_WRITE):
            piece = topic.partitions[start : start + PARTITIONS_PER_WRITE]
            found = concerned(piece)
            if found:
                rules = state.rules_of(topic)
                decided = [decide(each, rules) for each in found]
                changed = [each for each in decided if each is not None]
                if changed:
                    planned += steps.state_changes(topic, changed, state.values)
                    count += len(changed)
            if count >= PARTITIONS_PER_WRITE:
                await state.write(planned)
                planned, count = [], 0
            await state.take_turns(len(piece) + TURNS_PER_CHANGE * len(found))
    await state.write(planned)


async def alter_partitions(state: State, proposed: Sequence[Proposed]) -> list[IsrOutcome]:
    """Change ISRs as their leaders propose: all in one go, as far as each is about another."""
    outcomes = []
    changed: dict[bytes, dict[int, PartitionImage]] = {}  # by topic id and index
    for each in proposed:
        topic_id, index = each.proposal.topic_id, each.proposal.index
        if index in changed.get(topic_id, ()):
            await write_changed(state, changed)
            changed = {}
        decided = alter_partition(state, each)
        if isinstance(decided, PartitionImage):
            if decided != state.image.topics_by_id[topic_id].partitions[index]:
                changed.setdefault(topic_id, {})[index] = decided
            decided = isr_outcome(decided, each.broker_id)
        outcomes.append(decided)
        await state.take_turns(TURNS_PER_CHANGE)
    await write_changed(state, changed)
    return outcomes


def isr_outcome(decided: PartitionImage, broker_id: int) -> IsrOutcome:
    """The answer to the leader that proposed an ISR.

    It may have completed a reassignment, and this leader be one of the replicas that are gone.
    """
    if decided.leader != broker_id:
        return IsrOutcome(ErrorCode.NEW_LEADER_ELECTED)
    return IsrOutcome(
        ErrorCode.NONE,
        decided.isr,
        decided.partition_epoch,
        decided.leader,
        decided.leader_epoch,
        decided.recovering,
    )


async def write_changed(
    state: State, changed: Mapping[bytes, Mapping[int, PartitionImage]]
) -> None:
    """Write partitions, which are given by topic id and index."""
    await state.write(
        step
        for topic_id, partitions in changed.items()
        for step in steps.state_changes(
            state.image.topics_by_id[topic_id],
            [partitions[index] for index in sorted(partitions)],
            state.values,
        )
    )


def alter_partition(state: State, proposed: Proposed) -> PartitionImage | IsrOutcome:
    """The partition with the ISR that its leader proposes, or why it does not get it.

    A replica that takes itself out is not eligible, and is no follower before it asks again in a
    new epoch; if it led, another member of the ISR leads.
    """
    broker_id, broker_epoch, proposal = proposed
    image = state.image
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        return IsrOutcome(ErrorCode.STALE_BROKER_EPOCH)
    topic = image.topics_by_id.get(proposal.topic_id)
    if topic is None:
        return IsrOutcome(ErrorCode.UNKNOWN_TOPIC_ID)
    old = image.partition(topic.name, proposal.index)
    error = elections.proposal_error(old, broker_id, proposal, image.brokers)
    if old is None or error != ErrorCode.NONE:
        return IsrOutcome(error)
    rules = state.rules_of(topic)
    leaves = elections.withdraws(old, broker_id, proposal)
    new = elections.altered(
        old,
        [member for member, _ in proposal.isr],
        lambda each: each in image.brokers and image.brokers[each].active,
        rules,
        rules.election,
        stopped=Stopped(unclean=frozenset({broker_id})) if leaves else elections.NOBODY,
        recovering=None if leaves else proposal.recovering,
        fences=leaves,
    )
    return new or old


async def elect_leaders(
    state: State, kind: ElectionType, wanted: Sequence[tuple[str, int]] | None
) -> list[ElectionOutcome]:
    """Elect leaders that a user has asked for; None: of all partitions."""
    image = state.image
    names = wanted
    if names is None:
        names = [(t.name, p.index) for t in image.topics.values() for p in t.partitions]
    outcomes = []
    changed: dict[bytes, dict[int, PartitionImage]] = {}
    count = 0
    for name, index in names:
        topic, old = image.topics.get(name), image.partition(name, index)
        if topic is None or old is None:
            what = f"topic as {name}" if topic is None else f"partition as {name}-{index}"
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            outcomes.append(ElectionOutcome(name, index, code, f"No such {what}"))
            continue
        new: PartitionImage | Refusal = elections.NOT_NEEDED
        if index not in changed.get(topic.id, ()):  # one that is named twice has it by then
            new = elections.elected(old, image.brokers, state.rules_of(topic), kind)
        if not isinstance(new, Refusal):
            changed.setdefault(topic.id, {})[index] = new
            count += 1
            outcomes.append(ElectionOutcome(name, index))
        elif wanted is not None or new.error_code != ErrorCode.ELECTION_NOT_NEEDED:
            outcomes.append(ElectionOutcome(name, index, *new))
        if count >= PARTITIONS_PER_WRITE:
            await write_changed(state, changed)
            image, changed, count = state.image, {}, 0
        await state.take_turns(TURNS_PER_CHANGE)
    await write_changed(state, changed)
    return outcomes

"""Leaders and ISRs: decided by elections.py over the whole image, written in steps."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.cluster import elections, steps
from ottla.cluster.elections import Stopped
from ottla.cluster.image import BrokerInfo, PartitionImage, TopicImage
from ottla.cluster.requests import (
    ElectionOutcome,
    ElectionType,
    IsrOutcome,
    IsrProposal,
    Refusal,
)
from ottla.cluster.state import State
from ottla.cluster.steps import Step
from ottla.wire.errors import ErrorCode

# So many are written before more are decided on: the first have their leaders sooner.
PARTITIONS_PER_WRITE = 1_000


class Proposed(NamedTuple):
    """A proposal, and the broker that made it."""

    broker_id: int
    broker_epoch: int
    proposal: IsrProposal


async def settle(state: State) -> None:
    """Bring all partitions in line with the brokers as they are now."""
    image, stopped = state.image, state.stopped
    inactive = frozenset(each.id for each in image.brokers.values() if not each.active)
    unclean = stopped.unclean

    def decide(topic: TopicImage) -> list[PartitionImage]:
        concerned = [
            each
            for each in topic.partitions
            if each.leader < 0
            or (inactive and not inactive.isdisjoint(each.isr))
            or (each.elr and not unclean.isdisjoint(each.elr))
        ]
        if not concerned:
            return []
        rules = state.rules_of(topic)
        decided = (elections.settled(each, image.brokers, rules, stopped) for each in concerned)
        return [each for each in decided if each is not None]

    await change_topics(state, decide)


async def restart(state: State, broker: BrokerInfo, stopped: Stopped) -> None:
    """Elect the only broker of a cluster again as the leader of all it can lead."""

    def decide(topic: TopicImage) -> list[PartitionImage]:
        rules = state.rules_of(topic)
        decided = (elections.restarted(each, broker, rules, stopped) for each in topic.partitions)
        return [each for each in decided if each is not None]

    await change_topics(state, decide)


async def change_topics(
    state: State, decide: Callable[[TopicImage], Sequence[PartitionImage]]
) -> None:
    """Write what `decide` changes of each topic: many in one go, and some before all are decided.

    Other work of the event loop runs in between; the controller has no other request meanwhile.
    """
    planned: list[Step] = []
    partitions = 0
    for topic in state.image.topics.values():
        changed = decide(topic)
        if changed:
            planned += steps.state_changes(topic, changed, state.values)
        partitions += len(changed)
        if partitions >= PARTITIONS_PER_WRITE:
            await state.write(planned)
            planned, partitions = [], 0
        await state.take_turns(len(topic.partitions))
    await state.write(planned)


async def alter_partitions(state: State, proposed: Sequence[Proposed]) -> list[IsrOutcome]:
    """Change ISRs as their leaders propose."""
    return [await alter_partition(state, each) for each in proposed]


async def alter_partition(state: State, proposed: Proposed) -> IsrOutcome:
    """Change an ISR as its leader proposes."""
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
    new = elections.altered(
        old,
        [member for member, _ in proposal.isr],
        lambda each: each in image.brokers and image.brokers[each].active,
        rules,
        rules.election,
        recovering=proposal.recovering,
    )
    if new is not None:
        await state.write(steps.state_changes(topic, [new], state.values))
    now = new or old
    return IsrOutcome(
        ErrorCode.NONE, now.isr, now.partition_epoch, now.leader, now.leader_epoch, now.recovering
    )


async def elect_leaders(
    state: State, kind: ElectionType, wanted: Sequence[tuple[str, int]] | None
) -> list[ElectionOutcome]:
    """Elect leaders that a user has asked for; None: of all partitions."""
    image = state.image
    names = wanted
    if names is None:
        names = [(t.name, p.index) for t in image.topics.values() for p in t.partitions]
    outcomes = []
    for name, index in names:
        topic, old = image.topics.get(name), image.partition(name, index)
        if topic is None or old is None:
            what = f"topic as {name}" if topic is None else f"partition as {name}-{index}"
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            outcomes.append(ElectionOutcome(name, index, code, f"No such {what}"))
            continue
        new = elections.elected(old, image.brokers, state.rules_of(topic), kind)
        if not isinstance(new, Refusal):
            await state.write(steps.state_changes(topic, [new], state.values))
            outcomes.append(ElectionOutcome(name, index))
        elif wanted is not None or new.error_code != ErrorCode.ELECTION_NOT_NEEDED:
            outcomes.append(ElectionOutcome(name, index, *new))
        await state.take_turns(1)
    return outcomes

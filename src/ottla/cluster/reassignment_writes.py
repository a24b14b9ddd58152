"""Reassignments begun and cancelled: decided (reassignment.py, elections.py), then written."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence

from ottla.cluster import elections, reassignment, steps, topics
from ottla.cluster.image import ClusterImage, PartitionImage
from ottla.cluster.leadership import (
    PARTITIONS_PER_WRITE,
    TURNS_PER_CHANGE,
    change_all,
    write_changed,
)
from ottla.cluster.reassignment import Wanted
from ottla.cluster.requests import (
    OngoingReassignment,
    Reassignment,
    ReassignmentOutcome,
    Refusal,
)
from ottla.cluster.state import State
from ottla.wire.errors import ErrorCode

log = logging.getLogger(__name__)


async def alter_reassignments(
    state: State, wanted: Sequence[Reassignment], allow_factor_change: bool
) -> list[ReassignmentOutcome]:
    """Begin or cancel what can be; every partition gets its own answer, in the order asked for."""
    outcomes = []
    changed: dict[bytes, dict[int, PartitionImage]] = {}  # by topic id and index
    count = begun = 0
    refusals = too_large(state.image, wanted)
    for each in wanted:
        topic = state.image.topics.get(each.topic)
        if count >= PARTITIONS_PER_WRITE or (topic and each.partition in changed.get(topic.id, ())):
            await write_changed(state, changed)
            changed, count = {}, 0
        decided = altered(state, each, allow_factor_change)
        if each.replicas is not None and each.topic in refusals:
            decided = refusals[each.topic]
        if isinstance(decided, Refusal):
            outcomes.append(ReassignmentOutcome(each.topic, each.partition, *decided))
            continue
        begun += 1
        outcomes.append(ReassignmentOutcome(each.topic, each.partition))
        if decided is not None:
            changed.setdefault(state.image.topics[each.topic].id, {})[each.partition] = decided
            count += 1
        await state.take_turns(TURNS_PER_CHANGE)
    await write_changed(state, changed)
    log.info("altered %d of %d partition reassignments", begun, len(wanted))
    return outcomes


async def resume(state: State) -> None:
    """Complete what a controller died over: the ISRs are written, the topic's node is not."""
    brokers, stopped = state.image.brokers, state.stopped
    await change_all(
        state,
        lambda partitions: [each for each in partitions if reassignment.is_in_progress(each)],
        lambda partition, rules: elections.settled(partition, brokers, rules, stopped),
    )


def altered(
    state: State, wanted: Reassignment, allow_factor_change: bool
) -> PartitionImage | Refusal | None:
    """The partition that comes of it, or why it cannot be; None if it is so already."""
    image, target = state.image, wanted.replicas
    old = image.partition(wanted.topic, wanted.partition)
    refusal = reassignment.unknown(image, wanted.topic, wanted.partition)
    if old is None or refusal is not None:
        return refusal
    rules = state.rules_of(image.topics[wanted.topic])
    election = elections.Election.ONLINE
    decided: Wanted | Refusal
    if target is None:
        decided = reassignment.reverted(old, wanted.topic, rules.unclean, rules.min_isr)
        election = rules.election
    else:
        refusal = topics.assignment_error(image, target, None)
        if refusal is None and not allow_factor_change:
            refusal = reassignment.factor_error(old, target)
        decided = refusal or reassignment.begun(old, target)
    if isinstance(decided, Refusal):
        return decided
    return elections.altered(
        old,
        decided.isr,
        lambda each: each in image.brokers and image.brokers[each].active,
        rules,
        election,
        stopped=state.stopped,
        wanted=decided.partition,
    )


def too_large(image: ClusterImage, wanted: Sequence[Reassignment]) -> dict[str, Refusal]:
    """The topics whose node could not hold so many reassignments, beside those under way."""
    refusals = {}
    for name, count in Counter(each.topic for each in wanted).items():
        topic = image.topics.get(name)
        if topic is None:
            continue
        moving = count + sum(map(reassignment.is_in_progress, topic.partitions))
        if steps.moving_bytes(topic, moving) > steps.MOVING_BYTES_MAX:
            message = f"Too many partitions of the topic {name} would be reassigned at once."
            refusals[name] = Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return refusals


def ongoing(
    image: ClusterImage, wanted: Sequence[tuple[str, Sequence[int]]] | None
) -> Iterator[OngoingReassignment]:
    """What is under way of these partitions, by topic, or of all; there need not be such a one."""
    if wanted is None:
        wanted = [(name, range(len(each.partitions))) for name, each in image.topics.items()]
    for name, indexes in wanted:
        for index in indexes:
            found = image.partition(name, index)
            if found is not None and reassignment.is_in_progress(found):
                yield OngoingReassignment(
                    name, index, found.replicas, found.adding_replicas, found.removing_replicas
                )

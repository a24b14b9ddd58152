"""Topics and partitions created and deleted: decided (topics.py), then written in steps."""

import logging
from collections.abc import Iterator, Sequence

from ottla.cluster import leadership, nodes, steps, topics
from ottla.cluster.config_writes import config_step
from ottla.cluster.image import (
    ZERO_ID,
    Change,
    DeletionDone,
    PartitionImage,
    TopicImage,
)
from ottla.cluster.reassignment import is_in_progress
from ottla.cluster.requests import (
    AdoptedTopic,
    DeletionOutcome,
    NewPartitions,
    NewTopic,
    PartitionsOutcome,
    Refusal,
    Resource,
    ResourceType,
    TopicOutcome,
    TopicRef,
)
from ottla.cluster.state import State
from ottla.cluster.steps import Step
from ottla.cluster.topics import Created, new_partitions
from ottla.metadata_store.tree import Create, Delete, Operation, Set
from ottla.wire.errors import ErrorCode

log = logging.getLogger(__name__)
NAMES_LOGGED_MAX = 5


async def create_topics(
    state: State, wanted: Sequence[NewTopic], validate_only: bool
) -> list[TopicOutcome]:
    """Create what can be created; every topic gets its own answer."""
    left, refused = topics.without_duplicates(wanted)
    excess = topics.excessive(left, state.decisions.defaults)
    if excess is not None:
        return [TopicOutcome(topic.name, *excess) for topic in wanted]
    outcomes: list[TopicOutcome] = []
    created: list[Created] = []
    records = 0
    for new in left:
        decided = state.decisions.create(state.image, new)
        if isinstance(decided, Refusal):
            outcomes.append(TopicOutcome(new.name, *decided))
            continue
        records += decided.record_count()
        if records > state.options.records_per_operation_max:
            return [TopicOutcome(topic.name, *topics.TOO_MANY_RECORDS) for topic in wanted]
        created.append(decided)
        outcomes.append(decided.outcome())
        await state.take_turns(len(decided.topic.partitions))
    if created and not validate_only:
        log.info("creating %s", listed([each.topic.name for each in created]))
        overtaken = await state.write_yielding(
            step
            for topic, configs in created
            for step in steps.creation(topic, configs, state.values)
        )
        if overtaken:  # a broker that was to lead may be gone
            await leadership.settle(state)
    return outcomes + refused


async def adopt_topics(state: State, found: Sequence[AdoptedTopic]) -> list[TopicOutcome]:
    """Create the topics whose folders are on this node's disk already, with their ids.

    One that the tree knows under the same id is brought up to what the disk has.
    """
    outcomes: list[TopicOutcome] = []
    created: list[Created] = []
    updates: list[Step] = []
    names: set[str] = set()
    for adopted in found:
        topic_id = adopted.id if adopted.id != ZERO_ID else state.chance.uuid()
        known = state.image.topics.get(adopted.name)
        if known is not None and known.id == adopted.id:
            updates += update_of_known(state, known, adopted)
            outcome = TopicOutcome(adopted.name, topic_id=known.id)
        elif known is not None or adopted.name in names:
            message = f"Topic '{adopted.name}' already exists."
            outcome = TopicOutcome(adopted.name, ErrorCode.TOPIC_ALREADY_EXISTS, message)
        elif topic_id in state.image.topics_by_id:
            message = f"The id of topic '{adopted.name}' belongs to another topic."
            outcome = TopicOutcome(adopted.name, ErrorCode.INCONSISTENT_TOPIC_ID, message)
        else:
            replicas = [(state.options.node_id,)] * adopted.partition_count
            code = ErrorCode.INVALID_REPLICATION_FACTOR
            partitions = new_partitions(state.image, replicas, 0, code)
            if isinstance(partitions, Refusal):
                outcome = TopicOutcome(adopted.name, *partitions)
            else:
                epoch = adopted.leader_epoch + 1
                begun = tuple(each._replace(leader_epoch=epoch) for each in partitions)
                configs = topics.usable_configs(state.rules, adopted)
                decided = Created(TopicImage(adopted.name, topic_id, begun), configs)
                names.add(adopted.name)
                created.append(decided)
                outcome = decided.outcome()
        outcomes.append(outcome)
        await state.take_turns(adopted.partition_count)
    await state.write(updates)
    await state.write(
        step for topic, configs in created for step in steps.creation(topic, configs, state.values)
    )
    return outcomes


def update_of_known(state: State, known: TopicImage, adopted: AdoptedTopic) -> Iterator[Step]:
    """The steps that give a topic the partitions, leader epochs and configs that the disk has."""
    configs = topics.usable_configs(state.rules, adopted)
    if adopted.configs is not None and configs != state.image.configs_of(known.name):
        yield config_step(state, Resource(ResourceType.TOPIC, known.name), configs)
    epoch = adopted.leader_epoch + 1
    count = len(known.partitions)
    replicas = [(state.options.node_id,)] * (adopted.partition_count - count)
    code = ErrorCode.INVALID_REPLICATION_FACTOR
    added = new_partitions(state.image, replicas, count, code)
    if added and not isinstance(added, Refusal):
        begun = [each._replace(leader_epoch=epoch) for each in added]
        yield from steps.growth(known, begun, state.values)
    raised = [
        each._replace(leader_epoch=epoch, partition_epoch=each.partition_epoch + 1)
        for each in known.partitions
        if each.leader_epoch < epoch
    ]
    if raised:
        yield from steps.state_changes(known, raised, state.values)


async def create_partitions(
    state: State, wanted: Sequence[NewPartitions], validate_only: bool
) -> list[PartitionsOutcome]:
    """Grow what can be grown; every topic gets its own answer."""
    counts: dict[str, int] = {}
    for topic in wanted:
        counts[topic.name] = counts.get(topic.name, 0) + 1
    outcomes = [
        PartitionsOutcome(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        for name, count in counts.items()
        if count > 1
    ]
    grown: list[tuple[TopicImage, tuple[PartitionImage, ...]]] = []
    for new in wanted:
        if counts[new.name] > 1:
            continue
        decided = state.decisions.grow(state.image, new)
        if isinstance(decided, Refusal):
            outcomes.append(PartitionsOutcome(new.name, *decided))
            continue
        grown.append((state.image.topics[new.name], decided))
        outcomes.append(PartitionsOutcome(new.name))
        await state.take_turns(len(decided))
    if not validate_only:
        growth = (
            step for topic, added in grown for step in steps.growth(topic, added, state.values)
        )
        if any(is_in_progress(each) for topic, _ in grown for each in topic.partitions):
            # An ISR change in between may complete a reassignment, and write the topic's node too.
            await state.write(growth)
        elif await state.write_yielding(growth):
            await leadership.settle(state)
    return outcomes


async def delete_topics(state: State, refs: Sequence[TopicRef]) -> list[DeletionOutcome]:
    """Delete what is there; every topic gets its own answer."""
    if not state.options.delete_topic_enable:
        code = ErrorCode.TOPIC_DELETION_DISABLED
        return [DeletionOutcome(ref.name, ref.id, code) for ref in refs]
    found, refused = topics.to_delete(state.image, refs)
    if found:
        log.info("deleting %s", listed([topic.name for topic in found]))
    await state.write(step for topic in found for step in deletion(state, topic))
    return [DeletionOutcome(topic.name, topic.id) for topic in found] + refused


def deletion(state: State, topic: TopicImage, requested: bool = False) -> Iterator[Step]:
    """The steps that remove a topic, and the note of who has to confirm it.

    `requested`: in the place of an operator's request.
    """
    ids = {broker_id for partition in topic.partitions for broker_id in partition.replicas}
    # Another topic of that name may have been deleted, and its directories not be gone yet.
    before = state.waiting.get(topic.name, {})
    after = {**before, topic.id: ids}
    path, value = nodes.deletion_path(topic.name), nodes.deletion_value(after)
    marker: Operation = Set(path, value) if before or requested else Create(path, value)
    state.waiting[topic.name] = after
    return steps.deletion(topic, marker, bool(state.image.configs_of(topic.name)))


async def confirm_deletions(state: State, broker_id: int, topic_ids: Sequence[bytes]) -> None:
    """The broker has removed its directories of these deleted topics."""
    await state.write(
        step
        for topic_id in topic_ids
        if (name := state.image.deletions.get(topic_id)) is not None
        for step in confirmation(state, broker_id, name, topic_id)
    )


def confirmation(state: State, broker_id: int, name: str, topic_id: bytes) -> Iterator[Step]:
    """The note without the broker; without the topic, if no other broker is left."""
    by_id = state.waiting.get(name, {})
    if broker_id not in by_id.get(topic_id, ()):
        return
    left = {key: set(ids) for key, ids in by_id.items()}
    left[topic_id].discard(broker_id)
    changes: list[Change] = []
    if not left[topic_id]:
        del left[topic_id]
        changes.append(DeletionDone(name, topic_id))
    path = nodes.deletion_path(name)
    if left:
        state.waiting[name] = left
        yield Step([Set(path, nodes.deletion_value(left))], changes)
    else:
        del state.waiting[name]
        yield Step([Delete(path)], changes)


def listed(names: Sequence[str]) -> str:
    """The names for a line of the log: not a thousand of them."""
    shown = ", ".join(names[:NAMES_LOGGED_MAX])
    more = len(names) - NAMES_LOGGED_MAX
    return f"topics {shown} and {more} more" if more > 0 else f"topics {shown}"

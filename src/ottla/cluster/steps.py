"""The writes that make up a change of the tree, small enough for one `multi` each. Pure.

A `Step` is what must be written together, with the changes to publish once it is. The first step
of anything is its commit point, and all later ones follow from it: a topic exists as soon as its
node with the assignment does, and is being deleted as soon as its name is under
`/admin/delete_topics`. The start after a crash finishes what was begun (`loading.py`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.cluster import nodes
from ottla.cluster.image import (
    Change,
    ClusterImage,
    PartitionImage,
    PartitionsChanged,
    PartitionsCreated,
    TopicCreated,
    TopicDeleted,
    TopicImage,
)
from ottla.metadata_store.tree import MULTI_BYTES_MAX, Create, Delete, Operation, Set, weight

# Well below the limit of one `multi`: the event loop is held while a step is put together.
STEP_BYTES_MAX = 200_000
# What a topic's node may take while its partitions are reassigned: a step is written beside it.
MOVING_BYTES_MAX = MULTI_BYTES_MAX - STEP_BYTES_MAX - 50_000


class Step(NamedTuple):
    """Operations that go together, and what to publish after them."""

    operations: Sequence[Operation]
    changes: Sequence[Change] = ()


class StateValues:
    """The values of state nodes: ten thousand partitions of one node have one in common."""

    def __init__(self, controller_epoch: int) -> None:
        self._controller_epoch = controller_epoch
        self._values: dict[nodes.State, bytes] = {}

    def of(self, partition: PartitionImage) -> bytes:
        state = nodes.State(
            partition.leader,
            partition.leader_epoch,
            partition.isr,
            partition.elr,
            partition.last_known_leader,
            partition.recovering,
            partition.wiped,
        )
        value = self._values.get(state)
        if value is None:
            if len(self._values) > 1_000:
                self._values.clear()
            value = self._values[state] = nodes.state_value(state, self._controller_epoch)
        return value


def cut(operations: Iterable[Operation], changes: Sequence[Change]) -> Iterator[Step]:
    """Steps of the operations in their order; the changes come with the last."""
    batch: list[Operation] = []
    total = 0
    for operation in operations:
        size = weight(operation)
        if batch and total + size > STEP_BYTES_MAX:
            yield Step(batch)
            batch, total = [], 0
        batch.append(operation)
        total += size
    yield Step(batch, changes)


def creation(topic: TopicImage, configs: Mapping[str, str], values: StateValues) -> Iterator[Step]:
    """Make a topic."""

    def operations() -> Iterator[Operation]:
        if configs:
            yield Create(nodes.topic_config_path(topic.name), nodes.config_value(configs))
        yield Create(nodes.topic_path(topic.name), topic_value(topic.id, topic.partitions))
        yield Create(nodes.partitions_path(topic.name))
        yield from states(topic.name, topic.partitions, values)

    return cut(operations(), [TopicCreated(topic, configs)])


def growth(
    topic: TopicImage, added: Sequence[PartitionImage], values: StateValues
) -> Iterator[Step]:
    """Add partitions to a topic."""

    def operations() -> Iterator[Operation]:
        partitions = (*topic.partitions, *added)
        yield Set(nodes.topic_path(topic.name), topic_value(topic.id, partitions))
        yield from states(topic.name, added, values)

    return cut(operations(), [PartitionsCreated(topic.name, topic.id, tuple(added))])


def topic_value(topic_id: bytes, partitions: Sequence[PartitionImage]) -> bytes:
    """The value of a topic's node: the replicas of its partitions, and what moves."""
    return nodes.topic_value(
        topic_id,
        [each.replicas for each in partitions],
        {each.index: each.adding_replicas for each in partitions if each.adding_replicas},
        {each.index: each.removing_replicas for each in partitions if each.removing_replicas},
    )


def states(
    name: str, partitions: Iterable[PartitionImage], values: StateValues
) -> Iterator[Operation]:
    """Make the nodes of partitions."""
    parent = nodes.partitions_path(name)
    for partition in partitions:
        path = f"{parent}/{partition.index}"
        yield Create(path)
        yield Create(path + "/state", values.of(partition))


def state_changes(
    topic: TopicImage, changed: Sequence[PartitionImage], values: StateValues
) -> Iterator[Step]:
    """Write changed states; each was at the partition epoch before the one it has now."""
    parent = nodes.partitions_path(topic.name)
    return cut(
        (Set(f"{parent}/{p.index}/state", values.of(p), p.partition_epoch - 1) for p in changed),
        [PartitionsChanged(topic.name, topic.id, tuple(changed))],
    )


def assignments(image: ClusterImage, changes: Iterable[Change]) -> list[Operation]:
    """The topics' nodes, of topics whose replicas these changes of an image make others.

    They belong into the write that publishes the changes, whatever the states beside them are.
    """
    changed = [
        change
        for change in changes
        if isinstance(change, PartitionsChanged) and reassigns(image, change)
    ]
    if not changed:
        return []
    after = image.apply(image.number, changed).topics
    names = dict.fromkeys(change.name for change in changed)
    return [
        Set(nodes.topic_path(name), topic_value(after[name].id, after[name].partitions))
        for name in names
    ]


def reassigns(image: ClusterImage, change: PartitionsChanged) -> bool:
    """Whether a change gives partitions other replicas."""
    topic = image.topics.get(change.name)
    if topic is None or topic.id != change.id:
        return False
    known = topic.partitions
    for new in change.partitions:
        if new.index < len(known):
            old = known[new.index]
            if (
                new.replicas != old.replicas
                or new.adding_replicas != old.adding_replicas
                or new.removing_replicas != old.removing_replicas
            ):
                return True
    return False


def assignments_weight(image: ClusterImage, changes: Iterable[Change]) -> int:
    """What `assignments` adds to a write, rather too much."""
    total = 0
    for change in changes:
        if isinstance(change, PartitionsChanged) and reassigns(image, change):
            topic = image.topics[change.name]
            total += moving_bytes(topic, len(topic.partitions))
    return total


def moving_bytes(topic: TopicImage, moving: int) -> int:
    """About the most that a topic's node takes while so many of its partitions are reassigned."""
    ids_bytes = len(topic.partitions[0].replicas) * len("1001,")
    each_bytes = len('"12345":[],') + ids_bytes
    # One that moves has its replicas twice, and they are among the adding and removing ones.
    return len(topic.partitions) * each_bytes + moving * (2 * each_bytes + ids_bytes)


def deletion(topic: TopicImage, marker: Operation, has_configs: bool) -> Iterator[Step]:
    """Remove a topic: its name among the deletions first, then the nodes from the leaves up."""

    def operations() -> Iterator[Operation]:
        yield marker
        parent = nodes.partitions_path(topic.name)
        for index in range(len(topic.partitions)):
            yield Delete(f"{parent}/{index}/state")
            yield Delete(f"{parent}/{index}")
        yield Delete(parent)
        yield Delete(nodes.topic_path(topic.name))
        if has_configs:
            yield Delete(nodes.topic_config_path(topic.name))

    return cut(operations(), [TopicDeleted(topic.name, topic.id, len(topic.partitions))])


def removal(paths: Iterable[str]) -> Iterator[Step]:
    """Remove what is left of something, from the leaves up."""
    return cut((Delete(path) for path in sorted(paths, key=depth, reverse=True)), ())


def depth(path: str) -> int:
    return path.count("/")

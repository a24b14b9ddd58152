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
    PartitionImage,
    PartitionsChanged,
    PartitionsCreated,
    TopicCreated,
    TopicDeleted,
    TopicImage,
)
from ottla.metadata_store.tree import Create, Delete, Operation, Set, weight

# Well below the limit of one `multi`: the event loop is held while a step is put together.
STEP_BYTES_MAX = 200_000


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
        replicas = [partition.replicas for partition in topic.partitions]
        yield Create(nodes.topic_path(topic.name), nodes.topic_value(topic.id, replicas))
        yield Create(nodes.partitions_path(topic.name))
        yield from states(topic.name, topic.partitions, values)

    return cut(operations(), [TopicCreated(topic, configs)])


def growth(
    topic: TopicImage, added: Sequence[PartitionImage], values: StateValues
) -> Iterator[Step]:
    """Add partitions to a topic."""

    def operations() -> Iterator[Operation]:
        replicas = [partition.replicas for partition in (*topic.partitions, *added)]
        yield Set(nodes.topic_path(topic.name), nodes.topic_value(topic.id, replicas))
        yield from states(topic.name, added, values)

    return cut(operations(), [PartitionsCreated(topic.name, topic.id, tuple(added))])


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

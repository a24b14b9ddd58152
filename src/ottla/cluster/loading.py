"""Reads the first image from the tree, and repairs what a crash left incomplete. Pure.

`read_cluster` takes all nodes and returns the image as it should be, with the repairs that make the
tree agree with it: missing states of a topic that was being created, the rest of a topic that was
being deleted, ids of topics that another program has made.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from ottla.cluster import acl_nodes, client_nodes, nodes, scram_secret, token_nodes
from ottla.cluster.image import (
    ZERO_ID,
    ClusterImage,
    FeatureImage,
    PartitionImage,
    TopicImage,
)
from ottla.cluster.steps import StateValues, Step, cut, removal, states
from ottla.metadata_store.tree import Create, Delete, Operation, Set

BELOW_TOPICS = nodes.TOPICS + "/"
Nodes: TypeAlias = Mapping[str, tuple[bytes, int]]


class Loaded(NamedTuple):
    """The image, the deletions that brokers have yet to confirm, and the repairs to write first."""

    image: ClusterImage
    waiting: dict[str, dict[bytes, set[int]]]  # by topic name and id, the brokers to confirm
    repairs: list[Step]
    registrations: dict[int, nodes.Registration]
    broker_epoch: int


def read_cluster(found: Nodes, values: StateValues, new_id: Callable[[], bytes]) -> Loaded:
    """The image that these nodes, by path, stand for; `new_id` draws the id of a topic."""
    # Most nodes are those of topics; what follows looks through the rest again and again.
    others = {path: node for path, node in found.items() if not path.startswith(BELOW_TOPICS)}
    waiting = {
        name: nodes.read_deletion(path, data)
        for path, name, data in children(others, nodes.DELETIONS)
        if not nodes.is_deletion_request(data)
    }
    topics: dict[str, TopicImage] = {}
    repairs: list[Step] = []
    reader = StateReader()
    grouped = by_topic(found)
    for path, name, data in children(found, nodes.TOPICS):
        assignment = nodes.read_topic(path, data)
        if assignment.topic_id == ZERO_ID:
            assignment = assignment._replace(topic_id=new_id())
            value = nodes.topic_value(
                assignment.topic_id,
                assignment.replicas,
                {int(index): tuple(ids) for index, ids in assignment.adding.items()},
                {int(index): tuple(ids) for index, ids in assignment.removing.items()},
            )
            repairs.append(Step([Set(path, value, found[path][1])]))
        if assignment.topic_id in waiting.get(name, ()):
            repairs += removal(grouped.get(name, [path]))
            continue
        partitions, missing = read_partitions(found, name, assignment, reader)
        topics[name] = TopicImage(name, assignment.topic_id, partitions)
        if missing:
            repairs += completion(found, name, missing, values)
    topic_configs = {}
    for path, name, data in children(others, nodes.TOPIC_CONFIGS):
        configs = nodes.read_config(path, data) if name in topics else {}
        if configs:
            topic_configs[name] = configs
        else:
            repairs += removal([path])  # there is a node only while there are configs
    for path, name, data in children(others, nodes.FORMER_GROUP_CONFIGS):
        repairs.append(Step([Create(f"{nodes.GROUP_CONFIGS}/{name}", data), Delete(path)]))
    registrations = {
        each.broker.id: each
        for path, _, data in children(others, nodes.REGISTRATIONS)
        for each in (nodes.read_registration(path, data),)
    }
    image = ClusterImage(
        cluster_id=read_cluster_id(found),
        brokers={broker_id: each.broker for broker_id, each in registrations.items()},
        topics=topics,
        topics_by_id={topic.id: topic for topic in topics.values()},
        topic_configs=topic_configs,
        broker_configs={
            "" if name == nodes.ALL_BROKERS else name: nodes.read_config(path, data)
            for path, name, data in children(others, nodes.BROKER_CONFIGS)
        },
        group_configs={
            nodes.unquoted(name): nodes.read_config(path, data)
            for parent in (nodes.GROUP_CONFIGS, nodes.FORMER_GROUP_CONFIGS)
            for path, name, data in children(others, parent)
        },
        features=read_features(found),
        acls=acl_nodes.read_acls(others),
        entity_configs=client_nodes.read_configs(others),
        scram_secret=scram_secret.read(found),
        tokens=token_nodes.read_tokens(others),
        deletions={topic_id: name for name, ids in waiting.items() for topic_id in ids},
    )
    epoch = nodes.read_broker_epoch(found.get(nodes.REGISTRATIONS, (b"", 0))[0])
    return Loaded(image, waiting, repairs, registrations, epoch)


class StateReader:
    """Reads states; equal values, which most are, are read once."""

    def __init__(self) -> None:
        self._read: dict[bytes, nodes.State] = {}

    def read(self, path: str, data: bytes) -> nodes.State:
        state = self._read.get(data)
        if state is None:
            state = self._read[data] = nodes.read_state(path, data)
        return state


def read_partitions(
    found: Nodes, name: str, assignment: nodes.Assignment, reader: StateReader
) -> tuple[tuple[PartitionImage, ...], list[PartitionImage]]:
    """All partitions of a topic, and those of them that have no state node yet."""
    partitions: list[PartitionImage] = []
    missing: list[PartitionImage] = []
    parent = nodes.partitions_path(name)
    moving = bool(assignment.adding or assignment.removing)
    for index, replicas in enumerate(assignment.replicas):
        path = f"{parent}/{index}/state"
        node = found.get(path)
        if node is None:
            # Its creation was cut short; it begins as it would have begun.
            partition = PartitionImage(index, replicas[0], 0, 0, replicas, replicas)
            missing.append(partition)
        else:
            state = reader.read(path, node[0])
            partition = PartitionImage(
                index,
                state.leader,
                state.leader_epoch,
                node[1],
                replicas,
                state.isr,
                elr=state.elr,
                last_known_leader=state.last_known_leader,
                recovering=state.recovering,
                wiped=state.wiped,
            )
        if moving:
            partition = partition._replace(
                adding_replicas=tuple(assignment.adding.get(str(index), ())),
                removing_replicas=tuple(assignment.removing.get(str(index), ())),
            )
        partitions.append(partition)
    return tuple(partitions), missing


def completion(
    found: Nodes, name: str, missing: list[PartitionImage], values: StateValues
) -> Iterator[Step]:
    """Make what a topic lacks."""

    def operations() -> Iterator[Operation]:
        if nodes.partitions_path(name) not in found:
            yield Create(nodes.partitions_path(name))
        for operation in states(name, missing, values):
            if operation.path not in found:
                yield operation

    return cut(operations(), ())


def by_topic(found: Nodes) -> dict[str, list[str]]:
    """The paths of topics that are being deleted, by topic; empty when none are."""
    grouped: dict[str, list[str]] = {}
    if not any(path.startswith(nodes.DELETIONS + "/") for path in found):
        return grouped
    start = len(nodes.TOPICS) + 1
    for path in found:
        if path.startswith(nodes.TOPICS + "/"):
            grouped.setdefault(path[start:].split("/", 1)[0], []).append(path)
    return grouped


def children(found: Nodes, parent: str) -> Iterator[tuple[str, str, bytes]]:
    """Path, name and data of the nodes right below the parent."""
    prefix = parent + "/"
    start = len(prefix)
    for path, (data, _) in found.items():
        if path.startswith(prefix) and "/" not in path[start:]:
            yield path, path[start:], data


def read_cluster_id(found: Nodes) -> str:
    node = found.get(nodes.CLUSTER_ID)
    return "" if node is None else nodes.read_cluster_id(nodes.CLUSTER_ID, node[0])


def read_features(found: Nodes) -> FeatureImage:
    node = found.get(nodes.FEATURES)
    if node is None:
        return FeatureImage({}, 0)
    return FeatureImage(nodes.read_features(nodes.FEATURES, node[0]), node[1])

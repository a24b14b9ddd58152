"""The controller's election, and the registration of brokers."""

from collections.abc import Iterator, Mapping, Sequence

from ottla.cluster import features, loading, nodes, steps
from ottla.cluster.configs import ELR_FEATURE, MIN_ISR
from ottla.cluster.image import (
    NO_LEADER,
    BrokerGone,
    BrokerInfo,
    BrokerRegistered,
    FeatureImage,
    PartitionImage,
)
from ottla.cluster.state import NotController, State
from ottla.cluster.steps import StateValues, Step
from ottla.cluster.topics import Collisions
from ottla.metadata_store.tree import Create, Delete, NodeExists, NoNode, Operation, Set

ELECTION = (nodes.CLUSTER_ID, nodes.FEATURES, nodes.CONTROLLER_EPOCH)


async def elect(state: State) -> None:
    """Become the controller, with an epoch that none had before, or raise NotController."""
    # Only what the election needs: the tree is read as a whole after it, when no other node writes.
    found = await present(state, (*nodes.FIXED, *ELECTION))
    operations: list[Operation] = [Create(path) for path in nodes.FIXED if path not in found]
    if nodes.CLUSTER_ID not in found:
        cluster_id = state.options.cluster_id or nodes.uuid_text(state.chance.uuid())
        value = nodes.dump({"version": "1", "id": cluster_id})
        operations.append(Create(nodes.CLUSTER_ID, value))
    if nodes.FEATURES not in found:
        levels = features.initial_levels(state.options.supported_features)
        operations.append(Create(nodes.FEATURES, nodes.features_value(FeatureImage(levels, 0))))
        operations += first_configs(state, levels)
    value, version = found.get(nodes.CONTROLLER_EPOCH, (b"0", -1))
    epoch = int(value) + 1
    if version < 0:
        operations.append(Create(nodes.CONTROLLER_EPOCH, str(epoch).encode()))
    else:
        operations.append(Set(nodes.CONTROLLER_EPOCH, str(epoch).encode(), version))
    now_ms = state.clock.now_ms()
    controller = nodes.controller_value(state.options.node_id, now_ms)
    operations.append(Create(nodes.CONTROLLER, controller, ephemeral=True))
    try:
        await state.tree.multi(operations)
    except NodeExists as error:
        raise NotController(f"another node is the controller: {error}") from error
    state.epoch = epoch
    state.epoch_version = version + 1
    state.values = StateValues(epoch)
    await load(state)


async def present(state: State, paths: Sequence[str]) -> dict[str, tuple[bytes, int]]:
    """Data and version of those nodes that exist, by path."""
    found = {}
    for path in paths:
        try:
            data, stat = await state.tree.get(path)
        except NoNode:
            continue
        found[path] = data, stat.version
    return found


def first_configs(state: State, levels: Mapping[str, int]) -> list[Operation]:
    """The configs that a new cluster begins with: see `configs.elr_error`."""
    value = state.options.min_insync_replicas
    if value is None or not levels.get(ELR_FEATURE):
        return []
    return [Create(nodes.broker_config_path(""), nodes.config_value({MIN_ISR: str(value)}))]


async def load(state: State) -> None:
    """Read the tree, finish what was begun, and start the feed with the whole image."""
    found = await state.tree.subtree("/")
    loaded = loading.read_cluster(found, state.values)
    brokers = state.image.brokers
    state.waiting = loaded.waiting
    node = found.get(nodes.PRODUCER_IDS)
    if node is not None:
        state.last_producer_id = nodes.read_producer_ids(nodes.PRODUCER_IDS, node[0])
    await state.write(loaded.repairs)
    state.decisions.collisions = Collisions(loaded.image.topics)
    state.feed.restart(
        loaded.image._replace(
            number=state.image.number + 1,
            controller_id=state.options.node_id,
            controller_epoch=state.epoch,
            brokers=brokers,
        )
    )


async def register_broker(state: State, broker: BrokerInfo) -> BrokerInfo:
    """Register a broker that has just started; what it leads gets a new leader epoch."""
    path = nodes.broker_path(broker.id)
    value = nodes.broker_value(broker, state.clock.now_ms())
    operations: list[Operation] = [Create(path, value, ephemeral=True)]
    if await state.tree.exists(path) is not None:
        operations.insert(0, Delete(path))
    await state.write([Step(operations)])
    stat = await state.tree.exists(path)
    registered = broker._replace(epoch=stat.created if stat is not None else -1, fenced=False)
    await state.write([Step([], [BrokerRegistered(registered)])])
    await state.write(new_leader_epochs(state, broker.id))
    return registered


async def unregister_broker(state: State, broker_id: int) -> None:
    """End the registration of a broker that has stopped."""
    if broker_id in state.image.brokers:
        operations = [Delete(nodes.broker_path(broker_id))]
        await state.write([Step(operations, [BrokerGone(broker_id)])])


def new_leader_epochs(state: State, broker_id: int) -> Iterator[Step]:
    """New leader epochs for all that the broker leads, or can lead where there is no leader."""
    for topic in list(state.image.topics.values()):
        changed = [
            restarted(partition, broker_id)
            for partition in topic.partitions
            if leads(partition, broker_id)
        ]
        if changed:
            yield from steps.state_changes(topic, changed, state.values)


def leads(partition: PartitionImage, broker_id: int) -> bool:
    """Whether a broker that starts leads the partition, or may because it has no leader."""
    if partition.leader == NO_LEADER:
        return broker_id in partition.isr
    return partition.leader == broker_id


def restarted(partition: PartitionImage, broker_id: int) -> PartitionImage:
    """The partition under a leader that has just started.

    A leader that has restarted may lack what it had not yet written to disk: followers and
    consumers must ask again where its log now ends (KIP-101).
    """
    return partition._replace(
        leader=broker_id,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
    )

"""The controller's election, and the registration of brokers.

A registration lasts longer than the broker that made it, so that another controller knows who was
fenced. What it says is written before all partitions that follow from it, or with the first: a
controller that takes over in between finishes that (`leadership.settle`).
"""

from collections.abc import Mapping, Sequence

from ottla.cluster import (
    acl_nodes,
    features,
    leadership,
    loading,
    nodes,
    reassignment_writes,
    scram_secret,
    token_nodes,
    topic_writes,
    tree_reading,
)
from ottla.cluster.configs import ELR_FEATURE, MIN_ISR
from ottla.cluster.elections import NOBODY, Stopped
from ottla.cluster.image import (
    ZERO_ID,
    BrokerGone,
    BrokerInfo,
    BrokerRegistered,
    FeatureImage,
    Levels,
)
from ottla.cluster.nodes import Registration
from ottla.cluster.requests import Refusal, ShutdownOutcome
from ottla.cluster.state import NOT_COUNTED, NotController, State
from ottla.cluster.steps import StateValues, Step
from ottla.cluster.topics import Collisions
from ottla.metadata_store.tree import (
    BadVersion,
    CorruptTree,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    Set,
)
from ottla.wire.errors import ErrorCode

FIXED = (*nodes.FIXED, *acl_nodes.FIXED, *token_nodes.FIXED)
ELECTION = (nodes.CLUSTER_ID, nodes.FEATURES, nodes.CONTROLLER_EPOCH, scram_secret.PATH)


async def elect(state: State, replace: bool = False) -> None:
    """Become the controller, with an epoch that none had before, or raise NotController.

    `replace`: also when there is one. That is safe at any time, because every write of a controller
    checks its epoch, but only one that is known to be gone should be replaced.
    """
    await state.tree.sync()
    # Only what the election needs: the tree is read as a whole after it, when no other node writes.
    found = await state.tree.get_many((*FIXED, *ELECTION, nodes.CONTROLLER))
    operations: list[Operation] = [Create(path) for path in FIXED if path not in found]
    if nodes.FEATURES in found:
        check_level(state, nodes.read_features(nodes.FEATURES, found[nodes.FEATURES][0]))
    if nodes.CLUSTER_ID not in found:
        cluster_id = state.options.cluster_id or nodes.uuid_text(state.chance.uuid())
        operations.append(Create(nodes.CLUSTER_ID, nodes.cluster_id_value(cluster_id)))
    if nodes.FEATURES not in found:
        levels = features.initial_levels(state.options.supported_features)
        operations.append(Create(nodes.FEATURES, nodes.features_value(FeatureImage(levels, 0))))
        operations += first_configs(state, levels)
    if scram_secret.PATH not in found:
        secret = state.chance.bytes(scram_secret.SECRET_BYTES)
        operations.append(scram_secret.creation(secret))
    value, version = found.get(nodes.CONTROLLER_EPOCH, (b"0", -1))
    epoch = nodes.read_controller_epoch(value) + 1
    if version < 0:
        operations.append(Create(nodes.CONTROLLER_EPOCH, str(epoch).encode()))
    else:
        operations.append(Set(nodes.CONTROLLER_EPOCH, str(epoch).encode(), version))
    now_ms = state.clock.now_ms()
    controller = nodes.controller_value(state.options.node_id, now_ms, state.options.address)
    if replace and nodes.CONTROLLER in found:
        operations.append(Delete(nodes.CONTROLLER))
    operations.append(Create(nodes.CONTROLLER, controller, ephemeral=True))
    try:
        state.note_count(await state.tree.multi([*operations, *state.counting()]))
    except (NodeExists, NoNode, BadVersion) as error:
        raise NotController(f"another node is the controller: {error}") from error
    state.opened_at = state.writes - 1 if state.options.others_write else NOT_COUNTED
    state.epoch = epoch
    state.epoch_version = version + 1
    state.values = StateValues(epoch)
    await load(state)
    await state.write([Step(await broker_nodes(state))])


def check_level(state: State, levels: Mapping[str, int]) -> None:
    """Raise CorruptTree, with a sentence for an operator, if the tree is of an unknown level."""
    level = features.metadata_level(FeatureImage(levels, 0))
    known = features.understood(state.options.supported_features)
    if level not in known:
        raise CorruptTree(
            f"metadata tree, node {nodes.FEATURES}",
            f"the cluster has level {level} of {nodes.METADATA_LEVEL}, and this version "
            f"understands {known.lowest} to {known.highest}; start the version that was here "
            "before, or a later one",
        )


async def broker_nodes(state: State) -> list[Operation]:
    """Nodes in this session of all live brokers but this one, which registers by itself.

    Nobody is fenced because the controller has changed: brokers have time to come back.
    """
    operations: list[Operation] = []
    for broker in state.image.brokers.values():
        if not broker.fenced and broker.id != state.options.node_id:
            operations += await broker_node(state, broker, None)
    return operations


def first_configs(state: State, levels: Mapping[str, int]) -> list[Operation]:
    """The configs that a new cluster begins with: see `configs.elr_error`."""
    value = state.options.min_insync_replicas
    if value is None or not levels.get(ELR_FEATURE):
        return []
    return [Create(nodes.broker_config_path(""), nodes.config_value({MIN_ISR: str(value)}))]


async def load(state: State) -> None:
    """Read the tree, finish what was begun, and start the feed with the whole image."""
    state.with_next.clear()
    await restore_fixed(state)
    found = await tree_reading.read_nodes(state.tree)
    loaded = loading.read_cluster(found, state.values, state.chance.uuid)
    state.waiting = loaded.waiting
    if state.options.others_write and nodes.OURS in found:
        await check_epoch(state)
        state.writes = found[nodes.OURS][1]  # more than before, if an answer was lost
    # Also when it is not there: what a failed write remembered was not written.
    node = found.get(nodes.PRODUCER_IDS)
    state.last_producer_id = (
        None if node is None else nodes.read_producer_ids(nodes.PRODUCER_IDS, node[0])
    )
    state.last_broker_epoch = loaded.broker_epoch
    state.stopped = Stopped(
        frozenset(each.broker.id for each in loaded.registrations.values() if each.unclean),
        frozenset(each.broker.id for each in loaded.registrations.values() if each.wiped),
    )
    await state.write(loaded.repairs)
    state.decisions.collisions = Collisions(loaded.image.topics)
    state.feed.restart(
        loaded.image._replace(
            number=state.image.number + 1,
            controller_id=state.options.node_id,
            controller_epoch=state.epoch,
        )
    )
    await leadership.settle(state)
    await reassignment_writes.resume(state)
    state.registered_at = dict.fromkeys(state.image.brokers, state.image.number)


async def check_epoch(state: State) -> None:
    """Raise BadVersion if another controller has been elected by now: what was read before may have
    its writes. Counted as this one's, brokers that saw the count would take the tree for an earlier
    copy, for the other controller had opened it with fewer.
    """
    _, stat = await state.tree.get(nodes.CONTROLLER_EPOCH)
    if stat.version != state.epoch_version:
        raise BadVersion(nodes.CONTROLLER_EPOCH, "another node is the controller")


async def restore_fixed(state: State) -> None:
    """Make the fixed nodes again that an operator has deleted: nothing could be made below them.

    Not our own: without the registrations below it the tree is another one.
    """
    kafkas = [path for path in FIXED if not path.startswith(nodes.OURS)]
    found = await state.tree.get_many(kafkas)
    missing: list[Operation] = [Create(path) for path in kafkas if path not in found]
    await state.write([Step(missing)])


async def register_broker(state: State, broker: BrokerInfo, previous_epoch: int) -> BrokerInfo:
    """Register a broker that has just started, fenced; what it led is led by others.

    The only broker of a cluster, beside its controller, is unfenced at once: nobody else can lead
    what it leads.
    """
    known = state.image.brokers.get(broker.id)
    if known is not None and broker.incarnation == known.incarnation != ZERO_ID:
        return await amend_broker(state, known, broker)
    clean = known is not None and known.epoch == previous_epoch
    wiped = known is None or not set(known.directories) <= set(broker.directories)
    alone = broker.id == state.options.node_id and not state.image.brokers.keys() - {broker.id}
    new = broker._replace(
        epoch=state.last_broker_epoch + 1, fenced=not alone, in_controlled_shutdown=False
    )
    stopped = Stopped(
        frozenset(() if clean and not wiped else (new.id,)),
        frozenset((new.id,) if wiped and not alone else ()),
    )
    if alone:
        await write_registration(state, new, NOBODY)
        await leadership.restart(state, new, stopped)
        return new
    state.applied.pop(new.id, None)
    await settle(state, new, stopped)
    state.registered_at[new.id] = state.image.number
    return new


async def amend_broker(state: State, known: BrokerInfo, broker: BrokerInfo) -> BrokerInfo:
    """The same process once more: it keeps its epoch and its rights."""
    new = broker._replace(
        epoch=known.epoch,
        fenced=known.fenced,
        in_controlled_shutdown=known.in_controlled_shutdown,
    )
    if new != known:
        await write_registration(state, new, of(state.stopped, new.id))
    return new


async def note_levels(state: State, broker_id: int, broker_epoch: int, levels: Levels) -> None:
    """A broker says which levels it understands; the controller it registered with did not ask."""
    broker = state.image.brokers.get(broker_id)
    if broker is not None and broker.epoch == broker_epoch and broker.levels != levels:
        new = broker._replace(levels=levels)
        await write_registration(state, new, of(state.stopped, broker_id))


async def unfence_broker(state: State, broker_id: int, broker_epoch: int) -> None:
    """A broker has caught up: it may lead what has no leader, and join ISRs."""
    broker = state.image.brokers.get(broker_id)
    if broker is not None and broker.epoch == broker_epoch and broker.fenced:
        await settle(state, broker._replace(fenced=False), NOBODY)


async def fence_brokers(state: State, gone: Sequence[tuple[int, int]]) -> ErrorCode:
    """These brokers, each with its epoch, are gone: others lead what they led, where they can.

    Those that died together leave an ISR in one change. One after the other, the first would leave
    an ISR that is large enough without it, and could not lead again before the last.
    """
    errors = [epoch_error(state, *each) for each in gone]
    fenced = [
        broker._replace(fenced=True)
        for (broker_id, _), error in zip(gone, errors, strict=True)
        if error == ErrorCode.NONE and not (broker := state.image.brokers[broker_id]).fenced
    ]
    if fenced:
        first = [await registration(state, each, NOBODY) for each in fenced]
        await leadership.settle(state, fenced, first)
        for broker in fenced:
            state.registered_at[broker.id] = state.image.number
    return max(errors, default=ErrorCode.NONE)


async def controlled_shutdown(state: State, broker_id: int, broker_epoch: int) -> ShutdownOutcome:
    """A broker is about to stop: it leaves the ISRs, and others lead what it led."""
    error = epoch_error(state, broker_id, broker_epoch)
    broker = state.image.brokers.get(broker_id)
    if error != ErrorCode.NONE or broker is None:
        return ShutdownOutcome(error)
    if not broker.fenced and not broker.in_controlled_shutdown:
        await settle(state, broker._replace(in_controlled_shutdown=True), NOBODY)
        state.registered_at[broker_id] = state.image.number
    moved_at = state.registered_at.get(broker_id, 0)
    behind = sum(
        state.applied.get(each.id, 0) < moved_at
        for each in state.image.brokers.values()
        if each.active
    )
    return ShutdownOutcome(behind=behind)


async def unregister_broker(state: State, broker_id: int) -> Refusal | None:
    """End the registration of a broker that does not come back."""
    broker = state.image.brokers.get(broker_id)
    if broker is None:
        message = f"Broker ID {broker_id} is not currently registered"
        return Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, message)
    # Its replicas are counted as lost: it is out of ISRs and ELRs before nothing is known of it.
    stopped = Stopped(frozenset((broker_id,)))
    await settle(state, broker._replace(fenced=True), stopped)
    await topic_writes.confirm_deletions(state, broker_id, list(state.image.deletions))
    operations: list[Operation] = [Delete(nodes.registration_path(broker_id))]
    await state.write([Step(operations, [BrokerGone(broker_id)])])
    state.stopped = without(state.stopped, broker_id)
    state.registered_at.pop(broker_id, None)
    return None


def epoch_error(state: State, broker_id: int, broker_epoch: int) -> ErrorCode:
    """STALE_BROKER_EPOCH unless the broker is registered with that epoch."""
    broker = state.image.brokers.get(broker_id)
    known = broker is not None and broker.epoch == broker_epoch
    return ErrorCode.NONE if known else ErrorCode.STALE_BROKER_EPOCH


async def write_registration(state: State, broker: BrokerInfo, stopped: Stopped) -> None:
    """Write what is known of a broker, and publish it."""
    await state.write([await registration(state, broker, stopped)])


async def settle(state: State, broker: BrokerInfo, stopped: Stopped) -> None:
    """Write what is known of a broker, and bring the partitions in line with it."""
    first = await registration(state, broker, stopped)
    await leadership.settle(state, [broker], [first])


async def registration(state: State, broker: BrokerInfo, stopped: Stopped) -> Step:
    """The step that writes what is known of a broker; the controller's own notes at once."""
    known = state.image.brokers.get(broker.id)
    path = nodes.registration_path(broker.id)
    unclean, wiped = broker.id in stopped.unclean, broker.id in stopped.wiped
    value = nodes.registration_value(Registration(broker, unclean, wiped))
    operations: list[Operation] = [Create(path, value) if known is None else Set(path, value)]
    if broker.epoch > state.last_broker_epoch:
        operations.append(Set(nodes.REGISTRATIONS, str(broker.epoch).encode()))
    operations += await broker_node(state, broker, known)
    state.last_broker_epoch = max(broker.epoch, state.last_broker_epoch)
    others = without(state.stopped, broker.id)
    state.stopped = Stopped(others.unclean | stopped.unclean, others.wiped | stopped.wiped)
    return Step(operations, [BrokerRegistered(broker)])


async def broker_node(
    state: State, broker: BrokerInfo, known: BrokerInfo | None
) -> list[Operation]:
    """Kafka's node of a live broker: there while it is not fenced.

    Where brokers have sessions of their own, each keeps its node by itself.
    """
    if state.options.others_write:
        return []
    path = nodes.broker_path(broker.id)
    there = await state.tree.exists(path) is not None
    operations: list[Operation] = []
    same = known is not None and (known.epoch, known.endpoints) == (broker.epoch, broker.endpoints)
    if there and (broker.fenced or not same):
        operations.append(Delete(path))
    if not broker.fenced and not (there and same):
        value = nodes.broker_value(broker, state.clock.now_ms())
        operations.append(Create(path, value, ephemeral=True))
    return operations


def of(stopped: Stopped, broker_id: int) -> Stopped:
    """The part of `stopped` that is about one broker."""
    one = frozenset((broker_id,))
    return Stopped(stopped.unclean & one, stopped.wiped & one)


def without(stopped: Stopped, broker_id: int) -> Stopped:
    """`stopped` without one broker."""
    one = frozenset((broker_id,))
    return Stopped(stopped.unclean - one, stopped.wiped - one)

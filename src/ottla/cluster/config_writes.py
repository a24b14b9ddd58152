"""Changes of configs, features and producer ids: decided by pure functions, written here."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from ottla.cluster import configs, features, leadership, nodes
from ottla.cluster.configs import ConfigRules
from ottla.cluster.image import (
    AclsChanged,
    BrokerConfigured,
    BrokerRegistered,
    Change,
    ClusterImage,
    EntityConfigured,
    FeatureImage,
    FeaturesChanged,
    GroupConfigured,
    SecretChanged,
    TokenChanged,
    TopicConfigured,
)
from ottla.cluster.producer_ids import BLOCK_SIZE, end_of_used, next_block
from ottla.cluster.requests import (
    ConfigOutcome,
    FeaturesOutcome,
    FeatureUpdate,
    Refusal,
    Resource,
    ResourceType,
)
from ottla.cluster.state import State
from ottla.cluster.steps import Step
from ottla.metadata_store.tree import Create, Delete, Operation, Set
from ottla.wire.errors import ErrorCode
from ottla.wire.feed_records import SECURITY_LEVEL, TOKENS_LEVEL

WantedT = TypeVar("WantedT")


async def alter(
    state: State,
    resources: Sequence[tuple[Resource, WantedT]],
    decide: Callable[[ClusterImage, ConfigRules, Resource, WantedT], dict[str, str] | Refusal],
    validate_only: bool,
) -> list[ConfigOutcome]:
    """Change the configs of each resource to what `decide` makes of what is wanted of it."""
    outcomes: list[ConfigOutcome] = []
    changed: list[Step] = []
    elects = False
    for resource, wanted in resources:
        decided = decide(state.image, state.rules, resource, wanted)
        if isinstance(decided, Refusal):
            outcomes.append(ConfigOutcome(resource, *decided))
            continue
        outcomes.append(ConfigOutcome(resource))
        old = configs.configs_of(state.image, resource)
        if old.get(configs.MIN_ISR) != decided.get(configs.MIN_ISR):
            # Before the leaders know of it: one of them may commit with fewer replicas then.
            changed += leadership.without_elr(state, resource)
        elects |= old.get(configs.UNCLEAN_ELECTION) != decided.get(configs.UNCLEAN_ELECTION)
        changed.append(config_step(state, resource, decided))
    if not validate_only:
        await state.write(changed)
        if elects:
            await leadership.settle(state)
    return outcomes


def config_step(state: State, resource: Resource, new: dict[str, str]) -> Step:
    """Write the configs of one resource; it has a node only while it has configs."""
    old = configs.configs_of(state.image, resource)
    change: Change
    if resource.type == ResourceType.TOPIC:
        path = nodes.topic_config_path(resource.name)
        change = TopicConfigured(resource.name, new)
    elif resource.type == ResourceType.GROUP:
        path = nodes.group_config_path(resource.name)
        change = GroupConfigured(resource.name, new)
    else:
        path = nodes.broker_config_path(resource.name)
        change = BrokerConfigured(resource.name, new)
    operations: list[Operation] = []
    if new and new != old:
        value = nodes.config_value(new)
        operations = [Set(path, value) if old else Create(path, value)]
    elif old and not new:
        operations = [Delete(path)]
    # A broker takes its configs again even when they are the same: what they point to, such as
    # a key store, may have changed (KAFKA-14136).
    if not operations and resource.type != ResourceType.BROKER:
        return Step([])
    return Step(operations, [change])


async def update_features(
    state: State, updates: Sequence[FeatureUpdate], validate_only: bool
) -> FeaturesOutcome:
    """Finalize other feature levels: all that are asked for, or none."""
    old = state.image.features
    supported = state.options.supported_features
    brokers = state.image.brokers
    decided = features.updated(old, supported, updates, state.options.node_id, brokers)
    if isinstance(decided, Refusal):
        return FeaturesOutcome(*decided)
    if decided != old.levels and not validate_only:
        new = FeatureImage(decided, old.epoch + 1)
        operations = [Set(nodes.FEATURES, nodes.features_value(new), old.epoch)]
        before, after = (bool(levels.get(configs.ELR_FEATURE)) for levels in (old.levels, decided))
        first = min_isr_steps(state) if after and not before else []
        if before and not after:
            first += leadership.isr_steps(state)
        changes: list[Change] = [FeaturesChanged(new)]
        if features.metadata_level(new) > features.metadata_level(old):
            # Fields of the new level, which were left out until now.
            changes += [BrokerRegistered(broker) for broker in brokers.values()]
            changes += [AclsChanged(*each) for each in state.image.acls.items()]
            changes += [EntityConfigured(*each) for each in state.image.entity_configs.items()]
            if features.metadata_level(new) >= SECURITY_LEVEL:
                changes.append(SecretChanged(state.image.scram_secret))
            if features.metadata_level(new) >= TOKENS_LEVEL:
                changes += map(TokenChanged, state.image.tokens.values())
        await state.write([*first, Step(operations, changes)])
        if before != after:
            await leadership.settle(state)
    return FeaturesOutcome()


def min_isr_steps(state: State) -> list[Step]:
    """Before eligible leader replicas: min.insync.replicas of the cluster, none of brokers."""
    found: list[Step] = []
    for name in dict.fromkeys(("", *state.image.broker_configs)):
        resource = Resource(ResourceType.BROKER, name)
        new = dict(configs.configs_of(state.image, resource))
        if name:
            new.pop(configs.MIN_ISR, None)
        else:
            new.setdefault(configs.MIN_ISR, str(state.options.min_insync_replicas or 1))
        if new != configs.configs_of(state.image, resource):
            found.append(config_step(state, resource, new))
    return found


async def skip_producer_ids(state: State, broker_id: int, highest: int) -> None:
    """Allocate only ids beyond `highest`, which is in use already, from now on."""
    last = end_of_used(highest)
    if state.last_producer_id is not None and state.last_producer_id >= last:
        return
    await write_producer_ids(state, broker_id, range(last - BLOCK_SIZE + 1, last + 1))


async def allocate_producer_ids(state: State, broker_id: int) -> range | Refusal:
    """A block of producer ids that was and will be allocated to no other broker."""
    block = next_block(state.last_producer_id)
    if block is None:
        message = "Exhausted all producerIds as the next block's end producerId has exceeded"
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, message)
    await write_producer_ids(state, broker_id, block)
    return block


async def write_producer_ids(state: State, broker_id: int, block: range) -> None:
    value = nodes.producer_ids_value(broker_id, block[0], block[-1])
    operation: Operation = Set(nodes.PRODUCER_IDS, value)
    if state.last_producer_id is None:
        operation = Create(nodes.PRODUCER_IDS, value)
    # Remembered first: should the write fail and yet have taken place, the block is lost, which
    # does no harm; handed out twice it would.
    state.last_producer_id = block[-1]
    await state.write([Step([operation])])

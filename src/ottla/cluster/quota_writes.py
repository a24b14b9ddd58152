"""Changes of client quotas: decided by Kafka's rules, written to the tree, published in the feed.

An entity has a node while it has configs, or nodes below it.
"""

from collections.abc import Mapping, Sequence

from ottla.cluster import client_nodes, nodes
from ottla.cluster.features import metadata_level
from ottla.cluster.image import Change, EntityConfigured
from ottla.cluster.nodes import METADATA_LEVEL
from ottla.cluster.requests import QuotaOutcome, Refusal
from ottla.cluster.state import State
from ottla.cluster.steps import Step
from ottla.metadata_store.tree import Create, Delete, NoNode, Operation, Set
from ottla.security.quotas.entities import Alteration, BadQuota, Entity, altered, shown
from ottla.wire.errors import ErrorCode
from ottla.wire.feed_records import SECURITY_LEVEL

# Values set or removed by one request: Kafka's MAX_RECORDS_PER_USER_OP.
OPERATIONS_PER_REQUEST_MAX = 10_000
# Of one name: a path of the tree is not for more, nor would Kafka's be.
NAME_BYTES_MAX = 10_000

TOO_MANY = Refusal(
    ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
)
NO_LEVEL = Refusal(
    ErrorCode.UNSUPPORTED_VERSION,
    f"Quotas need level {SECURITY_LEVEL} of {METADATA_LEVEL}, which the cluster has not",
)


async def alter_client_quotas(
    state: State, alterations: Sequence[Alteration], validate_only: bool
) -> list[QuotaOutcome]:
    """The outcome for each entity, in the order in which they were first named."""
    entities = dict.fromkeys(each.entity for each in alterations)
    if metadata_level(state.image.features) < SECURITY_LEVEL:
        return [QuotaOutcome(each, *NO_LEVEL) for each in entities]
    if sum(len(each.operations) for each in alterations) > OPERATIONS_PER_REQUEST_MAX:
        return [QuotaOutcome(each, *TOO_MANY) for each in entities]
    outcomes: dict[Entity, QuotaOutcome] = {}
    changed: dict[Entity, dict[str, str]] = {}
    for alteration in alterations:
        entity, operations = alteration
        if entity in outcomes or len(dict(operations)) < len(operations):
            # As Kafka says of a key named twice too.
            message = f"Ignoring duplicate entity {shown(entity)}"
            outcomes[entity] = QuotaOutcome(entity, ErrorCode.INVALID_REQUEST, message)
            continue
        try:
            check_names(entity)
            new = altered(state.image.entity_configs.get(entity, {}), entity, operations)
        except BadQuota as error:
            outcomes[entity] = QuotaOutcome(entity, ErrorCode.INVALID_REQUEST, str(error))
        else:
            outcomes[entity] = QuotaOutcome(entity)
            changed[entity] = new
    if not validate_only:
        for entity, new in changed.items():
            await write_configs(state, entity, new)
    return list(outcomes.values())


def check_names(entity: Entity) -> None:
    """Raises BadQuota for what no path can have."""
    for kind, name in entity:
        if name is not None and len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
            raise BadQuota(f"A {kind} of more than {NAME_BYTES_MAX} bytes is not supported")


async def write_configs(state: State, entity: Entity, new: Mapping[str, str]) -> None:
    """Give an entity these configs, those that are no quotas among them."""
    if new == state.image.entity_configs.get(entity, {}):
        return
    path = client_nodes.path_of(entity)
    operations = await setting(state, path, new) if new else await removing(state, path)
    changes: list[Change] = [EntityConfigured(entity, new)]
    await state.write([Step(operations, changes)])


async def setting(state: State, path: str, new: Mapping[str, str]) -> list[Operation]:
    value = nodes.config_value(new)
    paths = [path, *(each for each in parents(path))]
    found = await state.tree.get_many(paths)
    if path in found:
        return [Set(path, value)]
    missing = [each for each in reversed(paths[1:]) if each not in found]
    return [*map(Create, missing), Create(path, value)]


async def removing(state: State, path: str) -> list[Operation]:
    """Delete a node, and those above it that are there for nothing else."""
    found = await state.tree.get_many([path, *parents(path)])
    if path not in found:
        return []
    if await children(state, path):
        return [Set(path, nodes.config_value({}))]
    operations: list[Operation] = [Delete(path)]
    below = path
    for parent in parents(path):
        data = found[parent][0] if parent in found else b""
        if await children(state, parent) != [below.rpartition("/")[2]] or has_configs(parent, data):
            break
        operations.append(Delete(parent))
        below = parent
    return operations


def parents(path: str) -> list[str]:
    """The nodes above an entity's, nearest first, that are not always there."""
    found = []
    while path.count("/") > 3:  # /config/users/NAME
        path = path.rpartition("/")[0]
        found.append(path)
    return found


async def children(state: State, path: str) -> list[str]:
    try:
        return await state.tree.children(path)
    except NoNode:
        return []


def has_configs(path: str, data: bytes) -> bool:
    try:
        return bool(client_nodes.read_value(path, data))
    except nodes.CorruptNode:
        return True  # an operator's, whatever it is

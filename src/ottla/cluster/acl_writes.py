"""Changes of ACLs: decided by Kafka's rules, written to the tree, published in the feed."""

from collections.abc import Iterable, Mapping, Sequence

from ottla.cluster import acl_nodes
from ottla.cluster.features import metadata_level
from ottla.cluster.image import AclsChanged, Change
from ottla.cluster.nodes import METADATA_LEVEL
from ottla.cluster.requests import DeletedAcls, Refusal
from ottla.cluster.state import State
from ottla.cluster.steps import STEP_BYTES_MAX, Step
from ottla.metadata_store.tree import Create, Delete, Operation, Set
from ottla.security import acls
from ottla.security.acls import Acl, AclBinding, AclFilter, PatternType, Permission, ResourcePattern
from ottla.wire.errors import ErrorCode
from ottla.wire.feed_records import SECURITY_LEVEL

# Created or deleted by one request: Kafka's MAX_RECORDS_PER_USER_OP.
ACLS_PER_REQUEST_MAX = 10_000
# Of one pattern: they are one node of the tree, and one record of the feed. Some 4,000 to 8,000.
PATTERN_BYTES_MAX = 4 * STEP_BYTES_MAX

TOO_MANY = Refusal(
    ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
)
TOO_MANY_DELETED = (
    f"Cannot remove more than {ACLS_PER_REQUEST_MAX} acls in a single delete operation."
)
TOO_MANY_OF_PATTERN = Refusal(
    ErrorCode.POLICY_VIOLATION,
    f"The ACLs of one resource pattern may take {PATTERN_BYTES_MAX} bytes at most",
)
NO_LEVEL = Refusal(
    ErrorCode.UNSUPPORTED_VERSION,
    f"ACLs need level {SECURITY_LEVEL} of {METADATA_LEVEL}, which the cluster has not",
)

Entries = dict[ResourcePattern, tuple[Acl, ...]]


async def create_acls(state: State, wanted: Sequence[AclBinding]) -> list[Refusal | None]:
    """The outcome of each; one that exists already is created once more."""
    if metadata_level(state.image.features) < SECURITY_LEVEL:
        return [NO_LEVEL] * len(wanted)
    known = state.image.acls
    outcomes = [creation_error(binding) for binding in wanted]
    new: dict[ResourcePattern, dict[Acl, None]] = {}
    for (pattern, acl), refusal in zip(wanted, outcomes, strict=True):
        if refusal is None and acl not in new.get(pattern, ()):
            if pattern not in new:
                new[pattern] = dict.fromkeys(known.get(pattern, ()))
            new[pattern][acl] = None
    if sum(len(entries) - len(known.get(each, ())) for each, entries in new.items()) > (
        ACLS_PER_REQUEST_MAX
    ):
        return [TOO_MANY] * len(wanted)
    changed = {
        pattern: tuple(entries)
        for pattern, entries in new.items()
        if len(entries) > len(known.get(pattern, ()))
    }
    large = {
        pattern
        for pattern, entries in changed.items()
        if len(acl_nodes.value_of(entries)) > PATTERN_BYTES_MAX
    }
    if large:
        for place, (pattern, _) in enumerate(wanted):
            outcomes[place] = outcomes[place] or (TOO_MANY_OF_PATTERN if pattern in large else None)
        changed = {pattern: changed[pattern] for pattern in changed if pattern not in large}
    await state.write(steps_of(known, changed))
    return outcomes


async def delete_acls(state: State, filters: Sequence[AclFilter]) -> list[DeletedAcls]:
    """What each filter has deleted; an ACL that several match is named by each."""
    known = state.image.acls
    outcomes: list[DeletedAcls] = []
    gone: dict[AclBinding, None] = {}
    for each in filters:
        refusal = filter_error(each)
        if refusal is not None:
            outcomes.append(DeletedAcls(*refusal))
            continue
        found = list(acls.matching(known, each))
        outcomes.append(DeletedAcls(bindings=found))
        gone.update(dict.fromkeys(found))
    if len(gone) > ACLS_PER_REQUEST_MAX:
        refusal = Refusal(ErrorCode.INVALID_REQUEST, TOO_MANY_DELETED)
        return [DeletedAcls(*refusal)] * len(filters)
    patterns = dict.fromkeys(pattern for pattern, _ in gone)
    await state.write(
        steps_of(
            known,
            {
                pattern: tuple(
                    acl for acl in known[pattern] if AclBinding(pattern, acl) not in gone
                )
                for pattern in patterns
            },
        )
    )
    return outcomes


def steps_of(
    known: Mapping[ResourcePattern, tuple[Acl, ...]],
    changed: Mapping[ResourcePattern, Sequence[Acl]],
) -> Iterable[Step]:
    """Give each pattern these ACLs; it has a node only while it has some."""
    for pattern, entries in changed.items():
        path = acl_nodes.path_of(pattern)
        operation: Operation
        if not entries:
            operation = Delete(path)
        elif pattern in known:
            operation = Set(path, acl_nodes.value_of(entries))
        else:
            operation = Create(path, acl_nodes.value_of(entries))
        changes: list[Change] = [AclsChanged(pattern, tuple(entries))]
        yield Step([operation], changes)


def creation_error(binding: AclBinding) -> Refusal | None:
    """What Kafka's controller has against an ACL."""
    pattern, acl = binding
    message = None
    if pattern.type <= acls.ResourceType.ANY:
        message = f"Invalid resourceType {pattern.type.name}"
    elif pattern.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        message = f"Invalid patternType {pattern.pattern.name}"
    elif acl.operation <= acls.Operation.ANY:
        message = f"Invalid operation {acl.operation.name}"
    elif acl.permission not in (Permission.DENY, Permission.ALLOW):
        message = f"Invalid permissionType {acl.permission.name}"
    elif not pattern.name:
        message = "Resource name should not be empty"
    elif ":" not in acl.principal:
        message = (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating "
            "the principal type from the principal name)"
        )
    return None if message is None else Refusal(ErrorCode.INVALID_REQUEST, message)


def filter_error(wanted: AclFilter) -> Refusal | None:
    if 0 in (wanted.type, wanted.pattern):
        return Refusal(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
    if wanted.is_unknown:
        return Refusal(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")
    return None

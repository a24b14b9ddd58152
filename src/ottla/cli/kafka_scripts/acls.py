"""kafka-acls.sh: add, remove and list ACLs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from ottla.client.admin.acl_types import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

from .options import BOOTSTRAP, COMMAND_CONFIG, Given, Option, Parser
from .running import admin_of, entry

if TYPE_CHECKING:
    from ottla.client.admin import Admin

PATTERNS = {each.name.lower(): each for each in ACLResourcePatternType if each}
CLUSTER = ResourcePatternFilter(
    ResourceType.CLUSTER, "kafka-cluster", ACLResourcePatternType.LITERAL
)
Op = ACLOperation
# What can be done to resources of each type; ALL besides.
SUPPORTED = {
    ResourceType.TOPIC: {
        Op.READ, Op.WRITE, Op.CREATE, Op.DESCRIBE, Op.DELETE, Op.ALTER, Op.DESCRIBE_CONFIGS,
        Op.ALTER_CONFIGS,
    },
    ResourceType.GROUP: {
        Op.READ, Op.DESCRIBE, Op.DELETE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS,
    },
    ResourceType.CLUSTER: {
        Op.CREATE, Op.CLUSTER_ACTION, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS, Op.IDEMPOTENT_WRITE,
        Op.ALTER, Op.DESCRIBE,
    },
    ResourceType.TRANSACTIONAL_ID: {Op.DESCRIBE, Op.WRITE, Op.TWO_PHASE_COMMIT},
    ResourceType.DELEGATION_TOKEN: {Op.DESCRIBE},
    ResourceType.USER: {Op.CREATE_TOKENS, Op.DESCRIBE_TOKENS},
}  # fmt: skip
NAMED = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "delegation-token": ResourceType.DELEGATION_TOKEN,
    "user-principal": ResourceType.USER,
}


def camel(part: IntEnum) -> str:
    return part.name.title().replace("_", "")


OPERATIONS = {camel(each).lower(): each for each in Op} | {each.name.lower(): each for each in Op}


def pattern_type(text: str) -> ACLResourcePatternType:
    if text.lower() not in PATTERNS:
        raise ValueError(text)
    return PATTERNS[text.lower()]


PARSER = Parser(
    "kafka-acls.sh",
    "add, remove and list ACLs",
    [
        BOOTSTRAP,
        Option("bootstrap-controller", "HOST:PORT", skipped="brokers and controllers are one here"),
        COMMAND_CONFIG,
        Option("add", about="add ACLs"),
        Option("remove", about="remove ACLs"),
        Option("list", about="list ACLs, of the resources given or of all"),
        Option("topic", "TOPIC", "a topic; '*' means all"),
        Option("group", "GROUP", "a group; '*' means all"),
        Option("transactional-id", "ID", "a transactional id; '*' means all"),
        Option("delegation-token", "TOKEN", "a delegation token; '*' means all"),
        Option("user-principal", "USER", "a user, about whose tokens the ACLs are"),
        Option("cluster", about="the cluster"),
        Option(
            "resource-pattern-type",
            "|".join(PATTERNS),
            "which names a resource means; any and match are for --list and --remove",
            default=ACLResourcePatternType.LITERAL,
            kind=pattern_type,
        ),
        Option("operation", "OPERATION", "what is allowed or denied (default: All)"),
        Option("allow-principal", "PRINCIPAL", "who is allowed it, as User:alice"),
        Option("deny-principal", "PRINCIPAL", "who is denied it"),
        Option("allow-host", "HOST", "from where it is allowed (default: *)"),
        Option("deny-host", "HOST", "from where it is denied (default: *)"),
        Option("principal", "[PRINCIPAL]", "with --list: whose ACLs"),
        Option("producer", about="what a producer needs: Write, Describe, Create on the topic"),
        Option("consumer", about="what a consumer needs: Read, Describe on the topic, Read on the "
               "group"),
        Option("idempotent", about="with --producer: without a transactional id, IdempotentWrite"),
        Option("force", about="do not ask for confirmation"),
    ],
)  # fmt: skip


class Entry(NamedTuple):
    """An ACL without its resource; as Java shows it."""

    principal: str
    host: str
    operation: ACLOperation
    permission: ACLPermissionType

    def __str__(self) -> str:
        return (
            f"(principal={self.principal}, host={self.host}, operation={self.operation.name}, "
            f"permissionType={self.permission.name})"
        )


Wanted = dict[ResourcePatternFilter, list[Entry]]


def run(arguments: Sequence[str]) -> int:
    given = PARSER.parse(arguments)
    action = given.one_of("add", "remove", "list")
    check(given)
    if action == "add":
        return add(given)
    return remove(given) if action == "remove" else show(given)


def check(given: Given) -> None:
    """What cannot stand together, in Kafka's order."""
    principals = ("allow-host", "allow-principal", "deny-host", "deny-principal")
    given.exclude("list", ("producer", "consumer", *principals))
    for role in ("producer", "consumer"):
        given.exclude(role, ("operation", "deny-principal", "deny-host"))
    if given.has("principal") and not given.has("list"):
        PARSER.refuse("--principal is for --list")
    if given.has("producer") and not given.has("topic"):
        PARSER.refuse("--producer needs a --topic")
    if given.has("idempotent") and not given.has("producer"):
        PARSER.refuse("--idempotent is for --producer")
    if given.has("consumer"):
        others = given.has("cluster") or given.has("transactional-id")
        if not (given.has("topic") and given.has("group")):
            PARSER.refuse("--consumer needs a --topic and a --group")
        if others and not given.has("producer"):
            PARSER.refuse("--consumer knows no --cluster and no --transactional-id")


def add(given: Given) -> int:
    kind = given.value("resource-pattern-type")
    if kind not in (ACLResourcePatternType.LITERAL, ACLResourcePatternType.PREFIXED):
        PARSER.refuse(f"--resource-pattern-type {kind.name.lower()} is for --list and --remove")
    wanted = acls_by_resource(given)
    if not all(wanted.values()):
        PARSER.refuse("--add needs --allow-principal or --deny-principal")
    with admin_of(given) as admin:
        for resource, asked in wanted.items():
            there = by_resource(admin, [resource]).get(resource, [])
            entries = [each for each in asked if each not in there]
            for each in asked:
                if each in there:
                    print(f"Acl (pattern={text_of(resource)}, entry={each}) already exists.")
            if not entries:
                continue
            print(f"Adding ACLs for resource `{text_of(resource)}`: \n {listed(entries)}\n")
            pattern = ResourcePattern(
                resource.resource_type, resource.resource_name or "", resource.pattern_type
            )
            created = admin.create_acls(
                ACL(each.principal, each.host, each.operation, each.permission, pattern)
                for each in entries
            )
            if created["failed"]:
                raise created["failed"][0]
    return 0


def remove(given: Given) -> int:
    from ottla.client.errors import BrokerResponseError

    wanted = acls_by_resource(given)
    with admin_of(given) as admin:
        for resource, entries in wanted.items():
            question = (
                "Are you sure you want to delete all ACLs for resource filter "
                f"`{text_of(resource)}`? (y/n)"
            )
            filters = [ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, resource)]
            if entries:
                question = (
                    f"Are you sure you want to remove ACLs: \n {listed(entries)} \n"
                    f" from resource filter `{text_of(resource)}`? (y/n)"
                )
                filters = [
                    ACLFilter(each.principal, each.host, each.operation, each.permission, resource)
                    for each in entries
                ]
            if confirmed(given, question):
                for _, _, error in admin.delete_acls(filters):
                    if isinstance(error, BrokerResponseError):
                        raise error
    return 0


def show(given: Given) -> int:
    with admin_of(given) as admin:
        found = by_resource(admin, resources_in(given))
    principals = [principal(each) for each in given.values("principal")]
    if not given.has("principal"):
        print_acls(found)
    for who in principals:
        print(f"ACLs for principal `{who}`")
        own = {
            resource: [each for each in entries if each.principal == who]
            for resource, entries in found.items()
        }
        print_acls({resource: entries for resource, entries in own.items() if entries})
    return 0


def by_resource(admin: Admin, resources: Sequence[ResourcePatternFilter]) -> Wanted:
    everything = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
    found: Wanted = {}
    for resource in resources or [everything]:
        asked = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, resource)
        for acl in admin.describe_acls(asked)[0]:
            entries = found.setdefault(acl.resource_pattern, [])
            entry = Entry(acl.principal, acl.host, acl.operation, acl.permission_type)
            if entry not in entries:
                entries.append(entry)
    return found


def print_acls(found: Wanted) -> None:
    for resource, entries in found.items():
        print(f"Current ACLs for resource `{text_of(resource)}`:\n{listed(entries)}\n")


def acls_by_resource(given: Given) -> Wanted:
    """What the options say, by resource; with a role what that needs."""
    resources = resources_in(given)
    if not resources:
        PARSER.refuse("no resource is given: --topic, --cluster, --group or another one")
    wanted: Wanted = {}
    if not given.has("producer") and not given.has("consumer"):
        operations = [operation(each) for each in given.values("operation") or ["All"]]
        entries = entries_of(given, operations)
        wanted = {resource: list(entries) for resource in resources}
    for role, kind, operations in (
        ("producer", ResourceType.TOPIC, [Op.WRITE, Op.DESCRIBE, Op.CREATE]),
        ("producer", ResourceType.TRANSACTIONAL_ID, [Op.WRITE, Op.DESCRIBE]),
        ("consumer", ResourceType.TOPIC, [Op.READ, Op.DESCRIBE]),
        ("consumer", ResourceType.GROUP, [Op.READ]),
    ):
        if given.has(role):
            for resource in resources:
                if resource.resource_type is kind:
                    merge(wanted.setdefault(resource, []), entries_of(given, operations))
    if given.has("idempotent"):
        merge(wanted.setdefault(CLUSTER, []), entries_of(given, [Op.IDEMPOTENT_WRITE]))
    for resource, entries in wanted.items():
        supported = SUPPORTED[resource.resource_type] | {Op.ALL}
        if not {each.operation for each in entries} <= supported:
            names = ", ".join(sorted(map(camel, supported)))
            PARSER.refuse(f"{resource.resource_type.name} only supports the operations {names}")
    return wanted


def merge(entries: list[Entry], more: Iterable[Entry]) -> None:
    entries += [each for each in more if each not in entries]


def resources_in(given: Given) -> list[ResourcePatternFilter]:
    how = given.value("resource-pattern-type")
    found = [
        ResourcePatternFilter(kind, name.strip(), how)
        for option, kind in NAMED.items()
        for name in given.values(option)
    ]
    literal = how is ACLResourcePatternType.LITERAL
    if literal and (given.has("cluster") or given.has("idempotent")):
        found.append(CLUSTER)
    return list(dict.fromkeys(found))


def entries_of(given: Given, operations: Iterable[ACLOperation]) -> list[Entry]:
    found: list[Entry] = []
    for word, permission in (("allow", ACLPermissionType.ALLOW), ("deny", ACLPermissionType.DENY)):
        principals = [principal(each) for each in given.values(f"{word}-principal")]
        hosts = [each.strip() for each in given.values(f"{word}-host")] or ["*"]
        merge(
            found,
            (
                Entry(who, host, what, permission)
                for who, what, host in product(principals, operations, hosts)
            ),
        )
    return found


def principal(text: str) -> str:
    text = text.strip()
    kind, colon, _ = text.partition(":")
    if not colon or not kind:
        PARSER.refuse("expected a string in format principalType:principalName but got " + text)
    return text


def operation(text: str) -> ACLOperation:
    return OPERATIONS.get(text.strip().lower(), Op.UNKNOWN)


def confirmed(given: Given, question: str) -> bool:
    if given.has("force"):
        return True
    print(question)
    try:
        return input().strip().lower() == "y"
    except EOFError:
        return False


def text_of(resource: ResourcePatternFilter) -> str:
    return (
        f"ResourcePattern(resourceType={resource.resource_type.name}, "
        f"name={resource.resource_name}, patternType={resource.pattern_type.name})"
    )


def listed(entries: Iterable[Entry]) -> str:
    return "\n".join(f"\t{each}" for each in entries)


main = entry(run)

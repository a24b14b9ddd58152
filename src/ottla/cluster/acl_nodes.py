"""ACLs in the metadata tree, at the paths and in the JSON of Kafka 3. Pure.

/kafka-acl/TYPE/NAME                    of one resource, or with the name * of all
/kafka-acl-extended/prefixed/TYPE/NAME  of those whose names begin so
"""

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote

from ottla.cluster.nodes import UNEXPECTED, CorruptNode, dump, load
from ottla.security.acls import (
    Acl,
    Acls,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    title,
)

LITERAL = "/kafka-acl"
PREFIXED = "/kafka-acl-extended/prefixed"
PARENTS = {PatternType.LITERAL: LITERAL, PatternType.PREFIXED: PREFIXED}
TYPES = {title(each): each for each in ResourceType if each > ResourceType.ANY}
OPERATIONS = {title(each): each for each in Operation if each > Operation.ANY}
PERMISSIONS = {title(each): each for each in (Permission.ALLOW, Permission.DENY)}
# By the parent of a node, what its name is one of.
PATTERNS = {
    f"{parent}/{name}": (kind, how)
    for how, parent in PARENTS.items()
    for name, kind in TYPES.items()
}
# Parents first.
FIXED = (
    LITERAL,
    "/kafka-acl-extended",
    PREFIXED,
    *PATTERNS,
    "/kafka-acl-changes",
    "/kafka-acl-extended-changes",
)
# What ZooKeeper has not in paths, and the sign that stands for it.
NOT_IN_PATHS = re.compile("[%/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


def path_of(pattern: ResourcePattern) -> str:
    return f"{PARENTS[pattern.pattern]}/{title(pattern.type)}/{node_name(pattern.name)}"


def node_name(name: str) -> str:
    """A resource's name as that of a node: as it is, as far as a tree has such nodes."""
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return NOT_IN_PATHS.sub(lambda found: quote(found[0], safe="", errors="surrogatepass"), name)


def value_of(acls: Iterable[Acl]) -> bytes:
    return dump(
        {
            "version": 1,
            "acls": [
                {
                    "principal": acl.principal,
                    "permissionType": title(acl.permission),
                    "operation": title(acl.operation),
                    "host": acl.host,
                }
                for acl in acls
            ],
        }
    )


def read_value(path: str, data: bytes) -> tuple[Acl, ...]:
    value = load(path, data)
    try:
        return tuple(
            Acl(
                str(each["principal"]),
                str(each["host"]),
                OPERATIONS[each["operation"]],
                PERMISSIONS[each["permissionType"]],
            )
            for each in value["acls"]
        )
    except UNEXPECTED as error:
        raise CorruptNode(path, data, error) from error


def read_acls(found: Mapping[str, tuple[bytes, int]]) -> Acls:
    """All ACLs among these nodes, by path."""
    acls: dict[ResourcePattern, tuple[Acl, ...]] = {}
    for path, (data, _) in found.items():
        if not path.startswith(LITERAL):
            continue
        parent, _, name = path.rpartition("/")
        known = PATTERNS.get(parent)
        if known is not None and (entries := read_value(path, data)):
            kind, how = known
            acls[ResourcePattern(kind, unquote(name, errors="surrogatepass"), how)] = entries
    return acls

"""Who may do what: a role for each cluster and topic pattern, asked in one place.

`Permission` is asked for by pages, API and SQL alike: `principal.may(Permission.READ, "main",
topic)`. Everything else of the console trusts this answer and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase


class Permission(StrEnum):
    VIEW = "view"  # names, offsets, configs, rates, groups
    READ = "read"  # contents of records: browse, filter, tail, SQL, download
    PRODUCE = "produce"  # write records: by hand, replay into a topic
    OPERATE = "operate"  # reset groups, elect leaders, silence alerts
    CHANGE = "change"  # create and delete topics, configs, partitions, truncate, reassign, abort
    ADMINISTER = "administer"  # users, roles, alert rules and receivers, tokens of others


class Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


ROLE_PERMISSIONS: dict[Role, frozenset[Permission]] = {
    Role.VIEWER: frozenset({Permission.VIEW, Permission.READ}),
    Role.OPERATOR: frozenset(
        {Permission.VIEW, Permission.READ, Permission.PRODUCE, Permission.OPERATE}
    ),
    Role.ADMIN: frozenset(Permission),
}
READ_ONLY_PERMISSIONS = frozenset({Permission.VIEW, Permission.READ})


@dataclass(frozen=True, slots=True)
class Grant:
    """A role in the clusters and for the topics that the patterns (shell's) match."""

    role: Role
    clusters: str = "*"
    topics: str = "*"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: a user, or a token of one. `read_only` is the console's own mode."""

    name: str
    grants: tuple[Grant, ...] = field(default=())
    read_only: bool = False

    def may(self, permission: Permission, cluster: str, topic: str | None = None) -> bool:
        """Whether this one may; without a topic the grant must hold for all topics, unless it is
        only to see the cluster."""
        if self.read_only and permission not in READ_ONLY_PERMISSIONS:
            return False
        return any(
            permission in ROLE_PERMISSIONS[grant.role]
            and fnmatchcase(cluster, grant.clusters)
            and self._covers(grant, permission, topic)
            for grant in self.grants
        )

    def visible(self, cluster: str, topics: Iterable[str]) -> list[str]:
        return [topic for topic in topics if self.may(Permission.VIEW, cluster, topic)]

    @staticmethod
    def _covers(grant: Grant, permission: Permission, topic: str | None) -> bool:
        if topic is None:
            return grant.topics == "*" or permission is Permission.VIEW
        return fnmatchcase(topic, grant.topics)

"""Who may do what: a role for each cluster and topic pattern, asked in one place.

`Permission` is asked for by pages, API and SQL alike: `principal.may(Permission.READ, "main",
topic)`. Everything else of the console trusts this answer and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase, translate


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
# The console itself, as a cluster: users, tokens, alert rules. No cluster has this name, and of the
# patterns only those match that match all ("*", "**").
CONSOLE = ""
READ_ONLY_PERMISSIONS = frozenset({Permission.VIEW, Permission.READ})


@dataclass(frozen=True, slots=True)
class Grant:
    """A role in the clusters and for the topics that the patterns (shell's) match."""

    role: Role
    clusters: str = "*"
    topics: str = "*"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: a user, or a token of one. `read_only` is the console's own mode; `within` bounds
    a token, which may what its user may and this grant allows."""

    name: str
    grants: tuple[Grant, ...] = field(default=())
    read_only: bool = False
    within: Grant | None = None

    def may(self, permission: Permission, cluster: str, topic: str | None = None) -> bool:
        """Whether this one may; without a topic the grant must hold for all topics, unless it is
        only to see the cluster."""
        if self.read_only and permission not in READ_ONLY_PERMISSIONS:
            return False
        if self.within is not None and not self._allows(self.within, permission, cluster, topic):
            return False
        return any(self._allows(grant, permission, cluster, topic) for grant in self.grants)

    def administers(self) -> bool:
        """Whether this one may change users and alert rules: of the console, not of one cluster."""
        return self.may(Permission.ADMINISTER, CONSOLE)

    def sees_all_topics(self, cluster: str) -> bool:
        return any(
            grant.topics == "*"
            and self._allows(grant, Permission.VIEW, cluster, None)
            and (self.within is None or self.within.topics == "*")
            and self.may(Permission.VIEW, cluster)
            for grant in self.grants
        )

    @property
    def roles(self) -> tuple[Hashable, ...]:
        """What decides, besides the console's own mode: two with the same may the same."""
        return self.grants, self.within

    def of_topics(self, permission: Permission, cluster: str) -> Callable[[str], bool]:
        """`may(permission, cluster, topic)` for thousands of topics: what does not depend on the
        topic is found out once."""
        if self.read_only and permission not in READ_ONLY_PERMISSIONS:
            return lambda topic: False
        matches = _any_of(
            grant.topics for grant in self.grants if self._holds(grant, permission, cluster)
        )
        if self.within is None:
            return matches
        if not self._holds(self.within, permission, cluster):
            return lambda topic: False
        within = _any_of((self.within.topics,))
        return lambda topic: within(topic) and matches(topic)

    @classmethod
    def _allows(cls, grant: Grant, permission: Permission, cluster: str, topic: str | None) -> bool:
        return cls._holds(grant, permission, cluster) and cls._covers(grant, permission, topic)

    @staticmethod
    def _holds(grant: Grant, permission: Permission, cluster: str) -> bool:
        """Whether it does for some topics."""
        return permission in ROLE_PERMISSIONS[grant.role] and fnmatchcase(cluster, grant.clusters)

    @staticmethod
    def _covers(grant: Grant, permission: Permission, topic: str | None) -> bool:
        if topic is None:
            return grant.topics == "*" or permission is Permission.VIEW
        return fnmatchcase(topic, grant.topics)


def _any_of(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Whether one of the patterns matches, as `fnmatchcase` says it."""
    wanted = set(patterns)
    if "*" in wanted:
        return lambda topic: True
    if not wanted:
        return lambda topic: False
    expression = re.compile("|".join(map(translate, sorted(wanted))))
    return lambda topic: expression.match(topic) is not None

"""What one connection may do: decisions of the authorizer, kept until the ACLs change.

The authorizer decides by the ACLs of the image that the broker has: what was denied stays denied
while there is no controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.broker.context import Context, Peer
from ottla.security.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.security.audit import DEBUG, audit
from ottla.security.authorizer import ANY_NAME, Authorizer, log_decision
from ottla.security.principal import Principal

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.settings.authorization import Authorization

# Decisions that are kept for one connection; at more, all are forgotten.
KNOWN_MAX = 10_000
CLUSTER = ResourceType.CLUSTER

Topic = TypeVar("Topic")


class Session:
    """The decisions for one connection, shared by its `Rights` in all APIs."""

    __slots__ = (
        "acls",
        "authorizer",
        "described",
        "host",
        "known",
        "name",
        "readable",
        "rights",
        "state",
        "writable",
    )

    def __init__(self, authorizer: Authorizer, principal: Principal, host: str) -> None:
        self.authorizer = authorizer
        self.name = str(principal)
        self.host = host
        self.acls = authorizer.acls  # by which was decided
        self.known: dict[tuple[Operation, ResourceType, str], bool] = {}
        # Topics that may be read (by name) and written to (by the name or id that requests have):
        # what a fetch and a produce look up before they ask for anything.
        self.readable: set[str | None] = set()
        self.writable: set[str | bytes] = set()
        # Another object when what is allowed may have changed.
        self.state = object()
        self.rights: dict[str, Rights] = {}  # by API
        # All topics of an image, and those of them that may be described.
        self.described: tuple[Mapping[str, Any], list[Any]] | None = None

    def rights_in(self, api: str) -> Rights:
        """In requests of an API."""
        rights = self.rights.get(api)
        if rights is None:
            rights = self.rights[api] = Rights(self, api)
        return rights

    def forget(self) -> None:
        self.known.clear()
        self.readable.clear()
        self.writable.clear()
        self.described = None
        self.state = object()
        self.acls = self.authorizer.acls


class Rights:
    """What one connection may do in requests of one API."""

    __slots__ = ("_api", "_known", "readable", "session", "writable")

    def __init__(self, session: Session, api: str) -> None:
        self.session = session
        self._known = session.known
        self.readable = session.readable
        self.writable = session.writable
        self._api = api

    def allows(
        self,
        operation: Operation,
        kind: ResourceType,
        name: str,
        count: int = 1,
        *,
        log_denied: bool = True,
    ) -> bool:
        """Whether it is allowed; `count`: how often the request names the resource.

        Unless `log_denied`, it was not asked for, and a denial is no attempt.
        """
        key = (operation, kind, name)
        allowed = self._known.get(key)
        if allowed is None:
            session = self.session
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            rule = session.authorizer.rule(session.name, session.host, operation, kind, name)
            allowed = self._known[key] = rule.allowed
        if (allowed and audit.isEnabledFor(DEBUG)) or (not allowed and log_denied):
            self._log(operation, kind, name, count)
        return allowed

    def remember_readable(self, topics: Iterable[str]) -> None:
        """These may be read, as was found by asking."""
        remember(self.readable, topics)

    def remember_writable(self, topics: Iterable[str | bytes]) -> None:
        """These may be written to, as was found by asking."""
        remember(self.writable, topics)

    def allows_cluster(self, operation: Operation, *, log_denied: bool = True) -> bool:
        return self.allows(operation, CLUSTER, CLUSTER_NAME, log_denied=log_denied)

    def allows_type(self, operation: Operation, kind: ResourceType) -> bool:
        """Whether there is any resource of the type on which it is allowed."""
        if self.allows(operation, kind, ANY_NAME, 0, log_denied=False):
            return True
        session = self.session
        return session.authorizer.allows_type(session.name, session.host, operation, kind)

    def operations(self, kind: ResourceType, name: str) -> int:
        """The allowed operations as bits, for fields named `authorized_operations`."""
        session = self.session
        return session.authorizer.operations(session.name, session.host, kind, name)

    def allowed(
        self,
        operation: Operation,
        kind: ResourceType,
        names: Iterable[str],
        *,
        log_denied: bool = True,
    ) -> set[str]:
        """Those of the names on which it is allowed."""
        counts: dict[str, int] = {}
        for name in names:
            counts[name] = counts.get(name, 0) + 1
        return {
            name
            for name, count in counts.items()
            if self.allows(operation, kind, name, count, log_denied=log_denied)
        }

    def described(self, topics: Mapping[str, Topic]) -> list[Topic]:
        """Those of all topics that may be described; denials are no attempts."""
        session = self.session
        if audit.isEnabledFor(DEBUG):
            names = self.allowed(Operation.DESCRIBE, ResourceType.TOPIC, topics, log_denied=False)
            return [topic for name, topic in topics.items() if name in names]
        if session.described is None or session.described[0] is not topics:
            allowed = [
                topic
                for name, topic in topics.items()
                if session.authorizer.rule(
                    session.name, session.host, Operation.DESCRIBE, ResourceType.TOPIC, name
                ).allowed
            ]
            session.described = (topics, allowed)
        found: list[Topic] = session.described[1]
        return found

    def _log(self, operation: Operation, kind: ResourceType, name: str, count: int) -> None:
        session = self.session
        rule = session.authorizer.rule(session.name, session.host, operation, kind, name)
        log_decision(rule, session.name, session.host, operation, kind, name, self._api, count)


def remember(topics: set[Topic], more: Iterable[Topic]) -> None:
    topics.update(more)
    if len(topics) > KNOWN_MAX:
        topics.clear()


def rights_of(context: Context) -> Rights:
    """Of the connection that a request came on; a guard is there only where there are rights."""
    rights = context.rights
    assert rights is not None
    return rights


class Rules:
    """The authorizer of one broker, and who asks it."""

    def __init__(self, broker: Broker, options: Authorization) -> None:
        self.broker = broker
        self.authorizer = Authorizer(options.super_users, allow_if_no_acl=options.allow_if_no_acl)

    def session(self, peer: Peer) -> Session:
        """The decisions for a connection, without those that hold no more."""
        authorizer = self.authorizer
        authorizer.update(self.broker.image.acls)
        session = peer.rights
        if session is None:
            session = peer.rights = Session(authorizer, peer.principal, peer.host)
        elif session.acls is not authorizer.acls:
            session.forget()
        return session

    def rights(self, peer: Peer, api: str) -> Rights:
        """What a connection may do now in requests of an API."""
        return self.session(peer).rights_in(api)

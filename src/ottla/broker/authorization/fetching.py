"""What a fetch may not read.

Consumers need READ on each topic, followers CLUSTER_ACTION. In a session the topics are looked at
again only when the ACLs or the session's partitions have changed, or while some are denied: a fetch
of a thousand partitions of which two moved asks nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from typing import TYPE_CHECKING, Final

from ottla.security.acls import Operation, ResourceType
from ottla.security.audit import DEBUG, audit

if TYPE_CHECKING:
    from ottla.broker.authorization.rights import Rights
    from ottla.broker.sessions import CachedPartition, FetchSession
    from ottla.wire.api.fetch import FetchRequest

Topics = Container[str | None]


class Everything:
    """All topics, known or not."""

    def __contains__(self, topic: object) -> bool:
        return True


EVERYTHING: Final = Everything()
NOTHING: Final[frozenset[str]] = frozenset()


def denied_to_follower(rights: Rights) -> Topics:
    allowed = rights.allows_cluster(Operation.CLUSTER_ACTION)
    return NOTHING if allowed else EVERYTHING


def denied_topics(partitions: Collection[CachedPartition], rights: Rights) -> frozenset[str]:
    """Those of the partitions' topics that may not be read."""
    readable = rights.readable
    for each in partitions:
        if each.topic not in readable:
            break
    else:
        if not audit.isEnabledFor(DEBUG):  # else every allowance is asked for, to be logged
            return NOTHING
    names = [each.topic for each in partitions if each.topic is not None]
    allowed = rights.allowed(Operation.READ, ResourceType.TOPIC, names)
    rights.remember_readable(allowed)
    return frozenset(names).difference(allowed)


def denied_in_session(session: FetchSession, rights: Rights, request: FetchRequest) -> Topics:
    """Those of the session's topics, after the request has changed it if it names any."""
    state = rights.session.state
    if (
        session.rights_state is not state
        or request.topics
        or session.denied
        or audit.isEnabledFor(DEBUG)
    ):
        session.rights_state = state
        before = session.denied
        session.denied = denied_topics(session.partitions.values(), rights)
        if not session.denied <= before:
            # What was not looked at because it does not move has news now: the error.
            session.make_ready(session.denied)
    return session.denied

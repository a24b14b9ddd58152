"""Which of the topics that a member's pattern matches may be assigned: those it may describe.

As Kafka: the patterns of a group are resolved with the rights of the member whose request has begun
it, and what is denied is nobody's attempt to get it, so that it is not logged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from ottla.security.acls import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.coordinator.group_patterns import Describable


def describable_topics(context: Context, api: str) -> Describable | None:
    """For patterns that are resolved after the request, by the ACLs of then; None: all topics."""
    rules, peer = context.broker.rules, context.peer
    if rules is None:
        return None

    def describable(names: Iterable[str]) -> Collection[str]:
        rights = rules.rights(peer, api)
        return rights.allowed(Operation.DESCRIBE, ResourceType.TOPIC, names, log_denied=False)

    return describable

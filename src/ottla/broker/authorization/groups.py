"""What is particular to groups in what their APIs check, and in how they answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.broker.authorization.guards import (
    FAILED,
    Guarded,
    Handle,
    NameOf,
    Need,
    parted,
    then,
    with_field,
)
from ottla.broker.authorization.rights import CLUSTER, rights_of
from ottla.broker.context import Context
from ottla.security.acls import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.wire.api.find_coordinator import FindCoordinatorRequest
    from ottla.wire.api.list_groups import ListGroupsResponse
    from ottla.wire.api.offset_fetch import OffsetFetchRequest

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
DESCRIBE = Operation.DESCRIBE


def listed_groups(response: ListGroupsResponse, context: Context) -> Any:
    """All of them with DESCRIBE on the cluster, else those that may be described."""
    rights = rights_of(context)
    if not rights.allows_cluster(DESCRIBE, log_denied=False):
        response.groups = [
            each
            for each in response.groups
            if rights.allows(DESCRIBE, GROUP, each.group_id, log_denied=False)
        ]
    return response


HIDDEN = "The group has described topic(s) that the client is not authorized to describe."


def described_groups(*assignments: str) -> Callable[[Any, Context], Any]:
    """Of a group that has a topic which may not be described nothing is shown.

    `assignments`: the fields of a member that have topics.
    """

    def change(response: Any, context: Context) -> Any:
        topics = {
            id(group): {
                topic.topic_name
                for member in group.members
                for field in assignments
                for topic in getattr(member, field).topic_partitions
            }
            for group in response.groups
        }
        named = set().union(*topics.values())
        allowed = rights_of(context).allowed(DESCRIBE, TOPIC, named)
        for number, group in enumerate(response.groups):
            if not allowed.issuperset(topics[id(group)]):
                response.groups[number] = type(group)(
                    group_id=group.group_id, error_code=FAILED[TOPIC], error_message=HIDDEN
                )
        return response

    return change


GROUP_KEYS, TRANSACTION_KEYS, SHARE_KEYS = 0, 1, 2
COORDINATORS_FROM = 4
SHARE_KEYS_FROM = 6
KEY_KINDS = {GROUP_KEYS: GROUP, TRANSACTION_KEYS: TRANSACTIONAL_ID}


def find_coordinator(inner: Guarded, request: FindCoordinatorRequest, context: Context) -> Any:
    """DESCRIBE on what is coordinated; the coordinators of share partitions are for brokers."""
    rights = rights_of(context)
    batched = context.api_version >= COORDINATORS_FROM
    keys = request.coordinator_keys if batched else [request.key]
    kind = KEY_KINDS.get(request.key_type)
    if kind is None:
        of_shares = request.key_type == SHARE_KEYS and context.api_version >= SHARE_KEYS_FROM
        if of_shares and not rights.allows_cluster(Operation.CLUSTER_ACTION):
            return inner.failure(request, FAILED[CLUSTER], context)
        return inner.handle(request, context)
    allowed = [rights.allows(DESCRIBE, kind, key) for key in keys]
    if all(allowed):
        return inner.handle(request, context)
    if not any(allowed):
        return inner.failure(request, FAILED[kind], context)
    left = [key for key, may in zip(keys, allowed, strict=True) if may]
    answer = inner.handle(with_field(request, "coordinator_keys", left), context)
    failed = inner.failure(request, FAILED[kind], context).coordinators

    def joined(response: Any) -> Any:
        found = iter(response.coordinators)
        response.coordinators = [
            next(found) if may else refused for refused, may in zip(failed, allowed, strict=True)
        ]
        return response

    return then(answer, joined)


OFFSETS_IDS_FROM = 10
OFFSETS_GROUPS_FROM = 8


class TopicsOfGroups:
    """DESCRIBE on each group, and on each of its topics; of all topics those that may be described.

    For requests with a list `groups` whose items have a list `topics` or None, as their answers do.
    """

    needs = (Need(GROUP, DESCRIBE), Need(TOPIC, DESCRIBE))

    def __init__(
        self, name_of: NameOf, shown_name: str, denied: Callable[[Any, Context], Any]
    ) -> None:
        """`denied`: the answer for a topic; `shown_name`: the field of one that has the name."""
        self._name_of = name_of
        self._shown_name = shown_name
        self._answer = denied

    def around(self, inner: Guarded) -> Handle:
        def check(request: Any, context: Context) -> Any:
            rights = rights_of(context)
            allowed = [rights.allows(DESCRIBE, GROUP, each.group_id) for each in request.groups]
            if not any(allowed):
                return inner.failure(request, FAILED[GROUP], context)
            asked = zip(request.groups, allowed, strict=True)
            parts = [self.split(each, context) for each, may in asked if may]
            failed = inner.failure(request, FAILED[GROUP], context).groups
            left = with_field(request, "groups", [each for each, _ in parts])

            def joined(response: Any) -> Any:
                found = zip(response.groups, parts, strict=True)
                groups = []
                for asked, refused, may in zip(request.groups, failed, allowed, strict=True):
                    if not may:
                        groups.append(refused)
                        continue
                    shown, (_, denied) = next(found)
                    groups.append(self.shown(shown, asked, denied, context))
                response.groups = groups
                return response

            return then(inner.handle(left, context), joined)

        return check

    def split(self, group: Any, context: Context) -> tuple[Any, list[Any]]:
        """What is asked about a group that may be told, and the topics that may not."""
        if group.topics is None:
            return group, []
        names = [self._name_of(each, context) for each in group.topics]
        known = [each for each in names if each is not None]
        allowed = rights_of(context).allowed(DESCRIBE, TOPIC, known)
        if allowed.issuperset(known):
            return group, []
        left, denied = parted(group.topics, names, allowed)
        return with_field(group, "topics", left), denied

    def shown(self, answer: Any, asked: Any, denied: list[Any], context: Context) -> Any:
        """The answer about a group with what is said of the denied topics."""
        if answer.error_code:
            return answer
        if asked.topics is None:
            names = [getattr(each, self._shown_name) for each in answer.topics]
            allowed = rights_of(context).allowed(DESCRIBE, TOPIC, names)
            found = zip(answer.topics, names, strict=True)
            answer.topics = [each for each, name in found if name in allowed]
        else:
            answer.topics += [self._answer(each, context) for each in denied]
        return answer


class OffsetFetch(TopicsOfGroups):
    """Before version 8 the request is about one group, and has its fields itself."""

    def __init__(self) -> None:
        super().__init__(offset_topic, "name", denied_offsets)

    def around(self, inner: Guarded) -> Handle:
        batched = super().around(inner)

        def check(request: OffsetFetchRequest, context: Context) -> Any:
            if context.api_version >= OFFSETS_GROUPS_FROM:
                return batched(request, context)
            if not rights_of(context).allows(DESCRIBE, GROUP, request.group_id):
                return inner.failure(request, FAILED[GROUP], context)
            left, denied = self.split(request, context)
            answer = inner.handle(left, context)
            return then(answer, lambda response: self.shown(response, request, denied, context))

        return check


def offset_topic(topic: Any, context: Context) -> str | None:
    if context.api_version >= OFFSETS_IDS_FROM:
        return context.broker.image.topic_name(topic.topic_id)
    name: str = topic.name
    return name


def denied_offsets(topic: Any, context: Context) -> Any:
    from ottla.broker.handlers.offset_fetch import refused_topic

    return refused_topic(topic, FAILED[TOPIC], context)


def denied_offset_deletions(
    topics: Sequence[Any], request: Any, inner: Guarded, context: Context
) -> list[Any]:
    from ottla.broker.handlers.offset_delete import refused_topic

    return [refused_topic(each, FAILED[TOPIC]) for each in topics]


def denied_share_offsets(topic: Any, context: Context) -> Any:
    from ottla.broker.handlers.describe_share_group_offsets import refused_topic

    return refused_topic(topic, FAILED[TOPIC])


def denied_new_share_offsets(
    topics: Sequence[Any], request: Any, inner: Guarded, context: Context
) -> list[Any]:
    from ottla.broker.handlers.alter_share_group_offsets import refused_topic

    return [refused_topic(each, FAILED[TOPIC]) for each in topics]


def denied_share_offset_deletions(
    topics: Sequence[Any], request: Any, inner: Guarded, context: Context
) -> list[Any]:
    from ottla.broker.handlers.delete_share_group_offsets import refused_topic

    return [refused_topic(each, FAILED[TOPIC]) for each in topics]

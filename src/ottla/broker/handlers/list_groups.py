"""ListGroups: the groups this broker coordinates, by state (KIP-518) and by type (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.context import Context
from ottla.coordinator.group import Group
from ottla.wire.api.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.wire.errors import ErrorCode

GROUP_TYPE = "classic"


def handle(request: ListGroupsRequest, context: Context) -> ListGroupsResponse:
    coordinator = context.broker.coordinators.groups.coordinator
    if coordinator.loading:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    if types and GROUP_TYPE not in types:
        return ListGroupsResponse()
    return ListGroupsResponse(
        groups=[
            listed(group)
            for seat in coordinator.active_seats()
            for group in all_groups(seat.shard.groups, seat.shard.offsets.by_group)
            if not states or group.state.value.lower() in states
        ]
    )


def all_groups(groups: dict[str, Group], with_offsets: Mapping[str, object]) -> list[Group]:
    """Also those of which there is nothing but offsets: empty groups."""
    return [*groups.values(), *(Group(each) for each in with_offsets if each not in groups)]


def listed(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=GROUP_TYPE,
    )

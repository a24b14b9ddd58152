"""ListGroups: the groups this broker coordinates, by state (KIP-518) and by type (KIP-848)."""

from __future__ import annotations

from itertools import chain

from ottla.broker.context import Context, Pending
from ottla.broker.gather import Gather, Part
from ottla.coordinator.coordinator_partition import CoordinatorPartition
from ottla.coordinator.effects import Effects
from ottla.coordinator.group import Group
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.new_group import CLASSIC_KIND, NewGroup
from ottla.wire.api.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.wire.errors import ErrorCode


def handle(request: ListGroupsRequest, context: Context) -> ListGroupsResponse | Pending:
    runtime = context.broker.coordinators.groups.runtime
    if runtime.loading:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    coordinators = list(runtime.all_active())
    if not coordinators:
        return ListGroupsResponse()
    pending = Pending()

    def respond(parts: list[list[ListedGroup]]) -> None:
        pending.resolve(ListGroupsResponse(groups=list(chain.from_iterable(parts))))

    gather = Gather(len(coordinators), respond)
    for number, coordinator in enumerate(coordinators):
        # The groups of a partition that is lost meanwhile are listed by its next leader.
        list_one(coordinator, states, types, gather.part(number, lambda _: []))
    return pending


def list_one(
    coordinator: CoordinatorPartition[GroupShard], states: set[str], types: set[str], part: Part
) -> None:
    def decide(effects: Effects, now_ms: int) -> None:
        shard = coordinator.shard
        found: list[ListedGroup] = []
        if not types or CLASSIC_KIND in types:
            found += map(listed, shard.groups.values())
        found += [
            listed_new(each)
            for each in shard.new_groups.values()
            if not types or each.kind in types
        ]
        wanted = [each for each in found if not states or each.group_state.lower() in states]
        effects.reply(part, wanted)

    coordinator.run(decide)


def listed(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC_KIND,
    )


def listed_new(group: NewGroup) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        group_state=group.state_name,
        group_type=group.kind,
    )

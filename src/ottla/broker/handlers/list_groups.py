"""ListGroups: the groups this broker coordinates, by state (KIP-518) and by type (KIP-848)."""

from __future__ import annotations

from itertools import chain

from ottla.broker.context import Context, Pending
from ottla.broker.gather import Gather, Part
from ottla.coordinator.coordinator_partition import CoordinatorPartition
from ottla.coordinator.effects import Effects
from ottla.coordinator.group import Group
from ottla.coordinator.group_shard import GroupShard
from ottla.wire.api.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.wire.errors import ErrorCode

GROUP_TYPE = "classic"


def handle(request: ListGroupsRequest, context: Context) -> ListGroupsResponse | Pending:
    runtime = context.broker.coordinators.groups.runtime
    if runtime.loading:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    if types and GROUP_TYPE not in types:
        return ListGroupsResponse()

    coordinators = list(runtime.all_active())
    if not coordinators:
        return ListGroupsResponse()
    pending = Pending()

    def respond(parts: list[list[ListedGroup]]) -> None:
        pending.resolve(ListGroupsResponse(groups=list(chain.from_iterable(parts))))

    gather = Gather(len(coordinators), respond)
    for number, coordinator in enumerate(coordinators):
        # The groups of a partition that is lost meanwhile are listed by its next leader.
        list_one(coordinator, states, gather.part(number, lambda _: []))
    return pending


def list_one(coordinator: CoordinatorPartition[GroupShard], states: set[str], part: Part) -> None:
    def decide(effects: Effects, now_ms: int) -> None:
        groups = coordinator.shard.groups.values()
        found = [
            listed(each) for each in groups if not states or each.state.value.lower() in states
        ]
        effects.reply(part, found)

    coordinator.run(decide)


def listed(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=GROUP_TYPE,
    )

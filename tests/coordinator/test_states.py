"""Group states and events as a table: what is answered, and where the group is afterwards."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.coordinator.effects import Effects
from ottla.coordinator.group import (
    COMPLETING,
    DEAD,
    EMPTY,
    NEXT,
    PREPARING,
    STABLE,
    Group,
    GroupState,
)
from ottla.coordinator.group_shard import Caller, GroupShard, OffsetRules
from ottla.wire.errors import ErrorCode
from tests.coordinator.group_driver import GroupDriver, RecordedReply

NONE = ErrorCode.NONE
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
GENERATION = ErrorCode.ILLEGAL_GENERATION
PROTOCOL = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
WAITS = None


class Stage:
    """A group of one (`self.member`) brought into a state."""

    def __init__(self, state: GroupState) -> None:
        self.driver = GroupDriver()
        self.member = ""
        if state is EMPTY:
            return
        reply = self.driver.enter()
        self.driver.fire(("join",))
        self.member = reply.answer.member_id
        if state is COMPLETING:
            return
        self.driver.sync(self.member, assignments={self.member: b"all"})
        if state is PREPARING:
            self.driver.enter()
        assert self.driver.group.state is state

    @property
    def group(self) -> Group:
        return self.driver.group


def outcome(reply: RecordedReply) -> ErrorCode | None:
    return None if reply.open else reply.answer.error_code


def commit(stage: Stage, caller: Caller) -> ErrorCode:
    shard = GroupShard(stage.driver.rules, OffsetRules())
    shard.groups["g"] = stage.group
    errors = shard.commit("g", caller, [], Effects(), 8)
    return errors if isinstance(errors, ErrorCode) else ErrorCode.NONE


Event = Callable[[Stage], ErrorCode | None]
EVENTS: dict[str, Event] = {
    "join without id": lambda s: outcome(s.driver.join()),
    "old join without id": lambda s: outcome(s.driver.join(version=3)),
    "static join": lambda s: outcome(s.driver.join(instance_id="one")),
    "join again": lambda s: outcome(s.driver.join(s.member or "m")),
    "join changed": lambda s: outcome(s.driver.join(s.member or "m", protocols=("range", "x"))),
    "join unknown": lambda s: outcome(s.driver.join("unknown")),
    "join other kind": lambda s: outcome(s.driver.join(protocol_type="connect")),
    "sync": lambda s: outcome(s.driver.sync(s.member or "m", assignments={})),
    "sync old": lambda s: outcome(s.driver.sync(s.member or "m", generation=99)),
    "sync unknown": lambda s: outcome(s.driver.sync("unknown")),
    "heartbeat": lambda s: s.driver.heartbeat(s.member or "m"),
    "heartbeat old": lambda s: s.driver.heartbeat(s.member or "m", generation=99),
    "heartbeat unknown": lambda s: s.driver.heartbeat("unknown"),
    "leave": lambda s: ErrorCode(s.driver.leave(s.member or "m").error_code),
    "leave unknown": lambda s: ErrorCode(s.driver.leave("unknown").error_code),
    "commit": lambda s: commit(s, Caller(s.member or "m", None, s.group.generation_id)),
    "commit old": lambda s: commit(s, Caller(s.member or "m", None, 99)),
    "commit unknown": lambda s: commit(s, Caller("unknown", None, 1)),
    "commit without id": lambda s: commit(s, Caller("", None, -1)),
}

NEEDS_ID = ErrorCode.MEMBER_ID_REQUIRED
# Event: for Empty, Preparing, Completing, Stable what is answered, and the state it leads to.
TABLE: dict[str, tuple[tuple[ErrorCode | None, GroupState], ...]] = {
    "join without id": (
        (NEEDS_ID, EMPTY), (NEEDS_ID, PREPARING), (NEEDS_ID, COMPLETING), (NEEDS_ID, STABLE),
    ),
    "old join without id": (
        (WAITS, PREPARING), (WAITS, PREPARING), (WAITS, PREPARING), (WAITS, PREPARING),
    ),
    "static join": (
        (WAITS, PREPARING), (WAITS, PREPARING), (WAITS, PREPARING), (WAITS, PREPARING),
    ),
    "join again": (
        (UNKNOWN, EMPTY), (NONE, COMPLETING), (NONE, COMPLETING), (NONE, COMPLETING),
    ),
    "join changed": (
        (UNKNOWN, EMPTY), (NONE, COMPLETING), (NONE, COMPLETING), (NONE, COMPLETING),
    ),
    "join unknown": (
        (UNKNOWN, EMPTY), (UNKNOWN, PREPARING), (UNKNOWN, COMPLETING), (UNKNOWN, STABLE),
    ),
    "join other kind": (
        (NEEDS_ID, EMPTY), (PROTOCOL, PREPARING), (PROTOCOL, COMPLETING), (PROTOCOL, STABLE),
    ),
    "sync": ((UNKNOWN, EMPTY), (REBALANCE, PREPARING), (NONE, STABLE), (NONE, STABLE)),
    "sync old": (
        (UNKNOWN, EMPTY), (GENERATION, PREPARING), (GENERATION, COMPLETING), (GENERATION, STABLE),
    ),
    "sync unknown": (
        (UNKNOWN, EMPTY), (UNKNOWN, PREPARING), (UNKNOWN, COMPLETING), (UNKNOWN, STABLE),
    ),
    "heartbeat": ((UNKNOWN, EMPTY), (REBALANCE, PREPARING), (NONE, COMPLETING), (NONE, STABLE)),
    "heartbeat old": (
        (UNKNOWN, EMPTY), (GENERATION, PREPARING), (GENERATION, COMPLETING), (GENERATION, STABLE),
    ),
    "heartbeat unknown": (
        (UNKNOWN, EMPTY), (UNKNOWN, PREPARING), (UNKNOWN, COMPLETING), (UNKNOWN, STABLE),
    ),
    "leave": ((UNKNOWN, EMPTY), (NONE, COMPLETING), (NONE, EMPTY), (NONE, EMPTY)),
    "leave unknown": (
        (UNKNOWN, EMPTY), (UNKNOWN, PREPARING), (UNKNOWN, COMPLETING), (UNKNOWN, STABLE),
    ),
    "commit": ((UNKNOWN, EMPTY), (NONE, PREPARING), (REBALANCE, COMPLETING), (NONE, STABLE)),
    "commit old": (
        (UNKNOWN, EMPTY), (GENERATION, PREPARING), (GENERATION, COMPLETING), (GENERATION, STABLE),
    ),
    "commit unknown": (
        (UNKNOWN, EMPTY), (UNKNOWN, PREPARING), (UNKNOWN, COMPLETING), (UNKNOWN, STABLE),
    ),
    "commit without id": (
        (NONE, EMPTY), (UNKNOWN, PREPARING), (UNKNOWN, COMPLETING), (UNKNOWN, STABLE),
    ),
}  # fmt: skip

CASES = [
    pytest.param(state, event, *entry, id=f"{state.value}-{event}")
    for event, entries in TABLE.items()
    for state, entry in zip((EMPTY, PREPARING, COMPLETING, STABLE), entries, strict=True)
]


@pytest.mark.parametrize(("state", "event", "answer", "after"), CASES)
def test_state_and_event(
    state: GroupState, event: str, answer: ErrorCode | None, after: GroupState
) -> None:
    """Each event in each state: the answer (none: it waits) and the next state."""
    stage = Stage(state)
    assert (EVENTS[event](stage), stage.group.state) == (answer, after)


def test_the_table_is_whole() -> None:
    """Every event has an entry for every state that lasts."""
    assert TABLE.keys() == EVENTS.keys()


@pytest.mark.parametrize("event", sorted(EVENTS))
def test_a_dead_group_sends_everybody_away(event: str) -> None:
    """A dead group is not changed: the client looks for its coordinator again."""
    stage = Stage(STABLE)
    stage.group.transition(DEAD, 1)
    assert EVENTS[event](stage) == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("state", list(GroupState))
def test_only_known_ways_lead_on(state: GroupState) -> None:
    """A transition outside the table is a fault of ours, and is caught."""
    for target in GroupState:
        group = Group("g")
        group.state = state
        if target in NEXT[state]:
            group.transition(target, 5)
            assert (group.state, group.previous_state, group.state_since_ms) == (target, state, 5)
        else:
            with pytest.raises(AssertionError):
                group.transition(target, 5)

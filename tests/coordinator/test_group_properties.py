"""A group driven through thousands of orders of events, against what must hold in every one."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.coordinator.group import COMPLETING, EMPTY, PREPARING, STABLE
from ottla.coordinator.rebalance import GroupRules
from ottla.wire.errors import ErrorCode
from tests import needs
from tests.coordinator.group_driver import GroupDriver

INSTANCES = st.sampled_from([None, None, "a", "b"])
# Eager members, cooperative ones, and those on their way from one to the other (KIP-429).
PROTOCOLS = st.sampled_from(
    [
        ("range",),
        ("range", "sticky"),
        ("sticky", "range"),
        ("cooperative-sticky", "range"),
        ("cooperative-sticky",),
    ]
)
SIZE_MAX = 4
TIMERS_MAX = 300
EXAMPLES = needs.rounds(100, 2000)


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = GroupDriver(GroupRules(initial_rebalance_delay_ms=100, max_size=SIZE_MAX))
        self.known: list[str] = []
        self.generation_seen = 0

    def pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from([*self.known[-6:], "unknown"]))

    def learn(self) -> None:
        for reply in self.driver.replies:
            for answer in reply.answers:
                member_id = getattr(answer, "member_id", "")
                if member_id and member_id not in self.known:
                    self.known.append(member_id)

    @rule(instance=INSTANCES, protocols=PROTOCOLS, version=st.sampled_from([3, 8, 9]))
    def join_new(self, instance: str | None, protocols: tuple[str, ...], version: int) -> None:
        self.driver.join(instance_id=instance, protocols=protocols, version=version)

    @rule(data=st.data(), protocols=PROTOCOLS)
    def join_again(self, data: st.DataObject, protocols: tuple[str, ...]) -> None:
        member = self.pick(data)
        self.driver.join(member, instance_id=self.instance_of(member), protocols=protocols)

    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        member = self.pick(data)
        assignments = {m: b"x" + m.encode() for m in self.driver.group.members}
        self.driver.sync(member, instance_id=self.instance_of(member), assignments=assignments)

    @rule()
    def all_sync(self) -> None:
        for member in list(self.driver.group.members):
            if member in self.driver.group.members:
                assignments = {m: b"x" + m.encode() for m in self.driver.group.members}
                self.driver.sync(
                    member, instance_id=self.instance_of(member), assignments=assignments
                )

    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        member = self.pick(data)
        error = self.driver.heartbeat(member, instance_id=self.instance_of(member))
        if member in self.driver.group.members:
            assert error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS), "it lives"
        else:
            assert error is ErrorCode.UNKNOWN_MEMBER_ID

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member = self.pick(data)
        self.driver.leave(member, instance_id=self.instance_of(member))

    @precondition(lambda self: self.driver.timers)
    @rule(data=st.data())
    def time_passes(self, data: st.DataObject) -> None:
        """Timers fire in the order of time; which of several at the same time is open."""
        soonest = min(self.driver.timers.values())
        due = [key for key, at in self.driver.timers.items() if at == soonest]
        self.driver.fire(data.draw(st.sampled_from(due)))

    @rule(fails=st.booleans())
    def appends_fail_or_not(self, fails: bool) -> None:
        # An empty generation that cannot be recorded is no harm; others start again.
        self.driver.append_fails = fails and self.driver.group.state is not PREPARING

    @rule()
    def restart(self) -> None:
        self.driver.append_fails = False
        self.driver.restart()
        self.generation_seen = self.driver.group.generation_id

    def instance_of(self, member_id: str) -> str | None:
        member = self.driver.group.members.get(member_id)
        return member.instance_id if member else None

    @invariant()
    def counts_agree_with_the_members(self) -> None:
        """The counts that a join is decided by are those of the members themselves."""
        group = self.driver.group
        members = group.members.values()
        assert group.awaiting_join_count == sum(m.awaiting_join is not None for m in members)
        assert group.protocol_counts == Counter(name for m in members for name in m.protocols)

    @invariant()
    def everybody_is_answered_once_or_parked(self) -> None:
        self.learn()
        parked = self.driver.parked()
        assert len(parked) == len(set(map(id, parked)))
        for reply in self.driver.replies:
            assert len(reply.answers) <= 1, reply
            assert reply.answers or reply in parked, f"{reply} is lost"
            assert not (reply.answers and reply in parked), f"{reply} is answered and parked"

    @invariant()
    def generations_never_go_back(self) -> None:
        assert self.driver.group.generation_id >= self.generation_seen
        self.generation_seen = self.driver.group.generation_id

    @invariant()
    def somebody_leads(self) -> None:
        group = self.driver.group
        assert (group.leader_id in group.members) if group.members else group.leader_id is None

    @invariant()
    def static_members_are_members(self) -> None:
        group = self.driver.group
        assert group.static_members == {
            m.instance_id: m.member_id for m in group.members.values() if m.instance_id is not None
        }

    @invariant()
    def all_speak_the_protocol(self) -> None:
        group = self.driver.group
        if group.state in (COMPLETING, STABLE):
            assert all(group.protocol_name in each.protocols for each in group.members.values())

    @invariant()
    def the_size_is_limited(self) -> None:
        assert self.driver.group.awaiting_join_count <= SIZE_MAX

    @invariant()
    def pending_members_are_no_members(self) -> None:
        assert not self.driver.group.pending_join & self.driver.group.members.keys()
        assert self.driver.group.pending_sync <= self.driver.group.members.keys()

    @invariant()
    def no_group_is_stuck(self) -> None:
        """Every state that waits has a timer that ends the waiting."""
        group, timers = self.driver.group, self.driver.timers
        if group.state is PREPARING:
            assert ("join",) in timers
        if group.state is COMPLETING:
            assert ("sync",) in timers or not group.pending_sync
        for member in group.members.values():
            assert member.waits or ("session", member.member_id) in timers, member.member_id

    @invariant()
    def states_hold_what_they_say(self) -> None:
        group = self.driver.group
        if group.state is EMPTY:
            assert not group.members
        if group.state is STABLE:
            assert group.members
            assert not any(m.awaiting_sync or m.awaiting_join for m in group.members.values())

    def teardown(self) -> None:
        """Without any heartbeat the group becomes empty, and no request is left parked."""
        self.driver.append_fails = False
        for _ in range(TIMERS_MAX):
            if not self.driver.timers:
                break
            self.driver.fire(min(self.driver.timers, key=lambda key: self.driver.timers[key]))
        assert self.driver.group.state is EMPTY
        assert not self.driver.group.pending_join
        assert all(reply.answers for reply in self.driver.replies)


GroupMachine.TestCase.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=40, deadline=None
)
TestGroup = GroupMachine.TestCase
TestGroup.__doc__ = """In every order of events: every request is answered once, none is lost."""

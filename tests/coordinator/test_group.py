"""Groups of the classic protocol, decision by decision, without any I/O."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinator.group import COMPLETING, EMPTY, PREPARING, STABLE, Member
from ottla.coordinator.rebalance import GroupRules
from ottla.wire.errors import ErrorCode
from tests.coordinator.group_driver import GroupDriver, RecordedReply

JOIN, SYNC = ("join",), ("sync",)


def stable_group(size: int = 2, **options: object) -> tuple[GroupDriver, list[str]]:
    """A group whose members have all joined and synced."""
    driver = GroupDriver()
    replies = [driver.enter(**options) for _ in range(size)]
    driver.fire(JOIN)
    if driver.group.state is PREPARING:
        driver.fire(JOIN)
    members = [reply.answer.member_id for reply in replies]
    leader = driver.group.leader_id
    assert leader is not None
    waiting = [driver.sync(member) for member in members if member != leader]
    driver.sync(leader, assignments={member: b"for " + member.encode() for member in members})
    assert all(reply.answer.assignment for reply in waiting)
    assert driver.group.state is STABLE
    return driver, members


def test_first_join_gets_its_id_first() -> None:
    """From version 4 on a client without an id gets one, and becomes a member with it."""
    driver = GroupDriver()
    answer = driver.join().answer
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert not driver.group.members
    assert driver.join(answer.member_id).open
    assert list(driver.group.members) == [answer.member_id]


def test_old_clients_become_members_at_once() -> None:
    """Before version 4 a join without an id makes a member."""
    driver = GroupDriver()
    assert driver.join(version=3).open
    assert len(driver.group.members) == 1


def test_a_pending_id_id_that_nobody_takes_up_is_forgotten() -> None:
    """A pending member that never returns does not hold up the others."""
    driver, members = stable_group(1)
    pending_id = driver.join().answer.member_id
    again = driver.join(members[0], protocols=("range", "sticky"))
    assert again.open
    driver.fire(("session", pending_id))
    assert again.answer.generation_id == 2


def test_the_initial_delay_is_prolonged_by_newcomers() -> None:
    """An empty group waits; each newcomer during the wait makes it wait once more."""
    driver = GroupDriver()
    first = driver.enter()
    second = driver.enter()
    driver.fire(JOIN)
    assert first.open
    assert second.open
    driver.fire(JOIN)
    assert {first.answer.generation_id, second.answer.generation_id} == {1}
    assert first.answer.leader == first.answer.member_id
    assert len(first.answer.members) == 2
    assert second.answer.members == []


def test_assignment_reaches_everybody_and_is_recorded() -> None:
    """The leader's sync stores the assignment and answers all who wait, also the late ones."""
    driver, members = stable_group(3)
    assert driver.records[-1].generation == 1
    stored = {m.member_id: m.assignment for m in driver.records[-1].members}
    assert stored == {member: b"for " + member.encode() for member in members}
    assert driver.sync(members[2]).answer.assignment == b"for " + members[2].encode()


def test_assignment_that_cannot_be_stored_starts_again() -> None:
    """If the record cannot be appended no member gets an assignment, and the group rebalances."""
    driver = GroupDriver()
    reply = driver.enter()
    driver.fire(JOIN)
    driver.append_fails = True
    waiting = driver.sync(reply.answer.member_id, assignments={})
    assert waiting.answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.group.state is PREPARING


def test_newcomer_makes_a_stable_group_rebalance() -> None:
    """Heartbeats make the members join again, and the next generation has all."""
    driver, members = stable_group(2)
    newcomer = driver.enter()
    assert driver.group.state is PREPARING
    assert driver.heartbeat(members[0]) == ErrorCode.REBALANCE_IN_PROGRESS
    replies = [driver.join(member) for member in members]
    assert {reply.answer.generation_id for reply in [*replies, newcomer]} == {2}
    assert driver.group.state is COMPLETING


def test_members_that_do_not_return_are_left_out() -> None:
    """When the rebalance timeout is over the group goes on without those who did not join."""
    driver, members = stable_group(2)
    newcomer = driver.enter()
    back = driver.join(members[0])
    driver.fire(JOIN)
    assert newcomer.answer.generation_id == back.answer.generation_id == 2
    assert members[1] not in driver.group.members


def test_a_member_that_stays_silent_is_removed() -> None:
    """No heartbeat for the session timeout: the member is out, and the rest rebalances."""
    driver, members = stable_group(2)
    driver.fire(("session", members[1]))
    assert driver.group.state is PREPARING
    assert list(driver.group.members) == [members[0]]
    assert driver.heartbeat(members[1]) == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_join_but_never_sync_are_removed() -> None:
    """A member that does not ask for its assignment in time is out."""
    driver = GroupDriver()
    replies = [driver.enter(), driver.enter()]
    driver.fire(JOIN)
    driver.fire(JOIN)
    leader, other = (reply.answer.member_id for reply in replies)
    driver.sync(leader, assignments={})
    driver.fire(SYNC)
    assert other not in driver.group.members
    assert driver.group.state is PREPARING


def test_last_member_leaving_empties_the_group() -> None:
    """An empty generation is recorded, so that the group is known as empty after a restart."""
    driver, members = stable_group(1)
    assert driver.leave(members[0]).error_code == ErrorCode.NONE
    assert driver.group.state is EMPTY
    assert driver.records[-1].members == []
    assert driver.records[-1].generation == 2


def test_restart_keeps_members_and_assignments() -> None:
    """After a failover the members heartbeat on as if nothing had been."""
    driver, members = stable_group(2)
    driver.restart()
    assert driver.group.state is STABLE
    assert driver.heartbeat(members[0]) == ErrorCode.NONE
    assert driver.sync(members[1]).answer.assignment == b"for " + members[1].encode()


@pytest.mark.parametrize("version", [8, 9])
def test_static_member_returns_without_a_rebalance(version: int) -> None:
    """A static member that restarts takes its place and assignment; the old id is fenced."""
    driver = GroupDriver()
    first = driver.join(instance_id="a")
    second = driver.join(instance_id="b")
    driver.fire(JOIN)
    driver.fire(JOIN)
    old, other = first.answer.member_id, second.answer.member_id
    driver.sync(other, instance_id="b")
    driver.sync(old, instance_id="a", assignments={old: b"A", other: b"B"})
    back = driver.join(instance_id="a", version=version).answer
    assert driver.group.state is STABLE
    assert back.generation_id == 1
    if version >= 9:
        assert back.leader == back.member_id
        assert back.skip_assignment
    else:
        assert back.leader == old
        assert back.members == []
    assert driver.sync(back.member_id, instance_id="a").answer.assignment == b"A"
    assert driver.heartbeat(old, instance_id="a") == ErrorCode.FENCED_INSTANCE_ID
    assert driver.heartbeat(other, instance_id="b") == ErrorCode.NONE
    driver.restart()
    assert driver.heartbeat(back.member_id, instance_id="a") == ErrorCode.NONE


def test_static_member_returning_while_completing_rebalances() -> None:
    """The leader may have assigned to the old id already: only another rebalance is safe."""
    driver = GroupDriver()
    first = driver.join(instance_id="a")
    driver.fire(JOIN)
    assert first.answer.generation_id == 1
    again = driver.join(instance_id="a")
    assert again.answer.generation_id == 2
    assert driver.group.state is COMPLETING


def test_static_member_stays_through_a_rebalance_it_misses() -> None:
    """A static member that does not join in time keeps its place until its session ends."""
    driver = GroupDriver()
    driver.join(instance_id="a")
    driver.join(instance_id="b")
    driver.fire(JOIN)
    driver.fire(JOIN)
    first, second = driver.group.members
    driver.sync(second, instance_id="b")
    driver.sync(first, instance_id="a", assignments={})
    driver.join(instance_id="c")
    driver.join(first, instance_id="a")
    driver.fire(JOIN)
    assert second in driver.group.members
    driver.fire(("session", second))
    assert second not in driver.group.members


def test_static_member_is_removed_by_instance_id() -> None:
    """An operator may remove a static member without knowing its member id."""
    driver = GroupDriver()
    driver.join(instance_id="a")
    driver.fire(JOIN)
    assert driver.leave("", instance_id="nobody").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.leave("", instance_id="a").error_code == ErrorCode.NONE
    assert driver.group.state is EMPTY


def test_fencing() -> None:
    """Wrong generation, unknown member and wrong instance each have their own error."""
    driver, [member] = stable_group(1)
    assert driver.heartbeat(member, generation=7) == ErrorCode.ILLEGAL_GENERATION
    assert driver.heartbeat("unknown") == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.sync(member, generation=0).answer.error_code == ErrorCode.ILLEGAL_GENERATION
    assert driver.sync("unknown").answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.join("unknown").answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.leave("unknown").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_protocols_must_agree() -> None:
    """A member without a common protocol is refused; the choice is what most prefer."""
    driver, members = stable_group(2, protocols=("range", "sticky"))
    refused = driver.join(protocols=("roundrobin",)).answer
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    refused = driver.join(protocol_type="connect").answer
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    driver.join(members[0], protocols=("sticky", "range"))
    driver.join(members[1], protocols=("sticky", "range"))
    assert driver.group.protocol_name == "sticky"


def test_group_size_is_limited() -> None:
    """Beyond group.max.size a newcomer is refused; members that join again are not."""
    driver = GroupDriver(GroupRules(max_size=1, initial_rebalance_delay_ms=0))
    reply = driver.enter()
    driver.fire(JOIN)
    member = reply.answer.member_id
    driver.sync(member, assignments={})
    assert driver.join().answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.join(member).answer.generation_id == 2


def test_a_lost_join_answer_is_repeated() -> None:
    """A member that joins again while completing gets the same generation, not a new one."""
    driver = GroupDriver()
    reply = driver.enter()
    driver.fire(JOIN)
    member = reply.answer.member_id
    assert driver.join(member).answer.generation_id == 1
    assert driver.group.state is COMPLETING


def test_rejoining_follower_of_a_stable_group_gets_the_present_state() -> None:
    """Only the leader's, or a changed member's, coming back makes a rebalance."""
    driver, members = stable_group(2)
    leader = driver.group.leader_id
    follower = next(member for member in members if member != leader)
    assert driver.join(follower).answer.generation_id == 1
    assert driver.group.state is STABLE
    assert driver.join(leader or "").open
    assert driver.group.state is PREPARING


def test_a_new_member_that_vanishes_is_given_up() -> None:
    """A join whose client has gone ends: new members have a timeout of their own."""
    driver, _ = stable_group(1)
    ghost: RecordedReply = driver.join(version=3)
    [ghost_id] = [m.member_id for m in driver.group.members.values() if m.is_new]
    driver.fire(("session", ghost_id))
    assert ghost.answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert ghost_id not in driver.group.members


class CountedMembers(dict[str, Member]):
    """Counts how often all members are looked through."""

    passes = 0

    def values(self) -> Any:
        self.passes += 1
        return super().values()

    def items(self) -> Any:
        self.passes += 1
        return super().items()


def test_a_join_costs_the_same_in_a_group_of_any_size() -> None:
    """Members are looked through once or twice for each generation, not for each join or leave."""
    driver = GroupDriver()
    members = driver.group.members = CountedMembers()
    replies = [driver.enter() for _ in range(200)]
    assert members.passes <= 1, "the largest rebalance timeout, for the first join"
    while replies[0].open:
        driver.fire(("join",))
    ids = [reply.answer.member_id for reply in replies]
    leader = driver.group.leader_id
    assert leader is not None
    driver.sync(leader, assignments={})
    members.passes = 0
    again = [driver.join(member_id) for member_id in [leader, *ids]]
    assert driver.group.generation_id == 2
    assert not again[-2].open
    assert members.passes <= 10
    driver.sync(leader, assignments={})
    members.passes = 0
    for member_id in ids[:150]:
        driver.leave(member_id)
    assert members.passes <= 3

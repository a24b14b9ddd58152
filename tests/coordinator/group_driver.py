"""A group without any I/O: events in, responses out, timers fired by the test.

`GroupDriver` does what the runtime does with `Effects`, on one group, and keeps a reply of every
reply, so that a test can check that each was answered once, or is still parked in the group.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from ottla.coordinator.effects import Effects
from ottla.coordinator.group import Group
from ottla.coordinator.group_records import apply_assignment, restore
from ottla.coordinator.join_group import Joining, join
from ottla.coordinator.membership import heartbeat, leave, session_expired
from ottla.coordinator.rebalance import GroupRules, join_timer_expired, sync, sync_timer_expired
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.leave_group import MemberIdentity, MemberResponse
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.coordinator_records import GroupMetadataValue, read_value
from ottla.wire.errors import ErrorCode


class RecordedReply:
    """A reply that records its responses, in order; more than one is a fault."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.answers: list[Any] = []

    def resolve(self, response: Any) -> None:
        self.answers.append(response)

    def fail(self, error: ErrorCode) -> None:
        self.answers.append(error)

    @property
    def answer(self) -> Any:
        assert len(self.answers) == 1, f"{self.name} has {len(self.answers)} answers"
        return self.answers[0]

    @property
    def open(self) -> bool:
        return not self.answers

    def __repr__(self) -> str:
        return f"<{self.name}: {self.answers}>"


class GroupDriver:
    """One group under test; `now_ms` moves only by firing timers."""

    def __init__(self, rules: GroupRules | None = None, *, append_fails: bool = False) -> None:
        self.group = Group("g")
        self.rules = rules or GroupRules(initial_rebalance_delay_ms=3000)
        self.now_ms = 1_000_000
        self.timers: dict[tuple[Any, ...], int] = {}
        self.replies: list[RecordedReply] = []
        self.records: list[GroupMetadataValue] = []
        self.append_fails = append_fails
        self._names = count(1)

    # ---- events ----------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: tuple[str, ...] = ("range",),
        protocol_type: str = "consumer",
        version: int = 9,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
    ) -> RecordedReply:
        reply = self._reply("join")
        request = JoinGroupRequest(
            group_id="g",
            member_id=member_id,
            group_instance_id=instance_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=name.encode()) for name in protocols
            ],
        )
        joining = Joining(request, reply, version, "client", "/host", f"m{next(self._names)}")
        effects = Effects()
        join(self.group, joining, self.rules, effects, self.now_ms)
        self.execute(effects)
        return reply

    def enter(self, **options: Any) -> RecordedReply:
        """Join as a real client does: get an id first, then join with it."""
        reply = self.join(**options)
        if reply.answers and reply.answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return self.join(reply.answer.member_id, **options)
        return reply

    def sync(
        self,
        member_id: str,
        *,
        generation: int | None = None,
        instance_id: str | None = None,
        assignments: dict[str, bytes] | None = None,
    ) -> RecordedReply:
        reply = self._reply("sync")
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.group.generation_id if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=key, assignment=value)
                for key, value in (assignments or {}).items()
            ],
        )
        effects = Effects()
        sync(self.group, request, reply, self.rules, effects, self.now_ms)
        self.execute(effects)
        return reply

    def heartbeat(
        self, member_id: str, *, generation: int | None = None, instance_id: str | None = None
    ) -> ErrorCode:
        request = HeartbeatRequest(
            generation_id=self.group.generation_id if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance_id,
        )
        effects = Effects()
        error = heartbeat(self.group, request, effects)
        self.execute(effects)
        return error

    def leave(self, member_id: str, *, instance_id: str | None = None) -> MemberResponse:
        effects = Effects()
        identity = MemberIdentity(member_id=member_id, group_instance_id=instance_id)
        [answer] = leave(self.group, [identity], self.rules, effects, self.now_ms)
        self.execute(effects)
        return answer

    def fire(self, key: tuple[Any, ...]) -> None:
        """The time of this timer has come."""
        self.now_ms = max(self.now_ms, self.timers.pop(key))
        effects = Effects()
        if key[0] == "session":
            session_expired(self.group, key[1], self.rules, effects, self.now_ms)
        elif key[0] == "join":
            join_timer_expired(self.group, self.rules, effects, self.now_ms)
        else:
            sync_timer_expired(self.group, self.rules, effects, self.now_ms)
        self.execute(effects)

    # ---- what the runtime does -------------------------------------------------------------------

    def execute(self, effects: Effects) -> None:
        if effects.records and self.append_fails:
            after = Effects()
            if effects.on_failure is not None:
                effects.on_failure(ErrorCode.NOT_ENOUGH_REPLICAS, after)
                self.execute(after)
            return
        for record in effects.records:
            assert record.value is not None
            value = read_value(GroupMetadataValue, record.value)
            self.records.append(value)
            apply_assignment(self.group, value)
        for (_, *name), delay_ms in effects.timers.items():
            key = tuple(name)
            if delay_ms is None:
                self.timers.pop(key, None)
            else:
                self.timers[key] = self.now_ms + delay_ms
        for reply, response in effects.due:
            assert reply is not None
            reply.resolve(response)

    def restart(self) -> None:
        """The coordinator is lost and loaded again: only what was recorded remains."""
        for reply in self.parked():
            reply.fail(ErrorCode.NOT_COORDINATOR)
        self.group = Group("g")
        self.timers.clear()
        if self.records:
            self.group = restore("g", self.records[-1])
        for member in self.group.members.values():
            self.timers["session", member.member_id] = self.now_ms + member.session_timeout_ms

    def parked(self) -> list[RecordedReply]:
        """The replies that are parked in the group."""
        return [
            reply
            for member in self.group.members.values()
            for reply in (member.awaiting_join, member.awaiting_sync)
            if isinstance(reply, RecordedReply)
        ]

    def _reply(self, what: str) -> RecordedReply:
        reply = RecordedReply(f"{what} {len(self.replies)}")
        self.replies.append(reply)
        return reply

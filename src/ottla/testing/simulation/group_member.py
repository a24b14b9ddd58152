"""A member of a consumer group in a simulated cluster: joins, reads what it is assigned, commits.

Members leave, die without a word and come again. What must hold however that goes: in a generation
a partition has one owner, and who takes a partition over begins at the last offset whose commit was
answered, or later.
"""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any, Protocol

from ottla.seams.simulated.simulation import Node
from ottla.testing.simulation.clients import ClusterClient, Place
from ottla.testing.simulation.committed_reader import end_of, fetch, values_in
from ottla.testing.simulation.transformer import (
    GROUPS,
    PASSING,
    commit_error,
    fetch_error,
    offset_error,
    top_error,
)
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.errors import ErrorCode

GROUP = "members"
SESSION_TIMEOUT_MS = 1500
REBALANCE_TIMEOUT_MS = 1500
RETRY_S = 0.05
GIVE_UP_S = 4.0  # for one request: then the member begins anew
STEP_S_MAX = 0.4  # from one round of its partitions to the next
PAUSE_S_MAX = 2.5  # after it has left or died
LEAVE_SHARE = 0.03  # of the rounds after which a member leaves
DIE_SHARE = 0.03  # or ends without a word
# The group has another generation, or does not know the member any more.
REJOINS = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
    }
)


class Rejoin(Exception):
    """The member must join again; with a new id unless it `keeps_id`."""

    def __init__(self, keeps_id: bool) -> None:
        self.keeps_id = keeps_id


class Group:
    """What all members together were told."""

    def __init__(self) -> None:
        self.owners: dict[tuple[int, Place], str] = {}  # by generation and partition
        self.committed: dict[Place, int] = {}  # the last offset whose commit was answered
        self.processed: dict[Place, set[str]] = {}
        self.generations = 0


class Workload(Protocol):
    """What the members share."""

    hosts: list[str]
    places: list[Place]
    group: Group
    processed: bool  # everything: members end

    def problem(self, text: str) -> None:
        """Something that must not be."""


class GroupMember:
    """One member."""

    def __init__(self, workload: Workload, node: Node) -> None:
        self._workload = workload
        self._node = node
        self._rng = random.Random(f"{node.simulation.seed} {node.name}")
        self._client = ClusterClient(node, workload.hosts, self._rng)
        self._member_id = ""
        self._generation = -1

    async def run(self) -> None:
        while not self._workload.processed:
            try:
                await self._work(await self._join())
            except Rejoin as again:
                if not again.keeps_id:
                    self._member_id = ""
                    await asyncio.sleep(self._rng.uniform(0, PAUSE_S_MAX))

    async def _work(self, places: list[Place]) -> None:
        """Read, process and commit until something is against it."""
        positions = {place: await self._committed_offset(place) for place in places}
        while not self._workload.processed:
            await self._ask(GROUPS, HeartbeatRequest(**self._identity()), 3, top_error)
            for place in places:
                positions[place] = await self._process(place, positions[place])
            chance = self._rng.random()
            if chance < LEAVE_SHARE:
                leaving = LeaveGroupRequest(
                    group_id=GROUP, members=[MemberIdentity(member_id=self._member_id)]
                )
                await self._client.ask(GROUPS, leaving, 3)
            if chance < LEAVE_SHARE + DIE_SHARE:
                raise Rejoin(keeps_id=False)
            await asyncio.sleep(self._rng.uniform(0, STEP_S_MAX))

    async def _process(self, place: Place, position: int) -> int:
        found = await self._client.ask(
            place, lambda epoch: fetch(place, position, 0, epoch, wait_ms=0), 12
        )
        if found is None or fetch_error(found[0]):
            self._client.forget(place)
            return position
        data = found[0].responses[0].partitions[0]
        end = end_of(data)
        if end <= position:
            return position
        done = self._workload.group.processed.setdefault(place, set())
        done.update(value for _, value in values_in(data, position))
        await self._commit(place, end)
        return end

    # The group

    async def _join(self) -> list[Place]:
        """Take part in the next generation; the partitions that this member has in it."""
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        joined = await self._ask(GROUPS, request, 5, top_error)
        self._member_id, self._generation = joined.member_id, joined.generation_id
        assignments = []
        if joined.leader == joined.member_id:
            assignments = self._assign(sorted(each.member_id for each in joined.members))
        answer = await self._ask(
            GROUPS, SyncGroupRequest(assignments=assignments, **self._identity()), 3, top_error
        )
        numbers = json.loads(bytes(answer.assignment) or b"[]")
        places = [self._workload.places[number] for number in numbers]
        self._take(places)
        return places

    def _assign(self, members: list[str]) -> list[SyncGroupRequestAssignment]:
        count = len(self._workload.places)
        return [
            SyncGroupRequestAssignment(
                member_id=member,
                assignment=json.dumps(list(range(at, count, len(members)))).encode(),
            )
            for at, member in enumerate(members)
        ]

    def _take(self, places: list[Place]) -> None:
        group = self._workload.group
        group.generations = max(group.generations, self._generation)
        for place in places:
            owner = group.owners.setdefault((self._generation, place), self._member_id)
            if owner != self._member_id:
                self._workload.problem(
                    f"{place} has two owners in generation {self._generation}: {owner} and "
                    f"{self._member_id}"
                )

    def _identity(self) -> dict[str, Any]:
        return {
            "group_id": GROUP,
            "generation_id": self._generation,
            "member_id": self._member_id,
        }

    # Offsets

    async def _committed_offset(self, place: Place) -> int:
        expected = self._workload.group.committed.get(place, 0)
        asked = OffsetFetchRequestTopics(name=place.topic, partition_indexes=[place.number])
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=[asked])
        answer = await self._ask(GROUPS, OffsetFetchRequest(groups=[group]), 8, offset_error)
        found = max(int(answer.groups[0].topics[0].partitions[0].committed_offset), 0)
        if found < expected:
            self._workload.problem(
                f"the committed offset of {place} went back from {expected} to {found}"
            )
        return found

    async def _commit(self, place: Place, offset: int) -> None:
        partition = OffsetCommitRequestPartition(
            partition_index=place.number, committed_offset=offset
        )
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            topics=[OffsetCommitRequestTopic(name=place.topic, partitions=[partition])],
        )
        await self._ask(GROUPS, request, 7, commit_error)
        # The answer may be late: another generation may have committed more by now.
        committed = self._workload.group.committed
        committed[place] = max(committed.get(place, 0), offset)

    async def _ask(self, place: Place, request: Any, version: int, error_of: Any) -> Any:
        """The answer of the coordinator, asked again after what passes."""
        end_s = self._node.clock.monotonic() + GIVE_UP_S
        while self._node.clock.monotonic() < end_s and not self._workload.processed:
            found = await self._client.ask(place, request, version)
            if found is not None:
                answer = found[0]
                error = ErrorCode(error_of(answer))
                if not error:
                    return answer
                if error is ErrorCode.MEMBER_ID_REQUIRED:
                    request.member_id = answer.member_id
                    continue
                if error in REJOINS:
                    raise Rejoin(keeps_id=error is not ErrorCode.UNKNOWN_MEMBER_ID)
                if error not in PASSING:
                    kind = type(answer).__name__
                    self._workload.problem(f"{self._node.name}: {kind} has {error.name}")
                    raise Rejoin(keeps_id=False)
            self._client.forget(place)
            await asyncio.sleep(RETRY_S)
        raise Rejoin(keeps_id=False)

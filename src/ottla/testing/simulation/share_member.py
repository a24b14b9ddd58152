"""A member of a share group in a simulated cluster: is given records, says what came of them.

It accepts, releases, rejects and renews, or says nothing until its lock has ended. Members leave,
die without a word and come again. All goes into a history, which `ottla.testing.queue_history`
judges.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ottla.seams.simulated.simulation import Node
from ottla.testing.history import Outcome
from ottla.testing.queue_history import Delivery, QueueHistory, Settled
from ottla.testing.simulation.clients import ClusterClient, Place, records_in, within
from ottla.testing.simulation.connection import Connection
from ottla.testing.simulation.transformer import GROUPS, PASSING
from ottla.wire.api import share_acknowledge as acknowledging
from ottla.wire.api import share_fetch as fetching
from ottla.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.wire.errors import ErrorCode

GROUP = "queue"
VERSION = 2
HEARTBEAT_S = 0.3
FETCH_WAIT_MS = 200
RECORDS_MAX = 8
FETCH_BYTES_MAX = 1 << 16
ROUND_S_MAX = 0.3  # from one round of its partitions to the next
PAUSE_S_MAX = 2.0  # after it has left or died
LEAVE_SHARE = 0.02  # of the rounds after which a member leaves
DIE_SHARE = 0.03  # or ends without a word
VANISH_SHARE = 0.5  # of those that die leave their connections open, as a machine without power
SEPARATE_SHARE = 0.4  # of the acknowledgements are requests of their own
RECORD_LIMIT_SHARE = 0.3  # of the fetches want no more than they asked for
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
NOTHING = -1
# What a member says of a record, and how often.
ANSWERS = {ACCEPT: 76, RELEASE: 9, REJECT: 4, RENEW: 5, NOTHING: 6}
# The clocks of a leader may run faster than the simulation's by so much: its locks end earlier.
LOCK_CERTAIN = 0.75
# These say that an acknowledgement had no effect; after others it may have had one.
NO_EFFECT = frozenset({ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST})
SESSION_LOST = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})
# UNKNOWN_SERVER_ERROR is Kafka's answer when the state could not be written in time.
OF_PARTITIONS = PASSING | NO_EFFECT | {ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_TOPIC_ID}


class Gone(Exception):
    """The member is no more: it begins anew, under another id."""


class Workload(Protocol):
    """What the members share."""

    hosts: list[str]
    queue: QueueHistory
    lock_s: float
    topic_id: bytes
    processed: bool  # everything: members end
    rejected: set[tuple[Place, int]]  # and the member got an answer
    # How often somebody said so, and was not told that it has no effect.
    accepted: Counter[tuple[Place, int]]

    def problem(self, text: str) -> None:
        """Something that must not be."""

    def led_epoch(self, place: Place, host: str) -> int | None:
        """The leader epoch of a host if it leads the partition, and nobody after it."""


class Asked(NamedTuple):
    """What is to be said of records."""

    delivery: Delivery
    kind: int


@dataclass
class Session:
    """A share session with one broker."""

    host: str
    connection: Connection
    epoch: int = 0
    places: set[Place] = field(default_factory=set)
    held: list[Delivery] = field(default_factory=list)
    to_say: dict[Place, list[Asked]] = field(default_factory=dict)


class ShareMember:
    """One member, under one id after the other."""

    def __init__(self, workload: Workload, node: Node, topic: str) -> None:
        self._workload = workload
        self._node = node
        self._topic = topic
        self._rng = random.Random(f"{node.simulation.seed} {node.name}")
        self._number = 0

    async def run(self) -> None:
        while not self._workload.processed:
            self._number += 1
            self._member_id = f"{self._node.name}.{self._number}"
            self._client = ClusterClient(self._node, self._workload.hosts, self._rng)
            self._sessions: dict[str, Session] = {}
            self._epoch = 0
            self._places: list[Place] = []
            self._heartbeat_at_s = 0.0
            try:
                await self._work()
            except Gone:
                pass
            await asyncio.sleep(self._rng.uniform(0, PAUSE_S_MAX))

    async def _work(self) -> None:
        rng = self._rng
        while not self._workload.processed:
            if self._now_s() >= self._heartbeat_at_s:
                await self._heartbeat()
            for host, places in (await self._by_host()).items():
                await self._turn(host, places)
            chance = rng.random()
            if chance < LEAVE_SHARE:
                await self._leave()
                raise Gone
            if chance < LEAVE_SHARE + DIE_SHARE:
                if rng.random() >= VANISH_SHARE:
                    self._close()
                raise Gone
            await asyncio.sleep(rng.uniform(0, ROUND_S_MAX))

    def _now_s(self) -> float:
        return self._node.simulation.now_s

    # ---- the group -------------------------------------------------------------------------------

    async def _heartbeat(self, epoch: int | None = None) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self._member_id,
            member_epoch=self._epoch if epoch is None else epoch,
            subscribed_topic_names=[self._topic] if not self._epoch else None,
        )
        found = await self._client.ask(GROUPS, request, 1)
        if found is None or epoch is not None:
            return
        answer = found[0]
        error = ErrorCode(answer.error_code)
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self._epoch = 0
            return
        if error is ErrorCode.GROUP_ID_NOT_FOUND and self._epoch:
            self._workload.problem(f"{self._member_id}: the group is gone")
        if error:
            if error not in PASSING:
                self._workload.problem(f"{self._member_id}: the heartbeat has {error.name}")
            self._client.forget(GROUPS)
            return
        self._epoch = answer.member_epoch
        self._heartbeat_at_s = self._now_s() + HEARTBEAT_S
        if answer.assignment is not None:
            self._places = [
                Place(self._topic, number)
                for each in answer.assignment.topic_partitions
                for number in each.partitions
            ]

    async def _leave(self) -> None:
        """Give everything back, then go."""
        for session in list(self._sessions.values()):
            await self._acknowledge(session, -1, {})
            self._end(session)
        await self._heartbeat(-1)
        self._close()

    def _close(self) -> None:
        for session in list(self._sessions.values()):
            self._end(session)
        self._client.close()

    # ---- sessions --------------------------------------------------------------------------------

    async def _by_host(self) -> dict[str, list[Place]]:
        """The partitions of this member by the broker that leads each."""
        found: dict[str, list[Place]] = {host: [] for host in self._sessions}
        for place in self._places:
            if await self._client.leader(place) is not None:
                leader = self._client._leaders.get(place)
                if leader is not None:
                    found.setdefault(leader.host, []).append(place)
        return found

    async def _turn(self, host: str, places: list[Place]) -> None:
        """Say what is to be said to one broker, and get more."""
        session = self._sessions.get(host)
        if session is not None and session.connection.closed:
            self._end(session)
            session = None
        if session is None:
            connection = await self._client.connect(host) if places else None
            if connection is None:
                for place in places:
                    self._client.forget(place)
                return
            session = self._sessions[host] = Session(host, connection)
        to_say = session.to_say if session.epoch else {}
        session.to_say = {}
        renewing = any(each.kind == RENEW for said in to_say.values() for each in said)
        if to_say and (renewing or self._rng.random() < SEPARATE_SHARE):
            if not await self._acknowledge(session, session.epoch, to_say):
                return
            to_say = {}
        await self._fetch(session, places, to_say)

    def _end(self, session: Session) -> None:
        """The session is no more, at the latest now: so is what it held."""
        for each in session.held:
            each.end_s = min(each.end_s, self._now_s())
        self._sessions.pop(session.host, None)

    async def _acknowledge(
        self, session: Session, epoch: int, to_say: dict[Place, list[Asked]]
    ) -> bool:
        request = acknowledging.ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=self._member_id,
            share_session_epoch=epoch,
            is_renew_ack=any(each.kind == RENEW for said in to_say.values() for each in said),
            topics=[
                acknowledging.AcknowledgeTopic(
                    topic_id=self._workload.topic_id,
                    partitions=[
                        acknowledging.AcknowledgePartition(
                            partition_index=place.number,
                            acknowledgement_batches=[
                                acknowledging.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=types
                                )
                                for first, last, types in batches_of(said)
                            ],
                        )
                        for place, said in to_say.items()
                    ],
                )
            ],
        )
        self._let_go(session, to_say)
        answer = await within(session.connection.post(request, VERSION))
        errors = {
            Place(self._topic, each.partition_index): each.error_code
            for topic in (answer.responses if answer is not None else ())
            for each in topic.partitions
        }
        self._record(to_say, answer, errors)
        return self._go_on(session, answer)

    async def _fetch(
        self, session: Session, places: list[Place], to_say: dict[Place, list[Asked]]
    ) -> None:
        wanted = set(places)
        added = [place for place in places if place not in session.places or place in to_say]
        said_only = [place for place in to_say if place not in wanted]
        forgotten = sorted(session.places - wanted)
        topics = [
            fetching.FetchTopic(
                topic_id=self._workload.topic_id,
                partitions=[
                    fetching.FetchPartition(
                        partition_index=place.number,
                        acknowledgement_batches=[
                            fetching.AcknowledgementBatch(
                                first_offset=first, last_offset=last, acknowledge_types=types
                            )
                            for first, last, types in batches_of(to_say.get(place, []))
                        ],
                    )
                    for place in [*added, *said_only]
                ],
            )
        ]
        request = fetching.ShareFetchRequest(
            group_id=GROUP,
            member_id=self._member_id,
            share_session_epoch=session.epoch,
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            max_records=self._rng.randint(1, RECORDS_MAX),
            batch_size=self._rng.randint(1, RECORDS_MAX),
            share_acquire_mode=int(self._rng.random() < RECORD_LIMIT_SHARE),
            topics=topics if added or said_only else [],
            forgotten_topics_data=[
                fetching.ForgottenTopic(
                    topic_id=self._workload.topic_id,
                    partitions=[place.number for place in [*forgotten, *said_only]],
                )
            ]
            if forgotten or said_only
            else [],
        )
        session.places = wanted
        self._let_go(session, to_say)
        asked_s = self._now_s()
        before = {place: self._workload.led_epoch(place, session.host) for place in places}
        answer = await within(session.connection.post(request, VERSION))
        data = {
            Place(self._topic, each.partition_index): each
            for topic in (answer.responses if answer is not None else ())
            for each in topic.partitions
        }
        errors = {place: each.acknowledge_error_code for place, each in data.items()}
        self._record(to_say, answer, errors)
        if not self._go_on(session, answer):
            return
        for place, each in data.items():
            if each.error_code:
                self._check(ErrorCode(each.error_code), place)
                self._client.forget(place)
                continue
            self._take(session, place, each, asked_s, before.get(place))

    def _go_on(self, session: Session, answer: Any) -> bool:
        """Whether the session goes on after this answer."""
        if answer is None:
            session.connection.close()
            self._end(session)
            return False
        error = ErrorCode(answer.error_code)
        if error:
            if error not in SESSION_LOST:
                self._workload.problem(f"{self._member_id}: {type(answer).__name__} {error.name}")
            self._end(session)
            return False
        session.epoch += 1
        return True

    # ---- records ---------------------------------------------------------------------------------

    def _take(
        self, session: Session, place: Place, data: Any, asked_s: float, certain: int | None
    ) -> None:
        now_s = self._now_s()
        values = {offset: value for offset, value, _ in records_in(data.records)}
        for acquired in data.acquired_records:
            for offset in range(acquired.first_offset, acquired.last_offset + 1):
                delivery = self._workload.queue.given(
                    Delivery(
                        self._member_id,
                        place,
                        offset,
                        values.get(offset),
                        acquired.delivery_count,
                        asked_s,
                        now_s,
                        asked_s + self._workload.lock_s * LOCK_CERTAIN,
                        certain,
                    )
                )
                session.held.append(delivery)
                [kind] = self._rng.choices(list(ANSWERS), list(ANSWERS.values()))
                if kind != NOTHING:
                    session.to_say.setdefault(place, []).append(Asked(delivery, kind))

    def _let_go(self, session: Session, to_say: dict[Place, list[Asked]]) -> None:
        """What is said now may take effect from now on."""
        for said in to_say.values():
            for each in said:
                if each.kind != RENEW:
                    each.delivery.end_s = min(each.delivery.end_s, self._now_s())
        self._workload.accepted.update(accepted_of(to_say))
        self._settle(to_say.values(), Outcome.UNKNOWN)

    def _settle(self, all_said: Iterable[list[Asked]], outcome: Outcome) -> None:
        now_s = self._now_s()
        for said in all_said:
            for each in said:
                if each.kind in (ACCEPT, REJECT):
                    given = each.delivery
                    self._workload.queue.answered(
                        Settled(given.member, given.partition, given.offset, outcome, now_s)
                    )

    def _record(
        self, to_say: dict[Place, list[Asked]], answer: Any, errors: dict[Place, int]
    ) -> None:
        for place, said in to_say.items():
            error = ErrorCode(errors.get(place, 0))
            if answer is None:
                outcome = Outcome.UNKNOWN
            elif answer.error_code:
                outcome = Outcome.FAILED
            elif not error:
                outcome = Outcome.OK
            else:
                self._check(error, place)
                outcome = Outcome.FAILED if error in NO_EFFECT else Outcome.UNKNOWN
                self._client.forget(place)
            if outcome is not Outcome.UNKNOWN:
                self._settle([said], outcome)
            if outcome is Outcome.FAILED:
                self._workload.accepted.subtract(accepted_of({place: said}))
            if outcome is Outcome.OK:
                self._workload.rejected.update(
                    (place, each.delivery.offset) for each in said if each.kind == REJECT
                )
            renewed = [each for each in said if each.kind == RENEW]
            if renewed and outcome is Outcome.OK:
                self._renewed(place, renewed)

    def _renewed(self, place: Place, renewed: list[Asked]) -> None:
        """These records are accepted at the next opportunity."""
        for session in self._sessions.values():
            held = [each for each in renewed if each.delivery in session.held]
            session.to_say.setdefault(place, []).extend(each._replace(kind=ACCEPT) for each in held)

    def _check(self, error: ErrorCode, place: Place) -> None:
        if error not in OF_PARTITIONS:
            self._workload.problem(f"{self._member_id}: {place} has {error.name}")


def accepted_of(to_say: dict[Place, list[Asked]]) -> list[tuple[Place, int]]:
    return [
        (place, each.delivery.offset)
        for place, said in to_say.items()
        for each in said
        if each.kind == ACCEPT
    ]


def batches_of(said: list[Asked]) -> list[tuple[int, int, list[int]]]:
    """First and last offset and types: records that follow each other as one batch."""
    batches: list[tuple[int, int, list[int]]] = []
    for each in sorted(said, key=lambda each: each.delivery.offset):
        offset = each.delivery.offset
        if batches and batches[-1][1] + 1 == offset:
            first, _, types = batches[-1]
            batches[-1] = (first, offset, [*types, each.kind])
        else:
            batches.append((offset, offset, [each.kind]))
    return [
        (first, last, types[:1] if len(set(types)) == 1 else types)
        for first, last, types in batches
    ]

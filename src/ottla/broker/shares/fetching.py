"""One ShareFetch under way: it waits until a member can get something, acquires it and answers.

What it waits for: the high watermark of its partitions, and records that others give back. Nothing
is acquired before it answers, so a request that is given up holds nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import starmap
from typing import TYPE_CHECKING

from ottla.broker.context import Context, Pending
from ottla.broker.shares.answers import leader_hints
from ottla.broker.shares.ranges import Acquired
from ottla.broker.shares.sessions import INITIAL_EPOCH, Place, ShareSession
from ottla.broker.shares.share_partition import Delivery, Outcome, SharePartition
from ottla.security.acls import Operation, ResourceType
from ottla.wire.api.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.rows import Rows, layout_of

if TYPE_CHECKING:
    from ottla.broker.authorization.rights import Rights
    from ottla.replica.purgatory import DelayedOperation

# The mode in which a member gets no more records than it asked for (KIP-1206).
RECORD_LIMIT = 1

NO_LEADER = LeaderIdAndEpoch()

Found = dict[Place, Delivery | ErrorCode]

PACK_ACQUIRED = layout_of(AcquiredRecords).one.pack


class Fetching:
    """One request; `pending` is its answer."""

    def __init__(
        self,
        request: ShareFetchRequest,
        group_id: str,
        member_id: str,
        session: ShareSession,
        context: Context,
    ) -> None:
        self.pending = Pending()
        self.acknowledged: dict[Place, Outcome] = {}
        self._request = request
        self._group_id = group_id
        self._member_id = member_id
        self._session = session
        self._epoch = session.epoch
        self._context = context
        self._manager = context.broker.coordinators.share_manager
        self._isolation = self._manager.configs.isolation(group_id)
        self._bytes_max = min(request.max_bytes, context.broker.fetch_bytes_max)
        self._places: list[Place] = []
        self._denied: list[Place] = []  # what may not be read
        self._operation: DelayedOperation | None = None

    def answer_nothing(self) -> None:
        """Only what came of the acknowledgements."""
        self._respond({})

    def start(self) -> None:
        """Answer at once if that can be done, otherwise wait for more."""
        request = self._request
        self._places = self._session.in_order()
        if self._context.rights is not None:
            self._part_denied(self._context.rights)
        if not self._places or request.max_records <= 0 or self._bytes_max <= 0:
            self._respond({})
            return
        if self._attempt_now():
            return
        keys: list[Hashable] = []
        for place in self._places:
            found = self._manager.find(self._group_id, place)
            if isinstance(found, SharePartition):
                keys += [found, found.partition]
        purgatory = self._context.broker.purgatory
        self._operation = purgatory.park(keys, request.max_wait_ms, self._attempt)
        if not self.pending.done:
            self.pending.on_cancel(self._cancel)

    def _part_denied(self, rights: Rights) -> None:
        image = self._context.broker.image
        names = {place: image.topic_name(place[0]) for place in self._places}
        allowed = rights.allowed(
            Operation.READ,
            ResourceType.TOPIC,
            (name for name in names.values() if name is not None),
        )
        self._denied = [
            place for place, name in names.items() if name is not None and name not in allowed
        ]
        denied = set(self._denied)
        self._places = [place for place in self._places if place not in denied]

    def _attempt(self, expired: bool) -> bool:
        try:
            if expired or self._session.epoch != self._epoch:
                self._respond(self._acquire())
                return True
            return self._attempt_now()
        except Exception as error:  # as the dispatcher would answer it at once
            self.pending.fail(error)
            return True

    def _attempt_now(self) -> bool:
        """Acquire and answer if there is enough, or an error to tell of."""
        if not self._is_due():
            return False
        found = self._acquire()
        if not found and self._request.max_wait_ms > 0:
            return False
        self._respond(found)
        return True

    def _is_due(self) -> bool:
        size = 0
        bytes_min = max(self._request.min_bytes, 1)
        for place in self._places:
            found = self._manager.find(self._group_id, place)
            if isinstance(found, ErrorCode) or found.error:
                return True
            if not found.loaded:
                continue
            readable = found.readable(self._bytes_max, self._isolation)
            if isinstance(readable, ErrorCode):
                return True
            if readable is not None:
                size += readable.size
                if size >= bytes_min:
                    return True
        return False

    def _acquire(self) -> Found:
        request = self._request
        records_left, bytes_left = request.max_records, self._bytes_max
        exact = request.share_acquire_mode == RECORD_LIMIT
        found: Found = {}
        if self.pending.done:
            return found
        for place in self._places:
            share_partition = self._manager.find(self._group_id, place)
            if isinstance(share_partition, ErrorCode):
                found[place] = share_partition
                continue
            if share_partition.error:
                found[place] = share_partition.error
                continue
            if not share_partition.loaded or records_left <= 0 or bytes_left <= 0:
                continue
            delivery = share_partition.acquire(
                self._member_id,
                records_left,
                bytes_left,
                self._isolation,
                batch_size=max(request.batch_size, 1),
                exact=exact,
            )
            if delivery is None:
                continue
            found[place] = delivery
            if isinstance(delivery, Delivery):
                records_left -= delivery.size
                bytes_left -= delivery.records.size
        return found

    def _cancel(self) -> None:
        if self._operation is not None:
            self._context.broker.purgatory.cancel(self._operation)

    def _respond(self, found: Found) -> None:
        found |= dict.fromkeys(self._denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        begins = self._request.share_session_epoch == INITIAL_EPOCH
        places = dict.fromkeys([*self._places, *self._denied] if begins else found)
        places.update(dict.fromkeys(self.acknowledged))
        by_topic: dict[bytes, list[PartitionData]] = {}
        for place in places:
            topic_id, _ = place
            by_topic.setdefault(topic_id, []).append(self._data(place, found.get(place)))
        errors = [(place, each) for place, each in found.items() if isinstance(each, ErrorCode)] + [
            (place, each.error) for place, each in self.acknowledged.items()
        ]
        hints = leader_hints(errors, self._context)
        for topic_id, parts in by_topic.items():
            for data in parts:
                leader = hints.leaders.get((topic_id, data.partition_index))
                if leader is not None:
                    data.current_leader = LeaderIdAndEpoch(
                        leader_id=leader[0], leader_epoch=leader[1]
                    )
        self.pending.resolve(
            ShareFetchResponse(
                acquisition_lock_timeout_ms=self._manager.configs.lock_ms(self._group_id),
                responses=[
                    ShareFetchableTopicResponse(topic_id=topic_id, partitions=parts)
                    for topic_id, parts in by_topic.items()
                ],
                node_endpoints=[
                    NodeEndpoint(node_id=each.id, host=each.host, port=each.port, rack=each.rack)
                    for each in hints.nodes
                ],
            )
        )

    def _data(self, place: Place, found: Delivery | ErrorCode | None) -> PartitionData:
        data = PartitionData(partition_index=place[1], current_leader=NO_LEADER)
        said = self.acknowledged.get(place)
        if said is not None:
            data.acknowledge_error_code = said.error
            data.acknowledge_error_message = said.message
        if isinstance(found, Delivery):
            data.records = found.records
            data.acquired_records = acquired_rows(found.acquired)
        elif found is not None:
            data.error_code = found
        return data


def acquired_rows(acquired: Iterable[Acquired]) -> Rows[AcquiredRecords]:
    return Rows(AcquiredRecords, b"".join(starmap(PACK_ACQUIRED, acquired)))

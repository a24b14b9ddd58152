"""The state of share partitions, kept by the share coordinators: begun, read, written, deleted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.shares.state_calls import Place, StateCall, error_of
from ottla.coordinator.packed_batches import Row, StateBatch, pack, unpack
from ottla.coordinator.share_state import NO_START_OFFSET, SharePartitionKey
from ottla.wire.api import delete_share_group_state as deleting
from ottla.wire.api import initialize_share_group_state as initializing
from ottla.wire.api import read_share_group_state as reading
from ottla.wire.api import read_share_group_state_summary as summing
from ottla.wire.api import write_share_group_state as writing
from ottla.wire.errors import ErrorCode
from ottla.wire.rows import Rows, row_bytes

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

Partitions = Mapping[bytes, Collection[int]]


class KnownState(NamedTuple):
    """What the share coordinator has of a share partition."""

    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]


class Change(NamedTuple):
    """What a leader writes."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    batches: Iterable[Row]


class Persister:
    """Asks the share coordinators, wherever they are."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def read(
        self,
        key: SharePartitionKey,
        leader_epoch: int,
        then: Callable[[KnownState | ErrorCode], object],
    ) -> None:
        """The state, for the leader of this epoch; it fences those before it."""
        asked = reading.PartitionData(partition=key.partition, leader_epoch=leader_epoch)

        def done(results: dict[Place, Any]) -> None:
            [result] = results.values()
            error = error_of(result)
            if error:
                then(error)
                return
            batches = tuple(unpack(row_bytes(result.state_batches, reading.StateBatch)))
            then(KnownState(result.state_epoch, result.start_offset, batches))

        self._call(key.group_id, {(key.topic_id, key.partition): asked}, read_request, done)

    def write(
        self, key: SharePartitionKey, change: Change, then: Callable[[ErrorCode], object]
    ) -> None:
        asked = writing.PartitionData(
            partition=key.partition,
            state_epoch=change.state_epoch,
            leader_epoch=change.leader_epoch,
            start_offset=change.start_offset,
            delivery_complete_count=change.complete_count,
            state_batches=Rows(writing.StateBatch, pack(change.batches)),
        )

        def done(results: dict[Place, Any]) -> None:
            [result] = results.values()
            then(error_of(result))

        self._call(key.group_id, {(key.topic_id, key.partition): asked}, write_request, done)

    def begin(
        self,
        group_id: str,
        epoch: int,
        offsets: Mapping[Place, int],
        then: Callable[[dict[Place, ErrorCode]], object],
    ) -> None:
        """Begin the state of partitions anew, at these offsets, in this state epoch."""
        asked = {
            (topic_id, each): initializing.PartitionData(
                partition=each, state_epoch=epoch, start_offset=offset
            )
            for (topic_id, each), offset in offsets.items()
        }

        def done(results: dict[Place, Any]) -> None:
            then({place: error_of(result) for place, result in results.items()})

        self._call(group_id, asked, initialize_request, done)

    def delete(
        self,
        group_id: str,
        partitions: Partitions,
        then: Callable[[dict[Place, ErrorCode]], object],
    ) -> None:
        asked = {
            (topic_id, each): deleting.PartitionData(partition=each)
            for topic_id, found in partitions.items()
            for each in found
        }

        def done(results: dict[Place, Any]) -> None:
            then({place: error_of(result) for place, result in results.items()})

        self._call(group_id, asked, delete_request, done)

    def summarize(
        self, group_id: str, places: Collection[Place], then: Callable[[dict[Place, Any]], object]
    ) -> None:
        """Where share partitions begin and how many are done with: results of their own kind."""
        asked = {
            (topic_id, each): summing.PartitionData(partition=each, leader_epoch=-1)
            for topic_id, each in places
        }
        self._call(group_id, asked, summary_request, then)

    def _call(
        self,
        group_id: str,
        asked: Mapping[Place, Any],
        make_request: Callable[[str, list[tuple[bytes, list[Any]]]], Any],
        then: Callable[[dict[Place, Any]], object],
    ) -> None:
        if not asked:
            then({})
            return
        StateCall(self._broker, group_id, asked, make_request, then).start()

    # ---- the group coordinator's requests --------------------------------------------------------

    def initialize(self, group_id: str, epoch: int, partitions: Partitions) -> None:
        """Begin the state of partitions that have none; the shard gets to know what came of it."""
        places = [(topic_id, each) for topic_id in partitions for each in partitions[topic_id]]
        self.begin(
            group_id,
            epoch,
            dict.fromkeys(places, NO_START_OFFSET),
            partial(self.initialized, group_id),
        )

    def initialized(self, group_id: str, errors: dict[Place, ErrorCode]) -> None:
        """Let the group's coordinator know which state has begun."""
        coordinator = self._broker.coordinators.groups.coordinator_for(group_id)
        if isinstance(coordinator, ErrorCode):
            return  # the next coordinator asks again
        done = by_topic(place for place, error in errors.items() if not error)
        failed = by_topic(place for place, error in errors.items() if error)
        shares = coordinator.shard.shares
        if done:
            coordinator.run(lambda effects, _: shares.initialized(group_id, done, effects))
        if failed:
            coordinator.run(lambda effects, _: shares.not_initialized(group_id, failed, effects))


def by_topic(places: Iterable[Place]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for topic_id, each in places:
        found.setdefault(topic_id, []).append(each)
    return found


Topics = list[tuple[bytes, list[Any]]]


def read_request(group_id: str, topics: Topics) -> reading.ReadShareGroupStateRequest:
    return reading.ReadShareGroupStateRequest(
        group_id=group_id,
        topics=[reading.ReadStateData(topic_id=key, partitions=found) for key, found in topics],
    )


def write_request(group_id: str, topics: Topics) -> writing.WriteShareGroupStateRequest:
    return writing.WriteShareGroupStateRequest(
        group_id=group_id,
        topics=[writing.WriteStateData(topic_id=key, partitions=found) for key, found in topics],
    )


def initialize_request(
    group_id: str, topics: Topics
) -> initializing.InitializeShareGroupStateRequest:
    return initializing.InitializeShareGroupStateRequest(
        group_id=group_id,
        topics=[
            initializing.InitializeStateData(topic_id=key, partitions=found)
            for key, found in topics
        ],
    )


def delete_request(group_id: str, topics: Topics) -> deleting.DeleteShareGroupStateRequest:
    return deleting.DeleteShareGroupStateRequest(
        group_id=group_id,
        topics=[deleting.DeleteStateData(topic_id=key, partitions=found) for key, found in topics],
    )


def summary_request(group_id: str, topics: Topics) -> summing.ReadShareGroupStateSummaryRequest:
    return summing.ReadShareGroupStateSummaryRequest(
        group_id=group_id,
        topics=[
            summing.ReadStateSummaryData(topic_id=key, partitions=found) for key, found in topics
        ],
    )

"""Transaction markers: writing the outcome of a transaction to every partition that it wrote to.

A marker may be late or lost, so it is retried until the leader has appended it, and it counts as
written only once it is committed. When all markers of a transaction are, its coordinator completes
it. Nothing here is durable: a coordinator that loads a partition sends the markers of every
prepared transaction again, and a marker that is written twice changes nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.coordinator.coordinator_partition import CoordinatorPartition, CoordinatorState
from ottla.coordinator.effects import Effects, Producer
from ottla.coordinator.transaction import EPOCH_BUMP_VERSION, EPOCH_MAX, TopicPartition
from ottla.coordinator.transaction_shard import Markers
from ottla.wire.control import ABORT, COMMIT, write_marker
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.replica.partition import Partition

log = logging.getLogger("ottla.broker")

RETRY_S = 0.1
RETRY_MAX_S = 5.0
# Written in one turn of the loop: a transaction over thousands of partitions holds nobody up.
MARKERS_PER_TURN = 50
GROUP_TOPIC = "__consumer_offsets"
# The partition has moved on to a later epoch: there is nothing left for this marker to end.
MOVED_ON = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)


class Written(NamedTuple):
    """A marker in a log; committed once the high watermark has reached `end_offset`."""

    partition: Partition
    end_offset: int

    @property
    def committed(self) -> bool:
        return self.partition.high_watermark >= self.end_offset


def write(
    broker: Broker,
    place: TopicPartition,
    producer: Producer,
    committed: bool,
    coordinator_epoch: int,
    transaction_version: int,
) -> Written | ErrorCode:
    """Append the marker that ends a producer's transaction in one partition."""
    topic, index = place
    partition = broker.partitions.get(topic, index)
    if partition is None:
        if broker.image.partition(topic, index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if transaction_version >= EPOCH_BUMP_VERSION and of_an_earlier_transaction(partition, producer):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    now_ms = broker.clock.now_ms()
    batch = memoryview(
        bytearray(
            write_marker(
                COMMIT if committed else ABORT,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                coordinator_epoch=coordinator_epoch,
                timestamp=now_ms,
            )
        )
    )
    if topic == GROUP_TOPIC:
        # The group coordinator holds what is pending; it hears of the end with the marker.
        coordinator = broker.coordinators.groups.runtime.active(index)
        if coordinator is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        error = coordinator.marker(batch, producer, committed)
    else:
        error = ErrorCode(partition.append_as_coordinator(batch, now_ms=now_ms).error_code)
    if error:
        return error
    broker.coordinators.verification.marker_written(partition, producer.producer_id)
    return Written(partition, partition.end_offset)


def of_an_earlier_transaction(partition: Partition, producer: Producer) -> bool:
    """A marker bears a later epoch than the records it ends (KIP-1228).

    One with the very epoch of an open transaction was sent for the one before, and is late.
    """
    known = partition.producers.get(producer.producer_id)
    return (
        known is not None
        and known.transaction_first_offset >= 0
        and known.epoch == producer.producer_epoch
        and known.epoch != EPOCH_MAX
    )


class Delivery:
    """The markers of one transaction, as far as they are not known to be committed."""

    __slots__ = ("coordinator", "left", "markers", "pause_s", "written")

    def __init__(self, markers: Markers, coordinator: CoordinatorPartition[Any]) -> None:
        self.markers = markers
        # The coordinator that decided. One that is loaded in its place sends the markers itself,
        # and the two must be kept apart: a classic client has the same epoch in its next
        # transaction.
        self.coordinator: CoordinatorPartition[Any] | None = coordinator
        self.left: dict[TopicPartition, None] = dict.fromkeys(sorted(markers.partitions))
        self.written: dict[TopicPartition, Written] = {}
        self.pause_s = RETRY_S

    def is_lost(self, place: TopicPartition) -> bool:
        """Whether a marker that was written will not be committed here any more."""
        partition = self.written[place].partition
        return partition.offline is not None or not partition.is_leader


class MarkerSender:
    """The deliveries of this broker's transaction coordinator."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: dict[Partition, list[tuple[Delivery, TopicPartition]]] = {}
        self._closed = False

    def send(self, markers: Markers) -> None:
        """Write the markers of a transaction whose outcome is committed."""
        service = self._broker.coordinators.transactions
        index = service.partition_for(markers.transactional_id)
        coordinator = None if index is None else service.runtime.active(index)
        if coordinator is not None:
            self._carry(Delivery(markers, coordinator))

    def committed(self, partition: Partition) -> None:
        """A partition's high watermark has moved."""
        waiting = self._waiting.pop(partition, None)
        if waiting is None:
            return
        for delivery, place in waiting:
            written = delivery.written.get(place)
            if written is None or place not in delivery.left:
                continue
            if written.committed:
                del delivery.left[place]
                self._complete_if_all(delivery)
            else:
                self._waiting.setdefault(partition, []).append((delivery, place))

    def close(self) -> None:
        self._closed = True
        self._waiting.clear()

    def _carry(self, delivery: Delivery) -> None:
        """Write what is not written, a few at a time, and come back for the rest."""
        coordinator = delivery.coordinator
        if self._closed or coordinator is None or coordinator.state is not CoordinatorState.ACTIVE:
            return
        budget = MARKERS_PER_TURN
        failed = False
        for place in tuple(delivery.left):
            if place in delivery.written and not delivery.is_lost(place):
                continue
            if not budget:
                self._broker.clock.call_later(0, self._carry, delivery)
                return
            budget -= 1
            failed = not self._write(delivery, coordinator, place) or failed
        self._complete_if_all(delivery)
        if delivery.left:
            pause_s = delivery.pause_s if failed else RETRY_MAX_S
            self._broker.clock.call_later(pause_s, self._carry, delivery)
            delivery.pause_s = min(delivery.pause_s * 2, RETRY_MAX_S)

    def _write(
        self, delivery: Delivery, coordinator: CoordinatorPartition[Any], place: TopicPartition
    ) -> bool:
        """Write one marker; False when it must be tried again."""
        markers = delivery.markers
        delivery.written.pop(place, None)
        outcome = write(
            self._broker,
            place,
            markers.producer,
            markers.committed,
            coordinator.partition.leader_epoch,
            markers.client_version,
        )
        if isinstance(outcome, ErrorCode):
            if not is_over(outcome, place, markers):
                return False
            del delivery.left[place]
        elif outcome.committed:
            del delivery.left[place]
        else:
            delivery.written[place] = outcome
            self._waiting.setdefault(outcome.partition, []).append((delivery, place))
        return True

    def _complete_if_all(self, delivery: Delivery) -> None:
        coordinator = delivery.coordinator
        if delivery.left or coordinator is None:
            return
        delivery.coordinator = None
        if coordinator.state is not CoordinatorState.ACTIVE:
            return

        def decide(effects: Effects, now_ms: int) -> None:
            coordinator.shard.markers_written(delivery.markers, effects, now_ms)

        coordinator.run(decide)


def is_over(error: ErrorCode, place: TopicPartition, markers: Markers) -> bool:
    """Whether a partition that answered so needs no marker any more."""
    if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return True  # the topic was deleted meanwhile
    log.log(
        logging.WARNING if error in MOVED_ON else logging.INFO,
        "the marker of %s for %s-%d: %s",
        markers.transactional_id,
        *place,
        error.name,
    )
    return error in MOVED_ON

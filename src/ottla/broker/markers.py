"""Transaction markers: writing the outcome of a transaction to every partition that it wrote to.

A marker may be late or lost, so it is retried until the leader has appended it, and it counts as
written only once it is committed. When all markers of a transaction are, its coordinator completes
it. Nothing here is durable: a coordinator that loads a partition sends the markers of every
prepared transaction again, and a marker that is written twice changes nothing. Markers carry the
leader epoch in which their coordinator coordinates: those of one that was deposed are fenced.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.coordinator.coordinator_partition import CoordinatorPartition, CoordinatorState
from ottla.coordinator.effects import Effects, Producer
from ottla.coordinator.transaction import (
    EPOCH_BUMP_VERSION,
    EPOCH_MAX,
    NO_EPOCH,
    TopicPartition,
)
from ottla.wire.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.wire.control import ABORT, COMMIT, write_marker
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.cluster.image import ClusterImage
    from ottla.coordinator.transaction_shard import Markers
    from ottla.replica.partition import Partition
    from ottla.seams.clock import Timer

log = logging.getLogger("ottla.broker")

RETRY_S = 0.1
RETRY_MAX_S = 5.0
# Sent in one turn of the loop: a transaction may have thousands of partitions.
MARKERS_PER_TURN = 50
GROUP_TOPIC = "__consumer_offsets"
# The partition has a later epoch: this marker has nothing left to end.
MOVED_ON = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)


class Written(NamedTuple):
    """A marker in the log of a leader of this epoch, which ends at `end_offset` with it.

    It is committed once the high watermark is there, in the same epoch: in a later one other
    records may have taken its place.
    """

    partition: Partition
    leader_epoch: int
    end_offset: int

    @property
    def moved(self) -> bool:
        return not self.partition.is_leader or self.partition.leader_epoch != self.leader_epoch

    @property
    def committed(self) -> bool:
        return not self.moved and self.partition.high_watermark >= self.end_offset


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
        # The group coordinator has the pending offsets: it replays the marker.
        coordinator = broker.coordinators.groups.runtime.active(index)
        if coordinator is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        error = coordinator.marker(batch, producer, committed)
    else:
        error = ErrorCode(partition.append_as_coordinator(batch, now_ms=now_ms).error_code)
    if error:
        return error
    broker.coordinators.verification.marker_written(partition, producer.producer_id)
    return Written(partition, partition.leader_epoch, partition.end_offset)


def of_an_earlier_transaction(partition: Partition, producer: Producer) -> bool:
    """Whether a marker is late: a marker has a later epoch than the records it ends (KIP-1228).

    One with the epoch of the open transaction was sent for the one before.
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

    __slots__ = ("coordinator", "in_flight", "left", "markers", "pause_s", "timer", "unsent")

    def __init__(self, markers: Markers, coordinator: CoordinatorPartition[Any]) -> None:
        self.markers = markers
        # The coordinator that decided. One that is loaded in its place sends the markers itself,
        # and the two must be kept apart: a classic client has the same epoch in its next
        # transaction.
        self.coordinator = coordinator
        # With the leader epoch of the partition that the last attempt was made in.
        self.left: dict[TopicPartition, int] = dict.fromkeys(sorted(markers.partitions), NO_EPOCH)
        # Of the present attempt: partitions for which nothing was sent, and requests under way.
        self.unsent: deque[TopicPartition] = deque()
        self.in_flight = 0
        self.pause_s = RETRY_S
        self.timer: Timer | None = None  # during the pause


class MarkerSender:
    """Sends the markers of this broker's transaction coordinator to the leaders of partitions.

    An attempt sends WriteTxnMarkers for all partitions that are left, some in each turn of the
    loop, and ends with the last response; what failed is sent again after a pause, or when one of
    its partitions has another leader.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._closed = False
        self._paused: dict[Delivery, None] = {}

    def send(self, markers: Markers) -> None:
        """Write the markers of a transaction whose outcome is committed."""
        service = self._broker.coordinators.transactions
        index = service.partition_for(markers.transactional_id)
        coordinator = None if index is None else service.runtime.active(index)
        if coordinator is not None:
            self._attempt(Delivery(markers, coordinator))

    def follow(self, image: ClusterImage) -> None:
        """The cluster image has changed: what waits for another leader is sent at once."""
        for delivery in list(self._paused):
            if self._is_over(delivery):
                self._end_pause(delivery)
            elif any(has_moved(image, *each) for each in delivery.left.items()):
                self._end_pause(delivery)
                delivery.pause_s = RETRY_S
                self._attempt(delivery)

    def close(self) -> None:
        self._closed = True
        for delivery in list(self._paused):
            self._end_pause(delivery)

    def _end_pause(self, delivery: Delivery) -> None:
        self._paused.pop(delivery, None)
        if delivery.timer is not None:
            delivery.timer.cancel()
            delivery.timer = None

    def _attempt(self, delivery: Delivery) -> None:
        self._end_pause(delivery)
        delivery.unsent.extend(delivery.left)
        self._send_some(delivery)

    def _is_over(self, delivery: Delivery) -> bool:
        """Whether the coordinator that decided is gone: the next one sends the markers again."""
        return self._closed or delivery.coordinator.state is not CoordinatorState.ACTIVE

    def _send_some(self, delivery: Delivery) -> None:
        if self._is_over(delivery):
            return
        unsent = delivery.unsent
        chosen = [unsent.popleft() for _ in range(min(MARKERS_PER_TURN, len(unsent)))]
        # Responses may come before `send` returns: the attempt is not over before the last one.
        delivery.in_flight += 1
        for node_id, partitions in self._by_leader(delivery, chosen).items():
            delivery.in_flight += 1
            self._broker.peers.send(
                node_id,
                request_of(delivery, partitions),
                partial(self._answered, delivery, partitions),
            )
        if unsent:
            self._broker.clock.call_later(0, self._send_some, delivery)
        delivery.in_flight -= 1
        self._end_attempt(delivery)

    def _by_leader(
        self, delivery: Delivery, partitions: list[TopicPartition]
    ) -> dict[int, list[TopicPartition]]:
        """The partitions by the node id of their leader; those without one are left for later."""
        image = self._broker.image
        found: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            known = image.partition(*partition)
            if known is None:
                del delivery.left[partition]  # the topic was deleted
                continue
            delivery.left[partition] = known.leader_epoch
            if known.leader >= 0:
                found.setdefault(known.leader, []).append(partition)
        return found

    def _answered(
        self, delivery: Delivery, partitions: list[TopicPartition], response: Any
    ) -> None:
        errors = errors_of(response)
        for partition in partitions:
            error = response if isinstance(response, ErrorCode) else errors.get(partition)
            if error is not None and is_done(error, partition, delivery.markers):
                delivery.left.pop(partition, None)
        delivery.in_flight -= 1
        self._end_attempt(delivery)

    def _end_attempt(self, delivery: Delivery) -> None:
        if delivery.unsent or delivery.in_flight or self._is_over(delivery):
            return
        if delivery.left:
            self._pause(delivery)
        else:
            delivery.coordinator.run(partial(self._complete, delivery))

    def _pause(self, delivery: Delivery) -> None:
        self._paused[delivery] = None
        delivery.timer = self._broker.clock.call_later(delivery.pause_s, self._attempt, delivery)
        delivery.pause_s = min(delivery.pause_s * 2, RETRY_MAX_S)

    def _complete(self, delivery: Delivery, effects: Effects, now_ms: int) -> None:
        delivery.coordinator.shard.markers_written(delivery.markers, effects, now_ms)
        # While its ISR is too small the coordinator cannot append that. Without another attempt the
        # transaction stays as it is until another broker coordinates it.
        effects.on_failure = lambda error, after: self._pause(delivery)


def request_of(delivery: Delivery, partitions: list[TopicPartition]) -> WriteTxnMarkersRequest:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    markers = delivery.markers
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=markers.producer.producer_id,
                producer_epoch=markers.producer.producer_epoch,
                transaction_result=markers.committed,
                topics=[
                    WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                    for name, indexes in topics.items()
                ],
                coordinator_epoch=delivery.coordinator.leader_epoch,
                transaction_version=markers.client_version,
            )
        ]
    )


def errors_of(response: WriteTxnMarkersResponse | ErrorCode) -> dict[TopicPartition, ErrorCode]:
    """The error of each partition in a response; nothing if there was none."""
    if isinstance(response, ErrorCode):
        return {}
    return {
        (topic.name, each.partition_index): ErrorCode(each.error_code)
        for marker in response.markers
        for topic in marker.topics
        for each in topic.partitions
    }


def has_moved(image: ClusterImage, place: TopicPartition, leader_epoch: int) -> bool:
    """Whether a partition is gone, or has another leader than in that epoch."""
    known = image.partition(*place)
    return known is None or known.leader_epoch != leader_epoch


def is_done(error: ErrorCode, place: TopicPartition, markers: Markers) -> bool:
    """Whether a partition with this result needs no marker any more."""
    # A leader that does not know the topic may be behind: whether it was deleted, the image of the
    # coordinator's broker says, which had the topic when the partition was added.
    if error is ErrorCode.NONE:
        return True
    log.log(
        logging.WARNING if error in MOVED_ON else logging.INFO,
        "the marker of %s for %s-%d: %s",
        markers.transactional_id,
        *place,
        error.name,
    )
    return error in MOVED_ON

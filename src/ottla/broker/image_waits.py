"""Requests that wait a moment for the feed, because this broker will soon know more.

A client or a follower may have learned from another broker what has not come here yet: a topic id,
a leader epoch. And after the death of a leader, who was asked for metadata or a coordinator too
early would send its client to the dead one again, which librdkafka tries for a second. Likewise a
client produces to the next leader before that broker knows that it leads: another broker has told
it, and NOT_LEADER_OR_FOLLOWER would send it back there after a pause. A client may
know of a death before this broker does: it asks about the same topics again, though none has
changed since. Such requests are handled as soon as the image has what they wait for, and in any
case after a fraction of a second, with the answer that they would have had at once.

Only a broker of a cluster has this, and only around the handlers of the APIs in `WAITS`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ottla.broker.context import Context, Pending, relay
from ottla.broker.lost_brokers import DOUBT_S
from ottla.cluster.image import ZERO_ID, ClusterImage

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.seams.clock import Timer
    from ottla.wire.api.fetch import FetchRequest
    from ottla.wire.api.find_coordinator import FindCoordinatorRequest
    from ottla.wire.api.list_offsets import ListOffsetsRequest
    from ottla.wire.api.metadata import MetadataRequest
    from ottla.wire.api.offset_commit import OffsetCommitRequest
    from ottla.wire.api.offset_fetch import OffsetFetchRequest
    from ottla.wire.api.offset_for_leader_epoch import OffsetForLeaderEpochRequest
    from ottla.wire.api.produce import ProduceRequest

WAIT_S = 0.2  # for a topic id or an epoch
ASKED_AGAIN_S = 0.02  # for the loss of a connection that a client has noticed first
WAITING_MAX = 1_000  # requests; others are answered at once
PRODUCE = 0
METADATA = 3
OFFSET_COMMIT = 8
# Of these the order on a connection counts: those behind one that waits wait too.
EXCLUSIVE = (PRODUCE, OFFSET_COMMIT)
PRODUCE_IDS_FROM = FETCH_IDS_FROM = 13
OFFSETS_IDS_FROM = 10

Handle = Callable[[Any, Context], Any]


class ImageWaits:
    """The requests of one broker that wait for its next images."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: dict[Waiting, None] = {}

    def around(self, api_key: int, handle: Handle) -> Handle:
        """The handler, but for requests that had better wait."""
        early_s = WAITS.get(api_key)
        if early_s is None:
            return handle

        def handle_in_time(request: Any, context: Context) -> Any:
            wait_s = early_s(request, context)
            if not wait_s or len(self._waiting) >= WAITING_MAX:
                return handle(request, context)
            still_s = metadata_in_doubt if api_key == METADATA else early_s
            waiting = Waiting(
                lambda: still_s(request, context) > 0,
                lambda: handle(request, context),
                exclusive=api_key in EXCLUSIVE,
                doubts=api_key == METADATA and wait_s < DOUBT_S,
            )
            self._waiting[waiting] = None
            waiting.timer = self._broker.clock.call_later(wait_s, self._time_is_up, waiting)
            waiting.pending.on_cancel(lambda: self._forget(waiting))
            return waiting.pending

        return handle_in_time

    def changed(self) -> None:
        """The broker has another image, or knows more about another broker."""
        for waiting in list(self._waiting):
            if not waiting.is_early():
                self._finish(waiting)

    def _time_is_up(self, waiting: Waiting) -> None:
        broker = self._broker
        if waiting.doubts and broker.lost_brokers.may_change(broker.image):
            waiting.doubts = False
            waiting.timer = broker.clock.call_later(DOUBT_S, self._time_is_up, waiting)
        else:
            self._finish(waiting)

    def _forget(self, waiting: Waiting) -> None:
        self._waiting.pop(waiting, None)
        if waiting.timer is not None:
            waiting.timer.cancel()

    def _finish(self, waiting: Waiting) -> None:
        self._forget(waiting)
        pending = waiting.pending
        try:
            answer = waiting.handle()
        except Exception as error:
            pending.fail(error)
            return
        if isinstance(answer, Awaitable):
            answer = self._broker.dispatcher.run(answer)
        relay(answer, pending)


class Waiting:
    """One request."""

    __slots__ = ("doubts", "handle", "is_early", "pending", "timer")

    def __init__(
        self,
        is_early: Callable[[], bool],
        handle: Callable[[], Any],
        *,
        exclusive: bool,
        doubts: bool,
    ) -> None:
        """`exclusive`: requests behind it on its connection wait too.

        `doubts`: it goes on to wait if leaders are in doubt when its time is up.
        """
        self.is_early = is_early
        self.handle = handle
        self.doubts = doubts
        self.pending = Pending(exclusive=exclusive)
        self.timer: Timer | None = None


# How long a request had better wait, in seconds; 0.0: it is not early


def early_produce(request: ProduceRequest, context: Context) -> float:
    image, uses_ids = context.broker.image, context.api_version >= PRODUCE_IDS_FROM
    if uses_ids and any(is_new_id(image, topic.topic_id) for topic in request.topic_data):
        return WAIT_S
    if not context.broker.lost_brokers.may_change(image):
        return 0.0
    for topic in request.topic_data:
        known = image.topics_by_id.get(topic.topic_id) if uses_ids else None
        name = known.name if known is not None else topic.name
        if any(leads_soon(context, name, each.index) for each in topic.partition_data):
            return DOUBT_S
    return 0.0


def leads_soon(context: Context, topic: str, index: int) -> bool:
    """Whether this broker may be about to lead a partition, because its leader has just died."""
    broker = context.broker
    known = broker.image.partition(topic, index)
    return (
        known is not None
        and broker.node_id in known.isr
        and known.leader != broker.node_id
        and broker.lost_brokers.in_doubt(known.leader)
    )


def early_fetch(request: FetchRequest, context: Context) -> float:
    if request.replica_state.replica_id >= 0:
        # A follower's fetch acknowledges what it has of all its partitions, and must not wait for
        # one of them; the follower asks again within milliseconds (broker/replication.py).
        return 0.0
    image = context.broker.image
    uses_ids = context.api_version >= FETCH_IDS_FROM
    for topic in request.topics:
        if uses_ids and is_new_id(image, topic.topic_id):
            return WAIT_S
        known = image.topics_by_id.get(topic.topic_id) if uses_ids else None
        name = known.name if known is not None else topic.topic
        for each in topic.partitions:
            if is_new_epoch(image, name, each.partition, each.current_leader_epoch):
                return WAIT_S
    return 0.0


def early_list_offsets(request: ListOffsetsRequest, context: Context) -> float:
    image = context.broker.image
    return WAIT_S * any(
        is_new_epoch(image, topic.name, each.partition_index, each.current_leader_epoch)
        for topic in request.topics
        for each in topic.partitions
    )


def early_offset_commit(request: OffsetCommitRequest, context: Context) -> float:
    if context.api_version < OFFSETS_IDS_FROM:
        return 0.0
    image = context.broker.image
    return WAIT_S * any(is_new_id(image, topic.topic_id) for topic in request.topics)


def early_offset_fetch(request: OffsetFetchRequest, context: Context) -> float:
    if context.api_version < OFFSETS_IDS_FROM:
        return 0.0
    image = context.broker.image
    return WAIT_S * any(
        is_new_id(image, topic.topic_id) for group in request.groups for topic in group.topics or ()
    )


def early_epoch(request: OffsetForLeaderEpochRequest, context: Context) -> float:
    image = context.broker.image
    return WAIT_S * any(
        is_new_epoch(image, topic.topic, each.partition, each.current_leader_epoch)
        for topic in request.topics
        for each in topic.partitions
    )


def early_metadata(request: MetadataRequest, context: Context) -> float:
    doubt_s = metadata_in_doubt(request, context)
    topics, image, peer = request.topics or (), context.broker.image, context.peer
    asked = [(topic.name, topic.topic_id, image.topics.get(topic.name or "")) for topic in topics]
    again = bool(asked) and peer.metadata_asked == asked
    peer.metadata_asked = asked
    return doubt_s or ASKED_AGAIN_S * again


def metadata_in_doubt(request: MetadataRequest, context: Context) -> float:
    broker = context.broker
    if broker.lost_brokers.may_change(broker.image):
        return DOUBT_S
    return WAIT_S * any(
        topic.topic_id != ZERO_ID and is_new_id(broker.image, topic.topic_id)
        for topic in request.topics or ()
    )


def early_coordinator(request: FindCoordinatorRequest, context: Context) -> float:
    broker = context.broker
    return DOUBT_S if broker.lost_brokers.may_change(broker.image) else 0.0


def is_new_id(image: ClusterImage, topic_id: bytes) -> bool:
    return topic_id not in image.topics_by_id and topic_id not in image.deletions


def is_new_epoch(image: ClusterImage, topic: str, index: int, leader_epoch: int) -> bool:
    if leader_epoch <= 0:  # not given, or that of a partition that never had another
        return False
    known = image.partition(topic, index)
    return known is not None and known.leader_epoch < leader_epoch


WAITS: dict[int, Callable[[Any, Context], float]] = {
    PRODUCE: early_produce,
    1: early_fetch,
    2: early_list_offsets,
    METADATA: early_metadata,
    OFFSET_COMMIT: early_offset_commit,
    9: early_offset_fetch,
    10: early_coordinator,
    23: early_epoch,
}

"""KnownLeaderEpoch: which epoch this replica is in, for a leader that may have been replaced."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.wire.api.known_leader_epoch import KnownLeaderEpochRequest, KnownLeaderEpochResponse
from ottla.wire.errors import ErrorCode


def handle(request: KnownLeaderEpochRequest, context: Context) -> KnownLeaderEpochResponse:
    """The greatest one that this broker may have acted in, as a leader or as a follower."""
    broker, index = context.broker, request.partition_index
    epochs = []
    for image in (broker.image, broker.next_image):
        topic = image.topics_by_id.get(request.topic_id)
        if topic is not None and 0 <= index < len(topic.partitions):
            epochs.append(topic.partitions[index].leader_epoch)
    partition = broker.partitions.by_id.get(request.topic_id, {}).get(index)
    if not epochs or partition is None:
        return KnownLeaderEpochResponse(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return KnownLeaderEpochResponse(leader_epoch=max(*epochs, partition.latest_epoch))

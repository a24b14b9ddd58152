"""Which replica a consumer should read from (KIP-392): `replica.selector.class`, by name.

Kafka's two classes are known. With `RackAwareReplicaSelector` a consumer that names its rack is
sent to a replica there, unless the leader is: the one that has most of the log. Only replicas in
the ISR that have the offset asked for come into question.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.cluster.image import ClusterImage
    from ottla.replica.partition import Partition

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER = "org.apache.kafka.common.replica.LeaderSelector"


class Candidate(NamedTuple):
    """A replica that may be read from."""

    end_offset: int
    caught_up_s: float
    id: int


def in_rack(
    rack: str, leader_rack: str | None, candidates: Iterable[tuple[str | None, Candidate]]
) -> int | None:
    """The replica that a consumer of `rack` should read from; None for the leader."""
    if leader_rack == rack:
        return None
    same = [candidate for its_rack, candidate in candidates if its_rack == rack]
    return max(same).id if same else None


def preferred_read_replica(
    rack: str, partition: Partition, offset: int, image: ClusterImage, listener: str
) -> int | None:
    """Whom to name to a consumer of `rack` at `offset`; None when it should stay with the leader.

    `listener`: through which the consumer came, and must be able to reach the replica.
    """
    leading = partition.leading
    if leading is None:
        return None
    brokers = image.brokers
    candidates = []
    for node_id, follower in leading.followers.items():
        broker = brokers.get(node_id)
        if (
            broker is not None
            and not broker.fenced
            and listener in broker.endpoints
            and node_id in partition.in_sync
            and follower.log_start_offset <= offset <= follower.end_offset
        ):
            found = Candidate(follower.end_offset, follower.caught_up_s, node_id)
            candidates.append((broker.rack, found))
    own = brokers.get(partition.node_id)
    return in_rack(rack, own.rack if own is not None else None, candidates)

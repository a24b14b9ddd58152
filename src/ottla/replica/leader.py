"""The leader's decisions about a partition: its high watermark, and whether acks=-1 may write.

Pure: numbers in, numbers out. The high watermark is the least end offset among the in-sync
replicas, the leader itself included, and it never goes back while the same leader leads.
"""

from __future__ import annotations

from collections.abc import Iterable


def high_watermark(
    current: int, own_end_offset: int, in_sync_follower_end_offsets: Iterable[int] = ()
) -> int:
    """The high watermark after the leader's or a follower's end offset has moved."""
    return max(current, min(own_end_offset, *in_sync_follower_end_offsets, own_end_offset))


def enough_replicas(in_sync: int, assigned: int, min_insync_replicas: int) -> bool:
    """Whether a producer that asked for all replicas (acks=-1) may write.

    `min.insync.replicas` above the number of replicas would allow nothing; Kafka then asks for
    all of them instead.
    """
    return in_sync >= min(min_insync_replicas, assigned)

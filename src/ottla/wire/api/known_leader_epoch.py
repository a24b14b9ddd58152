"""KnownLeaderEpoch (key 10,006, Ottla's own): the leader epoch of a partition that a broker knows.

Brokers only.
"""

from ..schema import NO_UUID, Int16, Int32, RequestFor, Struct, Uuid


class KnownLeaderEpochRequest(
    RequestFor["KnownLeaderEpochResponse"], key=10_006, versions=(0, 0), flexible=0
):
    topic_id: Uuid = NO_UUID
    partition_index: Int32 = 0


class KnownLeaderEpochResponse(Struct, key=10_006, versions=(0, 0), flexible=0):
    error_code: Int16 = 0
    leader_epoch: Int32 = -1

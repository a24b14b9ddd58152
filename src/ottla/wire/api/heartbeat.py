"""Heartbeat (key 12): a member says it is alive and learns whether the group rebalances.

v1 throttle time · v3 static members · v4 flexible.
"""

from ..schema import Int16, Int32, NullableString, RequestFor, String, Struct, since


class HeartbeatRequest(RequestFor["HeartbeatResponse"], key=12, versions=(0, 4), flexible=4):
    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: NullableString = since(3, default=None)


class HeartbeatResponse(Struct, key=12, versions=(0, 4), flexible=4):
    throttle_time_ms: Int32 = since(1)
    error_code: Int16 = 0

"""SyncGroup (key 14): the leader hands in the assignment, every member fetches its share.

v1 throttle time · v3 static members · v4 flexible · v5 protocol type and name, to be checked.
"""

from ..schema import Bytes, Int16, Int32, NullableString, RequestFor, String, Struct, since


class SyncGroupRequestAssignment(Struct):
    member_id: String = ""
    assignment: Bytes = b""


class SyncGroupRequest(RequestFor["SyncGroupResponse"], key=14, versions=(0, 5), flexible=4):
    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: NullableString = since(3, default=None)
    protocol_type: NullableString = since(5, default=None)
    protocol_name: NullableString = since(5, default=None)
    assignments: list[SyncGroupRequestAssignment] = []


class SyncGroupResponse(Struct, key=14, versions=(0, 5), flexible=4):
    throttle_time_ms: Int32 = since(1)
    error_code: Int16 = 0
    protocol_type: NullableString = since(5, default=None)
    protocol_name: NullableString = since(5, default=None)
    assignment: Bytes = b""

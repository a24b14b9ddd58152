"""LeaveGroup (key 13): members go, so that the group need not wait for them to time out.

v1 throttle time · v3 several members at once, static ones too · v4 flexible · v5 why they go.
"""

from ..schema import Int16, Int32, NullableString, RequestFor, String, Struct, since


class MemberIdentity(Struct):
    member_id: String = ""
    group_instance_id: NullableString = None
    reason: NullableString = since(5, default=None)


class LeaveGroupRequest(RequestFor["LeaveGroupResponse"], key=13, versions=(0, 5), flexible=4):
    group_id: String = ""
    member_id: String = since(0, 2)
    members: list[MemberIdentity] = since(3)


class MemberResponse(Struct):
    member_id: String = ""
    group_instance_id: NullableString = ""
    error_code: Int16 = 0


class LeaveGroupResponse(Struct, key=13, versions=(0, 5), flexible=4):
    throttle_time_ms: Int32 = since(1)
    error_code: Int16 = 0
    members: list[MemberResponse] = since(3)

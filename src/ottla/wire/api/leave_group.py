"""LeaveGroup (key 13)."""

from ..schema import Int16, Int32, NullableString, String, Struct, since


class MemberIdentity(Struct):
    member_id: String = since(3)
    group_instance_id: NullableString = since(3, default=None)
    reason: NullableString = since(5, default=None)


class LeaveGroupRequest(Struct, key=13, versions=(0, 5), flexible=4):
    group_id: String = ""
    member_id: String = since(0, 2)
    members: list[MemberIdentity] = since(3)


class MemberResponse(Struct):
    member_id: String = since(3)
    group_instance_id: NullableString = since(3)
    error_code: Int16 = since(3)


class LeaveGroupResponse(Struct, key=13, versions=(0, 5), flexible=4):
    throttle_time_ms: Int32 = since(1)
    error_code: Int16 = 0
    members: list[MemberResponse] = since(3)

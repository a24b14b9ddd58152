"""JoinGroup (key 11): a member enters a group, or stays in it for the next generation.

v1 rebalance timeout · v2 throttle time · v4 the first answer may be MEMBER_ID_REQUIRED (KIP-394) ·
v5 static members · v6 flexible · v7 protocol type; null protocol name · v8 why it joins · v9 the
leader may be asked to keep its assignment.
"""

from ..schema import Bool, Bytes, Int16, Int32, NullableString, RequestFor, String, Struct, since


class JoinGroupRequestProtocol(Struct):
    name: String = ""
    metadata: Bytes = b""


class JoinGroupRequest(RequestFor["JoinGroupResponse"], key=11, versions=(0, 9), flexible=6):
    group_id: String = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Int32 = since(1, default=-1)
    member_id: String = ""
    group_instance_id: NullableString = since(5, default=None)
    protocol_type: String = ""
    protocols: list[JoinGroupRequestProtocol] = []
    reason: NullableString = since(8, default=None)


class JoinGroupResponseMember(Struct):
    member_id: String = ""
    group_instance_id: NullableString = since(5, default=None)
    metadata: Bytes = b""


class JoinGroupResponse(Struct, key=11, versions=(0, 9), flexible=6):
    throttle_time_ms: Int32 = since(2)
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: NullableString = since(7, default=None)
    protocol_name: NullableString = since(0, nullable=7)
    leader: String = ""
    skip_assignment: Bool = since(9)
    member_id: String = ""
    members: list[JoinGroupResponseMember] = []

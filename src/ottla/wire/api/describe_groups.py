"""DescribeGroups (key 15): state, members and assignments of groups.

v1 throttle time · v3 what the client may do · v4 static members · v5 flexible · v6 an error
message, and GROUP_ID_NOT_FOUND for what does not exist.
"""

from ..schema import Bool, Bytes, Int16, Int32, NullableString, RequestFor, String, Struct, since


class DescribeGroupsRequest(
    RequestFor["DescribeGroupsResponse"], key=15, versions=(0, 6), flexible=5
):
    groups: list[String] = []
    include_authorized_operations: Bool = since(3)


class DescribedGroupMember(Struct):
    member_id: String = ""
    group_instance_id: NullableString = since(4, default=None)
    client_id: String = ""
    client_host: String = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


class DescribedGroup(Struct):
    error_code: Int16 = 0
    error_message: NullableString = since(6, default=None)
    group_id: String = ""
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: list[DescribedGroupMember] = []
    authorized_operations: Int32 = since(3, default=-2147483648)


class DescribeGroupsResponse(Struct, key=15, versions=(0, 6), flexible=5):
    throttle_time_ms: Int32 = since(1)
    groups: list[DescribedGroup] = []

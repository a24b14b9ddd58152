"""ListGroups (key 16): the groups this broker coordinates.

v1 throttle time · v3 flexible · v4 by state · v5 by type.
"""

from ..schema import Int16, Int32, RequestFor, String, Struct, since


class ListGroupsRequest(RequestFor["ListGroupsResponse"], key=16, versions=(0, 5), flexible=3):
    states_filter: list[String] = since(4)
    types_filter: list[String] = since(5)


class ListedGroup(Struct):
    group_id: String = ""
    protocol_type: String = ""
    group_state: String = since(4)
    group_type: String = since(5)


class ListGroupsResponse(Struct, key=16, versions=(0, 5), flexible=3):
    throttle_time_ms: Int32 = since(1)
    error_code: Int16 = 0
    groups: list[ListedGroup] = []

"""DeleteGroups (key 42): forget groups that have no members.

v1 throttled only after the answer · v2 flexible.
"""

from ..schema import Int16, Int32, RequestFor, String, Struct


class DeleteGroupsRequest(RequestFor["DeleteGroupsResponse"], key=42, versions=(0, 2), flexible=2):
    groups_names: list[String] = []


class DeletableGroupResult(Struct):
    group_id: String = ""
    error_code: Int16 = 0


class DeleteGroupsResponse(Struct, key=42, versions=(0, 2), flexible=2):
    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = []

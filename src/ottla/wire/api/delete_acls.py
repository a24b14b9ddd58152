"""DeleteAcls (key 31): away with the ACLs that match one of the filters."""

from ..schema import Int8, Int16, Int32, NullableString, RequestFor, String, Struct


class DeleteAclsFilter(Struct):
    resource_type_filter: Int8 = 0
    resource_name_filter: NullableString = ""
    pattern_type_filter: Int8 = 3
    principal_filter: NullableString = ""
    host_filter: NullableString = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsRequest(RequestFor["DeleteAclsResponse"], key=31, versions=(1, 3), flexible=2):
    filters: list[DeleteAclsFilter] = []


class DeleteAclsMatchingAcl(Struct):
    error_code: Int16 = 0
    error_message: NullableString = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsFilterResult(Struct):
    error_code: Int16 = 0
    error_message: NullableString = ""
    matching_acls: list[DeleteAclsMatchingAcl] = []


class DeleteAclsResponse(Struct, key=31, versions=(1, 3), flexible=2):
    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult] = []

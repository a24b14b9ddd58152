"""DescribeAcls (key 29): the ACLs that match a filter."""

from ..schema import Int8, Int16, Int32, NullableString, RequestFor, String, Struct


class DescribeAclsRequest(RequestFor["DescribeAclsResponse"], key=29, versions=(1, 3), flexible=2):
    resource_type_filter: Int8 = 0
    resource_name_filter: NullableString = ""
    pattern_type_filter: Int8 = 3
    principal_filter: NullableString = ""
    host_filter: NullableString = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class AclDescription(Struct):
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DescribeAclsResource(Struct):
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 3
    acls: list[AclDescription] = []


class DescribeAclsResponse(Struct, key=29, versions=(1, 3), flexible=2):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""
    resources: list[DescribeAclsResource] = []

"""CreateAcls (key 30): more ACLs."""

from ..schema import Int8, Int16, Int32, NullableString, RequestFor, String, Struct


class AclCreation(Struct):
    resource_type: Int8 = 0
    resource_name: String = ""
    resource_pattern_type: Int8 = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class CreateAclsRequest(RequestFor["CreateAclsResponse"], key=30, versions=(1, 3), flexible=2):
    creations: list[AclCreation] = []


class AclCreationResult(Struct):
    error_code: Int16 = 0
    error_message: NullableString = ""


class CreateAclsResponse(Struct, key=30, versions=(1, 3), flexible=2):
    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult] = []

"""ListConfigResources (key 74): the resources that can have configs.

v0 client metrics only · v1 every type.
"""

from ..schema import Int8, Int16, Int32, RequestFor, String, Struct, since


class ListConfigResourcesRequest(
    RequestFor["ListConfigResourcesResponse"], key=74, versions=(0, 1), flexible=0
):
    resource_types: list[Int8] = since(1)


class ConfigResource(Struct):
    resource_name: String = ""
    resource_type: Int8 = since(1, default=16)


class ListConfigResourcesResponse(Struct, key=74, versions=(0, 1), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource] = []

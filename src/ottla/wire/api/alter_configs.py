"""AlterConfigs (key 33): replace all configs of a resource; what is not named goes back to default.

v2 flexible.
"""

from ..schema import Bool, Int8, Int16, Int32, NullableString, RequestFor, String, Struct


class AlterableConfig(Struct):
    name: String = ""
    value: NullableString = ""


class AlterConfigsResource(Struct):
    resource_type: Int8 = 0  # 2 topic, 4 broker, 8 loggers, 16 client metrics, 32 group
    resource_name: String = ""
    configs: list[AlterableConfig] = []


class AlterConfigsRequest(RequestFor["AlterConfigsResponse"], key=33, versions=(0, 2), flexible=2):
    resources: list[AlterConfigsResource] = []
    validate_only: Bool = False


class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = 0
    error_message: NullableString = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class AlterConfigsResponse(Struct, key=33, versions=(0, 2), flexible=2):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []

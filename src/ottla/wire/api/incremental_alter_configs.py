"""IncrementalAlterConfigs (key 44): change single configs of a resource.

Each is set, deleted, or, if it is a list, appended to or subtracted from.

v1 flexible.
"""

from ..schema import Bool, Int8, Int16, Int32, NullableString, RequestFor, String, Struct


class AlterableConfig(Struct):
    name: String = ""
    config_operation: Int8 = 0  # 0 set, 1 delete, 2 append, 3 subtract
    value: NullableString = ""


class AlterConfigsResource(Struct):
    resource_type: Int8 = 0  # 2 topic, 4 broker, 8 loggers, 16 client metrics, 32 group
    resource_name: String = ""
    configs: list[AlterableConfig] = []


class IncrementalAlterConfigsRequest(
    RequestFor["IncrementalAlterConfigsResponse"], key=44, versions=(0, 1), flexible=1
):
    resources: list[AlterConfigsResource] = []
    validate_only: Bool = False


class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = 0
    error_message: NullableString = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class IncrementalAlterConfigsResponse(Struct, key=44, versions=(0, 1), flexible=1):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []

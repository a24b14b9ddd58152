"""DescribeConfigs (key 32): the configs of topics and brokers, and where each value comes from.

v1 synonyms and the config's source · v3 type and documentation · v4 flexible.
"""

from ..schema import Bool, Int8, Int16, Int32, NullableString, RequestFor, String, Struct, since


class DescribeConfigsResource(Struct):
    resource_type: Int8 = 0  # 2 topic, 4 broker, 8 loggers, 16 client metrics, 32 group
    resource_name: String = ""
    configuration_keys: list[String] | None = []


class DescribeConfigsRequest(
    RequestFor["DescribeConfigsResponse"], key=32, versions=(1, 4), flexible=4
):
    resources: list[DescribeConfigsResource] = []
    include_synonyms: Bool = False
    include_documentation: Bool = since(3)


class DescribeConfigsSynonym(Struct):
    name: String = ""
    value: NullableString = ""
    source: Int8 = 0


class DescribeConfigsResourceResult(Struct):
    name: String = ""
    value: NullableString = ""
    read_only: Bool = False
    # 1 topic, 2 broker, 3 all brokers, 4 static, 5 default, 6 logger, 7 client metrics, 8 group
    config_source: Int8 = -1
    is_sensitive: Bool = False
    synonyms: list[DescribeConfigsSynonym] = []
    # 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password
    config_type: Int8 = since(3)
    documentation: NullableString = since(3)


class DescribeConfigsResult(Struct):
    error_code: Int16 = 0
    error_message: NullableString = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[DescribeConfigsResourceResult] = []


class DescribeConfigsResponse(Struct, key=32, versions=(1, 4), flexible=4):
    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = []

"""DescribeCluster (key 60): the cluster's id, controller and brokers.

v1 asks brokers or controllers · v2 fenced brokers too.
"""

from ..schema import Bool, Int8, Int16, Int32, NullableString, RequestFor, String, Struct, since


class DescribeClusterRequest(
    RequestFor["DescribeClusterResponse"], key=60, versions=(0, 2), flexible=0
):
    include_cluster_authorized_operations: Bool = False
    endpoint_type: Int8 = since(1, default=1)  # 1 brokers, 2 controllers
    include_fenced_brokers: Bool = since(2)


class DescribeClusterBroker(Struct):
    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: NullableString = None
    is_fenced: Bool = since(2)


class DescribeClusterResponse(Struct, key=60, versions=(0, 2), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    endpoint_type: Int8 = since(1, default=1)
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: Int32 = -2147483648

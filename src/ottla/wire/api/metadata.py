"""Metadata (key 3): the brokers, topics and partition leaders a client needs before anything else.

v1 null asks for all topics; controller, rack, internal topics · v2 cluster id · v3 throttle time ·
v4 topics are created only if the client says so · v5 offline replicas · v7 leader epoch · v8 what
the client may do · v9 flexible · v10 topic id · v11 the cluster's operations moved to
DescribeCluster · v12 topics by id, without a name · v13 an error for all (rebootstrap).
"""

from ..schema import Bool, Int16, Int32, NullableString, RequestFor, String, Struct, Uuid, since


class MetadataRequestTopic(Struct):
    topic_id: Uuid = since(10)
    name: NullableString = since(0, nullable=10)


class MetadataRequest(RequestFor["MetadataResponse"], key=3, versions=(0, 13), flexible=9):
    topics: list[MetadataRequestTopic] | None = since(0, nullable=1)
    allow_auto_topic_creation: Bool = since(4, default=True)
    include_cluster_authorized_operations: Bool = since(8, 10)
    include_topic_authorized_operations: Bool = since(8)


class MetadataResponseBroker(Struct):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: NullableString = since(1, default=None)


class MetadataResponsePartition(Struct):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = since(7, default=-1)
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    offline_replicas: list[Int32] = since(5)


class MetadataResponseTopic(Struct):
    error_code: Int16 = 0
    name: NullableString = since(0, nullable=12)
    topic_id: Uuid = since(10)
    is_internal: Bool = since(1)
    partitions: list[MetadataResponsePartition] = []
    topic_authorized_operations: Int32 = since(8, default=-2147483648)


class MetadataResponse(Struct, key=3, versions=(0, 13), flexible=9):
    throttle_time_ms: Int32 = since(3)
    brokers: list[MetadataResponseBroker] = []
    cluster_id: NullableString = since(2, default=None)
    controller_id: Int32 = since(1, default=-1)
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: Int32 = since(8, 10, default=-2147483648)
    error_code: Int16 = since(13)

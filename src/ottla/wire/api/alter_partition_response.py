"""The response of AlterPartition, whose parts have the names that Kafka gives the request's too."""

from ..schema import NO_UUID, Int8, Int16, Int32, Struct, Uuid, since


class PartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: list[Int32] = []
    leader_recovery_state: Int8 = since(1)
    partition_epoch: Int32 = 0


class TopicData(Struct):
    topic_id: Uuid = since(2, default=NO_UUID)
    partitions: list[PartitionData] = []


class AlterPartitionResponse(Struct, key=56, versions=(2, 3), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[TopicData] = []

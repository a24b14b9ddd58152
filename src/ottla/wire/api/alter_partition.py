"""AlterPartition (key 56): a leader asks the controller for another ISR (KIP-497). Brokers only.

v2 topic ids · v3 the broker epoch of each member (KIP-903).
"""

from ..schema import NO_UUID, Int8, Int32, Int64, RequestFor, Struct, Uuid, since
from .alter_partition_response import AlterPartitionResponse as AlterPartitionResponse


class BrokerState(Struct):
    broker_id: Int32 = since(3)
    broker_epoch: Int64 = since(3, default=-1)


class PartitionData(Struct):
    partition_index: Int32 = 0
    leader_epoch: Int32 = 0
    new_isr: list[Int32] = since(0, 2)
    new_isr_with_epochs: list[BrokerState] = since(3)
    leader_recovery_state: Int8 = since(1)
    partition_epoch: Int32 = 0


class TopicData(Struct):
    topic_id: Uuid = since(2, default=NO_UUID)
    partitions: list[PartitionData] = []


class AlterPartitionRequest(
    RequestFor["AlterPartitionResponse"], key=56, versions=(2, 3), flexible=0
):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    topics: list[TopicData] = []

"""WriteTxnMarkers (key 27): the coordinator tells leaders how transactions ended.

v1 flexible · v2 the transaction's version, for stricter epoch checks.
"""

from ..schema import Bool, Int8, Int16, Int32, Int64, RequestFor, String, Struct, since


class WritableTxnMarkerTopic(Struct):
    name: String = ""
    partition_indexes: list[Int32] = []


class WritableTxnMarker(Struct):
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: Bool = False  # whether it was committed
    topics: list[WritableTxnMarkerTopic] = []
    coordinator_epoch: Int32 = 0
    transaction_version: Int8 = since(2)


class WriteTxnMarkersRequest(
    RequestFor["WriteTxnMarkersResponse"], key=27, versions=(1, 2), flexible=1
):
    markers: list[WritableTxnMarker] = []


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class WritableTxnMarkerTopicResult(Struct):
    name: String = ""
    partitions: list[WritableTxnMarkerPartitionResult] = []


class WritableTxnMarkerResult(Struct):
    producer_id: Int64 = 0
    topics: list[WritableTxnMarkerTopicResult] = []


class WriteTxnMarkersResponse(Struct, key=27, versions=(1, 2), flexible=1):
    markers: list[WritableTxnMarkerResult] = []

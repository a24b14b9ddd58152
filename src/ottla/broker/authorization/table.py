"""API × resource × operation: the one declaration of what a client must be allowed, as Kafka's.

The dispatcher puts the guard of an API around its handler, where there is an authorizer; without
one there is nothing in between. An API that is served has a line here
(tests/broker/test_authorization_table.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.authorization.guards import AnyOf, Each, Free, Guard, InOrder, Whole
from ottla.security.acls import Operation, ResourceType

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
CLUSTER, TRANSACTIONAL_ID = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
ALTER, DESCRIBE, CLUSTER_ACTION = Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS

# Of one broker to another.
BROKER_ONLY = Whole(CLUSTER, CLUSTER_ACTION)
FREE = Free()


def cluster(operation: Operation) -> Whole:
    return Whole(CLUSTER, operation)


def group(operation: Operation) -> Whole:
    return Whole(GROUP, operation, "group_id")


def transaction(operation: Operation) -> Whole:
    return Whole(TRANSACTIONAL_ID, operation, "transactional_id")


NOT_YET = Whole(CLUSTER, Operation.ALL)  # the guard is not written yet: super users only

TABLE: Mapping[int, Guard] = {
    0: NOT_YET,  # Produce
    1: NOT_YET,  # Fetch
    2: Each(TOPIC, DESCRIBE, "topics", "topics"),  # ListOffsets
    3: NOT_YET,  # Metadata
    8: NOT_YET,  # OffsetCommit
    9: NOT_YET,  # OffsetFetch
    10: NOT_YET,  # FindCoordinator
    11: group(READ),  # JoinGroup
    12: group(READ),  # Heartbeat
    13: group(READ),  # LeaveGroup
    14: NOT_YET,  # SyncGroup
    15: NOT_YET,  # DescribeGroups
    16: NOT_YET,  # ListGroups
    17: FREE,  # SaslHandshake
    18: FREE,  # ApiVersions
    19: NOT_YET,  # CreateTopics
    20: NOT_YET,  # DeleteTopics
    21: Each(TOPIC, DELETE, "topics", "topics"),  # DeleteRecords
    22: NOT_YET,  # InitProducerId
    23: NOT_YET,  # OffsetForLeaderEpoch
    24: NOT_YET,  # AddPartitionsToTxn
    25: InOrder(transaction(WRITE), group(READ)),  # AddOffsetsToTxn
    26: transaction(WRITE),  # EndTxn
    27: AnyOf(ALTER, CLUSTER_ACTION),  # WriteTxnMarkers
    28: NOT_YET,  # TxnOffsetCommit
    29: cluster(DESCRIBE),  # DescribeAcls
    30: cluster(ALTER),  # CreateAcls
    31: cluster(ALTER),  # DeleteAcls
    32: NOT_YET,  # DescribeConfigs
    33: NOT_YET,  # AlterConfigs
    34: cluster(ALTER),  # AlterReplicaLogDirs
    35: cluster(DESCRIBE),  # DescribeLogDirs
    36: FREE,  # SaslAuthenticate
    37: Each(TOPIC, ALTER, "topics", "results"),  # CreatePartitions
    42: NOT_YET,  # DeleteGroups
    43: cluster(ALTER),  # ElectLeaders
    44: NOT_YET,  # IncrementalAlterConfigs
    45: cluster(ALTER),  # AlterPartitionReassignments
    46: cluster(DESCRIBE),  # ListPartitionReassignments
    47: NOT_YET,  # OffsetDelete
    48: cluster(DESCRIBE_CONFIGS),  # DescribeClientQuotas
    49: cluster(ALTER_CONFIGS),  # AlterClientQuotas
    50: cluster(DESCRIBE),  # DescribeUserScramCredentials
    51: cluster(ALTER),  # AlterUserScramCredentials
    57: cluster(ALTER),  # UpdateFeatures
    60: NOT_YET,  # DescribeCluster
    61: NOT_YET,  # DescribeProducers
    64: cluster(ALTER),  # UnregisterBroker
    65: NOT_YET,  # DescribeTransactions
    66: NOT_YET,  # ListTransactions
    68: NOT_YET,  # ConsumerGroupHeartbeat
    69: NOT_YET,  # ConsumerGroupDescribe
    74: cluster(DESCRIBE_CONFIGS),  # ListConfigResources
    75: NOT_YET,  # DescribeTopicPartitions
    76: NOT_YET,  # ShareGroupHeartbeat
    77: NOT_YET,  # ShareGroupDescribe
    78: NOT_YET,  # ShareFetch
    79: NOT_YET,  # ShareAcknowledge
    83: BROKER_ONLY,  # InitializeShareGroupState
    84: BROKER_ONLY,  # ReadShareGroupState
    85: BROKER_ONLY,  # WriteShareGroupState
    86: BROKER_ONLY,  # DeleteShareGroupState
    87: BROKER_ONLY,  # ReadShareGroupStateSummary
    90: NOT_YET,  # DescribeShareGroupOffsets
    91: NOT_YET,  # AlterShareGroupOffsets
    92: NOT_YET,  # DeleteShareGroupOffsets
    # Between brokers.
    56: BROKER_ONLY,  # AlterPartition
    67: BROKER_ONLY,  # AllocateProducerIds
    10_000: BROKER_ONLY,  # FollowFeed
    10_001: BROKER_ONLY,  # Forward
    10_002: BROKER_ONLY,  # RegisterBroker
    10_003: BROKER_ONLY,  # ConfirmDeletions
    10_004: BROKER_ONLY,  # IdentifyBroker
    10_005: BROKER_ONLY,  # ControlledShutdown
    10_006: BROKER_ONLY,  # KnownLeaderEpoch
}

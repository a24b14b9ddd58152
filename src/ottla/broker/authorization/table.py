"""API × resource × operation: the one declaration of what a client must be allowed, as Kafka's.

The dispatcher puts the guard of an API around its handler, where there is an authorizer; without
one there is nothing in between. An API that is served has a line here
(tests/broker/test_authorization_table.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.broker.authorization import groups, own
from ottla.broker.authorization.guards import (
    AllOf,
    AnyOf,
    Each,
    Guard,
    InOrder,
    Inside,
    Own,
    Shown,
    Whole,
)
from ottla.broker.context import Context
from ottla.cluster.names import name_error
from ottla.security.acls import Operation, ResourceType

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
CLUSTER, TRANSACTIONAL_ID = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
DELEGATION_TOKEN, USER = ResourceType.DELEGATION_TOKEN, ResourceType.USER
READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
ALTER, DESCRIBE, CLUSTER_ACTION = Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
IDEMPOTENT_WRITE = Operation.IDEMPOTENT_WRITE
CREATE_TOKENS, DESCRIBE_TOKENS = Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS


def cluster(operation: Operation) -> Whole:
    return Whole(CLUSTER, operation)


def group(operation: Operation) -> Whole:
    return Whole(GROUP, operation, "group_id")


def named_group(operation: Operation) -> Whole:
    """A request without a group is refused by the handler."""
    return Whole(GROUP, operation, "group_id", unless=lambda asked, _: asked.group_id is None)


def transaction(operation: Operation) -> Whole:
    return Whole(TRANSACTIONAL_ID, operation, "transactional_id")


def protocol_is_missing(request: Any, context: Context) -> bool:
    """KIP-559: from version 5 on a member states the protocol that it joined with."""
    return context.api_version >= 5 and (
        request.protocol_type is None or request.protocol_name is None
    )


def producers_topic(topic: Any, context: Context) -> str | None:
    """A name that cannot be one is refused by the handler."""
    name: str = topic.name
    return None if name_error(name) is not None else name


# Of one broker to another.
BROKER_ONLY = cluster(CLUSTER_ACTION)
FREE = Inside()

TABLE: Mapping[int, Guard] = {
    # Records
    0: own.Produce(),
    1: Inside((TOPIC, READ), (CLUSTER, CLUSTER_ACTION)),  # Fetch
    2: Each(TOPIC, DESCRIBE, "topics", "topics"),  # ListOffsets
    21: Each(TOPIC, DELETE, "topics", "topics"),  # DeleteRecords
    23: Each(  # OffsetForLeaderEpoch
        TOPIC, DESCRIBE, "topics", "topics", name="topic", or_cluster=CLUSTER_ACTION
    ),
    61: Each(TOPIC, READ, "topics", "topics", name=producers_topic),  # DescribeProducers
    # The cluster and its topics
    3: Inside(  # Metadata
        (TOPIC, DESCRIBE), (TOPIC, CREATE), (CLUSTER, CREATE), (CLUSTER, DESCRIBE)
    ),
    60: Inside((CLUSTER, DESCRIBE)),  # DescribeCluster
    75: Inside((TOPIC, DESCRIBE)),  # DescribeTopicPartitions
    19: Own(  # CreateTopics
        own.create_topics, (CLUSTER, CREATE), (TOPIC, CREATE), (TOPIC, DESCRIBE_CONFIGS)
    ),
    20: Own(  # DeleteTopics
        own.delete_topics, (CLUSTER, DELETE), (TOPIC, DELETE), (TOPIC, DESCRIBE)
    ),
    37: Each(TOPIC, ALTER, "topics", "results", unique=True),  # CreatePartitions
    32: Own(  # DescribeConfigs
        own.describe_configs,
        (CLUSTER, DESCRIBE_CONFIGS),
        (TOPIC, DESCRIBE_CONFIGS),
        (GROUP, DESCRIBE_CONFIGS),
    ),
    33: Inside(  # AlterConfigs
        (CLUSTER, ALTER_CONFIGS), (TOPIC, ALTER_CONFIGS), (GROUP, ALTER_CONFIGS)
    ),
    44: Inside(  # IncrementalAlterConfigs
        (CLUSTER, ALTER_CONFIGS), (TOPIC, ALTER_CONFIGS), (GROUP, ALTER_CONFIGS)
    ),
    74: cluster(DESCRIBE_CONFIGS),  # ListConfigResources
    34: cluster(ALTER),  # AlterReplicaLogDirs
    35: cluster(DESCRIBE),  # DescribeLogDirs
    43: cluster(ALTER),  # ElectLeaders
    45: cluster(ALTER),  # AlterPartitionReassignments
    46: cluster(DESCRIBE),  # ListPartitionReassignments
    57: cluster(ALTER),  # UpdateFeatures
    64: cluster(ALTER),  # UnregisterBroker
    # Groups
    10: Own(  # FindCoordinator
        groups.find_coordinator,
        (GROUP, DESCRIBE),
        (TRANSACTIONAL_ID, DESCRIBE),
        (CLUSTER, CLUSTER_ACTION),
    ),
    11: group(READ),  # JoinGroup
    12: group(READ),  # Heartbeat
    13: group(READ),  # LeaveGroup
    14: Whole(GROUP, READ, "group_id", unless=protocol_is_missing),  # SyncGroup
    15: Each(GROUP, DESCRIBE, "groups", "groups", name="", first=True),  # DescribeGroups
    16: Shown(groups.listed_groups, (CLUSTER, DESCRIBE), (GROUP, DESCRIBE)),  # ListGroups
    42: Each(GROUP, DELETE, "groups_names", "results", name="", once=True),  # DeleteGroups
    68: InOrder(  # ConsumerGroupHeartbeat
        group(READ), AllOf(TOPIC, DESCRIBE, "subscribed_topic_names")
    ),
    69: InOrder(  # ConsumerGroupDescribe
        Each(GROUP, DESCRIBE, "group_ids", "groups", name="", first=True),
        Shown(groups.described_groups("assignment", "target_assignment"), (TOPIC, DESCRIBE)),
    ),
    # Committed offsets
    8: InOrder(  # OffsetCommit
        group(READ), Each(TOPIC, READ, "topics", "topics", name=groups.offset_topic)
    ),
    9: groups.OffsetFetch(),  # OffsetFetch
    47: InOrder(  # OffsetDelete
        group(DELETE), Each(TOPIC, READ, "topics", "topics", answers=groups.denied_offset_deletions)
    ),
    # Transactions
    22: Own(  # InitProducerId
        own.init_producer_id, (TRANSACTIONAL_ID, WRITE), (CLUSTER, IDEMPOTENT_WRITE), (TOPIC, WRITE)
    ),
    24: Own(  # AddPartitionsToTxn
        own.add_partitions_to_txn,
        (TRANSACTIONAL_ID, WRITE),
        (TOPIC, WRITE),
        (CLUSTER, CLUSTER_ACTION),
    ),
    25: InOrder(transaction(WRITE), group(READ)),  # AddOffsetsToTxn
    26: transaction(WRITE),  # EndTxn
    27: AnyOf(ALTER, CLUSTER_ACTION),  # WriteTxnMarkers
    28: InOrder(  # TxnOffsetCommit
        transaction(WRITE), group(READ), Each(TOPIC, READ, "topics", "topics")
    ),
    65: InOrder(  # DescribeTransactions
        Each(TRANSACTIONAL_ID, DESCRIBE, "transactional_ids", "transaction_states", name=""),
        Shown(own.described_transactions, (TOPIC, DESCRIBE)),
    ),
    66: Shown(own.listed_transactions, (TRANSACTIONAL_ID, DESCRIBE)),  # ListTransactions
    # Share groups
    76: InOrder(  # ShareGroupHeartbeat
        group(READ), AllOf(TOPIC, DESCRIBE, "subscribed_topic_names")
    ),
    77: InOrder(  # ShareGroupDescribe
        Each(GROUP, DESCRIBE, "group_ids", "groups", name="", first=True),
        Shown(groups.described_groups("assignment"), (TOPIC, DESCRIBE)),
    ),
    78: InOrder(named_group(READ), Inside((TOPIC, READ))),  # ShareFetch
    79: InOrder(named_group(READ), Inside((TOPIC, READ))),  # ShareAcknowledge
    90: groups.TopicsOfGroups(  # DescribeShareGroupOffsets
        lambda topic, _: topic.topic_name, "topic_name", groups.denied_share_offsets
    ),
    91: InOrder(  # AlterShareGroupOffsets
        group(READ),
        Each(
            TOPIC,
            READ,
            "topics",
            "responses",
            name="topic_name",
            answers=groups.denied_new_share_offsets,
        ),
    ),
    92: InOrder(  # DeleteShareGroupOffsets
        group(DELETE),
        Each(
            TOPIC,
            READ,
            "topics",
            "responses",
            name="topic_name",
            answers=groups.denied_share_offset_deletions,
        ),
    ),
    83: BROKER_ONLY,  # InitializeShareGroupState
    84: BROKER_ONLY,  # ReadShareGroupState
    85: BROKER_ONLY,  # WriteShareGroupState
    86: BROKER_ONLY,  # DeleteShareGroupState
    87: BROKER_ONLY,  # ReadShareGroupStateSummary
    # Security
    17: FREE,  # SaslHandshake
    18: FREE,  # ApiVersions
    36: FREE,  # SaslAuthenticate
    29: cluster(DESCRIBE),  # DescribeAcls
    30: cluster(ALTER),  # CreateAcls
    31: cluster(ALTER),  # DeleteAcls
    # Those that concern who asks need no right.
    38: Inside((USER, CREATE_TOKENS)),  # CreateDelegationToken
    39: FREE,  # RenewDelegationToken
    40: FREE,  # ExpireDelegationToken
    41: Inside((DELEGATION_TOKEN, DESCRIBE), (USER, DESCRIBE_TOKENS)),  # DescribeDelegationToken
    48: cluster(DESCRIBE_CONFIGS),  # DescribeClientQuotas
    49: cluster(ALTER_CONFIGS),  # AlterClientQuotas
    50: cluster(DESCRIBE),  # DescribeUserScramCredentials
    51: cluster(ALTER),  # AlterUserScramCredentials
    # Between brokers
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

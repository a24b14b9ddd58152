"""The table of APIs: key, name, versions, and the module with their messages.

Only the table is imported at start; the messages of an API are imported when they are first asked
for. Versions are those that Kafka 4.3 serves as stable.

`API` has what clients ask a broker, `BROKER_API` what brokers ask their controller: two of Kafka's,
and Ottla's own, whose keys lie beyond all of Kafka's.
"""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import Any

__all__ = ["API", "BROKER_API", "EVERY_API", "OWN_KEYS_FROM", "Api"]

NEVER = 32768
OWN_KEYS_FROM = 10_000


class Api:
    """One API of the protocol."""

    def __init__(
        self,
        key: int,
        name: str,
        versions: tuple[int, int],
        flexible_from: int,
        module: str,
        *,
        advertised_from: int | None = None,
    ) -> None:
        self.key = key
        self.name = name
        self.versions = versions
        self.flexible_from = flexible_from
        self.module = module
        # What ApiVersions says. Produce claims 0 to 2 too, or older librdkafka switches its
        # compression off (KAFKA-18659).
        self.advertised = (versions[0] if advertised_from is None else advertised_from, versions[1])

    def serves(self, version: int) -> bool:
        """Whether requests of this version can be read."""
        return self.versions[0] <= version <= self.versions[1]

    def flexible_response(self, version: int) -> bool:
        """Whether the response header has tagged fields (ApiVersions never: KIP-511)."""
        return version >= self.flexible_from and self.key != 18

    @cached_property
    def request(self) -> Any:
        """The class of the request."""
        return getattr(self.messages(), f"{self.name}Request")

    @cached_property
    def response(self) -> Any:
        """The class of the response."""
        return getattr(self.messages(), f"{self.name}Response")

    def messages(self) -> Any:
        return import_module(f".api.{self.module}", __package__)

    def __repr__(self) -> str:
        return f"Api({self.key}, {self.name}, versions {self.versions[0]}-{self.versions[1]})"


TABLE = (
    Api(0, "Produce", (3, 13), 9, "produce", advertised_from=0),
    Api(1, "Fetch", (4, 18), 12, "fetch"),
    Api(2, "ListOffsets", (1, 11), 6, "list_offsets"),
    Api(3, "Metadata", (0, 13), 9, "metadata"),
    Api(8, "OffsetCommit", (2, 10), 8, "offset_commit"),
    Api(9, "OffsetFetch", (1, 10), 6, "offset_fetch"),
    Api(10, "FindCoordinator", (0, 6), 3, "find_coordinator"),
    Api(11, "JoinGroup", (0, 9), 6, "join_group"),
    Api(12, "Heartbeat", (0, 4), 4, "heartbeat"),
    Api(13, "LeaveGroup", (0, 5), 4, "leave_group"),
    Api(14, "SyncGroup", (0, 5), 4, "sync_group"),
    Api(15, "DescribeGroups", (0, 6), 5, "describe_groups"),
    Api(16, "ListGroups", (0, 5), 3, "list_groups"),
    Api(17, "SaslHandshake", (0, 1), NEVER, "sasl_handshake"),
    Api(18, "ApiVersions", (0, 4), 3, "api_versions"),
    Api(19, "CreateTopics", (2, 7), 5, "create_topics"),
    Api(20, "DeleteTopics", (1, 6), 4, "delete_topics"),
    Api(21, "DeleteRecords", (0, 2), 2, "delete_records"),
    Api(22, "InitProducerId", (0, 5), 2, "init_producer_id"),
    Api(23, "OffsetForLeaderEpoch", (2, 4), 4, "offset_for_leader_epoch"),
    Api(24, "AddPartitionsToTxn", (0, 5), 3, "add_partitions_to_txn"),
    Api(25, "AddOffsetsToTxn", (0, 4), 3, "add_offsets_to_txn"),
    Api(26, "EndTxn", (0, 5), 3, "end_txn"),
    Api(27, "WriteTxnMarkers", (1, 2), 1, "write_txn_markers"),
    Api(28, "TxnOffsetCommit", (0, 5), 3, "txn_offset_commit"),
    Api(29, "DescribeAcls", (1, 3), 2, "describe_acls"),
    Api(30, "CreateAcls", (1, 3), 2, "create_acls"),
    Api(31, "DeleteAcls", (1, 3), 2, "delete_acls"),
    Api(32, "DescribeConfigs", (1, 4), 4, "describe_configs"),
    Api(33, "AlterConfigs", (0, 2), 2, "alter_configs"),
    Api(34, "AlterReplicaLogDirs", (1, 2), 2, "alter_replica_log_dirs"),
    Api(35, "DescribeLogDirs", (1, 5), 2, "describe_log_dirs"),
    Api(36, "SaslAuthenticate", (0, 2), 2, "sasl_authenticate"),
    Api(37, "CreatePartitions", (0, 3), 2, "create_partitions"),
    Api(38, "CreateDelegationToken", (1, 3), 2, "create_delegation_token"),
    Api(39, "RenewDelegationToken", (1, 2), 2, "renew_delegation_token"),
    Api(40, "ExpireDelegationToken", (1, 2), 2, "expire_delegation_token"),
    Api(41, "DescribeDelegationToken", (1, 3), 2, "describe_delegation_token"),
    Api(42, "DeleteGroups", (0, 2), 2, "delete_groups"),
    Api(43, "ElectLeaders", (0, 2), 2, "elect_leaders"),
    Api(44, "IncrementalAlterConfigs", (0, 1), 1, "incremental_alter_configs"),
    Api(45, "AlterPartitionReassignments", (0, 1), 0, "alter_partition_reassignments"),
    Api(46, "ListPartitionReassignments", (0, 0), 0, "list_partition_reassignments"),
    Api(47, "OffsetDelete", (0, 0), NEVER, "offset_delete"),
    Api(48, "DescribeClientQuotas", (0, 1), 1, "describe_client_quotas"),
    Api(49, "AlterClientQuotas", (0, 1), 1, "alter_client_quotas"),
    Api(50, "DescribeUserScramCredentials", (0, 0), 0, "describe_user_scram_credentials"),
    Api(51, "AlterUserScramCredentials", (0, 0), 0, "alter_user_scram_credentials"),
    Api(57, "UpdateFeatures", (0, 2), 0, "update_features"),
    Api(60, "DescribeCluster", (0, 2), 0, "describe_cluster"),
    Api(61, "DescribeProducers", (0, 0), 0, "describe_producers"),
    Api(64, "UnregisterBroker", (0, 0), 0, "unregister_broker"),
    Api(65, "DescribeTransactions", (0, 0), 0, "describe_transactions"),
    Api(66, "ListTransactions", (0, 2), 0, "list_transactions"),
    Api(68, "ConsumerGroupHeartbeat", (0, 1), 0, "consumer_group_heartbeat"),
    Api(69, "ConsumerGroupDescribe", (0, 1), 0, "consumer_group_describe"),
    Api(74, "ListConfigResources", (0, 1), 0, "list_config_resources"),
    Api(75, "DescribeTopicPartitions", (0, 0), 0, "describe_topic_partitions"),
    Api(76, "ShareGroupHeartbeat", (1, 1), 0, "share_group_heartbeat"),
    Api(77, "ShareGroupDescribe", (1, 1), 0, "share_group_describe"),
    Api(78, "ShareFetch", (1, 2), 0, "share_fetch"),
    Api(79, "ShareAcknowledge", (1, 2), 0, "share_acknowledge"),
    Api(83, "InitializeShareGroupState", (0, 0), 0, "initialize_share_group_state"),
    Api(84, "ReadShareGroupState", (0, 0), 0, "read_share_group_state"),
    Api(85, "WriteShareGroupState", (0, 1), 0, "write_share_group_state"),
    Api(86, "DeleteShareGroupState", (0, 0), 0, "delete_share_group_state"),
    Api(87, "ReadShareGroupStateSummary", (0, 1), 0, "read_share_group_state_summary"),
    Api(90, "DescribeShareGroupOffsets", (0, 1), 0, "describe_share_group_offsets"),
    Api(91, "AlterShareGroupOffsets", (0, 0), 0, "alter_share_group_offsets"),
    Api(92, "DeleteShareGroupOffsets", (0, 0), 0, "delete_share_group_offsets"),
)

BROKER_TABLE = (
    Api(56, "AlterPartition", (2, 3), 0, "alter_partition"),
    Api(67, "AllocateProducerIds", (0, 0), 0, "allocate_producer_ids"),
    Api(10_000, "FollowFeed", (0, 0), 0, "follow_feed"),
    Api(10_001, "Forward", (0, 0), 0, "forward"),
    Api(10_002, "RegisterBroker", (0, 0), 0, "register_broker"),
    Api(10_003, "ConfirmDeletions", (0, 0), 0, "confirm_deletions"),
    Api(10_004, "IdentifyBroker", (0, 0), 0, "identify_broker"),
    Api(10_005, "ControlledShutdown", (0, 0), 0, "controlled_shutdown"),
    Api(10_006, "KnownLeaderEpoch", (0, 0), 0, "known_leader_epoch"),
)

API: dict[int, Api] = {api.key: api for api in TABLE}
BROKER_API: dict[int, Api] = {api.key: api for api in BROKER_TABLE}
EVERY_API: dict[int, Api] = API | BROKER_API

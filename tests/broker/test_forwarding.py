"""Every admin API that the controller decides: the same answer through any broker."""

from __future__ import annotations

from typing import Any

from ottla.broker.forwarding import FORWARDED
from ottla.cluster.requests import ResourceType
from ottla.security.acls import Operation, PatternType, Permission
from ottla.security.acls import ResourceType as AclResourceType
from ottla.security.credentials import parse_credential
from ottla.settings.authorization import STANDARD
from ottla.wire.api import alter_configs, incremental_alter_configs
from ottla.wire.api.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from ottla.wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.api.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.api.elect_leaders import ElectLeadersRequest
from ottla.wire.api.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.wire.api.unregister_broker import UnregisterBrokerRequest
from ottla.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.cluster_harness import Cluster

TOPIC = {"resource_type": int(ResourceType.TOPIC), "resource_name": "t"}
# Each can be repeated, and is answered as the first time.
REQUESTS: list[Any] = [
    CreateTopicsRequest(
        topics=[
            CreatableTopic(name="new", num_partitions=2, replication_factor=9),
            CreatableTopic(name="t", num_partitions=1, replication_factor=1),
        ],
        validate_only=True,
        timeout_ms=1000,
    ),
    DeleteTopicsRequest(
        topics=[DeleteTopicState(name="unknown"), DeleteTopicState(topic_id=b"x" * 16)],
        timeout_ms=1000,
    ),
    alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                **TOPIC, configs=[alter_configs.AlterableConfig(name="retention.ms", value="7")]
            )
        ]
    ),
    CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=AclResourceType.TOPIC,
                resource_name=name,
                principal="User:alice",
                host="*",
                operation=Operation.READ,
                permission_type=Permission.ALLOW,
            )
            for name in ("t", "")
        ]
    ),
    DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=AclResourceType.ANY,
                resource_name_filter="unknown",
                pattern_type_filter=PatternType.ANY,
                operation=Operation.ANY,
                permission_type=Permission.ANY,
            )
        ]
    ),
    AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[EntityData(entity_type="user", entity_name=name)],
                ops=[OpData(key="producer_byte_rate", value=7.0)],
            )
            for name in ("alice", "")
        ]
    ),
    CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)],
        validate_only=True,
        timeout_ms=1000,
    ),
    ElectLeadersRequest(topic_partitions=None),
    incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                **TOPIC,
                configs=[
                    incremental_alter_configs.AlterableConfig(name="retention.ms", value="bad")
                ],
            )
        ],
    ),
    AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name="t", partitions=[ReassignablePartition(partition_index=0, replicas=None)]
            )
        ],
        timeout_ms=1000,
    ),
    ListPartitionReassignmentsRequest(topics=None, timeout_ms=1000),
    UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature="unknown.version", max_version_level=1, upgrade_type=1)
        ],
        timeout_ms=1000,
        validate_only=True,
    ),
    UnregisterBrokerRequest(broker_id=77),
    AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="nobody", mechanism=1)],
        upsertions=[
            ScramCredentialUpsertion(
                name="alice", mechanism=2, iterations=4096, salt=b"s", salted_password=b"p"
            )
        ],
    ),
]

# What is not asked for without a login: tests/broker/test_delegation_tokens.py.
TOKENS = {38, 39, 40}


def test_every_broker_gives_the_controllers_answer() -> None:
    """For each API that is forwarded; what was changed is applied where it was asked for."""
    with Cluster(3, authorizer_class_name=STANDARD, super_users="User:ANONYMOUS") as cluster:
        assert cluster.create("t", 1, 2, through=1).error_code == 0
        asked = set()
        for request in REQUESTS:
            schema = type(request).__schema__
            asked.add(schema.key)
            version = schema.versions[1]
            direct = cluster.ask(1, request, version)
            assert cluster.ask(3, request, version) == direct, type(request).__name__
        assert asked == FORWARDED.keys() - TOKENS
        assert [pattern.name for pattern in cluster.image(3).acls] == ["t"]
        [(entity, configs)] = cluster.image(3).entity_configs.items()
        assert entity == (("user", "alice"),)
        assert configs["producer_byte_rate"] == "7"
        assert parse_credential(configs["SCRAM-SHA-512"]).iterations == 4096
        assert cluster.image(3).scram_secret == cluster.image(1).scram_secret != b""
        assert cluster.image(3).configs_of("t") == {"retention.ms": "7"}

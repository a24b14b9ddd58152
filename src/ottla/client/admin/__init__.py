"""The admin client: `Admin`, which kafka-python calls `KafkaAdminClient`.

Every method waits for its answer, retries what may pass, and raises `KafkaError` with what to do.
Results are plain dictionaries as kafka-python gives them. The methods are grouped by what they are
about: topics.py, configs.py, records.py, batches.py, groups.py, new_groups.py, transactions.py,
leaders.py, replicas.py, reassignments.py, cluster.py, acls.py, surveys.py, users.py, quotas.py,
tokens.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self, cast

from ..config import COMMON, parse
from ..network.cluster_client import Client
from ..typed_config import ClientConfig
from .acl_types import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from .acls import Acls
from .batches import Batches, BatchState, PartitionRead, ReadBatch
from .configs import Configs
from .groups import Groups
from .leaders import Leaders
from .log_dirs import LogDirs, ReplicaLogDirs
from .new_groups import NewGroups
from .quotas import (
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
    Quotas,
)
from .reassignments import OngoingReassignment, Reassignments
from .replicas import Replicas
from .surveys import Survey, Surveys
from .tokens import DelegationToken, Tokens
from .topics import Topics
from .transactions import Transactions
from .types import (
    AbortTransactionSpec,
    AlterConfigOp,
    ConfigFilterType,
    ConfigResource,
    ConfigResourceType,
    ConfigSourceType,
    ConfigType,
    ElectionType,
    GroupDescription,
    GroupMember,
    GroupState,
    GroupType,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    OffsetTimestamp,
    PartitionProducerState,
    ProducerState,
    ShareOffset,
    TransactionDescription,
    TransactionListing,
    TransactionState,
    UpdateFeatureType,
)
from .users import (
    ScramMechanism,
    Users,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

__all__ = [
    "ACL",
    "ACLFilter",
    "ACLOperation",
    "ACLPermissionType",
    "ACLResourcePatternType",
    "AbortTransactionSpec",
    "Admin",
    "AlterConfigOp",
    "BatchState",
    "ClientQuotaAlteration",
    "ClientQuotaEntity",
    "ClientQuotaFilter",
    "ClientQuotaFilterComponent",
    "ConfigFilterType",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSourceType",
    "ConfigType",
    "DelegationToken",
    "ElectionType",
    "GroupDescription",
    "GroupMember",
    "GroupState",
    "GroupType",
    "KafkaAdminClient",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "OffsetTimestamp",
    "OngoingReassignment",
    "PartitionProducerState",
    "PartitionRead",
    "ProducerState",
    "ReadBatch",
    "ReplicaLogDirs",
    "ResourcePattern",
    "ResourcePatternFilter",
    "ResourceType",
    "ScramMechanism",
    "ShareOffset",
    "Survey",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
    "UpdateFeatureType",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
]


class Admin(
    Topics,
    Configs,
    Groups,
    NewGroups,
    Transactions,
    Leaders,
    Replicas,
    Batches,
    Reassignments,
    LogDirs,
    Acls,
    Surveys,
    Users,
    Quotas,
    Tokens,
):
    """Looks after a cluster. Options as keywords or as Kafka's properties."""

    def __init__(self, properties: Mapping[str, object] | None = None, **options: object) -> None:
        self.config = cast(ClientConfig, parse(COMMON, options, properties, who="Admin"))
        self._client = Client(self.config, "admin")
        try:
            self._client.bootstrap()
        except BaseException:
            self._client.close()
            raise

    def close(self) -> None:
        """End the connections; may be called twice."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


KafkaAdminClient = Admin

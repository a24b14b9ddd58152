"""How a broker reaches its controller: the interface that handlers and the metadata applier use.

`Controller` implements it for the broker in its own process. A channel to a controller on another
machine implements the same: requests become Kafka's own (CreateTopics, AlterConfigs …) or messages
like them, and `poll` sends the messages of `feed_codec.py`.

Every method that asks for a change returns Kafka's error codes, one outcome for each item. Where
the controller cannot be reached they are NOT_CONTROLLER or REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ottla.cluster.feed import Batch, Snapshot
from ottla.cluster.image import BrokerInfo
from ottla.cluster.requests import (
    AdoptedTopic,
    ConfigOutcome,
    CredentialDeletion,
    CredentialUpsertion,
    DeletedAcls,
    DeletionOutcome,
    ElectionOutcome,
    ElectionType,
    FeaturesOutcome,
    FeatureUpdate,
    IsrOutcome,
    NewPartitions,
    NewTopic,
    OngoingReassignment,
    PartitionsOutcome,
    QuotaOutcome,
    Reassignment,
    ReassignmentOutcome,
    Refusal,
    Resource,
    ShutdownOutcome,
    TokenOutcome,
    TokenRequest,
    TopicOutcome,
    TopicRef,
    UserOutcome,
)
from ottla.security.acls import AclBinding, AclFilter
from ottla.security.quotas.entities import Alteration
from ottla.wire.errors import ErrorCode


class ControllerChannel(Protocol):
    """Requests to the controller, and its feed of changes."""

    # The feed

    async def poll(
        self, broker_id: int, number: int, controller_epoch: int, broker_epoch: int = -1
    ) -> Sequence[Batch] | Snapshot:
        """The changes after `number`, as soon as there are some; the broker has applied `number`.

        The whole image when the broker is too far behind, or when `controller_epoch` is not the
        controller's: 0 and 0 always get it. Empty when nothing came within the channel's wait.
        Raises NotController when there is no controller to ask any more.

        A poll is also the sign of life of the broker that is registered with `broker_epoch`, and a
        fenced one that has applied all up to its registration is unfenced. Another epoch, or -1,
        counts for nothing: the image tells such a broker who is registered in its place.
        """
        ...

    def leave(self, broker_id: int) -> None:
        """The broker follows the feed no longer: changes do not wait for it to apply them."""
        ...

    # Brokers

    async def register_broker(self, broker: BrokerInfo, previous_epoch: int = -1) -> BrokerInfo:
        """Register a broker that has started. Returned with its epoch.

        `previous_epoch` is what it noted when it last stopped in order, -1 if it did not: unless it
        is that of its last registration, the broker may lack records, and is taken out of every ISR
        and ELR first (KIP-966). It stays fenced until its polls show that it has caught up.

        The same incarnation again keeps its epoch, and whether it is fenced. Raises
        RegistrationRefused while another incarnation of that id is alive.
        """
        ...

    async def unregister_broker(self, broker_id: int) -> Refusal | None:
        """End the registration of a broker that does not come back: it leaves ISRs and ELRs."""
        ...

    async def fence_broker(self, broker_id: int, broker_epoch: int) -> ErrorCode:
        """A broker is known to be dead: others lead what it led. STALE_BROKER_EPOCH if it is not
        the one that is registered."""
        ...

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> ShutdownOutcome:
        """A broker wants to stop: it leaves the ISRs, and others lead what it led.

        It asks again while others do not know of it yet, as long as it likes.
        """
        ...

    # Leaders

    async def alter_partition(
        self,
        broker_id: int,
        broker_epoch: int,
        topic_id: bytes,
        index: int,
        leader_epoch: int,
        partition_epoch: int,
        isr: Sequence[tuple[int, int]],
        recovering: bool = False,
    ) -> IsrOutcome:
        """Propose an ISR, each member with the broker epoch it is known by (KIP-497, KIP-903).

        Accepted only if both epochs of the partition are the controller's, and every member may be
        in an ISR.
        """
        ...

    async def elect_leaders(
        self, kind: ElectionType, partitions: Sequence[tuple[str, int]] | None
    ) -> list[ElectionOutcome] | Refusal:
        """Elect leaders of these partitions; None: of all, without those that need no election."""
        ...

    async def alter_reassignments(
        self, wanted: Sequence[Reassignment], allow_factor_change: bool = True
    ) -> list[ReassignmentOutcome] | Refusal:
        """Begin to move partitions to other replicas, or cancel that (KIP-455)."""
        ...

    async def list_reassignments(
        self, wanted: Sequence[tuple[str, Sequence[int]]] | None
    ) -> list[OngoingReassignment] | Refusal:
        """What is under way of these partitions, by topic, or of all."""
        ...

    # Producer ids

    async def allocate_producer_ids(self, broker_id: int) -> range | Refusal:
        """A block of producer ids that no other broker gets."""
        ...

    async def skip_producer_ids(self, broker_id: int, highest: int) -> None:
        """Allocate only ids beyond `highest`."""
        ...

    # Topics

    async def create_topics(
        self, topics: Sequence[NewTopic], validate_only: bool = False
    ) -> list[TopicOutcome]: ...

    async def adopt_topics(self, topics: Sequence[AdoptedTopic]) -> list[TopicOutcome]:
        """Create topics whose folders are on the disk of the broker that asks."""
        ...

    async def create_partitions(
        self, topics: Sequence[NewPartitions], validate_only: bool = False
    ) -> list[PartitionsOutcome]: ...

    async def delete_topics(self, topics: Sequence[TopicRef]) -> list[DeletionOutcome]: ...

    async def confirm_deletions(self, broker_id: int, topic_ids: Sequence[bytes]) -> None:
        """The broker has no folder of these deleted topics any more."""
        ...

    # ACLs

    async def create_acls(self, wanted: Sequence[AclBinding]) -> list[Refusal | None]:
        """Create ACLs: None for each that there is now."""
        ...

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[DeletedAcls]:
        """Delete the ACLs that match a filter: for each filter, what it has deleted."""
        ...

    async def alter_client_quotas(
        self, alterations: Sequence[Alteration], validate_only: bool = False
    ) -> list[QuotaOutcome]:
        """Set and remove quotas: one outcome for each entity that is named."""
        ...

    # Credentials

    async def alter_scram_credentials(
        self,
        deletions: Sequence[CredentialDeletion],
        upsertions: Sequence[CredentialUpsertion],
    ) -> list[UserOutcome] | Refusal:
        """Set and delete SCRAM credentials: one outcome for each user."""
        ...

    # Delegation tokens

    async def change_token(self, wanted: TokenRequest) -> TokenOutcome:
        """Issue a delegation token, renew one, or let one expire."""
        ...

    # Configs and features

    async def alter_configs(
        self,
        resources: Sequence[tuple[Resource, Sequence[tuple[str, str | None]]]],
        validate_only: bool = False,
    ) -> list[ConfigOutcome]: ...

    async def incremental_alter_configs(
        self,
        resources: Sequence[tuple[Resource, Sequence[tuple[str, int, str | None]]]],
        validate_only: bool = False,
    ) -> list[ConfigOutcome]: ...

    async def update_features(
        self, updates: Sequence[FeatureUpdate], validate_only: bool = False
    ) -> FeaturesOutcome: ...

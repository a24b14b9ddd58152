"""How a broker reaches its controller: the interface that handlers and the metadata applier use.

`Controller` implements it for the broker in its own process. A channel to a controller on another
machine implements the same: requests become Kafka's own (CreateTopics, AlterConfigs …) or messages
like them, and `poll` sends the messages of `feed_codec.py`.

Every method that asks for a change returns Kafka's error codes, one outcome for each item. Where
the controller cannot be reached they are NOT_CONTROLLER or REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ottla.cluster.feed import Batch, Snapshot
from ottla.cluster.image import BrokerInfo
from ottla.cluster.requests import (
    AdoptedTopic,
    ConfigOutcome,
    DeletionOutcome,
    FeaturesOutcome,
    FeatureUpdate,
    NewPartitions,
    NewTopic,
    PartitionsOutcome,
    Refusal,
    Resource,
    TopicOutcome,
    TopicRef,
)


class ControllerChannel(Protocol):
    """Requests to the controller, and its feed of changes."""

    # The feed

    async def poll(
        self, broker_id: int, number: int, controller_epoch: int
    ) -> Sequence[Batch] | Snapshot:
        """The changes after `number`, as soon as there are some; the broker has applied `number`.

        The whole image when the broker is too far behind, or when `controller_epoch` is not the
        controller's: 0 and 0 always get it. Empty when nothing came within the channel's wait.
        Raises NotController when there is no controller to ask any more.
        """
        ...

    def leave(self, broker_id: int) -> None:
        """The broker follows the feed no longer: changes do not wait for it to apply them."""
        ...

    # Brokers

    async def register_broker(self, broker: BrokerInfo) -> BrokerInfo:
        """Register a broker that has started; its leader epochs rise. Returned with its epoch."""
        ...

    async def unregister_broker(self, broker_id: int) -> None:
        """End the registration of a broker that has stopped."""
        ...

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


class IsrOutcome(NamedTuple):
    """The controller's answer to a proposed ISR: an error, or what is committed now."""

    error_code: int
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1


class ClusterChannel(ControllerChannel, Protocol):
    """A controller that serves several brokers: it also decides on changes of an ISR."""

    async def alter_partition(
        self,
        broker_id: int,
        broker_epoch: int,
        topic_id: bytes,
        index: int,
        leader_epoch: int,
        partition_epoch: int,
        isr: Sequence[tuple[int, int]],
    ) -> IsrOutcome:
        """Propose an ISR, each member with the broker epoch it is known by (KIP-497, KIP-903).

        Accepted only if both epochs of the partition are the controller's, and every member may be
        in an ISR.
        """
        ...

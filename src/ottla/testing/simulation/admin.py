"""Admin requests of simulated clients: through any broker, again until the outcome is known."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.testing.simulation.connection import Connection
from ottla.wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.seams.simulated.simulation import Node

ANSWER_S_MAX = 3.0
TIMEOUT_MS = 2000
RETRY_S = 0.1
TOPIC_RESOURCE = 2
GROUP_RESOURCE = 32


class Admin:
    """Asks one broker after the other."""

    def __init__(self, node: Node, hosts: Sequence[str], rng: random.Random) -> None:
        self._node = node
        self._hosts = hosts
        self._rng = rng

    async def ask(self, request: Any, version: int) -> Any:
        """The answer of some broker; None if it gave none."""
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                connection = await Connection.open(self._node, self._rng.choice(self._hosts))
                try:
                    return await connection.ask(request, version)
                finally:
                    connection.close()
        except (OSError, TimeoutError):
            return None

    async def create_topic(
        self,
        topic: str,
        partitions: int,
        replicas: int,
        configs: Mapping[str, str] | None = None,
        *,
        unlike: Collection[bytes] = (),
        unsure: Collection[bytes] = (),
    ) -> bytes:
        """Create a topic that nobody else creates; its id.

        `unlike`: ids of earlier topics, which a broker that is behind may still have. Those of them
        in `unsure` are deleted again where they are found: see `delete_topic`.
        """
        wanted = CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=replicas,
            configs=[
                CreatableTopicConfig(name=name, value=value)
                for name, value in (configs or {}).items()
            ],
        )
        while True:
            request = CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)
            answer = await self.ask(request, 7)
            code = (
                answer.topics[0].error_code if answer is not None else ErrorCode.REQUEST_TIMED_OUT
            )
            if code == ErrorCode.NONE:
                return bytes(answer.topics[0].topic_id)
            if code == ErrorCode.TOPIC_ALREADY_EXISTS:  # an earlier attempt has made it
                topic_id, count = await self._found(topic)
                if topic_id is not None and topic_id not in unlike and count >= partitions:
                    return topic_id
                # One with fewer is of a request for an earlier topic that came late.
                if topic_id is not None and (topic_id in unsure or topic_id not in unlike):
                    await self.delete_topic(topic_id)
            await asyncio.sleep(RETRY_S)

    async def _found(self, topic: str) -> tuple[bytes | None, int]:
        """The id of a topic and how many partitions it has; None and 0 if a broker has none."""
        asked = [MetadataRequestTopic(name=topic)]
        answer = await self.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 12)
        if answer is None or answer.topics[0].error_code:
            return None, 0
        return bytes(answer.topics[0].topic_id), len(answer.topics[0].partitions)

    async def add_partitions(self, topic: str, count: int) -> None:
        """Ask once for more partitions; they may come or not."""
        wanted = CreatePartitionsTopic(name=topic, count=count, assignments=None)
        await self.ask(CreatePartitionsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS), 3)

    async def reassign(self, topic: str, index: int, replicas: Sequence[int] | None) -> None:
        """Ask once for other replicas, or with None to cancel; it may happen or not."""
        wanted = ReassignablePartition(
            partition_index=index, replicas=None if replicas is None else list(replicas)
        )
        topics = [ReassignableTopic(name=topic, partitions=[wanted])]
        await self.ask(AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=TIMEOUT_MS), 1)

    async def set_config(self, topic: str, name: str, value: str) -> None:
        """Set one config of a topic."""
        await self._set_config(TOPIC_RESOURCE, topic, name, value)

    async def set_group_config(self, group: str, name: str, value: str) -> None:
        """Set one config of a group."""
        await self._set_config(GROUP_RESOURCE, group, name, value)

    async def _set_config(self, kind: int, resource: str, name: str, value: str) -> None:
        wanted = AlterConfigsResource(
            resource_type=kind,
            resource_name=resource,
            configs=[AlterableConfig(name=name, value=value)],
        )
        while True:
            answer = await self.ask(IncrementalAlterConfigsRequest(resources=[wanted]), 1)
            if answer is not None and not answer.responses[0].error_code:
                return
            await asyncio.sleep(RETRY_S)

    async def raise_feature(self, name: str, level: int) -> None:
        """Finalize a higher level of a feature."""
        wanted = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=1)
        while True:
            answer = await self.ask(UpdateFeaturesRequest(feature_updates=[wanted]), 1)
            if answer is not None and not answer.error_code:
                return
            await asyncio.sleep(RETRY_S)

    async def delete_topic(self, topic_id: bytes) -> bool:
        """Delete a topic that nobody else deletes; whether it is gone for sure.

        If a broker does not know it, an attempt without an answer may have deleted it; or the
        broker is a controller that has been replaced and does not know that yet, nor the topic. (It
        cannot write any more; what it reads may be old, as in Kafka.)
        """
        while True:
            wanted = DeleteTopicState(topic_id=topic_id)
            request = DeleteTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)
            answer = await self.ask(request, 6)
            code = answer.responses[0].error_code if answer is not None else None
            if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID):
                return bool(code == ErrorCode.NONE)
            await asyncio.sleep(RETRY_S)

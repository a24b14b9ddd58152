"""Ottla: Kafka for Python people.

The names of the clients are imported when they are first used, so that `import ottla` stays cheap
and a broker never loads them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .client.admin import Admin as Admin
    from .client.admin import Admin as KafkaAdminClient
    from .client.admin import ConfigResource as ConfigResource
    from .client.admin import ConfigResourceType as ConfigResourceType
    from .client.admin import NewPartitions as NewPartitions
    from .client.admin import NewTopic as NewTopic
    from .client.admin import OffsetSpec as OffsetSpec
    from .client.consumer import Consumer as Consumer
    from .client.consumer import Consumer as KafkaConsumer
    from .client.consumer.subscription import (
        AsyncConsumerRebalanceListener as AsyncConsumerRebalanceListener,
    )
    from .client.consumer.subscription import (
        ConsumerRebalanceListener as ConsumerRebalanceListener,
    )
    from .client.producer import Producer as KafkaProducer
    from .client.producer import Producer as Producer
    from .client.serializers import DefaultSerializer as DefaultSerializer
    from .client.serializers import Deserializer as Deserializer
    from .client.serializers import JsonSerializer as JsonSerializer
    from .client.serializers import Serializer as Serializer
    from .client.share.queue import Queue as Queue
    from .client.share.share_consumer import ShareConsumer as ShareConsumer
    from .client.share.structs import AcknowledgeType as AcknowledgeType
    from .client.share.structs import ShareRecord as ShareRecord
    from .client.structs import ConsumerGroupMetadata as ConsumerGroupMetadata
    from .client.structs import ConsumerRecord as ConsumerRecord
    from .client.structs import IsolationLevel as IsolationLevel
    from .client.structs import OffsetAndMetadata as OffsetAndMetadata
    from .client.structs import TopicPartition as TopicPartition
    from .client.structs import TopicPartitionReplica as TopicPartitionReplica

# Name here → module, name there. The second names are kafka-python's for the same classes.
LAZY: dict[str, tuple[str, str]] = {
    "Producer": (".client.producer", "Producer"),
    "KafkaProducer": (".client.producer", "Producer"),
    "Consumer": (".client.consumer", "Consumer"),
    "KafkaConsumer": (".client.consumer", "Consumer"),
    "Admin": (".client.admin", "Admin"),
    "KafkaAdminClient": (".client.admin", "Admin"),
    "ConfigResource": (".client.admin", "ConfigResource"),
    "ConfigResourceType": (".client.admin", "ConfigResourceType"),
    "NewPartitions": (".client.admin", "NewPartitions"),
    "NewTopic": (".client.admin", "NewTopic"),
    "OffsetSpec": (".client.admin", "OffsetSpec"),
    "ConsumerRebalanceListener": (".client.consumer.subscription", "ConsumerRebalanceListener"),
    "ConsumerRecord": (".client.structs", "ConsumerRecord"),
    "TopicPartition": (".client.structs", "TopicPartition"),
    "OffsetAndMetadata": (".client.structs", "OffsetAndMetadata"),
    "AsyncConsumerRebalanceListener": (
        ".client.consumer.subscription",
        "AsyncConsumerRebalanceListener",
    ),
    "DefaultSerializer": (".client.serializers", "DefaultSerializer"),
    "Deserializer": (".client.serializers", "Deserializer"),
    "JsonSerializer": (".client.serializers", "JsonSerializer"),
    "Serializer": (".client.serializers", "Serializer"),
    "ConsumerGroupMetadata": (".client.structs", "ConsumerGroupMetadata"),
    "TopicPartitionReplica": (".client.structs", "TopicPartitionReplica"),
    "IsolationLevel": (".client.structs", "IsolationLevel"),
    "ShareConsumer": (".client.share.share_consumer", "ShareConsumer"),
    "ShareRecord": (".client.share.structs", "ShareRecord"),
    "AcknowledgeType": (".client.share.structs", "AcknowledgeType"),
    "Queue": (".client.share.queue", "Queue"),
}

__all__ = [
    "AcknowledgeType",
    "Admin",
    "AsyncConsumerRebalanceListener",
    "ConfigResource",
    "ConfigResourceType",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "DefaultSerializer",
    "Deserializer",
    "IsolationLevel",
    "JsonSerializer",
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaProducer",
    "NewPartitions",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetSpec",
    "Producer",
    "Queue",
    "Serializer",
    "ShareConsumer",
    "ShareRecord",
    "TopicPartition",
    "TopicPartitionReplica",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module 'ottla' has no attribute {name!r}")
    module, original = LAZY[name]
    return getattr(import_module(module, __name__), original)


def __dir__() -> list[str]:
    return sorted([*globals(), *LAZY])

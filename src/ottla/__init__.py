"""Ottla: Kafka for Python people.

The names of the clients are imported when they are first used, so that `import ottla` stays cheap
and a broker never loads them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .client.consumer import Consumer as Consumer
    from .client.consumer import Consumer as KafkaConsumer
    from .client.producer import Producer as KafkaProducer
    from .client.producer import Producer as Producer
    from .client.structs import ConsumerRecord as ConsumerRecord
    from .client.structs import OffsetAndMetadata as OffsetAndMetadata
    from .client.structs import TopicPartition as TopicPartition
    from .client.subscription import ConsumerRebalanceListener as ConsumerRebalanceListener

# Name here → module, name there. The second names are kafka-python's for the same classes.
LAZY: dict[str, tuple[str, str]] = {
    "Producer": (".client.producer", "Producer"),
    "KafkaProducer": (".client.producer", "Producer"),
    "Consumer": (".client.consumer", "Consumer"),
    "KafkaConsumer": (".client.consumer", "Consumer"),
    "ConsumerRebalanceListener": (".client.subscription", "ConsumerRebalanceListener"),
    "ConsumerRecord": (".client.structs", "ConsumerRecord"),
    "TopicPartition": (".client.structs", "TopicPartition"),
    "OffsetAndMetadata": (".client.structs", "OffsetAndMetadata"),
}

__all__ = [
    "Consumer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "KafkaConsumer",
    "KafkaProducer",
    "OffsetAndMetadata",
    "Producer",
    "TopicPartition",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module 'ottla' has no attribute {name!r}")
    module, original = LAZY[name]
    return getattr(import_module(module, __name__), original)


def __dir__() -> list[str]:
    return sorted([*globals(), *LAZY])

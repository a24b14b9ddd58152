"""The clients for asyncio: the same names and options, to be awaited.

async with aio.Consumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as c:
    async for record in c:
        ...
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .consumer import AsyncConsumer as AIOKafkaConsumer
    from .consumer import AsyncConsumer as Consumer
    from .producer import Producer as AIOKafkaProducer
    from .producer import Producer as Producer
    from .share_consumer import AsyncShareConsumer as ShareConsumer

# Name here → module, name there. The second names are aiokafka's for the same classes.
LAZY: dict[str, tuple[str, str]] = {
    "Consumer": (".consumer", "AsyncConsumer"),
    "AIOKafkaConsumer": (".consumer", "AsyncConsumer"),
    "Producer": (".producer", "Producer"),
    "AIOKafkaProducer": (".producer", "Producer"),
    "ShareConsumer": (".share_consumer", "AsyncShareConsumer"),
}

__all__ = ["AIOKafkaConsumer", "AIOKafkaProducer", "Consumer", "Producer", "ShareConsumer"]


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module 'ottla.aio' has no attribute {name!r}")
    module, original = LAZY[name]
    return getattr(import_module(module, __name__), original)

"""The clients for asyncio, over the same core: `from ottla.aio import Producer`.

Names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .producer import Producer as Producer

LAZY = {"Producer": ".producer", "AIOKafkaProducer": ".producer"}

__all__ = ["Producer"]


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module 'ottla.aio' has no attribute {name!r}")
    return getattr(import_module(LAZY[name], __name__), name.removeprefix("AIOKafka"))

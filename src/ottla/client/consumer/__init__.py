"""The consumer: subscription, group membership, fetcher, offsets; `Consumer` is its interface.

It is imported when it is first used: every process of a Spark job checks options, few of them read.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .consumer import Consumer

__all__ = ["Consumer"]


def __getattr__(name: str) -> Any:
    if name != "Consumer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .consumer import Consumer

    return Consumer

"""For tests of what runs on Ottla: a real broker, helpers, and a checker of what clients saw.

Helpers that bring the client with them are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ottla.testing.broker import Broker, BrokerFailed, broker

# At once: `cluster` is the name of the function and of its module, and the last import wins.
from ottla.testing.cluster import Cluster, cluster

if TYPE_CHECKING:
    from ottla.testing.consuming import consume_all as consume_all
    from ottla.testing.consuming import wait_for_lag_zero as wait_for_lag_zero

__all__ = [
    "Broker",
    "BrokerFailed",
    "Cluster",
    "broker",
    "cluster",
    "consume_all",
    "wait_for_lag_zero",
]
_MODULES = {
    "consume_all": "ottla.testing.consuming",
    "wait_for_lag_zero": "ottla.testing.consuming",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'ottla.testing' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)

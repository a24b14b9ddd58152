"""For tests of what runs on Ottla: a real broker, helpers, and a checker of what clients saw.

The helpers bring the client with them, so they are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ottla.testing.broker import Broker, BrokerFailed, broker

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster as Cluster
    from ottla.testing.cluster import cluster as cluster
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
    "Cluster": "ottla.testing.cluster",
    "cluster": "ottla.testing.cluster",
    "consume_all": "ottla.testing.consuming",
    "wait_for_lag_zero": "ottla.testing.consuming",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'ottla.testing' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)

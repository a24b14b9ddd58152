"""For tests of what runs on Ottla: a real broker, and a checker of what clients saw."""

from ottla.testing.broker import Broker, BrokerFailed, broker

__all__ = ["Broker", "BrokerFailed", "broker"]

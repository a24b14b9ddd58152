"""Ports of a test's cluster whose brokers reach each other through proxies. Pure.

A broker has a second listener for other brokers, and advertises it at the port of a proxy.
"""

from __future__ import annotations

from typing import NamedTuple

HOST = "127.0.0.1"
PORTS_PER_BROKER = 2
LISTENER = "LINKS"


class LinkPorts(NamedTuple):
    """Consecutive ports from `first` on: a proxy for each broker, then the brokers themselves."""

    first: int
    brokers: int

    def proxy(self, node_id: int) -> int:
        """Where a broker is reached by the others."""
        return self.first + node_id - 1

    def broker(self, node_id: int) -> int:
        """Where it listens itself."""
        return self.first + self.brokers + node_id - 1

    def options(self, node_id: int, address: str) -> dict[str, str]:
        """The options of a broker that clients reach at `address`."""
        clients = f"PLAINTEXT://{address}"
        return {
            "listeners": f"{clients},{LISTENER}://{HOST}:{self.broker(node_id)}",
            "advertised.listeners": f"{clients},{LISTENER}://{HOST}:{self.proxy(node_id)}",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{LISTENER}:PLAINTEXT",
            "inter.broker.listener.name": LISTENER,
        }

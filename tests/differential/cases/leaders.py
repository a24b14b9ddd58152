"""ElectLeaders and UnregisterBroker, as a cluster of one broker answers them."""

from __future__ import annotations

from typing import Any

from tests.differential.case import case
from tests.differential.peer import Peer

ELECT = "ElectLeaders"
UNREGISTER = "UnregisterBroker"
UNKNOWN_BROKERS = (2, 99, -1, 2**31 - 1)


def asked(*topics: tuple[str, list[int]], kind: int = 0) -> dict[str, Any]:
    return {
        "election_type": kind,
        "topic_partitions": [{"topic": name, "partitions": each} for name, each in topics],
        "timeout_ms": 5000,
    }


@case(ELECT)
def elections(peer: Peer, version: int) -> None:
    topic, other = peer.create_topic(partitions=3), peer.create_topic("other")
    for kind in (0, 1) if version >= 1 else (0,):
        peer.ask(ELECT, version, asked((topic, [0]), kind=kind), f"{kind}: not needed")
        peer.ask(ELECT, version, asked((topic, [2, 0]), (other, [0]), kind=kind), f"{kind}: three")
        peer.ask(ELECT, version, asked((topic, []), kind=kind), f"{kind}: no partition")
        everything = {"election_type": kind, "topic_partitions": None, "timeout_ms": 5000}
        peer.ask(ELECT, version, everything, f"{kind}: of all")


@case(ELECT)
def election_mistakes(peer: Peer, version: int) -> None:
    topic = peer.create_topic()
    for name, index in ((topic, 1), (topic, -1), ("never", 0), ("", 0), ("a/b", 0)):
        peer.ask(ELECT, version, asked((name, [index])), f"{name!r} {index}")
    peer.ask(ELECT, version, asked((topic, [0, 7]), ("never", [0])), "one of three is known")
    if version >= 1:
        for kind in (2, 99, -1):
            peer.ask(ELECT, version, asked((topic, [0]), kind=kind), f"kind {kind}")
            everything = {"election_type": kind, "topic_partitions": None}
            peer.ask(ELECT, version, everything, f"kind {kind}, of all")


@case(UNREGISTER)
def unknown_brokers(peer: Peer, version: int) -> None:
    for broker_id in UNKNOWN_BROKERS:
        peer.ask(UNREGISTER, version, {"broker_id": broker_id}, f"{broker_id}")

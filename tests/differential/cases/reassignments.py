"""Alter- and ListPartitionReassignments, as a cluster of one broker answers them."""

from __future__ import annotations

from typing import Any

from tests.differential.case import case
from tests.differential.peer import Peer

ALTER = "AlterPartitionReassignments"
LIST = "ListPartitionReassignments"


def asked(*partitions: tuple[str, int, list[int] | None]) -> dict[str, Any]:
    return {
        "timeout_ms": 5000,
        "topics": [
            {"name": name, "partitions": [{"partition_index": index, "replicas": replicas}]}
            for name, index, replicas in partitions
        ],
    }


@case(ALTER)
def moves(peer: Peer, version: int) -> None:
    topic = peer.create_topic(partitions=2)
    peer.ask(ALTER, version, asked((topic, 0, [1])), "where it is")
    peer.ask(ALTER, version, asked((topic, 0, None)), "nothing to cancel")
    peer.ask(ALTER, version, asked(), "nothing")
    peer.ask(ALTER, version, asked((topic, 0, [1]), ("never", 0, [1])), "one of two is known")
    if version >= 1:
        strict = {**asked((topic, 0, [1])), "allow_replication_factor_change": False}
        peer.ask(ALTER, version, strict, "as many replicas")


@case(ALTER)
def move_mistakes(peer: Peer, version: int) -> None:
    topic = peer.create_topic()
    for replicas in ([], [7], [1, 7], [1, 1], [-1], None):
        for name, index in ((topic, 0), (topic, 3), (topic, -1), ("never", 0), ("", 0)):
            peer.ask(ALTER, version, asked((name, index, replicas)), f"{name!r} {index} {replicas}")


@case(LIST)
def what_moves(peer: Peer, version: int) -> None:
    topic = peer.create_topic(partitions=2)
    peer.ask(LIST, version, {"timeout_ms": 5000, "topics": None}, "all")
    for name, indexes in ((topic, [0, 1]), (topic, [7]), (topic, []), ("never", [0])):
        body = {"timeout_ms": 5000, "topics": [{"name": name, "partition_indexes": indexes}]}
        peer.ask(LIST, version, body, f"{name!r} {indexes}")

"""What the answers of ShareFetch and ShareAcknowledge have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.endpoints import Node, current_leader
from ottla.broker.shares.sessions import Place
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.context import Context

LEADER_UNKNOWN = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class LeaderHints(NamedTuple):
    """Where to ask instead (KIP-951): leaders and their epochs, and their addresses."""

    leaders: dict[Place, tuple[int, int]]
    nodes: list[Node]


def leader_hints(errors: Iterable[tuple[Place, int]], context: Context) -> LeaderHints:
    leaders: dict[Place, tuple[int, int]] = {}
    nodes: dict[int, Node] = {}
    image = context.broker.image
    for place, error in errors:
        name = image.topic_name(place[0]) if error in LEADER_UNKNOWN else None
        if name is None:
            continue
        leader = current_leader(image, name, place[1], context.peer.listener_name)
        leaders[place] = (leader.id, leader.epoch)
        if leader.node is not None:
            nodes[leader.id] = leader.node
    return LeaderHints(leaders, list(nodes.values()))

"""Where brokers are reached, as the listener a client came through advertises them."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.cluster.image import ClusterImage


class Node(NamedTuple):
    """A broker's address for clients of one listener."""

    id: int
    host: str
    port: int
    rack: str | None


class CurrentLeader(NamedTuple):
    """The leader of a partition (-1: none known), its epoch, and its address, if known."""

    id: int
    epoch: int
    node: Node | None


def node(
    image: ClusterImage, broker_id: int, listener_name: str, fenced: Container[int] = ()
) -> Node | None:
    """A living broker with an endpoint on that listener, or one of these that are `fenced`."""
    broker = image.brokers.get(broker_id)
    if broker is None or (broker.fenced and broker_id not in fenced):
        return None
    endpoint = broker.endpoints.get(listener_name)
    if endpoint is None:
        return None
    return Node(broker.id, endpoint.host, endpoint.port, broker.rack)


def nodes(image: ClusterImage, listener_name: str, fenced: Container[int] = ()) -> list[Node]:
    """All living brokers with an endpoint on that listener and these that are `fenced`, by id."""
    found = (node(image, broker_id, listener_name, fenced) for broker_id in sorted(image.brokers))
    return [each for each in found if each is not None]


def current_leader(
    image: ClusterImage, topic: str, index: int, listener_name: str
) -> CurrentLeader:
    """The leader to send a client to that asked the wrong broker (KIP-951)."""
    partition = image.partition(topic, index)
    if partition is None:
        return CurrentLeader(-1, -1, None)
    leader = partition.leader
    return CurrentLeader(leader, partition.leader_epoch, node(image, leader, listener_name))

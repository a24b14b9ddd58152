"""Whether a broker takes part in its cluster: registered, unfenced, up to date with the feed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.cluster.state import NotController
from ottla.seams.waiting import pause

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

LOOK_AGAIN_S = 0.01  # while starting


async def wait_unfenced(broker: Broker, unless: Callable[[], bool]) -> None:
    """Return when the controller lets the broker lead and follow, as one that has caught up, or
    when `unless` is true.

    Clients may connect before: nobody asks a broker that is fenced. Raises NotController.
    """
    limit_s = broker.settings.integer("initial.broker.registration.timeout.ms") / 1000
    end_s = broker.clock.monotonic() + limit_s
    while why_fenced(broker) and not unless():
        if broker.clock.monotonic() >= end_s:
            raise NotController(f"the controller keeps broker {broker.node_id} fenced")
        await pause(broker.clock, LOOK_AGAIN_S)


def why_behind(broker: Broker) -> str:
    """Why the broker may not know or serve the cluster as it is; empty if it does."""
    fenced = why_fenced(broker)
    return fenced if fenced or broker.applier is None else broker.applier.behind()


def why_fenced(broker: Broker) -> str:
    known = broker.image.brokers.get(broker.node_id)
    if known is None or known.epoch != broker.epoch:
        return "not registered with the controller"
    return "fenced by the controller" if known.fenced else ""

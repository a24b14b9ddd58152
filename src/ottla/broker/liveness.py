"""The controller's watch over the brokers: it carries out what `broker_sessions.py` decides.

Polls and lost connections are reported by `ControllerService`. A broker whose connection is lost is
dialled, again and again while it is silent and its session lasts. Brokers that are found dead at
about the same time are fenced in one change: see `registration.fence_brokers`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.broker.broker_sessions import BrokerSessions, Dialled
from ottla.broker.dialling import dial
from ottla.seams.tasks import Tasks
from ottla.seams.waiting import pause
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.context import Peer
    from ottla.cluster.controller import Controller
    from ottla.cluster.image import BrokerInfo
    from ottla.seams.clock import Timer
    from ottla.seams.network import Network

log = logging.getLogger("ottla.broker")

# Until it is dialled again, twice as long each time. The first is short: a process that is being
# killed closes one connection after the other, and may take a new one before its port is closed.
DIAL_AGAIN_S = 0.01
DIAL_AGAIN_S_MAX = 0.5
# After one is proven dead: others may have died with it, and be known to be lost a little later.
GATHER_S = 0.01
GATHER_S_MAX = 0.1  # while others that are dialled have not answered


class Liveness:
    """Fences brokers that are dead, or silent for longer than their session lasts."""

    def __init__(self, broker: Broker, controller: Controller, network: Network) -> None:
        self._broker = broker
        self._clock = broker.clock
        self._controller = controller
        self._network = network
        self._tasks = Tasks()
        self._polling: dict[int, Peer] = {}  # by broker id
        self._dialling: set[int] = set()
        self._unanswered: set[int] = set()  # dialled for the first time since they were lost
        self._dead: dict[int, int] = {}  # proven, and to be fenced: epoch by id
        self._fencing: asyncio.Task[None] | None = None
        self._followed: Mapping[int, BrokerInfo] | None = None
        self._closed = False
        timeout_s = broker.settings.integer("broker.session.timeout.ms") / 1000
        self.sessions = BrokerSessions(timeout_s, broker.clock.monotonic())
        controller.feed.on_change.append(self._follow)
        controller.is_alive = self.is_alive
        self._follow()
        # The controller before this one may have died, and others with it: nobody has polled here
        # yet, so their connections are as good as lost.
        for broker_id, session in list(self.sessions.sessions.items()):
            # Who was registered with this broker's own id is dialled when it registers itself.
            if broker_id != broker.node_id:
                self._dial_if_lost(broker_id, session.epoch)
        self._timer: Timer = self._clock.call_later(self.sessions.check_s, self._check)

    def close(self) -> None:
        """Watch no longer."""
        self._closed = True
        self._controller.feed.on_change.remove(self._follow)
        self._timer.cancel()
        self._tasks.cancel()

    def polled(self, broker_id: int, epoch: int, peer: Peer) -> None:
        """A broker has asked for changes on this connection."""
        self.sessions.polled(broker_id, epoch, self._clock.monotonic())
        if self._polling.get(broker_id) is not peer:
            self._polling[broker_id] = peer
            peer.on_closed = lambda: self._lost(broker_id, epoch, peer)

    def forget(self, broker_id: int) -> None:
        """The process that polled with this id is gone, even if its connection is not."""
        self._polling.pop(broker_id, None)

    def is_alive(self, broker_id: int, epoch: int) -> bool:
        """Whether the broker's connection is open: another of its id is a second process."""
        known = self.sessions.sessions.get(broker_id)
        return known is not None and known.epoch == epoch and broker_id in self._polling

    def _follow(self) -> None:
        brokers = self._controller.image.brokers
        if brokers is self._followed:  # most changes are of topics
            return
        self._followed = brokers
        self.sessions.follow(
            [
                (each.id, each.epoch)
                for each in brokers.values()
                if not each.fenced and each.incarnation != self._broker.incarnation
            ],
            self._clock.monotonic(),
        )

    def _check(self) -> None:
        expired = self.sessions.expired(self._clock.monotonic())
        if expired:
            log.warning("the sessions of brokers %s have expired", [each for each, _ in expired])
            self._spawn(self._fence(expired))
        self._timer = self._clock.call_later(self.sessions.check_s, self._check)

    def _lost(self, broker_id: int, epoch: int, peer: Peer) -> None:
        if self._closed or self._polling.get(broker_id) is not peer:
            return  # it polls on another connection by now
        del self._polling[broker_id]
        self._dial_if_lost(broker_id, epoch)

    def _dial_if_lost(self, broker_id: int, epoch: int) -> None:
        if self.sessions.lost(broker_id, epoch) and broker_id not in self._dialling:
            self._dialling.add(broker_id)
            self._unanswered.add(broker_id)
            self._spawn(self._dial_until_known(broker_id, epoch))

    async def _dial_until_known(self, broker_id: int, epoch: int) -> None:
        pause_s = DIAL_AGAIN_S
        try:
            while self.sessions.is_lost(broker_id, epoch):
                outcome = await self.dial(broker_id)
                self._unanswered.discard(broker_id)
                if self.sessions.proven_dead(broker_id, epoch, outcome):
                    await self._fence_with_others(broker_id, epoch, outcome.name)
                await pause(self._clock, pause_s)
                pause_s = min(2 * pause_s, DIAL_AGAIN_S_MAX)
        finally:
            self._dialling.discard(broker_id)
            self._unanswered.discard(broker_id)

    async def dial(self, broker_id: int) -> Dialled:
        """Ask the process at a registered broker's address which one it is."""
        known = self._controller.image.brokers.get(broker_id)
        endpoint = known and known.endpoints.get(self._broker.settings.inter_broker_listener)
        if known is None or not endpoint:
            return Dialled.SILENT
        address = (endpoint.host, endpoint.port)
        return await dial(self._broker, self._network, address, broker_id, known.incarnation)

    async def replaced(self, known: BrokerInfo) -> None:
        """Another process of this broker's id is about to register: the one before is dead.

        When a cluster has died as a whole, others are found dead just now: all leave the ISRs in
        one change, and whoever returns first may lead.
        """
        if not known.fenced:
            await self._fence_with_others(known.id, known.epoch, "another process has its id")

    async def _fence_with_others(self, broker_id: int, epoch: int, why: str) -> None:
        log.warning("broker %d is fenced, its process is gone: %s", broker_id, why)
        self._dead[broker_id] = epoch
        if self._fencing is None or self._fencing.done():
            self._fencing = self._spawn(self._fence_dead())
        await asyncio.wait([self._fencing])

    async def _fence_dead(self) -> None:
        while self._dead:
            await pause(self._clock, GATHER_S)
            end_s = self._clock.monotonic() + GATHER_S_MAX
            while self._unanswered and self._clock.monotonic() < end_s:
                await pause(self._clock, GATHER_S)
            dead, self._dead = self._dead, {}
            await self._fence(list(dead.items()))

    async def _fence(self, gone: Sequence[tuple[int, int]]) -> None:
        error = await self._controller.fence_brokers(gone)
        if error not in (ErrorCode.NONE, ErrorCode.STALE_BROKER_EPOCH):
            ids = [each for each, _ in gone]
            log.error("brokers %s could not be fenced: %s", ids, ErrorCode(error).name)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        return task

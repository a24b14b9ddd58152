"""A whole broker on a simulated machine, a cluster of its own: what `ottla server` composes."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.broker.broker import Broker
from ottla.log.helper import JOBS
from ottla.metrics import Metrics
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.seams.simulated.simulation import Simulation
from ottla.server.listener import Endpoint
from ottla.server.server import Server
from ottla.settings import Settings
from ottla.testing.simulation.connection import PORT
from tests.broker.harness import DATA


class SimulatedBroker:
    """A broker process on a machine: start it, crash it, start it again."""

    def __init__(self, simulation: Simulation, name: str, **settings: object) -> None:
        self.node = simulation.node(name, disk=SimulatedDisk(), jobs=JOBS)
        named = {key.replace("_", "."): value for key, value in settings.items()}
        self.settings = Settings.from_properties({"log.dirs": DATA, **named})
        self.starting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to start; it is done when the simulation has run for a while."""
        if not self.node.alive:
            self.node.start()
        self.starting = self.node.task(self._start())

    def crash(self, *, power: bool = False) -> None:
        self.node.crash(power=power)

    async def _start(self) -> None:
        node = self.node
        self.broker = Broker(
            self.settings,
            clock=node.clock,
            disk=node.disk,
            chance=node.chance,
            background=node.background,
            metrics=Metrics(),
        )
        endpoint = Endpoint("PLAINTEXT", node.name, PORT)
        self.server = Server(
            node.network, node.clock, lambda *request: self._handle(*request), [endpoint]
        )
        self.server.open()
        await self.broker.start({endpoint.name: (node.name, PORT)})
        self.server.accept()

    def _handle(self, *request: Any) -> Any:
        return self.broker.dispatcher.handle(*request)

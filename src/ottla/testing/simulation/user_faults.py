"""What users change in a simulated cluster: configs, replicas and partitions of topics."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.testing.simulation.clients import Place
from ottla.testing.simulation.machines import Machine
from ottla.testing.simulation.plan import Fault

if TYPE_CHECKING:
    from ottla.testing.simulation.run import ClusterRun

KINDS = ("config", "reassign", "grow")
CANCEL_SHARE = 0.5  # of the reassignments
GROW_S_MAX = 3.0
LACKING_S_MAX = 10.0  # until another min.insync.replicas is set all the same
PARTITIONS_MAX = 3


class UserFaults:
    """Requests of operators, each as the fault of a plan."""

    def __init__(self, run: ClusterRun, lacking: Callable[[], bool]) -> None:
        """`lacking`: whether a broker has lost bytes and not got them back yet."""
        self._run = run
        self._lacking = lacking
        self.configuring = 0  # changes of min.insync.replicas under way

    async def config(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        """Another min.insync.replicas clears the ELR (KIP-966), whoever is in the ISR.

        Where that is one that has lost what it had, nobody would be left to lead: operators wait.
        """
        run = self._run
        for value, lasts_s in ((run.min_isr + 1, fault.lasts_s), (run.min_isr, 0.0)):
            self.configuring += 1
            waited_s = 0.0
            while self._lacking() and waited_s < LACKING_S_MAX:
                await asyncio.sleep(0.05)
                waited_s += 0.05
            run.note(f"min.insync.replicas becomes {value}")
            await run.admin.set_config(run.places[0].topic, "min.insync.replicas", str(value))
            self.configuring -= 1
            await asyncio.sleep(lasts_s)

    async def reassign(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        """As many replicas as before, or one less (KIP-455)."""
        run = self._run
        place = rng.choice(run.moved)
        count = rng.randint(run.min_isr, run.replicas)
        replicas = rng.sample(list(run.machines), count)
        run.note(f"{place} is reassigned to {replicas}")
        await run.admin.reassign(place.topic, place.number, replicas)
        await asyncio.sleep(fault.lasts_s)
        if rng.random() < CANCEL_SHARE:
            run.note(f"the reassignment of {place} is cancelled")
            await run.admin.reassign(place.topic, place.number, None)

    async def grow(self, fault: Fault, machine: Machine, rng: random.Random) -> None:
        """The topic of the producers gets a partition, if the cluster answers in time."""
        run = self._run
        place = Place(run.places[0].topic, len(run.places))
        if place.number >= PARTITIONS_MAX:
            return
        run.note(f"{place} is added")
        await run.admin.add_partitions(place.topic, place.number + 1)
        for _ in range(round(GROW_S_MAX / 0.05)):
            if run.view.partition(place) is not None:
                run.add_place(place)
                return
            await asyncio.sleep(0.05)

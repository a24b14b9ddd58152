"""What is decided in a simulated cluster: the newest image that any of its processes has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ottla.cluster import leadership
from ottla.cluster.image import NO_LEADER, ClusterImage, PartitionImage
from ottla.cluster.state import State
from ottla.testing.simulation.clients import Place
from ottla.testing.simulation.machines import Machine


class View:
    """Reads the images of all processes; the newest one is kept while none of them is alive."""

    def __init__(self, machines: Mapping[int, Machine]) -> None:
        self._machines = machines
        self._newest = ClusterImage()

    @property
    def image(self) -> ClusterImage:
        """The newest image: of the controller, if there is one."""
        for machine in self._machines.values():
            controller, broker = machine.controller, machine.broker
            for image in (
                controller.image if controller is not None else None,
                broker.image if broker is not None else None,
            ):
                if image is not None and _age(image) > _age(self._newest):
                    self._newest = image
        return self._newest

    @property
    def controller(self) -> Machine | None:
        """The machine that the controller runs on, if there is one: the newest of them."""
        found = self.controllers
        return found[-1] if found else None

    @property
    def controllers(self) -> list[Machine]:
        """All machines with a process that believes to be the controller, the newest last."""
        found = [
            (controller.image.controller_epoch, machine.id, machine)
            for machine in self._machines.values()
            if (controller := machine.controller) is not None and controller.active
        ]
        return [machine for _, _, machine in sorted(found)]

    def partition(self, place: Place) -> PartitionImage | None:
        return self.image.partition(place.topic, place.number)

    def leader(self, place: Place) -> int:
        partition = self.partition(place)
        return NO_LEADER if partition is None else partition.leader

    def in_sync(self, broker_id: int) -> bool:
        """Whether a broker is in the ISR of all its partitions."""
        return all(broker_id in each.isr for each in self._partitions(broker_id))

    def may_be_missed(self, broker_id: int, has_all: Callable[[int], bool]) -> bool:
        """Whether each of a broker's partitions is whole in another one's log."""
        return all(
            any(other != broker_id and has_all(other) for other in each.isr)
            for each in self._partitions(broker_id)
        )

    def _partitions(self, broker_id: int) -> Iterator[PartitionImage]:
        for topic in self.image.topics.values():
            for partition in topic.partitions:
                if broker_id in partition.replicas:
                    yield partition

    def move_leader(self, place: Place, leader: int, machine: Machine | None = None) -> None:
        """Have the controller elect another member of the ISR, as a user may ask for.

        `machine`: the controller to ask, if there are several.
        """
        machine = machine or self.controller
        controller = machine.controller if machine is not None else None
        if machine is None or controller is None or not machine.ready:
            return

        async def act(state: State) -> None:
            topic = state.image.topics.get(place.topic)
            old = state.image.partition(place.topic, place.number)
            if topic is None or old is None or old.leader in (leader, NO_LEADER):
                return
            broker = state.image.brokers.get(leader)
            if leader not in old.isr or broker is None or not broker.active:
                return
            new = old._replace(
                leader=leader,
                leader_epoch=old.leader_epoch + 1,
                partition_epoch=old.partition_epoch + 1,
            )
            await leadership.write_changed(state, {topic.id: {place.number: new}})

        async def submit() -> Any:
            return await controller._submit(act)

        machine.node.task(submit())


def _age(image: ClusterImage) -> tuple[int, int]:
    return image.controller_epoch, image.number

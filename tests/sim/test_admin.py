"""The admin client of simulated clusters."""

from __future__ import annotations

import random

from ottla.seams.simulated.simulation import Simulation
from ottla.testing.simulation.admin import Admin
from tests.sim.harness import SimulatedBroker


def test_a_topic_of_a_late_request_is_not_taken_for_the_next_of_its_name() -> None:
    """It may have fewer partitions than the one that is wanted, whose writer would wait for ever:
    it is deleted, and the other made.
    """
    with Simulation(1) as simulation:
        broker = SimulatedBroker(simulation, "broker")
        broker.start()
        client = simulation.node("client")
        admin = Admin(client, ["broker"], random.Random(1))
        late = client.run(admin.create_topic("c0", 1, 1), limit_s=60)
        wanted = client.run(admin.create_topic("c0", 2, 1), limit_s=60)
        again = client.run(admin.create_topic("c0", 2, 1), limit_s=60)
        assert late != wanted == again
        assert len(broker.broker.image.topics["c0"].partitions) == 2

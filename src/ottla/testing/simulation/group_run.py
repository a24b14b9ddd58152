"""A run of a simulated cluster with a consumer group whose members come, leave and die.

A producer writes to each partition; the members of `group_member.py` read them in turn. After the
last fault every record of the input must have been processed by some member, once or more often.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.testing.history import Poll
from ottla.testing.simulation.clients import Place
from ottla.testing.simulation.group_member import Group, GroupMember
from ottla.testing.simulation.plan import Plan
from ottla.testing.simulation.run import BROKERS, TOPIC_CONFIGS, ClusterRun
from ottla.testing.simulation.transformer import GROUPS

PARTITIONS = 2
MEMBERS = 3
SETTINGS: Mapping[str, object] = {
    "offsets.topic.num.partitions": 1,
    # Each replica compacts by itself: the logs of its coordinators would not match batch by batch.
    "log.cleaner.enable": "false",
    "group.min.session.timeout.ms": 500,
    "group.initial.rebalance.delay.ms": 100,
}


class GroupRun(ClusterRun):
    """One history, with a group."""

    faults_max = 10
    faults_s = 11.0

    def __init__(
        self,
        seed: int,
        plan: Plan | None = None,
        *,
        brokers: int = BROKERS,
        settings: Mapping[str, object] | None = None,
        zookeeper: bool = False,
    ) -> None:
        super().__init__(
            seed,
            plan,
            brokers=brokers,
            partitions=PARTITIONS,
            settings={**SETTINGS, **(settings or {})},
            zookeeper=zookeeper,
        )
        self.moved = [*self.places, GROUPS]
        self.struck = [self.places[0], GROUPS]
        self.group = Group()
        self.processed = False

    async def _begin(self) -> None:
        await super()._begin()
        compact = {"cleanup.policy": "compact", **TOPIC_CONFIGS}
        await self.admin.create_topic(GROUPS.topic, 1, self.replicas, compact)

    def _start_clients(self) -> None:
        self._start_producers(PARTITIONS)
        self._start_readers(PARTITIONS)
        for number in range(MEMBERS):
            node = self.simulation.node(f"member{number}")
            node.task(GroupMember(self, node).run())

    def _missing(self) -> str | None:
        missing = super()._missing() or self._missing_of(GROUPS)
        if missing is not None:
            return missing
        for place in self.places:
            missing = self._unprocessed(place)
            if missing is not None:
                return missing
        self.processed = True
        return None

    def _unprocessed(self, place: Place) -> str | None:
        done = self.group.processed.get(place, set())
        left = [each for each in self._records(place) if each not in done]
        return f"no member has processed {left[0]!r} of {place}" if left else None

    def _records(self, place: Place) -> list[str]:
        """What the readers were given of a partition."""
        return [
            value
            for event in self.history.events
            if isinstance(event, Poll) and event.partition == place
            for _, value in event.records
            if isinstance(value, str)
        ]

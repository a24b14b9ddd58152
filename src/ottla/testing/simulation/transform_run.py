"""A run of a simulated cluster in which clients consume, transform and produce.

A producer writes a topic; the clients of `transformer.py` copy it to another in transactions, while
faults strike the leaders of both and the coordinators of groups and transactions. After the last
fault all of the input must come to be in the output, each record once and in order.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from ottla.testing.history import Report
from ottla.testing.simulation.clients import Place
from ottla.testing.simulation.committed_reader import CommittedReader
from ottla.testing.simulation.plan import Plan
from ottla.testing.simulation.run import BROKERS, TOPIC_CONFIGS, ClusterRun
from ottla.testing.simulation.transformer import GROUPS, TRANSACTIONS, Transformer

OUTPUT = "output"
TRANSFORMERS = 2
SETTINGS: Mapping[str, object] = {
    "offsets.topic.num.partitions": 1,
    # Each replica compacts by itself: the logs of its coordinators would not match batch by batch.
    "log.cleaner.enable": "false",
    "transaction.state.log.num.partitions": 1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}
BUMP_SHARE = 0.5  # of the seeds have clients of KIP-890's generation
SHOWN_MAX = 5


class TransformRun(ClusterRun):
    """One history, with transactions."""

    # A transaction costs more than a batch: so that a run takes as long as another, it is shorter.
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
            partitions=1,
            settings={**SETTINGS, **(settings or {})},
            zookeeper=zookeeper,
        )
        self.source = self.places[0]
        self.output = Place(OUTPUT, 0)
        self.moved = self.struck = [self.source, self.output, GROUPS, TRANSACTIONS]
        self.transformed = False
        self.transformers: list[Transformer] = []
        self.bumps = random.Random(f"{seed} transactions").random() < BUMP_SHARE

    async def _begin(self) -> None:
        await super()._begin()
        compact = {"cleanup.policy": "compact", **TOPIC_CONFIGS}
        await self.admin.create_topic(OUTPUT, 1, self.replicas, TOPIC_CONFIGS)
        for place in (GROUPS, TRANSACTIONS):
            await self.admin.create_topic(place.topic, 1, self.replicas, compact)

    def _start_clients(self) -> None:
        self._start_producers(1)
        self._start_readers(1)
        self.input_reader = self._start_committed_reader(self.source)
        self.output_reader = self._start_committed_reader(self.output)
        for number in range(TRANSFORMERS):
            node = self.simulation.node(f"transformer{number}")
            made = Transformer(self, node, self.source, self.output, bumps=self.bumps)
            self.transformers.append(made)
            node.task(made.run())

    def _start_committed_reader(self, place: Place) -> CommittedReader:
        node = self.simulation.node(f"reader of {place}")
        reader = CommittedReader(self, node, place)
        node.task(reader.run())
        return reader

    def _missing(self) -> str | None:
        missing = super()._missing()
        if missing is not None:
            return missing
        for place in (self.output, GROUPS, TRANSACTIONS):
            missing = self._missing_of(place)
            if missing is not None:
                return missing
        given, wanted = self.output_reader.values, self.input_reader.values
        if self.input_reader.offset < self.readers[0].offset:
            return f"a reader of {self.source} is at {self.input_reader.offset}"
        if len(given) < len(wanted):
            return f"{len(given)} of {len(wanted)} are in {self.output}"
        self.transformed = True
        return None

    def _judge(self) -> Report:
        if not self.problems:
            self._judge_output(self.output_reader.values, self.input_reader.values)
        return super()._judge()

    def _judge_output(self, given: list[str], wanted: list[str]) -> None:
        """Each record of the input once, in order."""
        different = [
            f"{number}: {found!r}, should be {record!r}"
            for number, (found, record) in enumerate(zip(given, wanted, strict=False))
            if found != record
        ]
        if len(given) > len(wanted):
            different.append(f"{len(given)} records of {len(wanted)}")
        if different:
            self.problem(f"{self.output}: {'; '.join(different[:SHOWN_MAX])}")

"""A run of a simulated cluster in which clients also consume, transform and produce.

Everything of a `ClusterRun`, and beside it an output topic, the topics of the coordinators, the
clients of `transformer.py` and readers of committed records. After the last fault all of the input
must come to be in the output, each record once and in order.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from ottla.testing.history import Report
from ottla.testing.simulation.clients import Place
from ottla.testing.simulation.committed_reader import CommittedReader
from ottla.testing.simulation.plan import Plan
from ottla.testing.simulation.run import TOPIC_CONFIGS, ClusterRun
from ottla.testing.simulation.transformer import GROUPS, TRANSACTIONS, Transformer

OUTPUT = "output"
TRANSFORMERS = 2  # of each partition
SETTINGS: Mapping[str, object] = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}
SHOWN_MAX = 5


class TransformRun(ClusterRun):
    """One history, with transactions."""

    def __init__(
        self, seed: int, plan: Plan | None = None, *, settings: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(seed, plan, partitions=1, settings={**SETTINGS, **(settings or {})})
        self.transformed = False
        self.inputs: list[CommittedReader] = []
        self.outputs: list[CommittedReader] = []
        self.transformers: list[Transformer] = []
        self.bumps = random.Random(f"{seed} transactions").random() < 0.5

    async def _begin(self) -> None:
        await super()._begin()
        compact = {"cleanup.policy": "compact", **TOPIC_CONFIGS}
        for topic, count, configs in (
            (OUTPUT, len(self.places), TOPIC_CONFIGS),
            (GROUPS.topic, 1, compact),
            (TRANSACTIONS.topic, 1, compact),
        ):
            await self.admin.create_topic(topic, count, self.replicas, configs)

    def _start_clients(self) -> None:
        super()._start_clients()
        for source in self.places:
            output = Place(OUTPUT, source.number)
            for place, readers in ((source, self.inputs), (output, self.outputs)):
                node = self.simulation.node(f"reader of {place}")
                reader = CommittedReader(self, node, place)
                readers.append(reader)
                node.task(reader.run())
            for number in range(TRANSFORMERS):
                node = self.simulation.node(f"transformer {source.number}.{number}")
                made = Transformer(self, node, source, output, bumps=self.bumps)
                self.transformers.append(made)
                node.task(made.run())

    def _missing(self) -> str | None:
        missing = super()._missing()
        if missing is not None:
            return missing
        for place in (*(each.place for each in self.outputs), GROUPS, TRANSACTIONS):
            missing = self._missing_of(place)
            if missing is not None:
                return missing
        for source, output in zip(self.inputs, self.outputs, strict=True):
            if source.offset < self._end_offset(source.place):
                return f"a reader of {source.place} is at {source.offset}"
            if len(output.values) < len(source.values):
                return f"{len(output.values)} of {len(source.values)} are in {output.place}"
        self.transformed = True
        return None

    def _end_offset(self, place: Place) -> int:
        image = self.view.partition(place)
        leader = self.machines.get(image.leader) if image is not None else None
        partition = leader.partition(place) if leader is not None else None
        return 0 if partition is None else partition.end_offset

    def _judge(self) -> Report:
        for source, output in zip(self.inputs, self.outputs, strict=True):
            different = [
                f"{number}: {found!r}, should be {wanted!r}"
                for number, (found, wanted) in enumerate(
                    zip(output.values, source.values, strict=False)
                )
                if found != wanted
            ]
            if len(output.values) > len(source.values):
                different.append(f"{len(output.values)} records of {len(source.values)}")
            if different:
                self.problem(f"{output.place}: {'; '.join(different[:SHOWN_MAX])}")
        return super()._judge()

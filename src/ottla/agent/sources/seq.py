"""The `seq` source: the numbers from 0, one event each."""

from __future__ import annotations

from collections.abc import Mapping

from ..config.options import LONG_MAX, Options
from ..context import Context
from ..events import EventBatch, Position
from ..parts import Output


class SequenceSource:
    replays = True

    def __init__(self, name: str, batch_size: int, events_total: int | None) -> None:
        self.name = name
        self.batch_size = batch_size
        self.events_total = events_total

    async def run(self, output: Output, positions: Mapping[str, Position]) -> None:
        stream = f"{self.name}/numbers"
        start = positions[stream].offset if stream in positions else 0
        while self.events_total is None or start < self.events_total:
            end = start + self.batch_size
            if self.events_total is not None:
                end = min(end, self.events_total)
            bodies = [b"%d" % number for number in range(start, end)]
            position = Position(stream, end)
            await output.put(EventBatch(bodies, position=position, ends=range(start + 1, end + 1)))
            start = end


def from_options(name: str, options: Options, context: Context) -> SequenceSource:
    total = options.number("totalEvents")
    return SequenceSource(name, options.number("batchSize"), None if total == LONG_MAX else total)

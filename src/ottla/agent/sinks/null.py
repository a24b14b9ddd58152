"""The `null` sink: takes events and drops them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..config.options import Options
from ..context import Context
from ..events import EventBatch, Position


class NullSink:
    keeps_positions = False

    def __init__(self, name: str) -> None:
        self.name = name

    def start(self) -> Mapping[str, Position]:
        return {}

    def deliver(self, batches: Sequence[EventBatch]) -> None:
        return

    def stop(self) -> None:
        return


def from_options(name: str, options: Options, context: Context) -> NullSink:
    return NullSink(name)

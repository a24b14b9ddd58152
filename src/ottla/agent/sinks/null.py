"""The `null` sink: takes events and drops them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from ..config.options import Options
from ..context import Context
from ..events import EventBatch, Position

logger = logging.getLogger(__name__)


class NullSink:
    keeps_positions = False

    def __init__(self, name: str, log_every: int) -> None:
        self.name = name
        self._log_every = log_every
        self._events = 0

    def start(self) -> Mapping[str, Position]:
        return {}

    def deliver(self, batches: Sequence[EventBatch]) -> None:
        before = self._events // self._log_every
        self._events += sum(map(len, batches))
        if self._events // self._log_every > before:
            logger.info("Null sink %s: %d events", self.name, self._events)

    def stop(self) -> None:
        return


def from_options(name: str, options: Options, context: Context) -> NullSink:
    return NullSink(name, options.number("logEveryNEvents"))

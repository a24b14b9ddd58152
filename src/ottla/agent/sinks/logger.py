"""The `logger` sink: each event as a line of the log, for trying things out."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from ..config.options import Options
from ..context import Context
from ..events import EventBatch, Position

logger = logging.getLogger(__name__)


class LoggerSink:
    keeps_positions = False

    def __init__(self, name: str, bytes_max: int) -> None:
        self.name = name
        self.bytes_max = bytes_max

    def start(self) -> Mapping[str, Position]:
        return {}

    def deliver(self, batches: Sequence[EventBatch]) -> None:
        for batch in batches:
            for index, body in enumerate(batch.bodies):
                shown = body[: self.bytes_max]
                logger.info(
                    "Event: { headers:%s body:%s %s }",
                    dict(batch.headers_of(index)),
                    shown.hex(" ").upper(),
                    shown.decode("ascii", "replace"),
                )

    def stop(self) -> None:
        return


def from_options(name: str, options: Options, context: Context) -> LoggerSink:
    return LoggerSink(name, options.number("maxBytesToLog"))

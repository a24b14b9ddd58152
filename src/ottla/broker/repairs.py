"""Damage in this broker's logs: looked for by the scrubber (log/scrubber.py), counted, logged."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from ottla.log.scrubber import Scrubber

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.log.log import Log
    from ottla.log.scrubbing import Damage

log = logging.getLogger("ottla.broker")


class Repairs:
    """The scrubber of one broker, and what is done about what it finds."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.scrubber: Scrubber  # from the start on
        metrics = broker.metrics
        self._found = metrics.counter(
            "ottla_log_DamageFound", "Times that the scrubber has found damaged batches in a log."
        )

    def begin(self, opened: AsyncExitStack) -> None:
        """Begin to scrub; the logs are there. `opened` ends it."""
        broker = self._broker
        self.scrubber = scrubber = Scrubber(
            broker.logs, broker.chance, limit_of=self._limit_of, damaged=self._damaged
        )
        broker.metrics.gauge(
            "ottla_log_ScrubbedBytes",
            lambda: scrubber.bytes_read,
            "Bytes that the scrubber has read since the start.",
        )
        scrubber.reconfigure(broker.settings)
        broker.on_configured.append(scrubber.reconfigure)
        scrubber.begin()
        opened.callback(scrubber.stop)

    def _limit_of(self, found: Log) -> int:
        """Below it all is synced and committed."""
        return min(found.recovery_point, self._broker.logs.high_watermark_of(found))

    def _damaged(self, found: Log, damage: Damage) -> None:
        self._found.value += 1
        log.error(
            "%s is damaged, and there is no other replica to copy from: %s. All else can be read. "
            "Try: restore the file from a backup, or give up what is there and before it "
            "(kafka-delete-records.sh, offset %d)",
            found.name,
            damage,
            damage.next_offset,
        )

"""Warnings of `ottla.spark` in this process, as events that a test waits for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

WAIT_S = 60


class Warned(logging.Handler):
    """Keeps the texts of warnings as they come."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []
        self._came = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self._came:
            self.texts.append(record.getMessage())
            self._came.notify_all()

    def wait_for(self, count: int) -> None:
        """Until so many have come."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.texts) >= count, WAIT_S), self.texts


@contextmanager
def warnings_of_spark() -> Iterator[Warned]:
    log = logging.getLogger("ottla.spark")
    found = Warned()
    log.addHandler(found)
    try:
        yield found
    finally:
        log.removeHandler(found)

"""Interceptors: see each record before it is sent, and each outcome before the callback does.

A chain, in order. `on_send` runs in the caller's thread before serializing and partitioning, and
gives the record to send; `on_acknowledgement` runs in the client's background thread. One that
raises is logged and passed over; it never breaks a send. Two examples are ready to use:
`TimestampHeader` and `Counting`.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any, NamedTuple, TextIO, TypeVar

from .structs import RecordMetadata

__all__ = ["Chain", "Counting", "ProducerInterceptor", "ProducerRecord", "TimestampHeader"]

log = logging.getLogger("ottla.client")
T = TypeVar("T")


class ProducerRecord(NamedTuple):
    """A record on its way; `_replace` makes a changed one."""

    topic: str
    value: Any = None
    key: Any = None
    headers: list[tuple[str, bytes | None]] | None = None
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor:
    """The base: does nothing."""

    def configure(self, config: dict[str, object]) -> None:
        """Once, with all options of the producer."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Give the record to send: this one or a changed one."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        """The record was written, or has failed for good."""

    def close(self) -> None:
        """Once, when the producer closes."""


class TimestampHeader(ProducerInterceptor):
    """Adds a header with the time of the send, in milliseconds, as text."""

    def __init__(self, name: str = "sent-at") -> None:
        self.name = name

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        stamp = (self.name, str(int(time.time() * 1000)).encode())
        return record._replace(headers=[*(record.headers or []), stamp])


class Counting(ProducerInterceptor):
    """Counts successes and failures, and prints them on close."""

    def __init__(self, file: TextIO | None = None) -> None:
        self.file = file
        self.lock = threading.Lock()
        self.succeeded = 0
        self.failed = 0

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        with self.lock:
            if error is None:
                self.succeeded += 1
            else:
                self.failed += 1

    def close(self) -> None:
        print(
            f"records sent: {self.succeeded} succeeded, {self.failed} failed",
            file=self.file or sys.stdout,
        )


class Chain:
    """Interceptors in order; whatever one does wrong is logged."""

    def __init__(self, interceptors: Iterable[object], config: dict[str, object]) -> None:
        self.interceptors = [
            each() if isinstance(each, type) else each for each in interceptors or ()
        ]
        for each in self.interceptors:
            if hasattr(each, "configure"):
                each.configure(config)

    def __bool__(self) -> bool:
        return bool(self.interceptors)

    def run(self, method: str, argument: T) -> T:
        """Pass `argument` through `method` of all; each gets what the one before gave."""
        for each in self.interceptors:
            step = getattr(each, method, None)
            if step is None:
                continue
            try:
                given = step(argument)
            except Exception:
                log.exception("interceptor %s.%s failed", type(each).__name__, method)
                continue
            if given is None:
                log.error("interceptor %s.%s gave nothing back", type(each).__name__, method)
            else:
                argument = given
        return argument

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return self.run("on_send", record)

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        self._tell("on_acknowledgement", metadata, error)

    def close(self) -> None:
        self._tell("close")

    def _tell(self, method: str, *arguments: object) -> None:
        for each in self.interceptors:
            step = getattr(each, method, None)
            if step is None:
                continue
            try:
                step(*arguments)
            except Exception:
                log.exception("interceptor %s.%s failed", type(each).__name__, method)

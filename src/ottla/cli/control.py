"""`ottla server --control`: a test that started the server steers it through its stdin.

Each line is a JSON object, answered by one JSON line on stdout:

    {"fault": "Produce", "error": "NOT_ENOUGH_REPLICAS", "times": 2}    the next two fail
    {"fault": "Fetch", "delay_ms": 500, "times": null}                  each answer late from now on
    {"fault": "Produce", "disconnect": true, "times": 1}                the connection is cut
    {"clear": true}                                                     no more faults

When stdin ends, whoever started the server is gone, and the server stops: a crashed test leaves no
broker behind.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.broker.faults import Fault, Faults
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    import asyncio

LINE_BYTES_MAX = 64 * 1024


class Control:
    """Reads commands from a descriptor until it ends; `on_end` is called then."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        faults: Faults,
        on_end: Callable[[], object],
        descriptor: int = 0,
    ) -> None:
        self._loop = loop
        self._faults = faults
        self._on_end = on_end
        self._descriptor = descriptor
        self._buffer = b""

    def start(self) -> None:
        os.set_blocking(self._descriptor, False)
        self._loop.add_reader(self._descriptor, self._readable)

    def stop(self) -> None:
        self._loop.remove_reader(self._descriptor)

    def _readable(self) -> None:
        try:
            data = os.read(self._descriptor, LINE_BYTES_MAX)
        except BlockingIOError:
            return
        if not data:
            self.stop()
            self._on_end()
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > LINE_BYTES_MAX:
            self._buffer = b""
        for line in lines:
            print(json.dumps(self._obey(line)), flush=True)

    def _obey(self, line: bytes) -> dict[str, Any]:
        try:
            command = json.loads(line)
            if command.get("clear"):
                self._faults.clear()
            else:
                self._faults.add(command["fault"], fault_of(command), command.get("times", 1))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return {"ok": False, "error": f"{type(error).__name__}: {error}"}
        return {"ok": True}


def fault_of(command: dict[str, Any]) -> Fault:
    error = command.get("error")
    return Fault(
        error_code=None if error is None else error_code(error),
        delay_ms=int(command.get("delay_ms", 0)),
        disconnect=bool(command.get("disconnect", False)),
    )


def error_code(error: str | int) -> ErrorCode:
    """By Kafka's name or number."""
    if isinstance(error, int):
        return ErrorCode(error)
    try:
        return ErrorCode[error]
    except KeyError:
        raise ValueError(f"Kafka has no error {error!r}") from None

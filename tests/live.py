"""A real `ottla server` process for tests: start, stop, kill, restart on its port and directory.

`OttlaServer(directory, log_segment_bytes="1048576")`: settings carry Kafka's names with `_` for `.`.
"""

from __future__ import annotations

import re
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Self

READY_TIMEOUT_S = 20
STOP_TIMEOUT_S = 20
READY = re.compile(rb"ottla \S+ ready on (\S+):(\d+), node (\d+), data in (.*)")


class OttlaServer:
    """Use as a context manager, or `start` and `stop` it several times on one data directory."""

    def __init__(self, directory: Path, *, port: int = 0, **settings: str) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.port = port
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.arguments: list[str] = []
        self.started_in_s = 0.0
        self.process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Return when the ready line is out; a restart listens on the same port again."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "ottla", "server", "--data-dir", str(self.data)]
        command += ["--listen", self.address, *self.arguments]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        began = time.monotonic()
        self._errors = open(self.directory / "stderr.txt", "ab")  # noqa: SIM115, closed in _close
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._errors)
        try:
            line = self._first_line(began + READY_TIMEOUT_S)
            match = READY.match(line)
            assert match, f"not a ready line: {line!r}\n{self.errors()}"
        except BaseException:
            self.kill()
            raise
        self.port = int(match[2])
        self.started_in_s = time.monotonic() - began

    def stop(self) -> int | None:
        """SIGTERM and the exit code; None when it was not running."""
        if self.process is None:
            return None
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"no end {STOP_TIMEOUT_S} s after SIGTERM\n{self.errors()}"
            ) from None
        self._close()
        return code

    def kill(self) -> None:
        """SIGKILL: nothing more is flushed or marked."""
        if self.process is not None:
            self.process.kill()
            self._close()

    def errors(self) -> str:
        """The log so far, for a failure's message."""
        return (self.directory / "stderr.txt").read_text(errors="replace")[-6000:]

    def _close(self) -> None:
        assert self.process is not None
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None
        if self._errors is not None:
            self._errors.close()

    def _first_line(self, deadline: float) -> bytes:
        assert self.process is not None
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(deadline - time.monotonic()):
                raise AssertionError(f"no ready line after {READY_TIMEOUT_S} s\n{self.errors()}")
        line = self.process.stdout.readline()
        assert line, f"ottla ended before it was ready:\n{self.errors()}"
        return line

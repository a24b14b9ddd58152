"""`ottla server --console`: a console beside the broker, as a process of its own.

It ends with the broker, however that ends: its standard input is a pipe from the broker.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading

PORT = 8084
STOP_S = 20.0

log = logging.getLogger("ottla.console")


def console_command(
    bootstrap: str, data_directory: str, port: int, metrics: str | None
) -> list[str]:
    """Beside the data, so that brokers of one host with data apart have consoles apart."""
    beside = os.path.join(os.path.dirname(os.path.abspath(data_directory)), "ottla-console")
    command = [
        sys.executable, "-m", "ottla", "console", "--bootstrap-server", bootstrap,
        "--port", str(port), "--data-dir", beside, "--until-input-ends",
    ]  # fmt: skip
    return command if metrics is None else [*command, "--metrics", metrics]


class ConsoleBeside:
    """The process; it prints its address on the broker's standard output."""

    def __init__(self, command: list[str]) -> None:
        self._stopping = False
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE)
        threading.Thread(target=self._watch, name="console", daemon=True).start()

    def _watch(self) -> None:
        code = self._process.wait()
        if not self._stopping:
            log.error("the console ended with code %d; the broker goes on without it", code)

    def stop(self) -> None:
        """Returns at once; `wait` until it has ended."""
        self._stopping = True
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait(self) -> None:
        self.stop()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

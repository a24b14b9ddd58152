"""A real `ottla server` process for tests: start, stop, kill, restart on its port and directory.

`Server` is a context manager; it owes its caller that no process is left behind and that what the
server wrote on stderr is in the failure's text.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0


def environment_with(more: Mapping[str, str]) -> dict[str, str]:
    """Ours with more; modules are compiled once and kept, as where the package is installed."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, **more}


def free_port() -> int:
    """A port nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """One broker process on loopback; `settings` are Kafka's option names."""

    def __init__(
        self,
        directory: Path,
        *,
        settings: Mapping[str, object] | None = None,
        arguments: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        self.directory = directory
        self.settings = dict(settings or {})
        self.arguments = arguments
        self.environment = dict(environment or {})
        self.port = port or free_port()
        self.process: subprocess.Popen[str] | None = None
        self.errors_path = directory.parent / f"{directory.name}.stderr"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def command(self) -> list[str]:
        sets = [
            part for name, value in self.settings.items() for part in ("--set", f"{name}={value}")
        ]
        return [
            sys.executable, "-m", "ottla", "server", "--data-dir", str(self.directory),
            "--listen", self.bootstrap, *sets, *self.arguments,
        ]  # fmt: skip

    def start(self) -> Server:
        """Start and wait for the ready line."""
        assert self.process is None, "already running"
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        with self.errors_path.open("a") as errors:
            self.process = subprocess.Popen(
                self.command(),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment_with(self.environment),
            )
        self.ready_line = self._wait_ready()
        return self

    def _wait_ready(self) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        descriptor = self.process.stdout.fileno()
        os.set_blocking(descriptor, False)
        line = ""
        while time.monotonic() < deadline:
            try:
                line += os.read(descriptor, 4096).decode()
            except BlockingIOError:
                pass
            if "\n" in line:
                return line.strip()
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        self.kill()
        raise AssertionError(f"the server did not get ready:\n{self.errors()}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask for a clean end; the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the server did not stop:\n{self.errors()}") from None
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL: no goodbye."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            if self.process.stdout is not None:
                self.process.stdout.close()
            self.process = None

    def errors(self) -> str:
        """What the server said on stderr so far."""
        return self.errors_path.read_text() if self.errors_path.exists() else ""

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process is None:
            return
        if kind is None:
            self.stop()
        else:
            self.kill()

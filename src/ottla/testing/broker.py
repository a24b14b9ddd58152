"""A real broker for a test: a server process of its own, ready in a fraction of a second.

    with ottla.testing.broker(num_partitions=3) as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

It has its own port and directory, which are gone afterwards. It can be killed, restarted, and made
to fail or delay requests of an API. If the test process dies, the broker ends by itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
# Groups of tests should not wait for members that will never come.
DEFAULTS: dict[str, object] = {"group.initial.rebalance.delay.ms": 0}
ADDRESS = re.compile(r"ready on (\S+):(\d+),")


class BrokerFailed(RuntimeError):
    """The broker could not be started, or did not obey; its own words are in the text."""


class Broker:
    """One server process. `options` are the broker's, by Kafka's names with `_` for `.` allowed."""

    # Whether it takes faults on demand, and ends when the process that started it does.
    controlled = True

    def __init__(self, *, directory: str | os.PathLike[str] | None = None, **options: object):
        self._given_directory = directory
        self.options = DEFAULTS | {option_name(name): value for name, value in options.items()}
        self.process: subprocess.Popen[bytes] | None = None
        self.ready_line = ""
        self._root: Path | None = None
        self._address = ("127.0.0.1", 0)
        self._output = b""

    # ---- what a test uses ------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """What clients call by this name."""
        return f"{self.host}:{self.port}"

    @property
    def host(self) -> str:
        return self._address[0]

    @property
    def port(self) -> int:
        return self._address[1]

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def directory(self) -> Path:
        """Where its data lies."""
        assert self._root is not None, "the broker was never started"
        return self._root / "data"

    def logs(self) -> str:
        """What the broker has logged so far."""
        path = None if self._root is None else self._log_path
        return path.read_text(errors="replace") if path is not None and path.exists() else ""

    def start(self) -> Broker:
        """Start, or start again on the same data and port."""
        if self.running:
            raise BrokerFailed("the broker is running already")
        if self._root is None:
            given = self._given_directory
            self._root = Path(tempfile.mkdtemp(prefix="ottla-test-") if given is None else given)
            self._root.mkdir(parents=True, exist_ok=True)
        self._forget()
        with self._log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self._command(),
                stdin=subprocess.PIPE if self.controlled else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment(),
            )
        self._output = b""
        self.ready_line = self._line(START_TIMEOUT_S)
        found = ADDRESS.search(self.ready_line)
        if found is None:
            self.kill()
            raise BrokerFailed(f"the broker did not start:\n{self.logs()}")
        self._address = (found[1].strip("[]"), int(found[2]))
        return self

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Stop cleanly; its exit code, which is 0 too if it does not run."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(f"the broker did not stop:\n{self.logs()}") from None
        finally:
            self._forget()

    def kill(self) -> None:
        """SIGKILL: what a crash of the process does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self._forget()

    def restart(self, *, kill: bool = False) -> Broker:
        """Stop (or kill) and start again; clients reconnect to the same address."""
        if kill:
            self.kill()
        else:
            self.stop()
        return self.start()

    def remove(self) -> None:
        """End it and throw its data away, unless the directory was given."""
        self.kill()
        if self._root is not None and self._given_directory is None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None

    # ---- faults on demand ------------------------------------------------------------------------

    def fail(self, api: str, error: str | int, *, times: int | None = 1) -> None:
        """Answer the next `times` requests of an API with an error (None: all from now on).

        `broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=2)`. A failed request has no effect.
        """
        name = getattr(error, "name", error)
        self._tell({"fault": api, "error": name, "times": times})

    def delay(self, api: str, ms: int, *, times: int | None = None) -> None:
        """Let the answers to an API come so much later; what they ask for is done at once."""
        self._tell({"fault": api, "delay_ms": ms, "times": times})

    def disconnect(self, api: str, *, times: int | None = 1) -> None:
        """Cut the connection of the next `times` requests of an API."""
        self._tell({"fault": api, "disconnect": True, "times": times})

    def clear_faults(self) -> None:
        """No more errors, delays and cuts."""
        self._tell({"clear": True})

    # ---- inside ----------------------------------------------------------------------------------

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        finally:
            self.remove()

    def __repr__(self) -> str:
        state = self.bootstrap_servers if self.running else "not running"
        return f"<ottla.testing.Broker {state}>"

    @property
    def _log_path(self) -> Path:
        assert self._root is not None
        return self._root / "broker.log"

    def _environment(self) -> dict[str, str] | None:
        """What the server's environment is; None: ours."""
        return None

    def _arguments(self) -> list[str]:
        """Arguments of `ottla server` besides address, directory and options."""
        return ["--control"] if self.controlled else []

    def _command(self) -> list[str]:
        sets = [
            part for name, value in self.options.items() for part in ("--set", setting(name, value))
        ]
        return [
            sys.executable, "-m", "ottla", "server", *self._arguments(),
            "--data-dir", str(self.directory), "--listen", self.bootstrap_servers, *sets,
        ]  # fmt: skip

    def _running(self) -> subprocess.Popen[bytes]:
        if self.process is None:
            raise BrokerFailed("the broker is not running; call start() or restart()")
        return self.process

    def _tell(self, command: dict[str, Any]) -> None:
        process = self._running()
        if process.stdin is None:
            raise BrokerFailed("this broker takes no faults")
        try:
            process.stdin.write(json.dumps(command).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            raise BrokerFailed(f"the broker is gone:\n{self.logs()}") from None
        answer = json.loads(self._line(STOP_TIMEOUT_S) or '{"ok": false, "error": "no answer"}')
        if not answer["ok"]:
            raise ValueError(answer["error"])

    def _line(self, timeout_s: float) -> str:
        """The next line of the broker's stdout; empty when it ends or says nothing in time."""
        process = self._running()
        assert process.stdout is not None
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:  # select() ends at descriptor 1023
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._output:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    return ""
                data = os.read(process.stdout.fileno(), 65536)
                if not data:
                    return ""
                self._output += data
        line, _, self._output = self._output.partition(b"\n")
        return line.decode()

    def _forget(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()


@contextlib.contextmanager
def broker(
    *, directory: str | os.PathLike[str] | None = None, **options: object
) -> Iterator[Broker]:
    """A running broker for a `with` block."""
    with Broker(directory=directory, **options) as running:
        yield running


def option_name(name: str) -> str:
    """Kafka's name of an option; `_` stands for `.` because of Python's keywords."""
    return name if "." in name else name.replace("_", ".")


def setting(name: str, value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"{name}={text}"

"""One broker's process, as its supervisor has it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from ottla.supervisor.plan import BrokerPlan, ClusterPlan
from ottla.supervisor.processes import ProcessId, identify
from ottla.supervisor.state import BrokerState

READY = b" ready on "  # in the line that a server prints when it serves clients
LOG_LINES_SHOWN = 5


class BrokerProcess:
    """A broker that is started, and started again after it has ended."""

    def __init__(self, plan: ClusterPlan, broker: BrokerPlan, *, controlled: bool) -> None:
        """`controlled`: the broker ends when its supervisor does (`ottla server --control`)."""
        self.broker = broker
        self.ready = False
        self._plan = plan
        self._controlled = controlled
        self._process: subprocess.Popen[bytes] | None = None
        self._id: ProcessId | None = None
        self._output = b""

    @property
    def node_id(self) -> int:
        return self.broker.node_id

    @property
    def running(self) -> bool:
        """Whether there is a process whose end was not yet taken note of (`ended`)."""
        return self._process is not None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def output(self) -> int | None:
        """The descriptor that tells when the process has become ready; None: nothing is awaited."""
        if self._process is None or self._process.stdout is None or self.ready:
            return None
        return self._process.stdout.fileno()

    @property
    def log_path(self) -> Path:
        return self._plan.log_path(self.node_id)

    def state(self) -> BrokerState:
        broker = self.broker
        return BrokerState(broker.node_id, broker.host, broker.port, self._id, self.ready)

    def start(self) -> None:
        """Start the process. It has a group of its own: Ctrl-C reaches the supervisor only."""
        assert self._process is None
        command = self._plan.command(self.broker)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--control"] if self._controlled else command,
                stdin=subprocess.PIPE if self._controlled else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._id = identify(self._process.pid)
        self._output = b""
        self.ready = False

    def became_ready(self) -> bool:
        """Whether the process has become ready since this was last asked."""
        process = self._process
        if process is None or self.ready:
            return False
        assert process.stdout is not None
        with contextlib.suppress(BlockingIOError):
            self._output += os.read(process.stdout.fileno(), 65536)
        self.ready = READY in self._output and self._output.endswith(b"\n")
        return self.ready

    def ended(self) -> str | None:
        """How the process has ended, if it has since this was last asked; it may start again."""
        process = self._process
        if process is None or (code := process.poll()) is None:
            return None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process = self._id = None
        self.ready = False
        return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"

    def send(self, number: signal.Signals) -> None:
        """Send a signal; one that has to wait for a suspended process wakes it."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            if number is signal.SIGTERM:
                self._process.send_signal(signal.SIGCONT)

    def last_words(self) -> str:
        """The end of what the broker has logged."""
        return last_words(self.log_path)


def last_words(log_path: Path) -> str:
    """The end of a broker's log."""
    try:
        lines = log_path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-LOG_LINES_SHOWN:])

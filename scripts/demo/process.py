"""The pipelines' process: the `ottla pipeline run` anybody would type, started, killed, restarted.

It runs under a shell that kills it, Spark's JVM included, when the pipe from us closes: whatever
happens to the demo, nothing is left running. What it says goes to a log file; the lines of JSON
about its progress come back as readings.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ottla.spark.processes import descendants

STOP_TIMEOUT_S = 30.0
LOG_LINES = 15
# Says the child's pid, and passes its exit code on.
GUARD = """
exec 3<&0
"$@" </dev/null &
child=$!
echo $child
(cat <&3; kill -KILL 0) >/dev/null 2>&1 &
wait $child
"""


class Process:
    """One run, from its start to its end or death."""

    def __init__(
        self, command: list[str], log: Path, environment: Mapping[str, str], directory: Path
    ) -> None:
        self.log = log
        self._readings: list[dict[str, Any]] = []
        with log.open("ab") as errors:
            self._shell = subprocess.Popen(
                ["sh", "-c", GUARD, "guard", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=dict(environment),
                cwd=directory,
                # A group of its own: Ctrl-C is for the demo, which ends this one in its own way.
                start_new_session=True,
            )
        assert self._shell.stdout is not None
        self.pid = int(self._shell.stdout.readline())
        self._reader = threading.Thread(target=self._read, name="readings", daemon=True)
        self._reader.start()

    @property
    def running(self) -> bool:
        return self._shell.poll() is None

    def readings(self) -> list[dict[str, Any]]:
        """What it told about its progress since the last call."""
        taken, self._readings = self._readings, []
        return taken

    def words(self) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES:])

    def kill(self) -> None:
        """SIGKILL to all of it: Python, its workers, Spark's JVM, which has a group of its own."""
        for pid in (*descendants(self.pid), self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._end()

    def stop(self) -> int:
        """SIGTERM, as a service manager does; the exit code."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._shell.wait(STOP_TIMEOUT_S)
        self.kill()
        return self._shell.returncode

    def _read(self) -> None:
        assert self._shell.stdout is not None
        for line in self._shell.stdout:
            if line.startswith(b"{"):
                with contextlib.suppress(ValueError):
                    self._readings.append(json.loads(line))

    def _end(self) -> None:
        self._shell.wait()
        self._reader.join(STOP_TIMEOUT_S)
        for pipe in (self._shell.stdin, self._shell.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

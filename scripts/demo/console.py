"""The console beside the demo: its topics, groups and pipelines in the browser, while it runs.

Open to everybody on this machine and to nobody else; it ends with the demo, however that ends. The
demo goes on without one that does not start.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from pathlib import Path

PORT = 8084
INTERVAL_S = 2  # the demo lasts a minute
STOP_S = 20.0
READY = re.compile(r"ready on (http://\S+/)")


class Console:
    """`ottla console` over these brokers; `address` is None if it did not start."""

    def __init__(self, bootstrap_servers: str, home: Path) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._home = home
        self._process: subprocess.Popen[str] | None = None
        # The port that people know, or any if somebody has it.
        self.address = self._start(PORT) or self._start(0)

    def _start(self, port: int) -> str | None:
        command = [
            sys.executable, "-m", "ottla", "console", "--no-login", "--until-input-ends",
            "--bootstrap-server", self._bootstrap_servers, "--port", str(port),
            "--interval", str(INTERVAL_S), "--data-dir", str(self._home / "console"),
        ]  # fmt: skip
        with (self._home / "console.log").open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # Ctrl-C is for the demo
            )
        assert self._process.stdout is not None
        found = READY.search(self._process.stdout.readline())
        if found is None:
            self.stop()
            return None
        return found[1]

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=STOP_S)  # its input ends, and so does it
        process.kill()
        process.wait()

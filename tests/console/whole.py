"""A console as people start it: the command in a process of its own, beside whatever cluster."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.live import environment_with

READY = re.compile(r"ready on (http://\S+)/")
PASSWORD = re.compile(r"Log in as admin with (\S+), which")
STOP_S = 60


class ConsoleProcess:
    """`ottla console` with these arguments, until the block ends."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.directory = directory
        self.address = ""  # without the slash at the end
        self.password = ""  # the one that works once; empty with --no-login
        self._log = directory / "console.stderr"
        self._command = [
            sys.executable, "-m", "ottla", "console", "--port", "0", "--until-input-ends",
            "--data-dir", str(directory / "console"), *arguments,
        ]  # fmt: skip
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as errors:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                text=True, env=environment_with({"PYTHONUNBUFFERED": "1"}),
            )  # fmt: skip
        self.address = self._line(READY)
        if "--no-login" not in self._command:
            self.password = self._line(PASSWORD)
        return self

    def _line(self, wanted: re.Pattern[str]) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := wanted.search(line):
                return found[1]
        raise AssertionError(f"it ended without saying {wanted.pattern!r}: {self.errors()}")

    def errors(self) -> str:
        return self._log.read_text(errors="replace")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        try:
            self._process.communicate(timeout=STOP_S)  # its input ends, and so does it
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise

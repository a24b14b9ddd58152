"""Runs `ottla …` as a process: to its end, or until the ready line and then by hand."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from tests.live import Server

END_S = 20


class Ended:
    """What a command left."""

    def __init__(self, code: int, out: str, errors: str) -> None:
        self.code = code
        self.out = out
        self.errors = errors

    def said(self, fact: str, try_: str = "") -> bool:
        """Two lines and no more: the fact, and what to try."""
        lines = self.errors.splitlines()
        return (
            len(lines) == 2
            and lines[0].startswith("ottla: ")
            and fact in lines[0]
            and lines[1].startswith("Try: ")
            and try_ in lines[1]
        )

    def __repr__(self) -> str:
        return f"exit {self.code}\n{self.out}\n{self.errors}"


def ottla(*arguments: str | Path, **environment: str) -> Ended:
    """One command, run to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=END_S,
        check=False,
        env={**os.environ, **environment},
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def page(address: str, path: str) -> tuple[int, str]:
    """An HTTP page of a running server."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


__all__ = ["Ended", "Server", "ottla", "page"]

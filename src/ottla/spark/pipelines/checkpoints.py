"""A pipeline's directory below `--checkpoint`: its queries' progress, its process.

    DIR/NAME/SINK          the checkpoint of the query of a sink, as Spark keeps it
    DIR/NAME/bad-records   that of the bad records
    DIR/NAME/start.json    where the run began that made them
    DIR/NAME/run.json      the last run: process, machine, brokers, groups
    DIR/NAME/lock          held while it runs

The lock is the kernel's, so a killed run leaves none behind. On a remote file system (`hdfs://…`)
there are only Spark's checkpoints.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..source.offsets import decode, encode
from .bounds import Offsets
from .topics import PipelineError


@dataclass(frozen=True, slots=True)
class QueryStand:
    """The last finished batch of a query, from its checkpoint."""

    batch_id: int
    at_s: float
    watermark_ms: int


class Home:
    """One pipeline's directory."""

    def __init__(self, checkpoint: str, name: str) -> None:
        self.name = name
        self.remote = "://" in checkpoint and not checkpoint.startswith("file://")
        base = checkpoint.removeprefix("file://")
        self.url = f"{checkpoint.rstrip('/')}/{name}" if self.remote else ""
        self.path = Path(os.path.abspath(base)) / name
        self._lock: int | None = None

    def of(self, query: str) -> str:
        """The checkpoint of one query."""
        return f"{self.url}/{query}" if self.remote else str(self.path / query)

    @property
    def where(self) -> str:
        return self.url or str(self.path)

    def take(self) -> None:
        """Make the directory ours until `release`; two runs over one would fence each other."""
        if self.remote:
            return
        self.path.mkdir(parents=True, exist_ok=True)
        held = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            pid = self.run().get("pid", "?")
            raise PipelineError(
                f"pipeline {self.name!r} runs already with the checkpoint {self.path} "
                f"(process {pid})"
            ) from None
        self._lock = held

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def running(self) -> bool:
        """Whether a process holds the lock."""
        try:
            held = os.open(self.path / "lock", os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(held)
        return False

    # Where it began

    def starts(self) -> dict[str, Offsets | None] | None:
        """Where the sources began when the checkpoint was made; None: it is new."""
        found = self._read("start.json")
        if found is None:
            return None
        return {
            name: None if offsets is None else decode(offsets)
            for name, offsets in found.get("sources", {}).items()
        }

    def keep_starts(self, starts: dict[str, Offsets | None]) -> None:
        named = {
            name: None if offsets is None else encode(offsets) for name, offsets in starts.items()
        }
        self._write("start.json", {"sources": named})

    # The process that runs it

    def run(self) -> dict[str, Any]:
        return self._read("run.json") or {}

    def keep_run(self, **facts: Any) -> None:
        here = {"pid": os.getpid(), "host": socket.gethostname(), "started_s": time.time()}
        self._write("run.json", {**here, **facts})

    def stand(self, query: str) -> QueryStand | None:
        """The last batch that a query has finished."""
        commits = self.path / query / "commits"
        try:
            batches = [int(each.name) for each in commits.iterdir() if each.name.isdigit()]
        except OSError:
            return None
        if not batches:
            return None
        last = max(batches)
        try:
            at_s = (commits / str(last)).stat().st_mtime
            lines = (self.path / query / "offsets" / str(last)).read_text().splitlines()
        except OSError:
            return None
        return QueryStand(last, at_s, watermark_in(lines))

    def _read(self, file: str) -> dict[str, Any] | None:
        if self.remote:
            return None
        try:
            found = json.loads((self.path / file).read_text())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def _write(self, file: str, content: dict[str, Any]) -> None:
        if self.remote:
            return
        beside = self.path / f"{file}.new"
        beside.write_text(json.dumps(content, indent=1) + "\n")
        os.replace(beside, self.path / file)


def homes(checkpoint: str) -> list[Home]:
    """The pipelines that have run with this directory."""
    base = Path(checkpoint.removeprefix("file://"))
    try:
        names = sorted(each.name for each in base.iterdir() if (each / "run.json").exists())
    except OSError:
        return []
    return [Home(checkpoint, name) for name in names]


def watermark_in(lines: list[str]) -> int:
    """The second line of an offset file is about the batch as a whole."""
    try:
        return int(json.loads(lines[1]).get("batchWatermarkMs", 0))
    except (IndexError, ValueError, AttributeError):
        return 0

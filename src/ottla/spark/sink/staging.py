"""The driver's staging directory: files of rows on their way, and notes of the run.

    <root>/ottla-spark-<uid>/token                shows a task that it sees the driver's directory
                            /<sink>/run.json      which run of the query has finished which batch
                            /<sink>/<batch>-<task>-<attempt>-<run>.parcel

The root is the option `stagingDirectory`, else where Spark keeps its scratch files. Nothing here
has to survive: what is lost is replayed by Spark. What dead drivers left goes at the next commit of
the same query, or after a day by whoever comes first.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ABANDONED_S = 24 * 3600  # no batch takes that long
PARCEL = ".parcel"


def default_root() -> str:
    """Spark's scratch directory: `SPARK_LOCAL_DIRS` of a worker is one below it."""
    scratch = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return str(Path(scratch).parent) if scratch else tempfile.gettempdir()


@dataclass(frozen=True, slots=True)
class Staging:
    """A directory of the driver, as a task may find it again; `token` is empty if there is none."""

    directory: str
    token: str

    def visible(self) -> bool:
        """Whether this process sees the driver's directory and may write there."""
        if not self.token:
            return False
        try:
            return Path(self.directory, "token").read_text() == self.token and os.access(
                self.directory, os.W_OK
            )
        except OSError:
            return False

    def parcel_path(self, sink: str, *parts: object) -> Path:
        """For `parts`, the batch first: a name that no other attempt of any driver has."""
        place = Path(self.directory, sink)
        place.mkdir(mode=0o700, exist_ok=True)
        return place / ("-".join(map(str, parts)) + PARCEL)


def folder(root: str | None) -> Path | None:
    """The directory of this user below the root, made on first use.

    None where it cannot be made, unless the user asked for this root.
    """
    directory = Path(root or default_root(), f"ottla-spark-{os.getuid()}")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if directory.stat().st_uid != os.getuid():
            raise PermissionError(f"{directory} belongs to somebody else")
    except OSError:
        if root is not None:
            raise
        return None
    return directory


def prepare(root: str | None) -> Staging:
    """On the driver: the directory, and the token by which tasks know it."""
    directory = folder(root)
    if directory is None:
        return Staging("", "")  # then tasks go by way of the staging topic
    mark = directory / "token"
    try:
        with mark.open("x") as file:
            file.write(uuid.uuid4().hex)
    except FileExistsError:
        sweep(directory, time.time() - ABANDONED_S)
    return Staging(str(directory), mark.read_text())


def sweep(directory: Path, before: float) -> None:
    """Remove folders of sinks in which no file has come or gone since."""
    for entry in directory.iterdir():
        with suppress(OSError):
            if entry.is_dir() and entry.stat().st_mtime < before:
                shutil.rmtree(entry)


def clear(directory: Path, sink: str, batch: int | None) -> None:
    """Remove the parcels of this batch and of earlier ones: winners, losers and dead drivers'.

    Without a number: all that the sink has here.
    """
    if batch is None:
        shutil.rmtree(directory / sink, ignore_errors=True)
        return
    with suppress(OSError, ValueError):
        for entry in (directory / sink).iterdir():
            if entry.suffix == PARCEL and int(entry.name.split("-")[0]) <= batch:
                entry.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Notes:
    """What the run has done so far: its last finished batch, and the process that finished it."""

    run: str
    batch: int
    process: str


def read_notes(directory: Path, sink: str) -> Notes | None:
    """The notes of the sink's last run on this machine, if there are any."""
    try:
        fields = json.loads((directory / sink / "run.json").read_text())
        return Notes(fields["run"], fields["batch"], fields["process"])
    except (OSError, ValueError, KeyError):
        return None


def write_notes(directory: Path, sink: str, notes: Notes) -> None:
    """Replace the notes. They only save work and refusals, so failing to write them is no error."""
    place = directory / sink
    draft = place / f"run.json.{os.getpid()}"
    text = json.dumps({"run": notes.run, "batch": notes.batch, "process": notes.process})
    with suppress(OSError):
        place.mkdir(mode=0o700, exist_ok=True)
        draft.write_text(text)
        draft.replace(place / "run.json")

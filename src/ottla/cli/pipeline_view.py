"""What a running pipeline shows: lines rewritten in place on a terminal, plain lines in a pipe.

`--json` gives one object for each micro-batch. Rows that came too late are in every form.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable
from typing import IO

import click

from ottla.spark.pipelines.declaring import BAD_RECORDS
from ottla.spark.pipelines.progress import Reading, line

PLAIN_EVERY_S = 1.0


class View:
    """Takes readings, prints them."""

    def __init__(
        self,
        out: IO[str],
        *,
        as_json: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._out = out
        self._as_json = as_json
        self._now = now
        self._terminal = out.isatty() and not as_json
        self._lines: dict[str, str] = {}
        self._shown = 0
        self._late: Counter[str] = Counter()
        self._bad: Counter[str] = Counter()
        self._printed_at: dict[str, float] = {}
        self._kept_back: dict[str, str] = {}

    def show(self, reading: Reading) -> None:
        name = name_of(reading)
        late_before = self._late[name]
        self._late[name] += reading.late_rows
        self._bad[name] += reading.bad_rows or 0
        if self._as_json:
            self._out.write(json.dumps(reading.as_object()) + "\n")
            self._out.flush()
            return
        text = line(reading, name, self._late[name], self._bad[name])
        if self._terminal:
            self._lines[name] = text
            self._draw()
        elif reading.rows or self._late[name] > late_before or name not in self._printed_at:
            self._plain(name, text, at_once=self._late[name] > late_before)

    def finish(self) -> None:
        """What was kept back comes out; on a terminal the last lines stay."""
        for text in self._kept_back.values():
            self._out.write(text + "\n")
        self._kept_back.clear()
        self._shown = 0
        self._lines.clear()
        self._out.flush()

    @property
    def late(self) -> int:
        """All rows that came too late."""
        return sum(self._late.values())

    @property
    def bad(self) -> int:
        return sum(self._bad.values())

    def _plain(self, name: str, text: str, *, at_once: bool) -> None:
        """At most one line a second for each query; the latest is never lost."""
        now = self._now()
        if not at_once and now - self._printed_at.get(name, -PLAIN_EVERY_S) < PLAIN_EVERY_S:
            self._kept_back[name] = text
            return
        self._printed_at[name] = now
        self._kept_back.pop(name, None)
        self._out.write(text + "\n")
        self._out.flush()

    def _draw(self) -> None:
        width = shutil.get_terminal_size().columns - 1
        if self._shown:
            self._out.write(f"\x1b[{self._shown}A")
        for name in sorted(self._lines, key=place_of):
            self._out.write(f"\r\x1b[2K{self._lines[name][:width]}\n")
        self._shown = len(self._lines)
        self._out.flush()


def name_of(reading: Reading) -> str:
    return f"{reading.pipeline}/{reading.query}"


def place_of(name: str) -> tuple[str, bool, str]:
    """A pipeline's lines together, its bad records last."""
    pipeline, _, query = name.partition("/")
    return pipeline, query == BAD_RECORDS, query


def say(text: str, *, as_json: bool) -> None:
    """A word beside the readings; on stderr, so that a pipe has only readings."""
    if not as_json:
        click.echo(text, err=True)

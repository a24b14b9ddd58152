"""What a running agent shows: tables drawn in place on a terminal, a line a second in a pipe.

`--json` gives one object for each look. Rates are those since the look before.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from typing import IO, Any, TextIO, cast

import click

from ottla.cli.output import aligned

Status = Mapping[str, Any]  # ottla.agent.status.AgentStatus as JSON has it
BAR_CELLS = 12
FILES_SHOWN = 10
UNITS = ("B", "KB", "MB", "GB", "TB")


def with_rates(status: Status, before: Status | None) -> dict[str, Any]:
    """The status with `events_per_second` of sources and sinks, and their sums `in_per_second`,
    `out_per_second`; None at the first look."""
    found = dict(status)
    for kind, counter, total in (
        ("sources", "events_accepted", "in_per_second"),
        ("sinks", "events_delivered", "out_per_second"),
    ):
        rates = [rate(each, kind, counter, status, before) for each in status[kind]]
        found[kind] = [
            {**each, "events_per_second": number}
            for each, number in zip(status[kind], rates, strict=True)
        ]
        known = [number for number in rates if number is not None]
        found[total] = round(sum(known), 1) if known else None
    return found


def rate(
    part: Mapping[str, Any], kind: str, counter: str, status: Status, before: Status | None
) -> float | None:
    if before is None or before["process"] != status["process"]:
        return None
    seconds: float = (status["up_ms"] - before["up_ms"]) / 1000
    if seconds <= 0:
        return None
    counted: int = part[counter]
    for each in before[kind]:
        # One that was replaced meanwhile counts from the beginning.
        if each["name"] == part["name"] and each["started_ms"] == part["started_ms"]:
            counted -= each[counter]
    return round(counted / seconds, 1)


def summary(status: Status) -> str:
    """One line: what comes in, what goes out, what is on the way."""
    parts = []
    if status["in_per_second"] is not None:
        parts.append(f"in {status['in_per_second']:,.0f}/s")
    if status["out_per_second"] is not None:
        parts.append(f"out {status['out_per_second']:,.0f}/s")
    waiting = sum(channel["events"] for channel in status["channels"])
    parts.append(f"{waiting:,} events in channels")
    if status["files_total"]:
        count = status["files_total"]
        files = "1 file" if count == 1 else f"{count:,} files"
        parts.append(f"{size_text(status['lag_bytes'])} of {files} to deliver")
    waits = [sink["name"] for sink in status["sinks"] if not sink["ready"]]
    if waits:
        parts.append(f"{', '.join(waits)} not started")
    return "  ".join(parts)


def title(status: Status) -> str:
    reloads = status["reloads"]
    shown = f"agent {status['agent']}  instance {status['instance']}  process {status['process']}"
    shown += f"  up {duration_text(status['up_ms'] // 1000)}"
    if reloads:
        shown += f"  {reloads} reload{'s' if reloads > 1 else ''}"
    return shown


Table = tuple[Sequence[str], list[list[Any]]]


def tables(status: Status, files_shown: int = FILES_SHOWN) -> list[Table]:
    """Titles and rows. Numbers to the right, what is text to the left."""
    found: list[Table] = [
        (
            ("source", "type", "events/s", "events", "connections"),
            [
                [
                    each["name"],
                    each["type"],
                    rate_text(each["events_per_second"]),
                    each["events_accepted"],
                    each["connections"],
                ]
                for each in status["sources"]
            ],
        ),
        (
            ("channel", "type", "fill", "events", "capacity"),
            [
                [
                    each["name"],
                    each["type"],
                    fill_text(each["events"], each["capacity"]),
                    each["events"],
                    each["capacity"] or None,
                ]
                for each in status["channels"]
            ],
        ),
        (
            ("sink", "type", "channel", "events/s", "events", "failures"),
            [
                [
                    each["name"],
                    each["type"],
                    each["channel"],
                    rate_text(each["events_per_second"]),
                    each["events_delivered"],
                    each["failures"] + each["connect_failures"],
                ]
                for each in status["sinks"]
            ],
        ),
    ]
    files = status["files"][:files_shown]
    if files:
        found.append((
            ("file", "source", "position", "size", "lag"),
            [
                [each["path"], each["source"], each["position"], each["size"], each["lag"]]
                for each in files
            ],
        ))  # fmt: skip
    return found


def text_lines(status: Status, files_shown: int = FILES_SHOWN) -> list[str]:
    """Title, summary and tables."""
    lines = [title(status), summary(status)]
    for titles, rows in tables(status, files_shown):
        lines.append("")
        shown = [[cell(value) for value in row] for row in rows]
        widths = [
            max(len(each), *(len(row[index]) for row in shown)) if shown else len(each)
            for index, each in enumerate(titles)
        ]
        right = [name in RIGHT for name in titles]
        lines.append(aligned([each.upper() for each in titles], widths, right))
        lines += [aligned(row, widths, right) for row in shown]
    more = status["files_total"] - min(files_shown, len(status["files"]))
    if more > 0:
        lines.append(f"and {more:,} more files with no more lag")
    return lines


RIGHT = {"events/s", "events", "connections", "capacity", "failures", "position", "size", "lag"}


def cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)


def rate_text(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def fill_text(events: int, capacity: int) -> str:
    if not capacity:
        return "-"
    part = min(1.0, events / capacity)
    full = round(part * BAR_CELLS)
    return f"{'#' * full}{'.' * (BAR_CELLS - full)} {events / capacity:4.0%}"


def size_text(size: int) -> str:
    value = float(size)
    for unit in UNITS:
        if value < 1000 or unit == UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError


def duration_text(seconds: int) -> str:
    days, rest = divmod(max(0, seconds), 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    first = next((at for at, (number, _) in enumerate(parts) if number), 3)
    return " ".join(f"{number} {unit}" for number, unit in parts[first : first + 2])


class View:
    """Takes one status after another, and shows each."""

    def __init__(self, out: TextIO, *, as_json: bool = False) -> None:
        self._out = out
        self._as_json = as_json
        self._is_terminal = out.isatty() and not as_json
        self._before: Status | None = None
        self._drawn: list[str] = []

    def show(self, status: Status) -> None:
        shown = with_rates(status, self._before)
        self._before = status
        if self._as_json:
            self._out.write(json.dumps(shown) + "\n")
        elif self._is_terminal:
            self._erase()
            self._draw(shown)
        else:
            self._out.write(summary(shown) + "\n")
        self._out.flush()

    def _draw(self, status: Status) -> None:
        columns, rows = shutil.get_terminal_size()
        lines = text_lines(status)
        # A line that wraps, or one that is scrolled away, could not be erased.
        self._drawn = [line[: columns - 1] for line in lines[: rows - 1]]
        self._write_drawn()

    def _write_drawn(self) -> None:
        for number, line in enumerate(self._drawn):
            self._out.write((click.style(line, bold=True) if number == 0 else line) + "\n")

    def _erase(self) -> None:
        if self._drawn:
            self._out.write(f"\x1b[{len(self._drawn)}A\r\x1b[J")

    def above(self, other: IO[str]) -> TextIO:
        """A stream whose lines come above what is drawn, if both are on a terminal."""
        if not (self._is_terminal and other.isatty()):
            return cast(TextIO, other)
        return cast(TextIO, Above(self, other))

    def write_above(self, other: IO[str], text: str) -> None:
        self._erase()
        self._out.flush()
        other.write(text)
        other.flush()
        self._write_drawn()
        self._out.flush()

    def finish(self) -> None:
        """What is drawn stays."""
        self._drawn = []


class Above:
    """As much of a stream as logging needs."""

    def __init__(self, view: View, other: IO[str]) -> None:
        self._view = view
        self._other = other

    def write(self, text: str) -> int:
        self._view.write_above(self._other, text)
        return len(text)

    def flush(self) -> None:
        return

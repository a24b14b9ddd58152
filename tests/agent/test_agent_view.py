"""The live view of an agent: what is computed, and how it is drawn."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from ottla.cli.agent_view import View, duration_text, size_text, text_lines, with_rates


def status(up_ms: int, events: int, started_ms: int = 0, process: int = 7) -> dict[str, Any]:
    part = {"name": "r1", "type": "taildir", "started_ms": started_ms}
    return {
        "agent": "a1",
        "instance": "web-1",
        "process": process,
        "started_ms": 0,
        "time_ms": 0,  # a clock that is set back does not matter
        "up_ms": up_ms,
        "reloads": 0,
        "sources": [{**part, "events_accepted": events, "connections": 0}],
        "channels": [{"name": "c1", "type": "memory", "events": 25, "capacity": 100}],
        "sinks": [
            {
                **part,
                "name": "k1",
                "channel": "c1",
                "events_delivered": events // 2,
                "failures": 1,
                "connect_failures": 2,
                "ready": True,
            }
        ],
        "files": [
            {"source": "r1", "path": "/a.log", "position": 10, "size": 1510, "lag": 1500},
            {"source": "r1", "path": "/a.log.gz", "position": 10, "size": None, "lag": None},
        ],
        "files_total": 14,
        "lag_bytes": 1500,
    }


def test_rates_are_those_since_the_look_before() -> None:
    """There is none at first; a part that was replaced meanwhile counts from 0."""
    first, second = status(1000, 100), status(3000, 500)
    assert with_rates(first, None)["in_per_second"] is None
    found = with_rates(second, first)
    assert (found["in_per_second"], found["out_per_second"]) == (200, 100)
    replaced = with_rates(status(3000, 50, started_ms=2000), first)
    assert replaced["in_per_second"] == 25
    assert with_rates(status(3000, 50, process=8), first)["in_per_second"] is None


def test_the_text_says_what_happens() -> None:
    """Title, sums, a table for each kind of part, and the files with the largest lag."""
    shown = with_rates(status(3000, 500), status(1000, 100))
    assert text_lines(shown, 2) == [
        "agent a1  instance web-1  process 7  up 3 s",
        "in 200/s  out 100/s  25 events in channels  1.5 KB of 14 files to deliver",
        "",
        "SOURCE  TYPE     EVENTS/S  EVENTS  CONNECTIONS",
        "r1      taildir       200     500            0",
        "",
        "CHANNEL  TYPE    FILL               EVENTS  CAPACITY",
        "c1       memory  ###.........  25%      25       100",
        "",
        "SINK  TYPE     CHANNEL  EVENTS/S  EVENTS  FAILURES",
        "k1    taildir  c1            100     250         3",
        "",
        "FILE       SOURCE  POSITION   SIZE    LAG",
        "/a.log     r1            10  1,510  1,500",
        "/a.log.gz  r1            10      -      -",
        "and 12 more files with no more lag",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_drawn_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was drawn is erased, lines are cut at the width and the height, and a line of the log
    comes above."""
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("LINES", "5")
    out = Terminal()
    view = View(out)
    view.show(status(1000, 100))
    drawn = out.getvalue().splitlines()
    assert len(drawn) == 4
    assert all(len(line.replace("\x1b[1m", "").replace("\x1b[0m", "")) <= 19 for line in drawn)
    out.truncate(out.seek(0))
    view.above(out).write("2026-11-18 INFO something\n")
    assert out.getvalue().startswith("\x1b[4A\r\x1b[J2026-11-18 INFO something\n\x1b[1magent a1")
    out.truncate(out.seek(0))
    view.show(status(2000, 200))
    assert out.getvalue().startswith("\x1b[4A\r\x1b[J\x1b[1magent a1")
    view.finish()
    out.truncate(out.seek(0))
    view.above(out).write("the end\n")
    assert out.getvalue() == "the end\n"


def test_a_pipe_gets_a_line_or_an_object() -> None:
    """No codes of a terminal; the log keeps its own stream."""
    out, log = io.StringIO(), io.StringIO()
    view = View(out)
    assert view.above(log) is log
    view.show(status(1000, 100))
    view.show(status(2000, 200))
    assert out.getvalue().splitlines()[1].startswith("in 100/s  out 50/s  25 events")
    out = io.StringIO()
    View(out, as_json=True).show(status(1000, 100))
    assert json.loads(out.getvalue())["sources"][0]["events_per_second"] is None


def test_sizes_and_durations() -> None:
    """Units of a thousand, and the two largest parts of a time."""
    assert [size_text(size) for size in (0, 999, 1000, 25_300_000)] == [
        "0 B",
        "999 B",
        "1.0 KB",
        "25.3 MB",
    ]
    assert [duration_text(each) for each in (0, 59, 60, 3661, 90_000)] == [
        "0 s",
        "59 s",
        "1 min 0 s",
        "1 h 1 min",
        "1 d 1 h",
    ]

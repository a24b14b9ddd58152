"""What the terminal shows of `make demo-agent`: a panel, or plain lines in a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from scripts.demo.panel import (
    BAD,
    BOLD,
    DIM,
    GOOD,
    HAPPENINGS,
    OFF,
    SPARKS,
    TINT,
    WIDTH_MAX,
    bar_lines,
    clock,
    side_by_side,
    sparkline,
)

FILES = 6


@dataclass
class View:
    """One moment of the demo."""

    elapsed_s: float = 0.0
    seconds: float = 40.0
    written: int = 0
    written_per_s: float = 0.0
    arrived: int = 0
    counted: int | None = None  # by Spark; None: it does not run
    rates: Sequence[float] = ()
    lags: Sequence[float] = ()
    statuses: Sequence[tuple[str, int]] = ()
    files: Sequence[tuple[str, int]] = ()  # name and bytes
    running: bool = True
    happenings: Sequence[tuple[float, str]] = field(default_factory=list)

    @property
    def lag(self) -> int:
        return max(self.written - self.arrived, 0)


def panel(view: View, width: int) -> list[str]:
    """The panel's lines, none wider than `width` (escape sequences aside)."""
    width = min(width, WIDTH_MAX)
    light = f"{GOOD}●{OFF} running" if view.running else f"{BAD}✗{OFF} killed"
    counted = "" if view.counted is None else f"{view.counted:,} counted by Spark"
    title = "nginx's access log, live"
    time = f"{clock(min(view.elapsed_s, view.seconds))} / {clock(view.seconds)}"
    rate = f"{view.written_per_s:,.0f}/s"
    sparks = [f"{TINT}{sparkline(values):<{SPARKS}}{OFF}" for values in (view.rates, view.lags)]
    lines = [
        f"{BOLD}{title}{OFF}{time:>{width - len(title)}}",
        f"{DIM}{'─' * width}{OFF}",
        f"written  {view.written:>9,}  {rate:>11}  {sparks[0]}",
        f"arrived  {view.arrived:>9,}  {view.lag:>7,} lag  {sparks[1]}",
        f"agent    {light}  {DIM}{counted}{OFF}",
        "",
        *columns(view, width),
        "",
    ]
    for at_s, what in list(view.happenings)[-HAPPENINGS:]:
        lines.append(f"{DIM}{clock(at_s):>5}{OFF}  {what[: width - 7]}")
    return lines


def columns(view: View, width: int) -> list[str]:
    """Status codes on the left, the files on the right."""
    half = width // 2
    left = bar_lines("status codes", view.statuses, half - 2, 8)
    right = bar_lines("files, bytes", view.files[:FILES], width - half, 18)
    return side_by_side(left, right, half)


def plain(view: View) -> str:
    """The same in one line."""
    statuses = ", ".join(f"{status} {count:,}" for status, count in view.statuses[:3]) or "-"
    state = "" if view.running else " · the agent is dead"
    return (
        f"{clock(view.elapsed_s):>5}  {view.written:,} lines, {view.written_per_s:,.0f}/s · lag "
        f"{view.lag:,}{state} · {len(view.files)} files · {statuses}"
    )

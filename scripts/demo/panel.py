"""What the terminal shows: a panel that is written over itself, or plain lines in a pipe.

`panel` and `plain` only make text from a `View`; `Screen` puts it where it belongs.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, TextIO

BARS = "▁▂▃▄▅▆▇█"
SPARKS = 24
PLAIN_EVERY_S = 5.0
HAPPENINGS = 6
WIDTH_MIN, WIDTH_MAX = 70, 96
BOLD, DIM, TINT, GOOD, BAD, OFF = (
    "\033[1m", "\033[2m", "\033[36m", "\033[32m", "\033[31m", "\033[0m",
)  # fmt: skip


@dataclass
class View:
    """One moment of the demo."""

    elapsed_s: float = 0.0
    seconds: float = 60.0
    sent: int = 0
    sent_per_s: float = 0.0
    broken: int = 0
    read: int = 0
    lag: int = 0
    rates: Sequence[float] = ()
    lags: Sequence[float] = ()
    pages: Sequence[tuple[str, int]] = ()
    funnel: Sequence[tuple[str, int]] = ()
    pipelines: str = ""
    running: bool = True
    happenings: Sequence[tuple[float, str]] = field(default_factory=list)


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def sparkline(values: Sequence[float]) -> str:
    shown = list(values)[-SPARKS:]
    high = max(shown, default=0) or 1
    return "".join(BARS[min(7, int(8 * value / high))] for value in shown)


def bar(value: float, high: float, cells: int) -> str:
    full = round(cells * value / high) if high else 0
    return "█" * max(full, 1 if value else 0)


def panel(view: View, width: int) -> list[str]:
    """The panel's lines, none wider than `width` (escape sequences aside)."""
    width = min(width, WIDTH_MAX)
    light = f"{GOOD}●{OFF} running" if view.running else f"{BAD}✗{OFF} killed, starting again"
    batches = f"last batches: {view.pipelines}" if view.running and view.pipelines else ""
    time = f"{clock(min(view.elapsed_s, view.seconds))} / {clock(view.seconds)}"
    title = "user behaviour, live"
    rate = f"{view.sent_per_s:,.0f}/s"
    sparks = [f"{TINT}{sparkline(values):<{SPARKS}}{OFF}" for values in (view.rates, view.lags)]
    lines = [
        f"{BOLD}{title}{OFF}{time:>{width - len(title)}}",
        f"{DIM}{'─' * width}{OFF}",
        f"sent     {view.sent:>9,}  {rate:>11}  {sparks[0]}  {view.broken} broken",
        f"counted  {view.read:>9,}  {view.lag:>7,} lag  {sparks[1]}",
        f"Spark    {light}  {DIM}{batches[: width - 20]}{OFF}",
        "",
        *columns(view, width),
        "",
    ]
    for at_s, what in list(view.happenings)[-HAPPENINGS:]:
        lines.append(f"{DIM}{clock(at_s):>5}{OFF}  {what[: width - 7]}")
    return lines


def columns(view: View, width: int) -> list[str]:
    """Top pages on the left, the funnel on the right."""
    half = width // 2
    left = bar_lines("top pages", view.pages, half - 2, 18)
    right = bar_lines("funnel", view.funnel, width - half, 8)
    return side_by_side(left, right, half)


def side_by_side(
    left: Sequence[tuple[str, int]], right: Sequence[tuple[str, int]], width: int
) -> list[str]:
    """Lines of two columns, each with the length it has on the screen; the left one is so wide."""
    pairs = zip_longest(left, right, fillvalue=("", 0))
    return [f"{text}{' ' * max(width - shown, 0)}{other}" for (text, shown), (other, _) in pairs]


def bar_lines(
    title: str, rows: Sequence[tuple[str, int]], width: int, label: int
) -> list[tuple[str, int]]:
    """Lines with the length they have on the screen."""
    lines = [(f"{BOLD}{title}{OFF}", len(title))]
    high = max((value for _, value in rows), default=0)
    cells = max(width - label - 10, 4)
    for name, value in rows:
        blocks = bar(value, high, cells)
        text = f"{name[: label - 1]:<{label}}{TINT}{blocks}{OFF} {value:,}"
        lines.append((text, label + len(blocks) + 1 + len(f"{value:,}")))
    return lines


def plain(view: View) -> str:
    """The same in one line."""
    top = ", ".join(f"{page} {count:,}" for page, count in view.pages[:3]) or "-"
    funnel = " > ".join(f"{count:,} {name}" for name, count in view.funnel) or "-"
    state = "" if view.running else " · Spark is starting again"
    return (
        f"{clock(view.elapsed_s):>5}  {view.sent:,} sent, {view.sent_per_s:,.0f}/s · lag "
        f"{view.lag:,}{state} · top: {top} · funnel: {funnel}"
    )


class Screen:
    """The terminal: says lines that stay, shows a view that goes away."""

    def __init__(
        self,
        out: TextIO | None = None,
        panel: Callable[[Any, int], list[str]] = panel,
        plain: Callable[[Any], str] = plain,
    ) -> None:
        """`panel` and `plain` make text of a view; those of another demo are its own."""
        self.out = out or sys.stdout
        self.panel = panel
        self.plain = plain
        wide = shutil.get_terminal_size().columns > WIDTH_MIN
        self.live = wide and self.out.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self.height = 0
        self.next_plain_s = 0.0

    def say(self, text: str) -> None:
        """A line that stays."""
        dot = f"{TINT}•{OFF}" if self.live else "•"
        self.out.write(f"{dot} {text}\n")
        self.out.flush()

    def show(self, view: Any) -> None:
        if self.live:
            self._rewrite(self.panel(view, shutil.get_terminal_size().columns - 1))
        elif view.elapsed_s >= self.next_plain_s:
            self.next_plain_s = view.elapsed_s + PLAIN_EVERY_S
            self.out.write(self.plain(view) + "\n")
            self.out.flush()

    def happened(self, view: Any) -> None:
        """In a pipe, what just happened; the panel lists it anyway."""
        if not self.live:
            at_s, what = view.happenings[-1]
            self.out.write(f"{clock(at_s):>5}  {what}\n")
            self.out.flush()

    def leave(self) -> None:
        """Keep the last panel and go on below it."""
        self.height = 0

    def _rewrite(self, lines: list[str]) -> None:
        up = f"\033[{self.height}F" if self.height else ""
        self.out.write(up + "".join(f"\033[2K{line}\n" for line in lines) + "\033[J")
        self.out.flush()
        self.height = len(lines)

"""Charts as SVG text, drawn by hand: small enough to read, and nothing to load from anywhere.

Colours are CSS classes (`s0` … for series, `grid`, `tick`, `mark`), so that the page decides how
they look by day and by night. Every point a reader may ask about has a `<title>`, which browsers
show under the mouse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 860, 260
BARS_WIDTH = 420
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 14, 30


@dataclass(frozen=True)
class Line:
    """One series: (x, y) in order of x."""

    name: str
    points: Sequence[tuple[float, float]]
    area: bool = False


@dataclass(frozen=True)
class Span:
    """A stretch of x to be noticed, with what happened there."""

    begin: float
    end: float
    label: str


@dataclass(frozen=True)
class Scale:
    """Numbers to pixels."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / ((self.high - self.low) or 1)
        return round(self.begin + share * (self.end - self.begin), 1)


def nice_ticks(high: float, about: int = 4) -> list[float]:
    """Round numbers from 0 to just past `high`."""
    if high <= 0:
        return [0.0, 1.0]
    raw = high / about
    power = 10 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw)
    return [step * index for index in range(math.ceil(high / step - 1e-9) + 1)]


def short(value: float) -> str:
    """1,500 as 1.5k: for axes."""
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:g}{unit}"
    return f"{value:g}"


def lines(
    series: Sequence[Line],
    *,
    title: str,
    words: dict[float, str] | None = None,
    spans: Sequence[Span] = (),
) -> str:
    """Curves over a common x, with a legend when there is more than one.

    `words` says what is written below the axis; without it x is seconds.
    """
    xs = [x for line in series for x, _ in line.points] or [0.0]
    ys = [y for line in series for _, y in line.points] or [0.0]
    ticks = nice_ticks(max(ys))
    x_of = Scale(min(xs), max(xs), LEFT, WIDTH - RIGHT)
    y_of = Scale(0, ticks[-1], HEIGHT - BOTTOM, TOP)
    parts = [*grid(ticks, y_of), *x_axis(words, x_of, max(xs))]
    parts += [part for span in spans for part in drawn_span(span, x_of)]
    for number, line in enumerate(series):
        parts += drawn_line(line, number, x_of, y_of)
    return svg(title, WIDTH, HEIGHT, parts) + legend([line.name for line in series])


def grid(ticks: Sequence[float], y_of: Scale) -> list[str]:
    parts = []
    for tick in ticks:
        y = y_of(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="tick end" x="{LEFT - 8}" y="{y + 4}">{short(tick)}</text>')
    return parts


def x_axis(words: dict[float, str] | None, x_of: Scale, high: float) -> list[str]:
    words = words or {tick: f"{tick:g} s" for tick in nice_ticks(high, 6) if tick <= high}
    return [
        f'<text class="tick middle" x="{x_of(x)}" y="{HEIGHT - 10}">{escape(word)}</text>'
        for x, word in words.items()
        if x_of.low <= x <= x_of.high
    ]


def drawn_span(span: Span, x_of: Scale) -> list[str]:
    begin = max(x_of(span.begin), LEFT)
    end = min(max(x_of(span.end), begin + 2), WIDTH - RIGHT)
    width, height = round(end - begin, 1), HEIGHT - TOP - BOTTOM
    return [
        f'<rect class="span" x="{begin}" y="{TOP}" width="{width}" height="{height}"/>',
        f'<text class="mark" x="{begin + 6}" y="{TOP + 14}">{escape(span.label)}</text>',
    ]


def drawn_line(line: Line, number: int, x_of: Scale, y_of: Scale) -> list[str]:
    places = [(x_of(x), y_of(y)) for x, y in line.points]
    if not places:
        return []
    path = " ".join(f"{x},{y}" for x, y in places)
    parts = []
    if line.area:
        floor = y_of(0)
        around = f"{places[0][0]},{floor} {path} {places[-1][0]},{floor}"
        parts.append(f'<polygon class="area s{number}" points="{around}"/>')
    parts.append(f'<polyline class="line s{number}" points="{path}"/>')
    parts += [
        f'<circle class="hover s{number}" cx="{px}" cy="{py}" r="6">'
        f"<title>{escape(line.name)}: {y:,.0f}</title></circle>"
        for (px, py), (_, y) in zip(places, line.points, strict=True)
    ]
    return parts


def bars(rows: Sequence[tuple[str, float, str]], *, title: str, number: int = 0) -> str:
    """Horizontal bars: (name, value, what stands behind the bar)."""
    row_height, label, behind = 30, 128, 96
    height = row_height * max(1, len(rows)) + 8
    x_of = Scale(0, max([value for _, value, _ in rows] or [1]), 0, BARS_WIDTH - label - behind)
    parts = []
    for index, (name, value, text) in enumerate(rows):
        y = 4 + index * row_height
        width = max(x_of(value), 2)
        size = f'width="{width}" height="20" rx="3"'
        parts += [
            f'<text class="name end" x="{label - 10}" y="{y + 19}">{escape(name)}</text>',
            f'<rect class="bar s{number}" x="{label}" y="{y + 4}" {size}/>',
            f'<text class="tick" x="{label + width + 8}" y="{y + 19}">{escape(text)}</text>',
        ]
    return svg(title, BARS_WIDTH, height, parts)


def legend(names: Sequence[str]) -> str:
    if len(names) < 2:
        return ""
    entries = "".join(
        f'<span><i class="s{number}"></i>{escape(name)}</span>' for number, name in enumerate(names)
    )
    return f'<p class="legend">{entries}</p>'


def svg(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    inside = "\n".join(parts)
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">'
        f"\n{inside}\n</svg>"
    )

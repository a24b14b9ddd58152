"""What a command prints: a table for people, JSON for programs.

On a terminal headers stand out and a colour marks what needs a look; in a pipe the same columns
come without colour. `--json` prints one array or object, values as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

NUMBERS_RIGHT = (int, float)


def show_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def show_rows(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    *,
    as_json: bool = False,
    empty: str = "nothing there",
    marked: Iterable[int] = (),
) -> None:
    """Rows by column; numbers to the right. `marked` rows are coloured on a terminal."""
    if as_json:
        show_json(list(rows))
        return
    if not rows:
        click.echo(empty, err=True)
        return
    texts = [[cell(row.get(column)) for column in columns] for row in rows]
    titles = [column.replace("_", " ").upper() for column in columns]
    widths = [
        max(len(title), *(len(row[index]) for row in texts)) for index, title in enumerate(titles)
    ]
    right = [
        all(isinstance(row.get(column), NUMBERS_RIGHT) or row.get(column) is None for row in rows)
        for column in columns
    ]
    click.secho(aligned(titles, widths, right), bold=True)
    chosen = set(marked)
    for number, row in enumerate(texts):
        line = aligned(row, widths, right)
        click.secho(line, fg="yellow") if number in chosen else click.echo(line)


def aligned(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    return "  ".join(
        text.rjust(width) if to_right else text.ljust(width)
        for text, width, to_right in zip(row, widths, right, strict=True)
    ).rstrip()


def cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | set):
        return ",".join(map(str, value)) or "-"
    return str(value)


def show_facts(facts: Mapping[str, Any], *, as_json: bool = False) -> None:
    """Names and values, one a line."""
    if as_json:
        show_json(dict(facts))
        return
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        click.echo(click.style(name.replace("_", " ").ljust(width), bold=True) + "  " + cell(value))


def done(text: str, *, as_json: bool = False, **facts: Any) -> None:
    """A change was made: a sentence, or the facts."""
    if as_json:
        show_json(facts)
    else:
        click.secho(text, fg="green")

"""`ottla agent types`, and the table of types in the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.agent.config.refused import REFUSED
from ottla.agent.config.schema import TYPES
from ottla.cli.main import run

DOCUMENT = Path(__file__).parents[3] / "docs" / "agent.md"


def test_all_types_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """A row each, those that are refused with the reason."""
    assert run(["agent", "types"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(TYPES) + len(REFUSED)
    assert any(line.split()[:2] == ["source", "taildir"] for line in lines)
    assert any("refused: JMS is an interface of Java's" in line for line in lines)


def test_the_options_of_a_type(capsys: pytest.CaptureFixture[str]) -> None:
    """Options with their defaults; a class name will do, and one name may be several kinds."""
    assert run(["agent", "types", "org.apache.flume.source.ExecSource"]) == 0
    output = capsys.readouterr().out
    assert ["command", "(required)"] in [line.split()[:2] for line in output.splitlines()]
    assert ["restartThrottle", "10000"] in [line.split()[:2] for line in output.splitlines()]
    assert run(["agent", "types", "kafka"]) == 0
    output = capsys.readouterr().out
    assert all(f"{kind} kafka:" in output for kind in ("source", "channel", "sink"))


def test_a_type_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence."""
    assert run(["agent", "types", "frob"]) == 1
    assert capsys.readouterr().err.splitlines()[0] == "ottla: there is no type frob"


def test_the_documentation_has_all_types() -> None:
    """docs/agent.md has a row for each type, of those that are refused too."""
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")]
    named = {
        (cells[1].strip(), name.strip(" `").lower())
        for row in rows
        if len(cells := row.split("|")) > 3
        for name in cells[2].split(",")
    }
    missing = [
        (type_.kind.value, type_.name)
        for type_ in (*TYPES, *REFUSED)
        if (type_.kind.value, type_.name) not in named
    ]
    assert missing == []

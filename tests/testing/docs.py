"""The tests that a page of the documentation shows, so that they can be run as they stand there."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str) -> list[str]:
    """The pieces of Python that hold a test."""
    found = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    return [each for each in found if "def test_" in each]


def run(block: str, request: pytest.FixtureRequest, names: dict[str, Any]) -> list[str]:
    """Run the tests of a piece with the fixtures they name; which they were."""
    space: dict[str, Any] = {"pytest": pytest, **names}
    exec(compile(block, "docs", "exec"), space)
    tests = {name: found for name, found in space.items() if name.startswith("test_")}
    for number, test in enumerate(tests.values()):
        for mark in getattr(test, "pytestmark", ()):
            request.node.add_marker(getattr(pytest.mark, mark.name)(*mark.args, **mark.kwargs))
        values = {
            each: request.getfixturevalue(each) for each in inspect.signature(test).parameters
        }
        if number and "ottla_topic" in values:  # which a test has for itself
            values["ottla_topic"] += f"-{number}"
        outcome = test(**values)
        if inspect.iscoroutine(outcome):
            asyncio.run(outcome)
    return list(tests)

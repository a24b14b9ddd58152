"""An option of the agent says whether it changes anything here, and that must be true."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import ottla.agent
from ottla.agent.build import FACTORIES
from ottla.agent.config import between
from ottla.agent.config.schema import TYPES
from ottla.agent.config.types import PartKind, PartType

ROOT = Path(ottla.agent.__file__).parent
JUDGED = ("transactionCapacity", "keystore-type")  # by config/between.py
# Read for any part of the kind, not by its own module.
READ_ELSEWHERE = {
    "kafka.bootstrap.servers": "config/promises.py",
}
OTHER_MODULES = {
    PartKind.SELECTOR: ["selectors"],
    PartKind.PROCESSOR: ["sink_groups"],
}


@cache
def text_of(module: str) -> str:
    path = ROOT / f"{module.replace('.', '/')}.py"
    return path.read_text() if path.exists() else ""


def imported(module: str) -> set[str]:
    """The agent's modules that a module imports, as dotted names below the package."""
    found: set[str] = set()
    package = module.split(".")[:-1]
    for node in ast.walk(ast.parse(text_of(module))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            name = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            found.add(name)
            found.update(f"{name}.{each.name}" for each in node.names)
    return {name for name in found if text_of(name)}


def text_behind(modules: list[str]) -> str:
    """What they and all that they import say, but for the lists of options."""
    seen: set[str] = set()
    todo = list(modules)
    while todo:
        module = todo.pop()
        if module not in seen and "schema" not in module:
            seen.add(module)
            todo += imported(module)
    return "\n".join(text_of(module) for module in sorted(seen))


@pytest.mark.parametrize("type_", TYPES, ids=lambda each: f"{each.kind.value}-{each.name}")
def test_an_option_is_read_or_says_why_not(type_: PartType) -> None:
    """Each option stands in the code of its type, or has its reason for changing nothing."""
    made = FACTORIES.get((type_.kind, type_.name))
    text = text_behind(OTHER_MODULES[type_.kind] if made is None else [made[0]])
    rules = Path(between.__file__).read_text()
    unread = [
        option.name
        for option in type_.options
        if not option.idle
        and not option.forbidden
        and option.name != type_.batch_option
        and option.name not in READ_ELSEWHERE
        and not any(f'"{name}"' in text for name in {option.name, option.name.rstrip(".")})
        and not (option.name in JUDGED and f'"{option.name}"' in rules)
    ]
    assert not unread

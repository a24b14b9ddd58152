"""Both forms of the record codec, for tests that hold for each."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest


def codec_forms() -> list[Any]:
    """The plain module, and the compiled one if it has been built."""
    found = [pytest.param(form("{}"), id="plain")]
    try:
        compiled = form("_{}_c")
    except ImportError:
        skip = pytest.mark.skip(reason="not compiled here; try: make compile")
        return [*found, pytest.param(None, id="compiled", marks=skip)]
    return [*found, pytest.param(compiled, id="compiled")]


def form(name: str) -> SimpleNamespace:
    """All names of the codec's modules, whose own names are made from `name`."""
    names: dict[str, Any] = {}
    for module in ("batch_builder", "column_writer", "record_reader"):
        names |= vars(importlib.import_module(f"ottla.client.codec.{name.format(module)}"))
    return SimpleNamespace(**names)

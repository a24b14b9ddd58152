"""Both forms of the record codec, for tests that hold for each."""

from __future__ import annotations

import importlib
from typing import Any

import pytest


def codec_forms() -> list[Any]:
    """The plain module, and the compiled one if it has been built."""
    found = [pytest.param(importlib.import_module("ottla.client.codec.record_codec"), id="plain")]
    try:
        compiled = importlib.import_module("ottla.client.codec._record_codec_c")
    except ImportError:
        skip = pytest.mark.skip(reason="not compiled here; try: make compile")
        return [*found, pytest.param(None, id="compiled", marks=skip)]
    return [*found, pytest.param(compiled, id="compiled")]

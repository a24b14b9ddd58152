"""Compiled forms of Python modules: taken where they were built, never needed.

`OTTLA_PURE=1` in the environment asks for plain Python everywhere.
"""

import importlib
import os
from types import ModuleType


def compiled_module(name: str, form: int) -> ModuleType | None:
    """The extension module of this name, or None: not built, not wanted, or of another `FORM`.

    The form is a number that both sides raise with every change of their interface, so that an
    extension from older source is not taken.
    """
    if os.environ.get("OTTLA_PURE") == "1":
        return None
    try:
        module = importlib.import_module(name)
    except ImportError:
        return None
    return module if getattr(module, "FORM", 0) == form else None

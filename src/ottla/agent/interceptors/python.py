"""The python interceptor: a function that takes a batch of events and returns one."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from ..config.description import ConfigError, Problem
from ..config.options import Options
from ..context import Context
from ..events import EventBatch
from ..output import Interceptor


def python(name: str, options: Options, context: Context) -> Interceptor:
    """`function = MODULE:FUNCTION`; what `options.NAME` says are its keyword arguments. Modules of
    the directory that the agent was started in are found."""
    module, _, attribute = options.text("function").partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found: object = import_module(module)
        for word in attribute.split("."):
            found = getattr(found, word)
    except (ImportError, AttributeError) as error:
        hint = "PYTHONPATH=DIRECTORY of the module"
        raise ConfigError([Problem("", name, f"function: {error}", hint)]) from None
    if not callable(found):
        raise ConfigError([Problem("", name, f"function: {attribute} cannot be called", "")])
    call, arguments = found, dict(options.family("options."))

    def intercept(batch: EventBatch) -> EventBatch:
        made = call(batch, **arguments)
        if not isinstance(made, EventBatch):
            raise TypeError(f"{module}:{attribute} must return a batch, not {type(made).__name__}")
        return made

    return intercept

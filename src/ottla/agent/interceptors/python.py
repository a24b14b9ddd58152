"""The python interceptor: a function that takes a batch of events and returns one."""

from __future__ import annotations

import logging
import os
import sys
from importlib import import_module

from ..config.description import ConfigError, Problem
from ..config.options import Options
from ..context import Context
from ..events import EventBatch
from ..output import Interceptor
from ..parts import PartError

logger = logging.getLogger(__name__)


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
    except Exception as error:  # the module itself: at a reload the agent goes on as before
        rule = f"function: {module} raises {type(error).__name__}: {error}"
        raise ConfigError([Problem("", name, rule, f"python -c 'import {module}'")]) from None
    if not callable(found):
        raise ConfigError([Problem("", name, f"function: {attribute} cannot be called", "")])
    call, arguments = found, dict(options.family("options."))

    def intercept(batch: EventBatch) -> EventBatch:
        try:
            made = call(batch, **arguments)
        except Exception as error:
            logger.exception("Interceptor %s: %s:%s fails", name, module, attribute)
            words = f"raises {type(error).__name__}: {error}"
        else:
            words = rule_broken(made, batch)
        if not words:
            assert isinstance(made, EventBatch)
            return made
        raise PartError(
            f"interceptor {name}: {module}:{attribute} {words}\n"
            "Try: mend the function and start the agent again; sources that can read again go on "
            "where their sinks are"
        )

    return intercept


def rule_broken(made: object, given: EventBatch) -> str:
    """What is wrong with the batch that a function returned; empty if nothing is."""
    if not isinstance(made, EventBatch):
        return f"must return a batch (got {type(made).__name__})"
    own = made.own_headers
    if made.position != given.position:
        return "must return a batch with the position of the one it got: dataclasses.replace"
    if given.ends and len(made.ends) != len(made.bodies):
        return (
            f"returns {len(made.bodies)} events with {len(made.ends)} ends: batch.part leaves out"
        )
    if own is not None and len(own) != len(made.bodies):
        return (
            f"returns {len(made.bodies)} events with headers of {len(own)}: batch.part leaves out"
        )
    if not all(isinstance(body, bytes) for body in made.bodies):
        return "must return bodies that are bytes"
    for headers in (made.headers, *(own or ())):
        for header, value in headers.items():
            if not isinstance(header, str) or not isinstance(value, str):
                return f"must return headers that are strings (got {header!r}: {value!r})"
    return ""

"""Stands in for the `cython` module where there is none: the record loops then run as plain Python.

Only what record_loops.py says outside of its compiled branches is here.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")
compiled = False


def _same(thing: T) -> T:
    return thing


cclass = final = cfunc = inline = _same


def _decorator(_: object) -> object:
    return _same


exceptval = boundscheck = wraparound = cdivision = _decorator

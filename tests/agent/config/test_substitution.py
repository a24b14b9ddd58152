"""`${…}` in values, and Java's regular expressions."""

from __future__ import annotations

import re

import pytest

from ottla.agent.config.patterns import python_pattern
from ottla.agent.config.substitution import Values, replace
from ottla.settings.properties import parse_properties

VALUES = Values(
    parse_properties("NC_PORT = 44444\na1.x = ${NC_PORT}\nHOME = file\nloop = ${loop}", "f"),
    {"HOME": "environment", "USER": "me", "WHICH": "USER"},
    {"root": "/srv"},
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("${NC_PORT}", "44444"),
        ("${a1.x}", "44444"),
        ("${HOME}", "file"),
        ("${env:HOME}", "environment"),
        ("${USER}", "me"),
        ("${sys:root}/x", "/srv/x"),
        ("${nobody:-some}", "some"),
        ("${env:nobody:-}", ""),
        ("$${USER}", "${USER}"),
        ("${env:${WHICH}}", "me"),
        ("for i in *; do cat ${i}; done", "for i in *; do cat ${i}; done"),
        ("^\\d{3}$", "^\\d{3}$"),
        ("${loop}", "${loop}"),
    ],
)
def test_references_are_replaced(text: str, expected: str) -> None:
    """Keys of the file, the environment, -D; what nobody knows stays, because a shell may."""
    assert replace(text, VALUES) == (expected, [])


def test_what_must_be_set_is_said() -> None:
    """`env:` and `sys:` name one place: if it is not there, that is an error."""
    assert replace("${env:nobody} ${sys:nothing}", VALUES)[1] == ["env:nobody", "sys:nothing"]


@pytest.mark.parametrize(
    ("java", "text", "groups"),
    [
        (r"(?<year>\d{4})-\k<year>", "2026-2026", ("2026",)),
        (r"\p{Alpha}+\P{Digit}", "abc!", ()),
        (r"[\p{Upper}_]+", "A_B", ()),
        (r"\Q[a].*\E+", "[a].**", ()),
        (r"a\z", "a", ()),
        (r"a\h+b", "a \tb", ()),
        (r"[\[\]\h]+", "[ ]", ()),
        (r"^(?:\n)?(\d\d)", "12", ("12",)),
    ],
)
def test_java_patterns_mean_the_same(java: str, text: str, groups: tuple[str, ...]) -> None:
    """What is written differently in Java is translated."""
    match = re.fullmatch(python_pattern(java), text)
    assert match is not None
    assert match.groups() == groups

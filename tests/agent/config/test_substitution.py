"""`${…}` in values, and Java's regular expressions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.agent.config.patterns import python_pattern
from ottla.agent.config.reading import agents_in
from ottla.agent.config.substitution import Values, replace, substituted
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


def test_ten_lines_do_not_become_gigabytes() -> None:
    """Each ten times the one before: it is said, and takes no memory."""
    text = "L0 = xxxxxxxxxx\n" + "".join(
        f"L{number} = {f'${{L{number - 1}}}' * 10}\n" for number in range(1, 10)
    )
    _, problems = substituted(parse_properties(text, "f"), {}, {})
    assert [problem.key for problem in problems] == ["L5", "L6", "L7", "L8", "L9"]
    assert "1,048,576 characters" in problems[0].fact()


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


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    """Editors of Windows write one; before, the first key was another agent's, and a1 had no
    sources."""
    file = tmp_path / "a.conf"
    file.write_bytes(b"\xef\xbb\xbfa1.sources = r1\r\n")
    assert agents_in([file]) == ["a1"]

"""Java's .properties syntax, as java.util.Properties reads it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.settings.properties import MalformedProperties, parse_properties


def read(text: str) -> dict[str, str]:
    return {entry.name: entry.value for entry in parse_properties(text, "f")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a = b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("  a\t:  b c ", {"a": "b c "}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("# no\n! no\n\n  # no\na=1", {"a": "1"}),
        ("a=1 # not a comment", {"a": "1 # not a comment"}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\n#c", {"a": "b#c"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a\\ b=c", {"a b": "c"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a=\\u00e9\\t\\n", {"a": "é\t\n"}),
        ("a=\\q", {"a": "q"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=x\\", {"a": "x"}),
        ("a=\\uD83D\\uDE00", {"a": "\N{GRINNING FACE}"}),
        ("# a comment \\\na=1", {"a": "1"}),
    ],
)
def test_lines_mean_what_java_says(text: str, expected: dict[str, str]) -> None:
    """Separators, comments, continuations and escapes."""
    assert read(text) == expected


def test_an_entry_remembers_its_line() -> None:
    """The first line of a continued one."""
    entries = parse_properties("# one\na=1\\\n2\nb=3", "server.properties")
    assert [entry.where for entry in entries] == [
        "server.properties line 2",
        "server.properties line 4",
    ]


def test_a_torn_escape_is_refused_with_its_line() -> None:
    """Java refuses the whole file."""
    with pytest.raises(MalformedProperties, match=r"f line 2: .u must be followed"):
        read("a=1\nb=\\u12x4")


def escaped(text: str, *, key: bool = False) -> str:
    out = []
    for index, character in enumerate(text):
        if character in "\\#!=:" or (character == " " and (key or index == 0)):
            out.append("\\" + character)
        elif character in "\t\n\r\f":
            out.append({"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}[character])
        else:
            out.append(character)
    return "".join(out)


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_what_is_written_is_read_again(values: dict[str, str]) -> None:
    """Any names and values survive."""
    lines = (f"{escaped(name, key=True)}={escaped(value)}" for name, value in values.items())
    assert read("\n".join(lines)) == values

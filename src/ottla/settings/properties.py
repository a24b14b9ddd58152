"""Java's .properties syntax, as `server.properties` is written in.

Comments begin with # or !, a key ends at =, : or white space, a backslash continues a line or
escapes a character (\\t \\n \\r \\f \\uXXXX). Each entry remembers its line, so that a complaint
about a value can say where it stands.
"""

from typing import NamedTuple

BLANK = " \t\f"
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Entry(NamedTuple):
    name: str
    value: str
    where: str  # "server.properties line 12", "--set", "OTTLA_NUM_PARTITIONS"


class MalformedProperties(ValueError):
    """The text is not a properties file; says which line and why."""


def parse_properties(text: str, file_name: str) -> list[Entry]:
    entries = []
    for number, line in _logical_lines(text):
        where = f"{file_name} line {number}"
        key, value = _split(line)
        try:
            entries.append(Entry(_unescape(key), _unescape(value), where))
        except ValueError:
            raise MalformedProperties(
                f"{where}: \\u must be followed by four hexadecimal digits"
            ) from None
    return entries


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines without comments and blanks, continuations joined, each with its number."""
    lines: list[tuple[int, str]] = []
    continued = False
    natural = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for number, raw in enumerate(natural, start=1):
        line = raw.lstrip(BLANK)
        if not continued and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        ends_open = backslashes % 2 == 1
        part = line[:-1] if ends_open else line
        if continued:
            first, before = lines[-1]
            lines[-1] = (first, before + part)
        else:
            lines.append((number, part))
        continued = ends_open
    return [(number, line) for number, line in lines if line]


def _split(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=:" + BLANK:
        end += 2 if line[end] == "\\" else 1
    end = min(end, len(line))
    rest = line[end:].lstrip(BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(BLANK)
    return line[:end], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            if character != "\\":
                out.append(character)
            continue
        escaped = text[position]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            if len(digits) != 4 or not all(c in "0123456789abcdefABCDEF" for c in digits):
                raise ValueError(digits)
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(ESCAPES.get(escaped, escaped))
    joined = "".join(out)
    # \uD83D\uDE00 are the two halves of one character.
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

"""A line of JAAS, as in `sasl.jaas.config`:

    org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";

Passwords never appear in what is wrong with a line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

FLAGS = ("required", "requisite", "sufficient", "optional")
KAFKA = "org.apache.kafka.common.security."
# The login modules that Kafka ships, and the mechanisms they are for.
MODULES: Mapping[str, tuple[str, ...]] = {
    KAFKA + "plain.PlainLoginModule": ("PLAIN",),
    KAFKA + "scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    KAFKA + "oauthbearer.OAuthBearerLoginModule": ("OAUTHBEARER",),
}
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"

_TOKEN = re.compile(
    r"""\s*(?:
        "(?P<double>(?:[^"\\\n]|\\.)*)"
      | '(?P<single>(?:[^'\\\n]|\\.)*)'
      | (?P<mark>[=;])
      | (?P<word>[^\s"'=;]+)
    )""",
    re.VERBOSE,
)
_ESCAPED = re.compile(r"\\(.)")
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class BadJaas(ValueError):
    """Not a line of JAAS, or not one for Kafka."""


class JaasEntry(NamedTuple):
    module: str
    flag: str
    options: Mapping[str, str]


def parse_jaas(text: str) -> JaasEntry:
    """The one entry of the text. Raises BadJaas."""
    tokens = list(_tokens(text))
    if not tokens:
        raise BadJaas("it contains no login module")
    entries = []
    position = 0
    while position < len(tokens):
        entry, position = _entry(tokens, position)
        entries.append(entry)
    if len(entries) != 1:
        raise BadJaas(f"it contains {len(entries)} login modules, and must contain 1")
    return entries[0]


def _tokens(text: str) -> list[tuple[str, str]]:
    """Kind and text of each: a "value" was in quotes, a "mark" is = or ;."""
    tokens = []
    position, end = 0, len(text.rstrip())
    while position < end:
        found = _TOKEN.match(text, position)
        if found is None:
            raise BadJaas("a quotation mark is not closed")
        position = found.end()
        kind = found.lastgroup or ""
        value = found[kind]
        if kind in ("double", "single"):
            kind, value = "value", _ESCAPED.sub(_unescape, value)
        tokens.append((kind, value))
    return tokens


def _unescape(found: re.Match[str]) -> str:
    return _CONTROLS.get(found[1], found[1])


def _entry(tokens: list[tuple[str, str]], position: int) -> tuple[JaasEntry, int]:
    module = _take(tokens, position, "word", "the class of a login module")
    flag = _take(tokens, position + 1, "word", f"a flag ({', '.join(FLAGS)}) after {module}")
    if flag.lower() not in FLAGS:
        raise BadJaas(f"{module} must be followed by one of {', '.join(FLAGS)}")
    position += 2
    options: dict[str, str] = {}
    while position < len(tokens) and tokens[position] != ("mark", ";"):
        key = _take(tokens, position, "word", "the name of an option")
        if position + 1 >= len(tokens) or tokens[position + 1] != ("mark", "="):
            raise BadJaas(f"option {key} of {module} has no value")
        if position + 2 >= len(tokens) or tokens[position + 2][0] == "mark":
            raise BadJaas(f"option {key} of {module} has no value")
        options[key] = tokens[position + 2][1]
        position += 3
    if position >= len(tokens):
        raise BadJaas(f"the entry of {module} does not end with a semicolon")
    return JaasEntry(module, flag.lower(), options), position + 1


def _take(tokens: list[tuple[str, str]], position: int, kind: str, expected: str) -> str:
    if position >= len(tokens) or tokens[position][0] != kind:
        raise BadJaas(f"{expected} is missing")
    return tokens[position][1]


def login_module(text: str, mechanism: str) -> JaasEntry:
    """The entry, which must be of a module for this mechanism. Raises BadJaas."""
    entry = parse_jaas(text)
    if entry.module == KERBEROS:
        raise BadJaas("Kerberos (GSSAPI) is not supported; use SCRAM-SHA-512 over TLS")
    mechanisms = MODULES.get(entry.module)
    if mechanisms is None:
        raise BadJaas(f"{entry.module} is none of Kafka's login modules: {', '.join(MODULES)}")
    if mechanism not in mechanisms:
        raise BadJaas(f"{entry.module} is for {' and '.join(mechanisms)}, not for {mechanism}")
    return entry

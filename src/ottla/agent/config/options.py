"""What an option of a part is: name, kind, default, rule and meaning, and how text becomes a value.

Names and defaults are Flume's. A value that Flume would take for something else without a word
(`restart = yes` is false there) is refused here.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias

from .patterns import BAD_PATTERN, python_pattern

Value: TypeAlias = bool | int | str | tuple[str, ...] | None
LONG_MAX = (1 << 63) - 1
PORT_MAX = 65_535


class Kind(Enum):
    """What the text of an option means; the value says it in a complaint."""

    FLAG = "true or false"
    NUMBER = "a whole number"
    TEXT = "text"
    PATH = "a path"
    NAMES = "names with spaces between them"
    ITEMS = "items with commas between them"
    PATTERN = "a regular expression"
    CHARSET = "the name of a character set"
    PASSWORD = "a password"


EXAMPLES = {Kind.NUMBER: "1", Kind.PATTERN: ".*"}  # where neither option nor rule has one
FLAG, NUMBER, TEXT, PATH, NAMES = Kind.FLAG, Kind.NUMBER, Kind.TEXT, Kind.PATH, Kind.NAMES
ITEMS, PATTERN, CHARSET, PASSWORD = Kind.ITEMS, Kind.PATTERN, Kind.CHARSET, Kind.PASSWORD


class BadValue(ValueError):
    """What a value must be; `hint` is a value to try, `instead` something else to do."""

    def __init__(self, rule: str, hint: str = "", instead: str = "") -> None:
        super().__init__(rule)
        self.rule = rule
        self.hint = hint
        self.instead = instead


class Rule(NamedTuple):
    """A limit on values: `must be TEXT`."""

    text: str
    holds: Callable[[Value], bool]
    example: str = ""  # what to try where there is no default


def between(least: int, most: int | None = None) -> Rule:
    text = f"{least} or more" if most is None else f"from {least} to {most}"
    highest = LONG_MAX if most is None else most
    return Rule(
        text, lambda value: isinstance(value, int) and least <= value <= highest, str(least)
    )


FROM_0, FROM_1 = between(0), between(1)
PORT = between(0, PORT_MAX)._replace(example="44444")


@dataclass(frozen=True)
class Option:
    """One option of a type, or a family of them: `kafka.producer.` with a dot at its end."""

    name: str
    kind: Kind
    default: Value
    rule: Rule | None
    doc: str
    required: bool = False
    # Words for a value, in any case, with what they mean: {"line": "line", "…$Builder": "line"}.
    choices: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)  # such a word, with the reason
    idle: str = ""  # accepted, and why it changes nothing here
    forbidden: str = ""  # to accept it would be a lie: the reason; what to do
    ours: bool = False  # Flume does not know it

    def parse(self, text: str) -> Value:
        """The value that a text means. Raises BadValue."""
        if self.forbidden:
            rule, _, instead = self.forbidden.partition("; ")
            raise BadValue(rule, instead=instead)
        if self.choices:
            return self._chosen(text.strip())
        try:
            value = PARSERS[self.kind](text.strip())
        except BadValue as bad:
            raise BadValue(bad.rule, bad.hint or self._example()) from None
        if self.rule is not None and not self.rule.holds(value):
            raise BadValue(f"must be {self.rule.text}", self._example())
        return value

    def _chosen(self, word: str) -> str:
        plain = word.removesuffix("$Builder").lower()
        for name, meaning in self.choices.items():
            if name.lower() == plain:
                return meaning
        for name, reason in self.refused.items():
            if name.lower() == plain:
                raise BadValue(reason, self._example())
        words = list(dict.fromkeys(self.choices.values()))
        why = ": Java's classes do not run here" if "." in word else ""
        raise BadValue(f"must be {or_list(words)}{why}", self._example())

    def _example(self) -> str:
        if self.default is not None:
            return text_of(self.default, self.kind)
        if self.rule is not None and self.rule.example:
            return self.rule.example
        return next(iter(self.choices.values()), EXAMPLES.get(self.kind, ""))


def or_list(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def same(*words: str) -> dict[str, str]:
    """Choices whose words mean themselves."""
    return {word: word for word in words}


def text_of(value: Value, kind: Kind) -> str:
    """The value as a property file writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ("," if kind is Kind.ITEMS else " ").join(value)
    return "" if value is None else str(value)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise BadValue("must be true or false", "true")
    return text.lower() == "true"


def _number(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,30}", text) or abs(int(text)) > LONG_MAX:
        raise BadValue("must be a whole number")
    return int(text)


def _pattern(text: str) -> str:
    try:
        re.compile(python_pattern(text))
    except BAD_PATTERN as error:
        raise BadValue(f"must be a regular expression: {error}") from None
    return text


def _charset(text: str) -> str:
    try:
        name = codecs.lookup(text).name
        "".encode(name)  # Python has codecs that are none, such as hex
        return name
    except (LookupError, ValueError):
        raise BadValue("must be the name of a character set", "UTF-8") from None


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _items(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


PARSERS: dict[Kind, Callable[[str], Value]] = {
    FLAG: _flag,
    NUMBER: _number,
    TEXT: str,
    PATH: os.path.expanduser,
    NAMES: _names,
    ITEMS: _items,
    PATTERN: _pattern,
    CHARSET: _charset,
    PASSWORD: str,
}


class Options:
    """The checked values of one part, by Flume's names; each method expects its kind."""

    def __init__(
        self,
        values: Mapping[str, Value],
        families: Mapping[str, Mapping[str, str]],
        given: frozenset[str],
    ) -> None:
        self._values = values
        self._families = families
        self._given = given

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Options) and (
            (self._values, self._families, self._given)
            == (other._values, other._families, other._given)
        )

    __hash__ = None  # type: ignore[assignment]

    def given(self, name: str) -> bool:
        """Whether the file says it, rather than the default."""
        return name in self._given

    def flag(self, name: str) -> bool:
        value = self._values[name]
        assert isinstance(value, bool), name
        return value

    def number(self, name: str) -> int:
        value = self._values[name]
        assert isinstance(value, int), name
        return value

    def number_or_none(self, name: str) -> int | None:
        return None if self._values[name] is None else self.number(name)

    def text(self, name: str) -> str:
        value = self._values[name]
        assert isinstance(value, str), name
        return value

    def text_or_none(self, name: str) -> str | None:
        return None if self._values[name] is None else self.text(name)

    def names(self, name: str) -> tuple[str, ...]:
        """The items of a list of names or items; empty where none is given."""
        value = self._values[name]
        assert value is None or isinstance(value, tuple), name
        return value or ()

    def family(self, prefix: str) -> Mapping[str, str]:
        """What the file says under a prefix (`kafka.producer.`), by what follows it."""
        return self._families[prefix]

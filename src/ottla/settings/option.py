"""What an option is: its name, type, default, rule and meaning, and how text becomes its value.

The types, the rules and the words of every complaint are Kafka's: admin clients show them to
people, and tests compare them. Nothing here knows a single option; `topic.py` and the tables
beside it declare them, each once.
"""

from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import TypeAlias

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None


class Type(IntEnum):
    """The types of Kafka's ConfigDef, numbered as DescribeConfigs sends them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Importance(IntEnum):
    HIGH = 1
    MEDIUM = 2
    LOW = 3


class Update(IntEnum):
    """When a new value of a broker option takes effect (KIP-226)."""

    READ_ONLY = 0  # at the next start
    PER_BROKER = 1  # at once, for one broker by its id
    CLUSTER_WIDE = 2  # at once, for one broker or for all of them


class Standing(IntEnum):
    """What becomes of an option here."""

    HONOURED = 0
    IDLE = 1  # Kafka knows it; here there is nothing it could change, so it is accepted
    REFUSED = 2  # to accept it would be a lie (an authorizer that does not authorize)


BOOLEAN, STRING, INT, SHORT, LONG = Type.BOOLEAN, Type.STRING, Type.INT, Type.SHORT, Type.LONG
DOUBLE, LIST, CLASS, PASSWORD = Type.DOUBLE, Type.LIST, Type.CLASS, Type.PASSWORD
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
PER_BROKER, CLUSTER_WIDE = Update.PER_BROKER, Update.CLUSTER_WIDE
IDLE, REFUSED = Standing.IDLE, Standing.REFUSED


class InvalidValue(ValueError):
    """A value that its option does not accept, in Kafka's words."""

    def __init__(self, name: str, value: object, reason: str = "") -> None:
        self.name = name
        self.value = value
        self.reason = reason
        tail = f": {reason}" if reason else ""
        super().__init__(f"Invalid value {java_text(value)} for configuration {name}{tail}")


class InvalidList(InvalidValue):
    """A list that is empty or has an empty item; Kafka words these without the value."""

    def __init__(self, name: str, complaint: str) -> None:
        ValueError.__init__(self, complaint)
        self.name, self.value, self.reason = name, "", complaint


class Rule:
    """A limit on values: how it reads in a table, and the check that raises InvalidValue."""

    __slots__ = ("check", "distinct", "example", "text")

    def __init__(
        self,
        text: str,
        check: Callable[[str, Value], None],
        *,
        distinct: bool = False,
        example: str = "",
    ) -> None:
        self.example = example  # what to try instead of a value that is refused
        self.text = text
        self.check = check
        self.distinct = distinct  # of a list: an item that is there already is dropped


class Option:
    __slots__ = (
        "default",
        "doc",
        "importance",
        "internal",
        "name",
        "rule",
        "since",
        "standing",
        "type",
        "update",
        "why",
    )

    def __init__(
        self,
        name: str,
        type_: Type,
        default: Value,
        rule: Rule | None,
        importance: Importance,
        doc: str,
        *,
        update: Update = Update.READ_ONLY,
        standing: Standing = Standing.HONOURED,
        why: str = "",
        internal: bool = False,
        since: str = "",
    ) -> None:
        self.name = name
        self.type = type_
        self.default = default
        self.rule = rule
        self.importance = importance
        self.doc = doc
        self.update = update
        self.standing = standing
        self.why = why  # for REFUSED: the reason and what to try
        self.internal = internal
        # The version of Kafka that brought it, if that is later than the one whose lists these are:
        # it is shown where it is set.
        self.since = since

    def __repr__(self) -> str:
        return f"Option({self.name!r}, {self.type.name}, {self.default!r})"

    @property
    def sensitive(self) -> bool:
        return self.type is Type.PASSWORD

    def parse(self, text: str | None) -> Value:
        """The value that a text means. Raises InvalidValue."""
        value = parse_text(self.name, self.type, text)
        if self.type is Type.CLASS and self.rule is None and value and value != self.default:
            # There is no Java here; the words are those of a Java that looked in vain.
            raise InvalidValue(self.name, text, f"Class {value} could not be found.")
        if isinstance(value, tuple) and self.rule is not None and self.rule.distinct:
            value = tuple(dict.fromkeys(value))
        self.check(value)
        return value

    def check(self, value: Value) -> None:
        if self.rule is not None:
            self.rule.check(self.name, value)

    def text(self, value: Value) -> str | None:
        """The value as Kafka writes it: `true`, `a,b`, `1.5`, nothing for null."""
        return None if value is None else value_text(value)


idle = partial(Option, standing=Standing.IDLE)


def parse_text(name: str, type_: Type, text: str | None) -> Value:
    if text is None:
        return None
    trimmed = text.strip()
    if type_ is Type.BOOLEAN:
        lowered = trimmed.lower()
        if lowered not in ("true", "false"):
            raise InvalidValue(name, text, "Expected value to be either true or false")
        return lowered == "true"
    if type_ in _INTEGER_BITS:
        return _parse_integer(name, type_, text, trimmed)
    if type_ is Type.DOUBLE:
        return _parse_double(name, text, trimmed)
    if type_ is Type.LIST:
        return tuple(part.strip() for part in trimmed.split(",")) if trimmed else ()
    return trimmed


_INTEGER_BITS = {Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}


def _parse_integer(name: str, type_: Type, text: str, trimmed: str) -> int:
    digits = trimmed[1:] if trimmed[:1] in ("+", "-") else trimmed
    bits = _INTEGER_BITS[type_]
    if digits.isdecimal():
        number = int(trimmed)
        if -(1 << bits - 1) <= number < 1 << bits - 1:
            return number
    raise InvalidValue(name, text, f"Not a number of type {type_.name}")


def _parse_double(name: str, text: str, trimmed: str) -> float:
    # Java allows a type suffix (`0.5d`), and neither underscores nor Python's `inf` and `nan`.
    plain = trimmed[:-1] if trimmed[-1:] in ("d", "D", "f", "F") else trimmed
    word = plain.lstrip("+-")
    try:
        if word in ("NaN", "Infinity"):
            return float(plain)
        if not any(c in "_" for c in plain) and word[:1] in "0123456789." and word:
            return float(plain)
    except ValueError:
        pass
    raise InvalidValue(name, text, "Not a number of type DOUBLE")


def value_text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return double_text(value)
    return str(value)


def double_text(value: float) -> str:
    """A double as Java prints it: `0.5`, `1.0`, `1.7976931348623157E308`."""
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = f"{value!r}".partition("e")
    if not exponent:  # Python switches to exponents later than Java does
        mantissa, _, exponent = f"{value:.16e}".partition("e")
        mantissa = mantissa.rstrip("0")
    if "." not in mantissa:
        mantissa += ".0"
    elif mantissa.endswith("."):
        mantissa += "0"
    return f"{mantissa}E{int(exponent)}"


def java_text(value: object) -> str:
    """A value inside a message: lists in brackets, null by name."""
    if value is None:
        return "null"
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    if isinstance(value, (bool, float)):
        return value_text(value)
    return str(value)

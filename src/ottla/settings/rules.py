"""The rules that values obey, in Kafka's words."""

import re

from ottla.settings.option import InvalidList, InvalidValue, Rule, Value, java_text


def between(low: float | None, high: float | None = None) -> Rule:
    def check(name: str, value: Value) -> None:
        if not isinstance(value, (int, float)):
            raise InvalidValue(name, value, "Value must be non-null")
        if low is not None and value < low:
            raise InvalidValue(name, value, f"Value must be at least {java_text(low)}")
        if high is not None and value > high:
            raise InvalidValue(name, value, f"Value must be no more than {java_text(high)}")

    if high is None:
        return Rule(f"[{low},...]", check)
    return Rule(f"[...,{high}]" if low is None else f"[{low},...,{high}]", check)


def at_least(low: float) -> Rule:
    return between(low)


def between_or(low: int, high: int, other: int) -> Rule:
    def check(name: str, value: Value) -> None:
        if not isinstance(value, int) or not (low <= value <= high or value == other):
            reason = f"Value must be between {low} and {high} or equal to {other}"
            raise InvalidValue(name, value, reason)

    return Rule(f"[{low},...,{high}] or {other}", check)


def one_of(*allowed: str) -> Rule:
    words = ", ".join(allowed)

    def check(name: str, value: Value) -> None:
        if value not in allowed:
            raise InvalidValue(name, value, f"String must be one of: {words}")

    return Rule(f"[{words}]", check)


def one_of_ignoring_case(*allowed: str) -> Rule:
    words = ", ".join(allowed)

    def check(name: str, value: Value) -> None:
        if not isinstance(value, str) or value.upper() not in allowed:
            reason = f"String must be one of (case insensitive): {words}"
            raise InvalidValue(name, value, reason)

    return Rule(f"(case insensitive) [{words}]", check)


def class_named(*allowed: str) -> Rule:
    """A Java class that is known here by its name, or none."""
    words = " and ".join(allowed)

    def check(name: str, value: Value) -> None:
        if value is not None and value != "" and value not in allowed:
            raise InvalidValue(name, value, f"this broker runs no Java classes; it knows {words}")

    return Rule("", check)


def items(*allowed: str, some: bool = False) -> Rule:
    """A list of these items (of any, when none are named); `some`: of at least one."""
    words = ", ".join(allowed)

    def check(name: str, value: Value) -> None:
        if value is None:
            return
        assert isinstance(value, tuple)
        if some and not value:
            valid = f"[{words}]" if allowed else "any non-empty value"
            complaint = f"Configuration '{name}' must not be empty. Valid values include: {valid}"
            raise InvalidList(name, complaint)
        for item in value:
            if not item:
                raise InvalidList(name, f"Configuration '{name}' values must not be empty.")
            if allowed and item not in allowed:
                raise InvalidValue(name, item, f"String must be one of: {words}")

    return Rule(f"[{words}]" if allowed else "", check, distinct=True)


def items_of(*allowed: str) -> Rule:
    return items(*allowed)


def some_items_of(*allowed: str) -> Rule:
    return items(*allowed, some=True)


def _check_non_empty(name: str, value: Value) -> None:
    if value == "":
        raise InvalidValue(name, value, "String must be non-empty")


def _each_like(pattern: str, complaint: str) -> Rule:
    like = re.compile(pattern)

    def check(name: str, value: Value) -> None:
        assert isinstance(value, tuple)
        for item in value:
            if not like.fullmatch(item):
                raise InvalidList(name, complaint.format(name=name, item=item))

    return Rule("non-empty list", check)


def _check_zookeeper_hosts(name: str, value: Value) -> None:
    hosts, _, path = str(value).partition("/")
    host = r"(?:[^,\s:]+|\[[^\]\s]+\])(?::(\d{1,5}))?"
    found = [re.fullmatch(host, each) for each in hosts.split(",")]
    # What ZooKeeper takes for a node: no empty steps, no '.' and '..'.
    steps = path.removesuffix("/").split("/") if path else []
    if value and not (
        all(each is not None and int(each[1] or 0) < 2**16 for each in found)
        and all(re.fullmatch(r"(?!\.\.?$)[^,\s]+", step) for step in steps)
    ):
        rule = "must be HOST:PORT,HOST:PORT…, and perhaps a /path behind the last one"
        raise InvalidValue(name, value, rule)


FROM_0 = at_least(0)
FROM_1 = at_least(1)
ITEMS = items()
SOME_ITEMS = items(some=True)
NON_EMPTY = Rule("non-empty string", _check_non_empty)
ZOOKEEPER_HOSTS = Rule(
    "", _check_zookeeper_hosts, example="node01:2181,node02:2181,node03:2181/kafka"
)
VOTERS = _each_like(
    r"\d+@.+:\d+",
    "Invalid configuration value for {name}. "
    "Each entry should be in the form `{{id}}@{{host}}:{{port}}`.",
)
SERVERS = _each_like(
    r".+:\d+",
    "Failed to parse host name from {item} for the configuration {name}. "
    'Each entry should be in the form "{{host}}:{{port}}"',
)

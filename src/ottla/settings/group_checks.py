"""The rules between the options of groups and coordinators, in the order in which Kafka looks."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ottla.settings.broker import BROKER_OPTIONS
from ottla.settings.option import Value, java_text

Values = Mapping[str, Value]
# The assignors that are here, by the options that name them.
ASSIGNORS = {"group.consumer.assignors": ("uniform", "range"), "group.share.assignors": ("simple",)}
PERSISTER = "group.share.persister.class.name"
CODECS = ("offsets.topic.compression.codec", "share.coordinator.state.topic.compression.codec")
CODEC_MAX = 4  # zstd
PROTOCOLS = ("consumer", "share", "streams")
_BOUNDED = ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
_BOUNDED_OF_SHARES = (
    "delivery.count.limit",
    "record.lock.duration.ms",
    "partition.max.record.locks",
)


class Broken(NamedTuple):
    """A rule that does not hold: the option, what it must be, and a value to try."""

    option: str
    rule: str
    hint: str


def broken_rules(values: Values) -> Iterator[Broken]:
    for protocol in PROTOCOLS:
        for name in _BOUNDED:
            yield from _bounds(values, protocol, name)
        heartbeat = f"group.{protocol}.heartbeat.interval.ms"
        yield from _order(values, heartbeat, f"group.{protocol}.session.timeout.ms", "less than")
    for name in _BOUNDED_OF_SHARES:
        yield from _bounds(values, "share", name)
    standby = "group.streams.num.standby.replicas"
    yield from _order(
        values, standby, "group.streams.max.standby.replicas", "less than or equal to"
    )
    sessions = "group.share.max.share.sessions"
    yield from _order(values, sessions, "group.share.max.size", "greater than or equal to")
    yield from _assignors(values)
    if values[PERSISTER] != BROKER_OPTIONS[PERSISTER].default:
        # Kafka keeps no state with any other: what was acknowledged comes again after a restart.
        rule = "is the only one there is: without it share groups would forget what is done with"
        yield Broken(PERSISTER, f"{BROKER_OPTIONS[PERSISTER].default} {rule}", _default(PERSISTER))
    for codec in CODECS:
        if not 0 <= _number(values, codec) <= CODEC_MAX:
            yield Broken(codec, f"must be the number of a codec, 0 to {CODEC_MAX}", f"{codec}=0")


def _bounds(values: Values, protocol: str, name: str) -> Iterator[Broken]:
    option, low, high = (f"group.{protocol}.{each}{name}" for each in ("", "min.", "max."))
    yield from _order(values, high, low, "greater than or equal to")
    yield from _order(values, option, low, "greater than or equal to")
    yield from _order(values, option, high, "less than or equal to")


_HOLDS: Mapping[str, Callable[[float, float], bool]] = {
    "greater than or equal to": lambda one, other: one >= other,
    "less than or equal to": lambda one, other: one <= other,
    "less than": lambda one, other: one < other,
}


def _order(values: Values, option: str, other: str, relation: str) -> Iterator[Broken]:
    if not _HOLDS[relation](_number(values, option), _number(values, other)):
        rule = f"must be {relation} {other}, which is {values[other]}"
        yield Broken(option, rule, f"{_default(option)} and {_default(other)}")


def _assignors(values: Values) -> Iterator[Broken]:
    for option, known in ASSIGNORS.items():
        named = values[option]
        assert isinstance(named, tuple)
        unknown = [each for each in named if each not in known]
        if unknown:
            rule = f"knows {', '.join(known)}; this broker runs no Java classes"
            yield Broken(option, rule, _default(option))
        elif option == "group.share.assignors" and len(named) != 1:
            rule = f"must contain exactly one assignor, but found {len(named)}"
            yield Broken(option, rule, _default(option))


def _default(option: str) -> str:
    return f"{option}={java_text(BROKER_OPTIONS[option].default)}"


def _number(values: Values, name: str) -> float:
    value = values[name]
    assert isinstance(value, int), name
    return value


def assignment_interval_complaint(values: Values) -> str | None:
    """What is wrong with the options of groups that may change while the broker runs."""
    for protocol in PROTOCOLS:
        option, low, high = (
            f"group.{protocol}.{each}assignment.interval.ms" for each in ("", "min.", "max.")
        )
        if _number(values, option) < _number(values, low):
            return f"{option} must be greater than or equal to {low}"
        if _number(values, option) > _number(values, high):
            return f"{option} must be less than or equal to {high}"
    return None

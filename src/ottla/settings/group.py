"""The configs of a group (KIP-848, KIP-932, KIP-1071). A broker option of the same name with
`group.` before it sets the default, where there is one.
"""

import re
from collections.abc import Mapping

from ottla.settings.broker import BROKER_OPTIONS
from ottla.settings.option import BOOLEAN, INT, MEDIUM, STRING, InvalidValue, Option, Rule, Value
from ottla.settings.rules import FROM_0, FROM_1, at_least, one_of

# A duration as Java's Duration.parse reads it: days, then hours, minutes and seconds.
_NUMBER = r"([-+]?[0-9]+)"
_DURATION = re.compile(
    rf"([-+]?)P(?:{_NUMBER}D)?"
    rf"(T(?=.)(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:([-+]?[0-9]+(?:[.,][0-9]{{0,9}})?)S)?)?",
    re.IGNORECASE,
)


def _is_duration(text: str) -> bool:
    """Whether the text is a duration of no less than nothing."""
    match = _DURATION.fullmatch(text)
    if match is None or text.lower().endswith("p"):
        return False
    sign, days, _, hours, minutes, seconds = match.groups()
    parts = (int(days or 0), int(hours or 0), int(minutes or 0))
    total = parts[0] * 86_400 + parts[1] * 3_600 + parts[2] * 60
    total_s = total + float((seconds or "0").replace(",", "."))
    return total_s == 0 or (total_s < 0) == (sign == "-")


def _check_reset(name: str, value: Value) -> None:
    assert isinstance(value, str)
    if value in ("latest", "earliest"):
        return
    if value.startswith("by_duration:") and _is_duration(value.removeprefix("by_duration:")):
        return
    reason = f"Invalid value `{value}` for configuration {name}. The value must be either "
    reason += "'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
    raise InvalidValue(name, value, reason)


_RESET = Rule("[latest, earliest, by_duration:PnDTnHnMn.nS]", _check_reset)

_OPTIONS = (
    Option("consumer.session.timeout.ms", INT, 45_000, FROM_1, MEDIUM,
           "A member silent for this long is gone."),
    Option("consumer.heartbeat.interval.ms", INT, 5000, FROM_1, MEDIUM,
           "How often members send a sign of life."),
    Option("consumer.assignment.interval.ms", INT, 1000, FROM_0, MEDIUM,
           "The least time between two assignments."),
    Option("share.session.timeout.ms", INT, 45_000, FROM_1, MEDIUM,
           "A member silent for this long is gone."),
    Option("share.heartbeat.interval.ms", INT, 5000, FROM_1, MEDIUM,
           "How often members send a sign of life."),
    Option("share.record.lock.duration.ms", INT, 30_000, at_least(1000), MEDIUM,
           "How long a member holds a record."),
    Option("share.delivery.count.limit", INT, 5, at_least(2), MEDIUM,
           "How often a record is delivered before it is given up."),
    Option("share.partition.max.record.locks", INT, 2000, at_least(100), MEDIUM,
           "Records of a partition held at a time."),
    Option("share.auto.offset.reset", STRING, "latest", _RESET, MEDIUM,
           "Where a group without a position begins."),
    Option("share.isolation.level", STRING, "read_uncommitted",
           one_of("read_committed", "read_uncommitted"), MEDIUM,
           "Whether records of open transactions are delivered."),
    Option("share.renew.acknowledge.enable", BOOLEAN, True, None, MEDIUM,
           "Whether a member may hold a record for longer."),
    Option("share.assignment.interval.ms", INT, 1000, FROM_0, MEDIUM,
           "The least time between two assignments."),
    Option("errors.deadletterqueue.topic.name", STRING, "", None, MEDIUM,
           "The topic to which records go that nobody could process (KIP-1191).", since="4.4"),
    Option("errors.deadletterqueue.copy.record.enable", BOOLEAN, False, None, MEDIUM,
           "Whether key and value of a record are copied there, not only where it lies.",
           since="4.4"),
    Option("streams.session.timeout.ms", INT, 45_000, FROM_1, MEDIUM,
           "A member silent for this long is gone."),
    Option("streams.heartbeat.interval.ms", INT, 5000, FROM_1, MEDIUM,
           "How often members send a sign of life."),
    Option("streams.num.standby.replicas", INT, 0, FROM_0, MEDIUM,
           "Standby copies of each task."),
    Option("streams.initial.rebalance.delay.ms", INT, 3000, FROM_0, MEDIUM,
           "How long an empty group waits for more members to join."),
    Option("streams.assignment.interval.ms", INT, 1000, FROM_0, MEDIUM,
           "The least time between two assignments."),
)  # fmt: skip

GROUP_CONFIGS: dict[str, Option] = {option.name: option for option in _OPTIONS}


def broker_default(name: str) -> str | None:
    """The broker option that sets a group config's default, if there is one."""
    candidate = f"group.{name}"
    return candidate if candidate in BROKER_OPTIONS else None


# The configs that broker options limit, in the order in which Kafka looks at them.
_LIMITED = (
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "consumer.assignment.interval.ms",
    "share.heartbeat.interval.ms",
    "share.session.timeout.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "share.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.session.timeout.ms",
    "streams.num.standby.replicas",
    "streams.assignment.interval.ms",
)
_PROTOCOLS = ("consumer", "share", "streams")


def _limit(name: str, end: str) -> str | None:
    """The broker option that limits a group config at one end, `min` or `max`."""
    protocol, _, rest = name.partition(".")
    option = f"group.{protocol}.{end}.{rest.removeprefix('num.')}"
    return option if option in BROKER_OPTIONS else None


def validate_group_configs(
    broker_values: Mapping[str, Value], configs: Mapping[str, str]
) -> str | None:
    """What is wrong with all the configs of a group; None when nothing is."""
    for name in configs:
        if name not in GROUP_CONFIGS:
            return f"Unknown group config name: {name}"
    try:
        values = {name: GROUP_CONFIGS[name].parse(text) for name, text in configs.items()}
    except InvalidValue as error:
        return str(error)

    def number(name: str) -> int:
        value = values.get(name, broker_values[f"group.{name}"])
        assert isinstance(value, int)
        return value

    for name in _LIMITED:
        low, high = _limit(name, "min"), _limit(name, "max")
        if low is not None and _less(number(name), broker_values[low]):
            return f"{name} must be greater than or equal to {low}"
        if high is not None and _less(broker_values[high], number(name)):
            return f"{name} must be less than or equal to {high}"
    for protocol in _PROTOCOLS:
        session, heartbeat = f"{protocol}.session.timeout.ms", f"{protocol}.heartbeat.interval.ms"
        if number(session) <= number(heartbeat):
            return f"{session} must be greater than {heartbeat}"
    return None


def _less(one: Value, other: Value) -> bool:
    assert isinstance(one, int)
    assert isinstance(other, int)
    return one < other

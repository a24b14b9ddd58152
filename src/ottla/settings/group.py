"""The configs of a group (KIP-848, KIP-932, KIP-1071). A broker option of the same name with
`group.` before it sets the default, where there is one.
"""

from ottla.settings.broker import BROKER_OPTIONS
from ottla.settings.option import BOOLEAN, INT, MEDIUM, STRING, InvalidValue, Option, Rule, Value
from ottla.settings.rules import FROM_0, FROM_1, at_least, one_of


def _check_reset(name: str, value: Value) -> None:
    assert isinstance(value, str)
    if value in ("latest", "earliest") or value.startswith("by_duration:P"):
        return
    reason = f"Invalid value `{value}` for configuration {name}. The value must be either "
    reason += "'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS.>'."
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

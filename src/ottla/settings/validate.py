"""Whether configs may be set while the broker runs, in the words of Kafka's broker and controller.

Topic configs are judged as a whole over the broker's values (what LogConfig.validate does), broker
configs as what the broker's settings would become, group configs over the limits that the broker's
options set. A complaint about topics and groups is an INVALID_CONFIG, one about brokers an
INVALID_REQUEST; the callers know that, this module knows no error codes.
"""

from collections.abc import Callable, Mapping

from ottla.settings.broker import BROKER_OPTIONS
from ottla.settings.checks import connection_overrides
from ottla.settings.group import GROUP_CONFIGS, validate_group_configs
from ottla.settings.group_checks import assignment_interval_complaint
from ottla.settings.option import (
    LONG_MAX,
    Importance,
    InvalidValue,
    MiB,
    Option,
    Type,
    Update,
    Value,
)
from ottla.settings.rules import FROM_0
from ottla.settings.settings import Settings
from ottla.settings.topic import TOPIC_CONFIGS

TOPIC, BROKER, GROUP = 2, 4, 32  # Kafka's numbers of resource types

# Configs that exist only as dynamic ones (KIP-73), and are accepted with any rate.
THROTTLES: dict[str, Option] = {
    name: Option(name, Type.LONG, LONG_MAX, FROM_0, Importance.MEDIUM, doc)
    for name, doc in (
        ("leader.replication.throttled.rate", "Bytes a second to throttled followers."),
        ("follower.replication.throttled.rate", "Bytes a second fetched by throttled followers."),
        ("replica.alter.log.dirs.io.max.bytes.per.second", "Bytes a second between directories."),
    )
}


def throttle_rate(settings: Settings, name: str) -> int | None:
    """Bytes a second: this broker's dynamic config, else that of all brokers; None: no limit."""
    text = settings.dynamic.get(name, settings.dynamic_default.get(name))
    if text is None:
        return None
    try:
        rate = THROTTLES[name].parse(text)
    except InvalidValue:
        return None  # it was judged when it was set
    assert isinstance(rate, int)
    return rate if rate < LONG_MAX else None


# Kafka lets these grow to no more than double and shrink to no less than half at a time.
THREADS = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)

_DECLARED: dict[int, Mapping[str, Option]] = {TOPIC: TOPIC_CONFIGS, GROUP: GROUP_CONFIGS}

LOG_CLEANER = "Log cleaner threads cannot be "

# Kafka would take these per listener only, under `listener.name.NAME.`.
PER_LISTENER = tuple(
    name
    for name in BROKER_OPTIONS
    if name.startswith(("ssl.keystore.", "ssl.truststore.")) or name == "ssl.key.password"
)


def validate_topic_configs(settings: Settings, configs: Mapping[str, str | None]) -> str | None:
    """What is wrong with all the configs of a topic; None when nothing is."""
    without_value = [name for name, value in configs.items() if value is None]
    if without_value:
        return f"Null value not supported for topic configs: {','.join(without_value)}"
    for name in configs:
        if name not in TOPIC_CONFIGS:
            return f"Unknown topic config name: {name}"
    try:
        values = settings.topic_values({n: v for n, v in configs.items() if v is not None})
    except InvalidValue as error:
        return str(error)
    shortest, longest = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    assert isinstance(shortest, int)
    assert isinstance(longest, int)
    if shortest > longest:
        return (
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) > "
            f"max.compaction.lag.ms ({longest})"
        )
    if values["remote.storage.enable"]:
        return (
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    return None


def validate_broker_configs(
    settings: Settings, configs: Mapping[str, str], *, per_broker: bool
) -> str | None:
    """What is wrong with all the dynamic configs of this broker, or of all; None when nothing is.

    Names that Kafka does not know are accepted and kept, as Kafka does: plug-ins read them.
    """
    known = {name: BROKER_OPTIONS[name] for name in configs if name in BROKER_OPTIONS}
    fixed = [name for name, option in known.items() if option.update is Update.READ_ONLY]
    if fixed:
        return f"Cannot update these configs dynamically: {_set(fixed)}"
    listed = [name for name in configs if name in PER_LISTENER]
    if listed:
        return (
            "These security configs can be dynamically updated only per-listener using the "
            f"listener prefix: {_set(listed)}"
        )
    try:
        for name, text in configs.items():
            option = known.get(name) or THROTTLES.get(name)
            if option is not None:
                option.parse(text)
    except InvalidValue as error:
        return str(error)
    own = [name for name, option in known.items() if option.update is Update.PER_BROKER]
    if own and not per_broker:
        return (
            "Cannot update these configs at default cluster level, broker id must be specified: "
            + _set(own)
        )
    return _effect(settings, configs, per_broker)


def _set(names: list[str]) -> str:
    return f"[{', '.join(sorted(names))}]"


def _effect(settings: Settings, configs: Mapping[str, str], per_broker: bool) -> str | None:
    """What is wrong with what the settings would become."""
    default = settings.dynamic_default if per_broker else configs
    own = configs if per_broker else settings.dynamic
    values = settings.values_with(default, own)
    complaint = _requirement(values)
    if complaint is not None:
        return f"requirement failed: {complaint}"
    complaint = assignment_interval_complaint(values)
    if complaint is not None:
        return complaint
    try:
        connection_overrides(values["max.connections.per.ip.overrides"])
    except ValueError:
        text = values["max.connections.per.ip.overrides"]
        return (
            "Error parsing configuration property 'max.connections.per.ip.overrides': "
            f"each entry must be HOST:LIMIT, found {text}"
        )
    return _growth(settings.values, values)


def _requirement(values: Mapping[str, Value]) -> str | None:
    if _below(values["log.roll.ms"], 1):
        return "log.roll.ms must be greater than or equal to 1"
    if _below(values["log.roll.jitter.ms"], 0):
        return "log.roll.jitter.ms must be greater than or equal to 0"
    if values["log.retention.ms"] == 0:
        return "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
    threads, buffer = values["log.cleaner.threads"], values["log.cleaner.dedupe.buffer.size"]
    assert isinstance(threads, int)
    assert isinstance(buffer, int)
    if threads and buffer // threads <= MiB:
        return "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."
    if values["max.connections.per.ip"] == 0 and not values["max.connections.per.ip.overrides"]:
        return (
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides "
            "property is set."
        )
    directories = values["log.dir"] if values["log.dirs"] is None else values["log.dirs"]
    cordoned = values["cordoned.log.dirs"]
    assert isinstance(directories, tuple)
    assert isinstance(cordoned, tuple)
    missing = [path for path in cordoned if path not in (*directories, "*")]
    if missing:
        return (
            "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
            f"Missing entries : {','.join(missing)}"
        )
    return None


def _below(value: Value, limit: int) -> bool:
    return isinstance(value, int) and value < limit


def _growth(old: Mapping[str, Value], new: Mapping[str, Value]) -> str | None:
    for name in THREADS:
        before, after = old[name], new[name]
        assert isinstance(before, int)
        assert isinstance(after, int)
        failed = f"Dynamic thread count update validation failed for {name}={after}, value should "
        if after > before * 2:
            return f"{failed}not be greater than double the current value {before}"
        if after < before // 2:
            return f"{failed}be at least half the current value {before}"
    before, after = old["log.cleaner.threads"], new["log.cleaner.threads"]
    assert isinstance(before, int)
    assert isinstance(after, int)
    if after < 1:
        return "Log cleaner threads should be at least 1"
    if after < before // 2:
        return f"{LOG_CLEANER}reduced to less than half the current value {before}"
    if after > before * 2:
        return f"{LOG_CLEANER}increased to more than double the current value {before}"
    return None


class ConfigRules:
    """What the controller asks about configs, answered from the broker's settings of the moment."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings

    def error(
        self, resource_type: int, name: str, configs: Mapping[str, str], old: Mapping[str, str]
    ) -> str | None:
        """Why the resource may not have these configs. The broker has judged its own already."""
        if resource_type == TOPIC:
            return validate_topic_configs(self._settings(), configs)
        if resource_type == GROUP:
            return validate_group_configs(self._settings().values, configs)
        return None

    def is_list(self, resource_type: int, config: str) -> bool:
        option = self._option(resource_type, config)
        return option is not None and option.type is Type.LIST

    def default(self, resource_type: int, config: str) -> str | None:
        option = self._option(resource_type, config)
        return None if option is None else option.text(option.default)

    def _option(self, resource_type: int, config: str) -> Option | None:
        return _DECLARED.get(resource_type, BROKER_OPTIONS).get(config)

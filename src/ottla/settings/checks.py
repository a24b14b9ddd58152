"""What is wrong with a set of options: bad values, options that contradict each other or cannot be
honoured, and names nobody knows. Every problem says option, value, rule and what to try.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.settings import authorization
from ottla.settings.broker import BROKER_OPTIONS
from ottla.settings.group_checks import broken_rules
from ottla.settings.listeners import BadListener, Listener, resolve_listeners
from ottla.settings.option import InvalidValue, MiB, Option, Standing, Type, Value, java_text
from ottla.settings.properties import Entry

# Names that Kafka 4 no longer knows.
LEFTOVERS = (
    "advertised.host.name",
    "advertised.port",
    "control.plane.listener.name",
    "delegation.token.master.key",
    "eligible.leader.replicas.enable",
    "group.coordinator.new.enable",
    "host.name",
    "inter.broker.protocol.version",
    "leader.imbalance.per.broker.percentage",
    "log.message.downconversion.enable",
    "log.message.format.version",
    "log.message.timestamp.difference.max.ms",
    "offsets.commit.required.acks",
    "password.encoder.secret",
    "port",
)
# What a broker that others depend on must not go below.
CLUSTER_BOUNDS = {
    "initial.broker.registration.timeout.ms": 1,
    "broker.heartbeat.interval.ms": 1,
    "broker.session.timeout.ms": 1,
    "controller.socket.timeout.ms": 1,
    "replica.lag.time.max.ms": 1,
    "replica.socket.timeout.ms": 1,
    "replica.fetch.wait.max.ms": 0,
    "replica.fetch.min.bytes": 0,
}
DRAWN = "a broker id that was drawn"  # where a node.id comes from that is not set by hand
SESSION_PER_HEARTBEAT = 4.5  # Kafka's defaults


class Problem(NamedTuple):
    option: str
    value: str
    rule: str
    hint: str
    where: str

    def __str__(self) -> str:
        origin = f", from {self.where}" if self.where else ""
        return f"{self.option}: {self.rule} (got {self.value!r}{origin})\nTry: {self.hint}"

    @classmethod
    def of_value(cls, error: InvalidValue, entry: Entry, option: Option) -> "Problem":
        value = "(hidden)" if option.sensitive else entry.value
        return cls(option.name, value, error.reason, _try_default(option), entry.where)


class SettingsError(ValueError):
    """All that is wrong, at once, so that nobody mends a file one restart at a time."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def unknown(entry: Entry) -> list[str]:
    """The warnings for a name that is no option."""
    name = entry.name
    if name in authorization.OWN_NAMES:
        return []
    origin = f" (from {entry.where})" if entry.where else ""
    if name in LEFTOVERS or name.startswith("zookeeper."):
        return [f"option {name} belongs to older Kafka and is ignored{origin}"]
    if name.startswith(("listener.name.", "rsm.config.", "rlmm.config.")):
        return [f"option {name} is known to Kafka and has no effect here{origin}"]
    near = suggestion(name, BROKER_OPTIONS)
    hint = f"; did you mean {near}?" if near else ""
    return [f"unknown option {name} is ignored{origin}{hint}"]


def suggestion(name: str, names: Mapping[str, object]) -> str | None:
    import difflib  # only a mistake pays for it

    near = difflib.get_close_matches(name, names, n=1, cutoff=0.75)
    return near[0] if near else None


def check_standing(
    option: Option, value: Value, entry: Entry, problems: list[Problem], idle: list[str]
) -> None:
    if value == option.default or value == "":
        return
    if option.standing is Standing.IDLE:
        idle.append(option.name)
    elif option.standing is Standing.REFUSED:
        rule = "is known and cannot be honoured yet"
        problems.append(Problem(option.name, entry.value, rule, option.why, entry.where))


def check_together(
    values: Mapping[str, Value], given: Mapping[str, Entry], problems: list[Problem]
) -> tuple[Listener, ...]:
    """The rules between options, and the listeners they give."""

    def complain(name: str, rule: str, hint: str) -> None:
        where = given[name].where if name in given else ""
        problems.append(Problem(name, java_text(values[name]), rule, hint, where))

    _check_authorizer(values, given, problems)
    _check_node(values, given, complain)
    _check_shared_directory(values, given, complain)
    _check_zookeeper(values, given, complain)
    _check_logs(values, complain)
    _check_limits(values, complain)
    _check_cluster(values, complain)
    for broken in broken_rules(values):
        complain(*broken)
    return _check_listeners(values, given, complain, problems)


def _check_authorizer(
    values: Mapping[str, Value], given: Mapping[str, Entry], problems: list[Problem]
) -> None:
    name = values["authorizer.class.name"]
    entry = given.get(authorization.CLASS)
    if name and name != authorization.STANDARD:
        rule = "this broker runs no Java classes, and knows one authorizer by its name"
        where = entry.where if entry is not None else ""
        hint = f"{authorization.CLASS}={authorization.STANDARD}"
        problems.append(Problem(authorization.CLASS, str(name), rule, hint, where))
    for user in authorization.not_principals(given):
        rule = "expected a string in format principalType:principalName"
        where = given[authorization.SUPER_USERS].where
        hint = f"{authorization.SUPER_USERS}=User:{user}"
        problems.append(Problem(authorization.SUPER_USERS, user, rule, hint, where))
    if not name:
        for own in authorization.OWN_NAMES:
            if own in given:
                rule = "means nothing without an authorizer: everybody may do everything"
                hint = f"{authorization.CLASS}={authorization.STANDARD}"
                problems.append(Problem(own, given[own].value, rule, hint, given[own].where))


Complain = Callable[[str, str, str], None]


def draws_broker_id(values: Mapping[str, Value]) -> bool:
    """Whether the broker has no id before its start, which finds one (`broker/drawn_id.py`)."""
    allowed = bool(values["zookeeper.connect"]) and bool(values["broker.id.generation.enable"])
    return allowed and values["node.id"] == values["broker.id"] == -1


def _number(values: Mapping[str, Value], name: str) -> float:
    value = values[name]
    assert isinstance(value, (int, float)), name
    return value


def _check_node(
    values: Mapping[str, Value], given: Mapping[str, Entry], complain: Complain
) -> None:
    if draws_broker_id(values):
        pass
    elif _number(values, "node.id") < 0:
        complain("node.id", "must be 0 or more", "node.id=1")
    elif values["broker.id"] != values["node.id"] and "broker.id" in given:
        rule = f"must be the same as node.id, which is {values['node.id']}"
        complain("broker.id", rule, "set only node.id")
    roles = values["process.roles"]
    assert isinstance(roles, tuple)
    if "broker" not in roles:
        complain(
            "process.roles",
            "must include broker: a node that is only a controller is not there yet",
            "process.roles=broker,controller",
        )


def _check_shared_directory(
    values: Mapping[str, Value], given: Mapping[str, Entry], complain: Complain
) -> None:
    name = "ottla.cluster.directory"
    shared = values[name]
    if shared is None:
        return
    directories = values["log.dir" if values["log.dirs"] is None else "log.dirs"]
    assert isinstance(directories, tuple)
    if shared in directories:
        rule = "must be another directory than log.dirs, which belong to one broker"
        complain(name, rule, f"{name}={shared}/metadata")
    if "node.id" not in given and "broker.id" not in given:
        rule = f"must be set with {name}: each broker of a cluster has its own"
        complain("node.id", rule, "node.id=1, and another number for each of the others")


def _check_zookeeper(
    values: Mapping[str, Value], given: Mapping[str, Entry], complain: Complain
) -> None:
    name = "zookeeper.connect"
    if not values[name]:
        return
    if values["ottla.cluster.directory"] is not None:
        rule = "must not be set with ottla.cluster.directory: a cluster has one place for its state"
        complain(name, rule, f"leave out ottla.cluster.directory, or {name}")
    draws = values["broker.id.generation.enable"]
    if "node.id" not in given and "broker.id" not in given and not draws:
        rule = f"must be set with {name} unless broker.id.generation.enable is true"
        complain("node.id", rule, "broker.id=1, and another number for each of the others")
    reserved = values["reserved.broker.max.id"]
    entry = given.get("node.id") or given.get("broker.id")
    by_hand = entry is not None and entry.where != DRAWN
    if draws and by_hand and _number(values, "node.id") > _number(values, "reserved.broker.max.id"):
        rule = f"must be at most reserved.broker.max.id, {reserved}: those beyond are drawn"
        complain("node.id", rule, f"reserved.broker.max.id={values['node.id']}")


def _check_logs(values: Mapping[str, Value], complain: Complain) -> None:
    if values["log.roll.ms"] is not None and _number(values, "log.roll.ms") < 1:
        complain("log.roll.ms", "must be 1 or more", "log.roll.ms=604800000")
    if values["log.roll.jitter.ms"] is not None and _number(values, "log.roll.jitter.ms") < 0:
        complain("log.roll.jitter.ms", "must be 0 or more", "log.roll.jitter.ms=0")
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        if values[name] is not None:
            if values[name] == 0:
                complain(name, "must be -1 (for ever), or 1 or more", f"{name}=-1")
            break
    threads = max(1, int(_number(values, "log.cleaner.threads")))
    if _number(values, "log.cleaner.dedupe.buffer.size") // threads <= MiB:
        rule = "must be more than 1 MiB for each of log.cleaner.threads"
        complain("log.cleaner.dedupe.buffer.size", rule, "log.cleaner.dedupe.buffer.size=134217728")
    if _number(values, "log.cleaner.min.compaction.lag.ms") > _number(
        values, "log.cleaner.max.compaction.lag.ms"
    ):
        complain(
            "log.cleaner.min.compaction.lag.ms",
            "must be no more than log.cleaner.max.compaction.lag.ms, "
            f"which is {values['log.cleaner.max.compaction.lag.ms']}",
            "log.cleaner.min.compaction.lag.ms=0",
        )


def _check_limits(values: Mapping[str, Value], complain: Complain) -> None:
    queued = _number(values, "queued.max.request.bytes")
    if 0 < queued < _number(values, "socket.request.max.bytes"):
        rule = f"must be at least socket.request.max.bytes, {values['socket.request.max.bytes']}"
        complain("queued.max.request.bytes", rule, "queued.max.request.bytes=-1")
    if values["max.connections.per.ip"] == 0 and not values["max.connections.per.ip.overrides"]:
        rule = "can be 0 only when max.connections.per.ip.overrides is set"
        complain("max.connections.per.ip", rule, "max.connections.per.ip=100")
    try:
        connection_overrides(values["max.connections.per.ip.overrides"])
    except ValueError:
        name = "max.connections.per.ip.overrides"
        complain(name, "must be HOST:LIMIT, several with commas", f"{name}=127.0.0.1:200")


def _check_cluster(values: Mapping[str, Value], complain: Complain) -> None:
    """Kafka has no bounds for most of these, and a broker with such a value is of no use."""
    for name, least in CLUSTER_BOUNDS.items():
        if _number(values, name) < least:
            default = java_text(BROKER_OPTIONS[name].default)
            complain(name, f"must be {least} or more", f"{name}={default}")
    interval = _number(values, "broker.heartbeat.interval.ms")
    if 0 < _number(values, "broker.session.timeout.ms") <= interval:
        name = "broker.session.timeout.ms"
        rule = f"must be more than broker.heartbeat.interval.ms, {interval}"
        complain(name, rule, f"{name}={int(interval * SESSION_PER_HEARTBEAT)}")
    wait = _number(values, "replica.fetch.wait.max.ms")
    for name in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
        if wait > _number(values, name):
            rule = f"must be at least replica.fetch.wait.max.ms, {wait}"
            complain(name, rule, f"{name}=30000")


def connection_overrides(value: Value) -> dict[str, int]:
    """`max.connections.per.ip.overrides` as limits by host. Raises ValueError."""
    assert isinstance(value, str)
    limits = {}
    for part in value.split(","):
        if part.strip():
            host, colon, limit = part.strip().rpartition(":")
            if not colon or not host:
                raise ValueError(part)
            limits[host.strip("[]")] = int(limit)
    return limits


def _check_listeners(
    values: Mapping[str, Value],
    given: Mapping[str, Entry],
    complain: Complain,
    problems: list[Problem],
) -> tuple[Listener, ...]:
    listeners, advertised = values["listeners"], values["advertised.listeners"]
    protocol_map, controllers = (
        values["listener.security.protocol.map"],
        values["controller.listener.names"],
    )
    assert isinstance(listeners, tuple)
    assert advertised is None or isinstance(advertised, tuple)
    assert isinstance(protocol_map, str)
    assert isinstance(controllers, tuple)
    try:
        resolved = resolve_listeners(listeners, advertised, protocol_map, controllers)
    except BadListener as bad:
        where = given[bad.option].where if bad.option in given else ""
        problems.append(Problem(bad.option, bad.value, bad.rule, bad.hint, where))
        return ()
    name = values["inter.broker.listener.name"]
    names = [listener.name for listener in resolved]
    if name is not None and str(name).upper() not in names:
        rule = f"must be one of the advertised listeners: {', '.join(names)}"
        complain("inter.broker.listener.name", rule, f"inter.broker.listener.name={names[0]}")
    return resolved


def _try_default(option: Option) -> str:
    if option.rule is not None and option.rule.example:
        return f"{option.name}={option.rule.example}"
    if option.default is None:
        return f"leave {option.name} out"
    if option.type is Type.PASSWORD:
        return f"set {option.name} anew"
    return f"{option.name}={option.text(option.default)}"

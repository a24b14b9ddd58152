"""One broker's settings: what files, environment, command line and dynamic configs add up to.

`Settings.load` puts layers of entries over the defaults (later layers win), parses every value
once and checks the options against each other; what it cannot accept is raised all together, what
it does not know is kept as a warning. The result never changes: a dynamic config makes a new one.
"""

from collections.abc import Iterable, Mapping

from ottla.settings.authorization import Authorization, authorization_of
from ottla.settings.broker import BROKER_OPTIONS
from ottla.settings.checks import (
    DRAWN,
    Problem,
    SettingsError,
    check_standing,
    check_together,
    draws_broker_id,
    unknown,
)
from ottla.settings.listener_options import listener_option, parse_listener_entries
from ottla.settings.listeners import Listener
from ottla.settings.log_config import LogConfig, log_config_of
from ottla.settings.option import InvalidValue, Update, Value
from ottla.settings.properties import Entry
from ottla.settings.topic import SYNONYMS, TOPIC_CONFIGS
from ottla.settings.zookeeper import on_this_host

# Topics with the same overrides share one LogConfig; beyond so many the cache begins anew.
LOG_CONFIGS_MAX = 1000

KAFKAS_LISTENER = "PLAINTEXT://:9092"

_DEFAULTS: dict[str, Value] = {name: option.default for name, option in BROKER_OPTIONS.items()}


class Settings:
    __slots__ = (
        "_log_configs",
        "_topic_defaults",
        "dynamic",
        "dynamic_default",
        "given",
        "idle",
        "listener_values",
        "listeners",
        "values",
        "warnings",
    )

    given: dict[str, Entry]  # what was set at the start, as text, with its origin
    dynamic: dict[str, str]  # what was set while running, for this broker
    dynamic_default: dict[str, str]  # what was set while running, for all brokers
    values: dict[str, Value]  # what holds, of every option
    listener_values: dict[tuple[str, str, str], Value]  # by listener, mechanism and name
    listeners: tuple[Listener, ...]
    warnings: tuple[str, ...]
    idle: tuple[str, ...]  # options that were set and change nothing here

    def __init__(
        self,
        given: dict[str, Entry],
        *,
        dynamic_default: Mapping[str, str] | None = None,
        dynamic: Mapping[str, str] | None = None,
    ) -> None:
        self.given = given
        self.dynamic_default = dict(dynamic_default or {})
        self.dynamic = dict(dynamic or {})
        self._log_configs: dict[frozenset[tuple[str, str]], LogConfig] = {}
        problems: list[Problem] = []
        warnings: list[str] = []
        idle: list[str] = []
        self.values = dict(_DEFAULTS)
        for entry in given.values():
            option = BROKER_OPTIONS.get(entry.name)
            if option is None:
                if listener_option(entry.name) is None:
                    warnings += unknown(entry)
                continue
            try:
                self.values[entry.name] = option.parse(entry.value)
            except InvalidValue as error:
                problems.append(Problem.of_value(error, entry, option))
            else:
                check_standing(option, self.values[entry.name], entry, problems, idle)
        self.listener_values, wrong = parse_listener_entries(given.values())
        for invalid, entry, option in wrong:
            problem = Problem.of_value(invalid, entry, option)
            problems.append(problem._replace(option=entry.name))
        self._agree_on_node_id()
        self._listen_to_other_hosts(warnings)
        self._apply_dynamic(warnings)
        self.listeners = check_together(self.values, given, problems)
        if problems and dynamic is None:
            raise SettingsError(problems)
        warnings += [str(problem) for problem in problems]
        self.warnings = tuple(warnings)
        self.idle = tuple(idle)
        self._topic_defaults = self._defaults_of_topics()

    @classmethod
    def load(cls, *layers: Iterable[Entry]) -> "Settings":
        """From layers of entries; an entry in a later layer replaces one of the same name."""
        return cls({entry.name: entry for layer in layers for entry in layer})

    @classmethod
    def from_properties(cls, properties: Mapping[str, object], where: str = "") -> "Settings":
        """From names and values, as tests and programs have them at hand."""
        return cls.load(Entry(name, _text(value), where) for name, value in properties.items())

    def with_dynamic(self, default: Mapping[str, str], own: Mapping[str, str]) -> "Settings":
        """These settings with the dynamic configs of all brokers and of this one over them.

        What is wrong with those is a warning: they were judged when they were set
        (`validate_broker_configs`), and a broker that runs must go on running.
        """
        return Settings(self.given, dynamic_default=default, dynamic=own)

    def with_node_id(self, node_id: int) -> "Settings":
        """These settings with an id that the broker has drawn."""
        drawn = {name: Entry(name, str(node_id), DRAWN) for name in ("node.id", "broker.id")}
        return Settings({**self.given, **drawn})

    def values_with(self, default: Mapping[str, str], own: Mapping[str, str]) -> dict[str, Value]:
        """The values that would hold with these dynamic configs, unchecked. Raises InvalidValue."""
        values = dict(self.values)
        for layer in (self.dynamic_default, self.dynamic):
            for name in layer:
                if name in BROKER_OPTIONS:
                    given = self.given.get(name)
                    option = BROKER_OPTIONS[name]
                    values[name] = option.parse(given.value) if given else option.default
        for dynamic in (default, own):
            for name, text in dynamic.items():
                if name in BROKER_OPTIONS:
                    values[name] = BROKER_OPTIONS[name].parse(text)
        return values

    # -- reading ------------------------------------------------------------------------------

    def integer(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int), name
        return value

    def number(self, name: str) -> float:
        value = self.values[name]
        assert isinstance(value, (int, float)), name
        return value

    def flag(self, name: str) -> bool:
        value = self.values[name]
        assert isinstance(value, bool), name
        return value

    def text(self, name: str) -> str:
        value = self.values[name]
        assert isinstance(value, str), name
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.values[name]
        assert isinstance(value, tuple), name
        return value

    def of_listener(self, listener: str, name: str, mechanism: str = "") -> Value:
        """What holds for a listener: its own option, its mechanism's before, else the broker's."""
        listener = listener.lower()
        for own in (mechanism.lower(), "") if mechanism else ("",):
            key = (listener, own, name)
            if key in self.listener_values:
                return self.listener_values[key]
        return self.values[name]

    @property
    def node_id(self) -> int:
        return self.integer("node.id")

    @property
    def authorization(self) -> Authorization | None:
        """How requests are authorized; None: everybody may do everything."""
        return authorization_of(self.text("authorizer.class.name"), self.given)

    @property
    def draws_broker_id(self) -> bool:
        """Whether there is no `node_id` yet: see `broker/drawn_id.py`."""
        return draws_broker_id(self.values)

    @property
    def data_directories(self) -> tuple[str, ...]:
        return self.texts("log.dir" if self.values["log.dirs"] is None else "log.dirs")

    @property
    def data_directory(self) -> str:
        """The first, where the broker keeps what is not a partition."""
        return self.data_directories[0]

    @property
    def cluster_directory(self) -> str | None:
        """The directory shared with the other brokers of this host; None: a cluster of its own."""
        directory = self.values["ottla.cluster.directory"]
        assert directory is None or isinstance(directory, str)
        return directory

    @property
    def zookeeper_connect(self) -> str | None:
        """The servers of the cluster's ZooKeeper, with a chroot if there is one; None: none."""
        return str(self.values["zookeeper.connect"] or "") or None

    @property
    def in_cluster(self) -> bool:
        """Whether this broker shares a cluster with others; else it is one of its own."""
        return self.cluster_directory is not None or self.zookeeper_connect is not None

    @property
    def rack(self) -> str | None:
        rack = self.values["broker.rack"]
        assert rack is None or isinstance(rack, str)
        return rack

    @property
    def inter_broker_listener(self) -> str:
        name = self.values["inter.broker.listener.name"]
        return str(name or self.values["security.inter.broker.protocol"]).upper()

    # -- topics -------------------------------------------------------------------------------

    def topic_value(self, name: str) -> Value:
        """What a topic that does not set this config gets from the broker."""
        return self._topic_defaults[name]

    def topic_values(self, overrides: Mapping[str, str]) -> dict[str, Value]:
        """All configs of a topic with these overrides. Raises InvalidValue."""
        values = dict(self._topic_defaults)
        if overrides:
            # In the order of the declarations: so is the first complaint Kafka's first.
            for name, option in TOPIC_CONFIGS.items():
                if name in overrides:
                    values[name] = option.parse(overrides[name])
        return values

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        key = frozenset(overrides.items())
        config = self._log_configs.get(key)
        if config is None:
            if len(self._log_configs) >= LOG_CONFIGS_MAX:
                self._log_configs.clear()
            config = self._log_configs[key] = log_config_of(
                self.topic_values(overrides),
                producer_id_expiration_ms=self.integer("producer.id.expiration.ms"),
            )
        return config

    def _defaults_of_topics(self) -> dict[str, Value]:
        return {name: self._topic_default(name) for name in TOPIC_CONFIGS}

    def _topic_default(self, name: str) -> Value:
        for broker_name, factor in SYNONYMS.get(name, ()):
            value = self.values[broker_name]
            if value is None:
                continue
            if factor != 1:
                assert isinstance(value, int)
                value *= factor
            # Any negative time means for ever, and Kafka writes that as -1.
            return -1 if name == "retention.ms" and isinstance(value, int) and value < 0 else value
        return TOPIC_CONFIGS[name].default

    # -- making -------------------------------------------------------------------------------

    def _apply_dynamic(self, warnings: list[str]) -> None:
        for layer in (self.dynamic_default, self.dynamic):
            for name, text in layer.items():
                option = BROKER_OPTIONS.get(name)
                if option is None:
                    self._apply_to_listener(name, text, warnings)
                    continue
                if option.update is Update.READ_ONLY:
                    continue
                try:
                    self.values[name] = option.parse(text)
                except InvalidValue as error:
                    warnings.append(f"dynamic config {name} is not applied: {error}")

    def _apply_to_listener(self, name: str, text: str, warnings: list[str]) -> None:
        found = listener_option(name)
        if found is None:
            return
        try:
            value = found.option.parse(text)
        except InvalidValue as error:
            warnings.append(f"dynamic config {name} is not applied: {error}")
        else:
            self.listener_values[found.listener, found.mechanism, found.option.name] = value

    def _agree_on_node_id(self) -> None:
        """broker.id is the older name of node.id: each stands in for the other (KIP-631)."""
        for name, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
            if name in self.given and other not in self.given:
                self.values[other] = self.values[name]
                self.given = {**self.given, other: self.given[name]._replace(name=other)}
        if "node.id" not in self.given:
            self.values["broker.id"] = self.values["node.id"]
            if self.values["zookeeper.connect"] and self.values["broker.id.generation.enable"]:
                self.values["broker.id"] = self.values["node.id"] = -1

    def _listen_to_other_hosts(self, warnings: list[str]) -> None:
        """Kafka's own listener in place of loopback, where the brokers are on several hosts.

        All of them would have the same address, and none would reach another.
        """
        connect = self.zookeeper_connect
        if "listeners" in self.given or connect is None or on_this_host(connect):
            return
        self.values["listeners"] = (KAFKAS_LISTENER,)
        warnings.append(
            f"listeners is not set: listening on {KAFKAS_LISTENER}, all interfaces, as Kafka does, "
            f"because other brokers may be on the hosts of zookeeper.connect={connect}; whoever "
            "reaches this port may read and write"
        )


def log_config(settings: Settings, overrides: Mapping[str, str]) -> LogConfig:
    return settings.log_config(overrides)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)

"""Configs as DescribeConfigs shows them: value, where it comes from, and what else would set it.

A config's synonyms are all the places that could set it, the strongest first; the first is where
its value comes from. Entries come in Kafka's order. Pure; the handler turns entries into the wire's
classes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla.settings.broker import BROKER_OPTIONS
from ottla.settings.config_order import kafka_order
from ottla.settings.group import GROUP_CONFIGS, broker_default
from ottla.settings.option import Option, Type, Update
from ottla.settings.settings import Settings
from ottla.settings.topic import SYNONYMS, TOPIC_CONFIGS
from ottla.settings.validate import THROTTLES

UNKNOWN_TYPE = 0


class Source(IntEnum):
    """Where a config is set, by Kafka's numbers."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: Source


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    source: Source
    read_only: bool
    sensitive: bool
    synonyms: tuple[Synonym, ...]
    type: int
    doc: str


# Kafka does not start without these; here they have a default, but no synonym that shows it.
_REQUIRED_BY_KAFKA = frozenset(("node.id", "process.roles", "controller.listener.names"))

# Broker options that stand in for each other, the strongest first.
_FAMILIES = {
    member: tuple(name for name, _ in family)
    for family in SYNONYMS.values()
    if len(family) > 1
    for member, _ in family
    # The scheduler's interval stands in for the flush interval, but is an option of its own.
    if member != "log.flush.scheduler.interval.ms"
}


def topic_entries(settings: Settings, overrides: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """All configs of a topic with these overrides."""
    values = settings.topic_values(overrides)
    for name in with_later(_TOPIC_NAMES, TOPIC_CONFIGS, overrides):
        option = TOPIC_CONFIGS[name]
        synonyms: tuple[Synonym, ...] = ()
        if name in SYNONYMS:
            synonyms = broker_synonyms(settings, SYNONYMS[name][0][0], sensitive=False)
        if name in overrides:
            own = Synonym(name, option.text(values[name]), Source.TOPIC)
            synonyms = (own, *synonyms)
        yield _entry(option, option.text(values[name]), synonyms, read_only=False)


def source_at_creation(settings: Settings, entry: ConfigEntry) -> Source:
    """Where CreateTopics says that a value comes from: there, any stand-in counts."""
    if entry.source is Source.TOPIC:
        return entry.source
    family = [name for name, _ in SYNONYMS.get(entry.name, ())]
    for source, texts in _layers(settings):
        if any(texts(name) is not None for name in family):
            return source
    return Source.DEFAULT


def shown(options: Mapping[str, Option]) -> list[str]:
    """The names that are always shown."""
    return [name for name, each in options.items() if not each.internal and not each.since]


def with_later(
    names: list[str], options: Mapping[str, Option], given: Iterable[str]
) -> Iterable[str]:
    """The names in Kafka's order, and those of later versions that are given."""
    later = [name for name in given if name in options and options[name].since]
    return kafka_order([*names, *later]) if later else names


_TOPIC_NAMES = kafka_order(shown(TOPIC_CONFIGS))
_GROUP_NAMES = kafka_order(shown(GROUP_CONFIGS))
_BROKER_NAMES = shown(BROKER_OPTIONS)


def broker_entries(settings: Settings) -> Iterator[ConfigEntry]:
    """All options of this broker; names nobody knows are shown without their value."""
    given = {**settings.dynamic_default, **settings.dynamic, **settings.given}
    others = [name for name in given if name not in BROKER_OPTIONS or BROKER_OPTIONS[name].since]
    for name in kafka_order([*_BROKER_NAMES, *others]):
        option = BROKER_OPTIONS.get(name)
        if option is None:
            yield _foreign_entry(name, broker_synonyms(settings, name, sensitive=True))
        else:
            synonyms = broker_synonyms(settings, name, option.sensitive)
            text = None if option.sensitive else option.text(settings.values[name])
            yield _entry(option, text, synonyms, option.update is Update.READ_ONLY)


def broker_default_entries(settings: Settings) -> Iterator[ConfigEntry]:
    """The dynamic configs of all brokers."""
    for name in kafka_order(settings.dynamic_default):
        text = settings.dynamic_default[name]
        option = BROKER_OPTIONS.get(name) or THROTTLES.get(name)
        sensitive = option is None or option.sensitive
        value = None if sensitive else text
        synonyms = (Synonym(name, value, Source.DYNAMIC_DEFAULT_BROKER),)
        if option is None:
            yield _foreign_entry(name, synonyms)
        else:
            yield _entry(option, value, synonyms, option.update is Update.READ_ONLY)


def group_entries(settings: Settings, overrides: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """All configs of a group with these overrides; the others are the broker's."""
    for name in with_later(_GROUP_NAMES, GROUP_CONFIGS, overrides):
        option = GROUP_CONFIGS[name]
        broker_name = broker_default(name)
        if broker_name is None:
            text = option.text(option.default)
            synonyms: tuple[Synonym, ...] = (Synonym(name, text, Source.DEFAULT),)
        else:
            text = option.text(settings.values[broker_name])
            synonyms = broker_synonyms(settings, broker_name, sensitive=False)
        if name in overrides:
            text = option.text(option.parse(overrides[name]))
            synonyms = (Synonym(name, text, Source.GROUP), *synonyms)
        yield _entry(option, text, synonyms, read_only=False)


def client_metrics_entries() -> Iterator[ConfigEntry]:
    """All configs of a subscription to client metrics (KIP-714) when nobody has set any."""
    for name, text, type_ in (
        ("interval.ms", "300000", Type.INT),
        ("match", "", Type.LIST),
        ("metrics", "", Type.LIST),
    ):
        yield ConfigEntry(name, text, Source.DEFAULT, False, False, (), type_, "")


def broker_synonyms(settings: Settings, name: str, sensitive: bool) -> tuple[Synonym, ...]:
    """The places that set a broker option, and those that set its stand-ins after it.

    Kafka shows none at all when the option itself is set nowhere, not even by default.
    """
    family = _FAMILIES.get(name, (name,))
    found = [
        Synonym(each, None if sensitive else text, source)
        for source, texts in _layers(settings)
        for each in family
        if (text := texts(each)) is not None
    ]
    names = [synonym.name for synonym in found]
    return tuple(found[names.index(name) :]) if name in names else ()


def _layers(settings: Settings) -> tuple[tuple[Source, Callable[[str], str | None]], ...]:
    def given(name: str) -> str | None:
        entry = settings.given.get(name)
        return None if entry is None else entry.value

    def default(name: str) -> str | None:
        option = BROKER_OPTIONS.get(name)
        if option is None or name in _REQUIRED_BY_KAFKA:
            return None
        return option.text(option.default)

    return (
        (Source.DYNAMIC_BROKER, settings.dynamic.get),
        (Source.DYNAMIC_DEFAULT_BROKER, settings.dynamic_default.get),
        (Source.STATIC_BROKER, given),
        (Source.DEFAULT, default),
    )


def _entry(
    option: Option, value: str | None, synonyms: tuple[Synonym, ...], read_only: bool
) -> ConfigEntry:
    source = synonyms[0].source if synonyms else Source.DEFAULT
    return ConfigEntry(
        option.name,
        value,
        source,
        read_only,
        option.sensitive,
        synonyms,
        option.type,
        option.doc,
    )


def _foreign_entry(name: str, synonyms: tuple[Synonym, ...]) -> ConfigEntry:
    source = synonyms[0].source if synonyms else Source.DEFAULT
    return ConfigEntry(name, None, source, True, True, synonyms, UNKNOWN_TYPE, "")

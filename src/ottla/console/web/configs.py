"""Configs of a topic or broker as a table: values, where they come from, which may be changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ottla.client.admin import Admin, ConfigResource

SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "topic",
    "DYNAMIC_BROKER_CONFIG": "broker, dynamic",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "all brokers, dynamic",
    "STATIC_BROKER_CONFIG": "broker's file",
    "DEFAULT_CONFIG": "default",
    "DYNAMIC_BROKER_LOGGER_CONFIG": "broker's loggers",
    "DYNAMIC_CLIENT_METRICS_CONFIG": "client metrics",
    "DYNAMIC_GROUP_CONFIG": "group",
}
OWN_SOURCES = {  # set on the thing itself, by its kind
    "topic": "DYNAMIC_TOPIC_CONFIG",
    "broker": "DYNAMIC_BROKER_CONFIG",
    "group": "DYNAMIC_GROUP_CONFIG",
}
ALL_BROKERS = ""  # the broker of which dynamic configs hold for all


class Origin(NamedTuple):
    """One of the places where a value may stand; the first that has it wins."""

    name: str
    value: str | None
    source: str


class ConfigLine(NamedTuple):
    name: str
    value: str | None
    source: str
    own: bool  # set on the thing itself
    default: bool
    editable: bool
    sensitive: bool
    kind: str
    documentation: str
    origins: tuple[Origin, ...]


def read_configs(admin: Admin, kind: str, name: str) -> list[ConfigLine]:
    """All configs, those that were set first."""
    resource = ConfigResource(kind, name)
    found = admin.describe_configs(
        [resource], include_synonyms=True, config_filter="all", include_documentation=True
    )
    return lines_of(kind, name, found.get(kind, {}).get(name, {}))


def lines_of(kind: str, name: str, configs: Mapping[str, Mapping[str, Any]]) -> list[ConfigLine]:
    own = OWN_SOURCES.get(kind, "")
    if kind == "broker" and name == ALL_BROKERS:
        own = "DYNAMIC_DEFAULT_BROKER_CONFIG"
    lines = [_line(each, config, own) for each, config in configs.items()]
    return sorted(lines, key=lambda line: (line.default, line.name))


def _line(name: str, config: Mapping[str, Any], own: str) -> ConfigLine:
    source = config["config_source"]
    return ConfigLine(
        name=name,
        value=config["value"],
        source=SOURCES.get(source, "unknown"),
        own=source == own,
        default=source == "DEFAULT_CONFIG",
        editable=not config["read_only"],
        sensitive=config["is_sensitive"],
        kind=config.get("config_type", "UNKNOWN").lower(),
        documentation=config.get("documentation") or "",
        origins=tuple(
            Origin(each["name"], each["value"], SOURCES.get(each["source"], "unknown"))
            for each in config.get("synonyms") or ()
        ),
    )


def chosen(lines: Iterable[ConfigLine], search: str, only: str) -> list[ConfigLine]:
    words = search.lower().split()
    return [
        line
        for line in lines
        if all(word in line.name.lower() for word in words)
        and (only != "set" or not line.default)
        and (only != "editable" or line.editable)
    ]

"""Every option of a broker and of its topics, declared once, under Kafka's names.

`Settings` is what a broker runs with, `LogConfig` what a partition's log does; `TOPIC_CONFIGS` and
`BROKER_OPTIONS` are the declarations.

They are imported when they are first used: who only reads a property file, as the agent does, need
not have all options of a broker in memory.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.settings.broker import BROKER_OPTIONS
    from ottla.settings.checks import Problem, SettingsError
    from ottla.settings.listeners import Listener
    from ottla.settings.log_config import LogConfig
    from ottla.settings.option import InvalidValue, Option, Standing, Type, Update
    from ottla.settings.properties import Entry, MalformedProperties, parse_properties
    from ottla.settings.settings import Settings
    from ottla.settings.sources import (
        broker_rows,
        entries_of_environment,
        entry_of_assignment,
        topic_rows,
    )
    from ottla.settings.topic import TOPIC_CONFIGS, validate_topic_config
    from ottla.settings.validate import (
        ConfigRules,
        validate_broker_configs,
        validate_topic_configs,
    )

MODULES = {
    "BROKER_OPTIONS": "broker",
    "Problem": "checks",
    "SettingsError": "checks",
    "Listener": "listeners",
    "LogConfig": "log_config",
    "InvalidValue": "option",
    "Option": "option",
    "Standing": "option",
    "Type": "option",
    "Update": "option",
    "Entry": "properties",
    "MalformedProperties": "properties",
    "parse_properties": "properties",
    "Settings": "settings",
    "broker_rows": "sources",
    "entries_of_environment": "sources",
    "entry_of_assignment": "sources",
    "topic_rows": "sources",
    "TOPIC_CONFIGS": "topic",
    "validate_topic_config": "topic",
    "ConfigRules": "validate",
    "validate_broker_configs": "validate",
    "validate_topic_configs": "validate",
}

__all__ = [
    "BROKER_OPTIONS",
    "TOPIC_CONFIGS",
    "ConfigRules",
    "Entry",
    "InvalidValue",
    "Listener",
    "LogConfig",
    "MalformedProperties",
    "Option",
    "Problem",
    "Settings",
    "SettingsError",
    "Standing",
    "Type",
    "Update",
    "broker_rows",
    "entries_of_environment",
    "entry_of_assignment",
    "parse_properties",
    "topic_rows",
    "validate_broker_configs",
    "validate_topic_config",
    "validate_topic_configs",
]


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{MODULES[name]}", __name__), name)

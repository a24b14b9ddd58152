"""Every option of a broker and of its topics, declared once, under Kafka's names.

`Settings` is what a broker runs with, `LogConfig` what a partition's log does; `TOPIC_CONFIGS` and
`BROKER_OPTIONS` are the declarations.
"""

from ottla.settings.broker import BROKER_OPTIONS
from ottla.settings.checks import Problem, SettingsError
from ottla.settings.listeners import Listener
from ottla.settings.log_config import LogConfig
from ottla.settings.option import InvalidValue, Option, Standing, Type, Update
from ottla.settings.properties import Entry, MalformedProperties, parse_properties
from ottla.settings.settings import Settings, log_config
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
    "log_config",
    "parse_properties",
    "topic_rows",
    "validate_broker_configs",
    "validate_topic_config",
    "validate_topic_configs",
]

"""Every option of a broker and of its topics, declared once, under Kafka's names."""

from ottla.settings.log_config import LogConfig
from ottla.settings.option import InvalidValue, Option
from ottla.settings.topic import TOPIC_CONFIGS, validate_topic_config

__all__ = ["TOPIC_CONFIGS", "InvalidValue", "LogConfig", "Option", "validate_topic_config"]

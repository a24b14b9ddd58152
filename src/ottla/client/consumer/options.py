"""The options of a consumer: kafka-python's names, Kafka's meaning and defaults.

Where the two differ in a default, kafka-python's stands (`auto_offset_reset` is `latest` in both).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import cast

from ..assignors import DEFAULT_ASSIGNORS, assignors
from ..config import (
    COMMON,
    Option,
    anything,
    boolean,
    callable_or_object,
    endless,
    ignored,
    integer,
    one_of,
    optional,
    parse,
    text,
)
from ..errors import KafkaConfigurationError
from ..serializers import serializer_option
from ..typed_config import ConsumerConfig

DEFAULT_REQUEST_TIMEOUT_MS = 30_000
OLD_RESETS = {"smallest": "earliest", "largest": "latest"}


def reset_policy(value: object) -> str:
    """What to do without a position; old names of the policies are known too."""
    if isinstance(value, str):
        value = OLD_RESETS.get(value.lower(), value.lower())
    if value not in ("earliest", "latest", "none"):
        raise ValueError("'earliest', 'latest' or 'none'")
    return str(value)


def instance_id(value: object) -> str:
    if (
        not isinstance(value, str)
        or not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", value)
        or value in (".", "..")
    ):
        raise ValueError("1 to 249 letters, digits, '.', '_' and '-'")
    return value


def isolation(value: object) -> str:
    if value in (0, 1) and not isinstance(value, bool):
        return ("read_uncommitted", "read_committed")[value]
    return str(one_of("read_uncommitted", "read_committed")(value))


def listed(value: object) -> list[object]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


CONSUMER: tuple[Option, ...] = (
    *COMMON,
    Option("client_rack", text, "", "where this client is, for fetching from near replicas"),
    Option("group_id", optional(text), None, "the group to join and to commit for"),
    Option("group_protocol", one_of("classic", "consumer"), "classic",
           "who assigns partitions: a member, or with 'consumer' the broker (KIP-848)"),
    Option("group_remote_assignor", optional(text), None,
           "the broker's assignor ('uniform', 'range'); without it the broker chooses"),
    Option("group_instance_id", optional(instance_id), None, "name of a static member (KIP-345)"),
    Option("key_deserializer", serializer_option, None, "bytes to key: a function or a name"),
    Option("value_deserializer", serializer_option, None, "bytes to value, likewise"),
    Option("enable_incremental_fetch_sessions", ignored, True, "taken and ignored"),
    Option("fetch_min_bytes", integer(0), 1, "answer a fetch when there is so much"),
    Option(
        "fetch_max_wait_ms", integer(0), 500, "answer a fetch after so long at the latest",
        ("fetch.wait.max.ms",),
    ),
    Option("fetch_max_bytes", integer(0), 52_428_800, "the most in one answer, and in waiting"),
    Option("max_partition_fetch_bytes", integer(0), 1_048_576, "the most of one partition"),
    Option("auto_offset_reset", reset_policy, "latest", "where to begin without a position"),
    Option("enable_auto_commit", boolean, True, "commit what was polled from time to time"),
    Option("auto_commit_interval_ms", integer(0), 5_000, "how often"),
    Option("default_offset_commit_callback", optional(callable_or_object()), None,
           "called with (offsets, error or None) after commits without a callback of their own"),
    Option("check_crcs", boolean, True, "check the sum of every batch"),
    Option("isolation_level", isolation, "read_uncommitted", "whether to see open transactions"),
    Option("allow_auto_create_topics", boolean, True, "let the broker create missing topics"),
    Option("partition_assignment_strategy", assignors, DEFAULT_ASSIGNORS,
           "names, classes or objects, the best first"),
    Option("max_poll_records", integer(1), 500, "the most that one poll returns"),
    Option("max_poll_interval_ms", integer(1), 300_000, "the longest time between polls"),
    Option("session_timeout_ms", integer(1), 45_000, "leave the group when silent so long"),
    Option("heartbeat_interval_ms", integer(1), 3_000, "how often to tell the group we live"),
    Option("consumer_timeout_ms", endless(-1), math.inf, "end an iteration when nothing came"),
    Option("exclude_internal_topics", boolean, True, "a pattern never matches internal topics"),
    Option("interceptors", listed, (), "objects with on_consume, on_commit", (
        "interceptor.classes",)),
    Option("metric_group_prefix", anything, "consumer", "the name of the group in metrics()"),
)  # fmt: skip


def read_options(
    keywords: Mapping[str, object], properties: Mapping[str, object] | None
) -> ConsumerConfig:
    """All options, checked against each other too."""
    config = cast(ConsumerConfig, parse(CONSUMER, keywords, properties, who="Consumer"))
    config["partition_assignment_strategy"] = assignors(config["partition_assignment_strategy"])
    if config["group_instance_id"] is not None and config["group_id"] is None:
        raise KafkaConfigurationError("Consumer: group_instance_id needs a group_id\nTry: group_id")
    check_protocol(config, {name.replace(".", "_") for name in (*keywords, *(properties or {}))})
    if config["heartbeat_interval_ms"] >= config["session_timeout_ms"]:
        raise KafkaConfigurationError(
            f"Consumer: heartbeat_interval_ms ({config['heartbeat_interval_ms']}) must be less "
            f"than session_timeout_ms ({config['session_timeout_ms']})\n"
            "Try: a third of it"
        )
    if config["fetch_max_wait_ms"] >= config["request_timeout_ms"]:
        raise KafkaConfigurationError(
            f"Consumer: fetch_max_wait_ms ({config['fetch_max_wait_ms']}) must be less than "
            f"request_timeout_ms ({config['request_timeout_ms']})"
        )
    # A broker counts records, not the frame around them, and sends one whole batch whatever its
    # size.
    frame_bytes = config["fetch_max_bytes"] + config["max_partition_fetch_bytes"]
    config["receive_message_max_bytes"] = max(config["receive_message_max_bytes"], frame_bytes)
    return config


def check_protocol(config: ConsumerConfig, given: set[str]) -> None:
    """Options that only one of the two group protocols has."""
    consumer = config["group_protocol"] == "consumer"
    for name, where in (
        ("session_timeout_ms", "consumer.session.timeout.ms"),
        ("heartbeat_interval_ms", "consumer.heartbeat.interval.ms"),
        ("partition_assignment_strategy", "group_remote_assignor"),
    ):
        if consumer and name in given:
            raise KafkaConfigurationError(
                f"Consumer: {name} cannot be set with group_protocol='consumer': the broker "
                f"decides\nTry: without it; {where} takes its place"
            )
    if config["group_remote_assignor"] is not None and not consumer:
        raise KafkaConfigurationError(
            "Consumer: group_remote_assignor is for group_protocol='consumer' alone\n"
            "Try: partition_assignment_strategy, or group_protocol='consumer'"
        )

"""The options of a share consumer: Kafka's names with underscores, Kafka's meaning and defaults."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

from ..config import COMMON, Option, boolean, endless, integer, one_of, parse, text
from ..serializers import serializer_option
from ..typed_config import ShareConsumerConfig

SHARE_CONSUMER: tuple[Option, ...] = (
    *COMMON,
    Option("client_rack", text, "", "where this client is"),
    Option("group_id", text, "", "the share group to join; it must be given"),
    Option("key_deserializer", serializer_option, None, "bytes to key: a function or a name"),
    Option("value_deserializer", serializer_option, None, "bytes to value, likewise"),
    Option("fetch_min_bytes", integer(0), 1, "answer a fetch when there is so much"),
    Option(
        "fetch_max_wait_ms", integer(0), 500, "answer a fetch after so long at the latest",
        ("fetch.wait.max.ms",),
    ),
    Option("fetch_max_bytes", integer(1), 52_428_800, "the most in one answer"),
    Option("check_crcs", boolean, True, "check the sum of every batch"),
    Option("max_poll_records", integer(1), 500, "how many records a poll asks for"),
    Option("share_acknowledgement_mode", one_of("implicit", "explicit"), "implicit",
           "accept what was polled with the next poll, or wait for acknowledge"),
    Option("share_acquire_mode", one_of("batch_optimized", "record_limit"), "batch_optimized",
           "whole batches, or never more than max_poll_records"),
    Option("consumer_timeout_ms", endless(-1), math.inf, "end an iteration when nothing came"),
)  # fmt: skip


def read_options(
    keywords: Mapping[str, object], properties: Mapping[str, object] | None
) -> ShareConsumerConfig:
    """All options, checked."""
    return cast(
        ShareConsumerConfig, parse(SHARE_CONSUMER, keywords, properties, who="ShareConsumer")
    )

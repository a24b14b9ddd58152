"""The options of the producer."""

from __future__ import annotations

import math
from typing import Final

from ..config import COMMON, Option, anything, boolean, endless, integer, optional, text
from ..errors import KafkaConfigurationError
from ..serializers import serializer_option
from ..typed_config import ProducerConfig
from .partitioners import DefaultPartitioner, partitioner_option

KIB = 1024
MAX_IN_FLIGHT: Final = "max_in_flight_requests_per_connection"
IDEMPOTENT_IN_FLIGHT_MAX = 5  # as many batches as a broker remembers
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def acks(value: object) -> int:
    if value in ("all", "-1", -1):
        return -1
    if not isinstance(value, bool) and value in (0, 1, "0", "1"):
        return int(value)
    raise ValueError("0, 1 or 'all'")


def codec(value: object) -> int:
    if value is None:
        return 0
    if isinstance(value, str) and value.lower() in CODECS:
        return CODECS[value.lower()]
    raise ValueError("None or one of " + ", ".join(repr(name) for name in CODECS))


def interceptor_list(value: object) -> list[object]:
    items = list(value) if isinstance(value, list | tuple) else [value]
    for item in items:
        if not hasattr(item, "on_send") and not hasattr(item, "on_acknowledgement"):
            raise ValueError("a list of interceptors (objects with on_send, on_acknowledgement)")
    return items


PRODUCER: tuple[Option, ...] = (
    *COMMON,
    Option("key_serializer", serializer_option, None, "how keys become bytes", ("key.serializer",)),
    Option("value_serializer", serializer_option, None, "how values become bytes"),
    Option("partitioner", partitioner_option, DefaultPartitioner(), "which partition",
           ("partitioner.class",)),
    Option("interceptors", interceptor_list, [], "see records before and outcomes after",
           ("interceptor.classes",)),
    Option("acks", acks, -1, "who must have the record: no broker (0), the leader (1), 'all'",
           ("request.required.acks",)),
    Option("compression_type", codec, 0, "None, 'gzip', 'snappy', 'lz4' or 'zstd'",
           ("compression.codec",)),
    Option("compression_level", optional(integer()), None, "the codec's own scale",
           ("compression.gzip.level", "compression.lz4.level", "compression.zstd.level")),
    Option("enable_idempotence", boolean, True, "write each record once, in order"),
    Option("batch_size", integer(0), 256 * KIB, "the most bytes in one batch"),
    Option("linger_ms", integer(0), 5, "wait so long for more records, unless a caller waits"),
    Option("buffer_memory", integer(1), 64 * KIB * KIB, "bytes of records not sent yet"),
    Option("max_block_ms", integer(0), 60_000, "how long send() may wait for memory or metadata"),
    Option("max_request_size", integer(1), KIB * KIB, "the largest request, so the largest record"),
    Option("retries", endless(0), math.inf, "how often a failed batch is sent again"),
    Option("delivery_timeout_ms", integer(1), 120_000, "when a record has failed for good"),
    Option("allow_auto_create_topics", boolean, True, "let the broker make a missing topic"),
    Option("transactional_id", optional(text), None, "a name, to send in transactions"),
    Option("transaction_timeout_ms", integer(1), 60_000, "when the broker aborts for us"),
    Option("metric_group_prefix", anything, "producer", "taken and ignored"),
)  # fmt: skip


def agree(config: ProducerConfig, given: set[str]) -> bool:
    """Whether the producer is idempotent; options that contradict each other are refused."""
    conflicts = []
    if config["acks"] != -1:
        conflicts.append("acks must be 'all'")
    if config[MAX_IN_FLIGHT] > IDEMPOTENT_IN_FLIGHT_MAX:
        conflicts.append(f"{MAX_IN_FLIGHT} must be {IDEMPOTENT_IN_FLIGHT_MAX} or less")
    if config["retries"] == 0:
        conflicts.append("retries must be more than 0")
    wanted = "enable_idempotence" in given or config["transactional_id"] is not None
    if config["transactional_id"] is not None and not config["enable_idempotence"]:
        raise KafkaConfigurationError("Producer: transactional_id needs enable_idempotence=True")
    if config["enable_idempotence"] and conflicts and wanted:
        raise KafkaConfigurationError(
            f"Producer: an idempotent producer needs other options: {', '.join(conflicts)}\n"
            "Try: leave them at their defaults, or enable_idempotence=False"
        )
    least_ms = config["linger_ms"] + config["request_timeout_ms"]
    if config["delivery_timeout_ms"] < least_ms:
        if "delivery_timeout_ms" in given:
            raise KafkaConfigurationError(
                f"Producer: delivery_timeout_ms must be linger_ms + request_timeout_ms = "
                f"{least_ms} or more (got {config['delivery_timeout_ms']})"
            )
        config["delivery_timeout_ms"] = least_ms
    config["batch_size"] = min(config["batch_size"], max(config["max_request_size"] - KIB, 0))
    return bool(config["enable_idempotence"] and not conflicts)

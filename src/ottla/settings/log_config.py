"""What one partition's log needs to know: a topic's configs over the broker's, as plain values.

`LogConfig()` alone carries Kafka's defaults; `log_config(settings, overrides)` makes the real one.
It is immutable and shared: partitions of topics with the same overrides hold the same object.
"""

from typing import Any, NamedTuple

from ottla.settings.option import DAY_MS, HOUR_MS, LONG_MAX, GiB, MiB, Value
from ottla.settings.topic import MAX_MESSAGE_BYTES_DEFAULT

DELETE: frozenset[str] = frozenset(("delete",))


class LogConfig(NamedTuple):
    segment_bytes: int = GiB
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * MiB
    index_interval_bytes: int = 4096
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    retention_bytes: int = -1  # -1: no limit
    retention_ms: int = 7 * DAY_MS  # -1: for ever
    max_message_bytes: int = MAX_MESSAGE_BYTES_DEFAULT
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    file_delete_delay_ms: int = 60_000
    min_cleanable_dirty_ratio: float = 0.5
    cleanup_policy: frozenset[str] = DELETE
    min_insync_replicas: int = 1
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = HOUR_MS
    # `partition:broker` each, or `*` (KIP-73); no log reads them, but the replica of one does.
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    # The broker's alone; a topic cannot override it.
    producer_id_expiration_ms: int = DAY_MS

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"


# LogConfig's fields that are topic configs, by the topic config's name.
_FIELDS: dict[str, str] = {
    field.replace("_", "."): field
    for field in LogConfig._fields
    if field != "producer_id_expiration_ms"
}


def log_config_of(values: dict[str, Value], *, producer_id_expiration_ms: int) -> LogConfig:
    """From the parsed values of all topic configs (see `Settings.topic_values`)."""
    fields: dict[str, Any] = {field: values[name] for name, field in _FIELDS.items()}
    fields["cleanup_policy"] = frozenset(fields["cleanup_policy"])
    segment_bytes = values.get("internal.segment.bytes")
    if segment_bytes is not None:
        fields["segment_bytes"] = segment_bytes
    return LogConfig(producer_id_expiration_ms=producer_id_expiration_ms, **fields)

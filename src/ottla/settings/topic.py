"""The configs of a topic, as Apache Kafka 4.3 lists them, and where their defaults come from."""

import re

from ottla.settings.option import (
    BOOLEAN,
    DAY_MS,
    DOUBLE,
    HOUR_MS,
    IDLE,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    MEDIUM,
    MINUTE_MS,
    STRING,
    GiB,
    InvalidValue,
    MiB,
    Option,
    Rule,
    Value,
)
from ottla.settings.rules import at_least, between, between_or, items_of, one_of

# What Kafka counts as one message by default: 1 MiB and the 12 bytes of offset and size before it.
MAX_MESSAGE_BYTES_DEFAULT = MiB + 12
COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
REPLICAS_FORMAT = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."

_REPLICA = re.compile(r"[0-9]+:[0-9]+")


def _check_throttled(name: str, value: Value) -> None:
    assert isinstance(value, tuple)
    if value and value != ("*",) and not all(_REPLICA.fullmatch(item) for item in value):
        reason = f"{name} must be the literal '*' or a list of replicas in the following format: "
        raise InvalidValue(name, value, reason + REPLICAS_FORMAT)


THROTTLED_REPLICAS = Rule(REPLICAS_FORMAT, _check_throttled)
TIMESTAMP_TYPES = one_of("CreateTime", "LogAppendTime")

_OPTIONS = (
    Option("segment.bytes", INT, GiB, at_least(MiB), MEDIUM,
           "A segment file that reaches this size is closed and a new one begun."),
    Option("segment.ms", LONG, 7 * DAY_MS, at_least(1), MEDIUM,
           "A segment older than this is closed even when not full, so that it can be retired."),
    Option("segment.jitter.ms", LONG, 0, at_least(0), MEDIUM,
           "Up to this much is taken off segment.ms at random, lest all partitions roll at once."),
    Option("segment.index.bytes", INT, 10 * MiB, at_least(4), MEDIUM,
           "The largest an index file may grow; a full index rolls the segment."),
    Option("flush.messages", LONG, LONG_MAX, at_least(1), MEDIUM,
           "fsync after this many records. The default leaves it to the operating system."),
    Option("flush.ms", LONG, LONG_MAX, at_least(0), MEDIUM,
           "fsync when records are this old. The default leaves it to the operating system."),
    Option("retention.bytes", LONG, -1, None, MEDIUM,
           "Old segments are deleted while the partition is larger than this; -1 for no limit."),
    Option("retention.ms", LONG, 7 * DAY_MS, at_least(-1), MEDIUM,
           "Segments whose newest record is older than this are deleted; -1 keeps them for ever."),
    Option("max.message.bytes", INT, MAX_MESSAGE_BYTES_DEFAULT, at_least(0), MEDIUM,
           "The largest record batch (after compression) that is accepted."),
    Option("index.interval.bytes", INT, 4096, at_least(0), MEDIUM,
           "One index entry for about so many bytes of log."),
    Option("delete.retention.ms", LONG, DAY_MS, at_least(0), MEDIUM,
           "How long a compacted topic keeps the marker of a deleted key."),
    Option("min.compaction.lag.ms", LONG, 0, at_least(0), MEDIUM,
           "A record younger than this is not compacted away."),
    Option("max.compaction.lag.ms", LONG, LONG_MAX, at_least(1), MEDIUM,
           "A record older than this makes its log due for compaction whatever the dirty ratio."),
    Option("file.delete.delay.ms", LONG, 60_000, at_least(0), MEDIUM,
           "How long a file stays under its .deleted name before it is removed."),
    Option("min.cleanable.dirty.ratio", DOUBLE, 0.5, between(0, 1), MEDIUM,
           "Compaction begins when this share of the log has not been compacted yet."),
    Option("cleanup.policy", LIST, ("delete",), items_of("compact", "delete"), MEDIUM,
           "What becomes of old records: `delete`, `compact` to the newest per key, or both."),
    Option("unclean.leader.election.enable", BOOLEAN, False, None, MEDIUM,
           "Whether a replica that is behind may become leader if no other is left."),
    Option("min.insync.replicas", INT, 1, at_least(1), MEDIUM,
           "With acks=all, a write needs at least this many replicas in sync."),
    Option("compression.type", STRING, "producer", one_of(*COMPRESSION_TYPES), MEDIUM,
           "The compression on disk; `producer` keeps what the producer chose."),
    Option("compression.gzip.level", INT, -1, between_or(1, 9, -1), MEDIUM,
           "The gzip level, when compression.type is gzip."),
    Option("compression.lz4.level", INT, 9, between(1, 17), MEDIUM,
           "The lz4 level, when compression.type is lz4."),
    Option("compression.zstd.level", INT, 3, between(-131072, 22), MEDIUM,
           "The zstd level, when compression.type is zstd."),
    Option("preallocate", BOOLEAN, False, None, MEDIUM,
           "Reserve a new segment's full size on disk at once.", standing=IDLE),
    Option("message.timestamp.type", STRING, "CreateTime", TIMESTAMP_TYPES, MEDIUM,
           "Whether a record's time is the producer's or that of its arrival."),
    Option("message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0), MEDIUM,
           "A record whose time lies further back than this is refused (CreateTime only)."),
    Option("message.timestamp.after.max.ms", LONG, HOUR_MS, at_least(0), MEDIUM,
           "A record whose time lies further ahead than this is refused (CreateTime only)."),
    Option("leader.replication.throttled.replicas", LIST, (), THROTTLED_REPLICAS, MEDIUM,
           "Replicas whose leaders obey the replication quota; * for all."),
    Option("follower.replication.throttled.replicas", LIST, (), THROTTLED_REPLICAS, MEDIUM,
           "Replicas that obey the replication quota as followers; * for all."),
    Option("remote.storage.enable", BOOLEAN, False, None, MEDIUM,
           "Keep old segments in tiered storage.", standing=IDLE),
    Option("local.retention.ms", LONG, -2, at_least(-2), MEDIUM,
           "With tiered storage, how long segments stay local; -2 as retention.ms.", standing=IDLE),
    Option("local.retention.bytes", LONG, -2, at_least(-2), MEDIUM,
           "With tiered storage, how many bytes stay local; -2 as retention.bytes.", standing=IDLE),
    Option("remote.log.copy.disable", BOOLEAN, False, None, MEDIUM,
           "With tiered storage, copy no more segments to it.", standing=IDLE),
    Option("remote.log.delete.on.disable", BOOLEAN, False, None, MEDIUM,
           "Delete the topic's tiered data when tiered storage is switched off.", standing=IDLE),
    Option("errors.deadletterqueue.group.enable", BOOLEAN, False, None, MEDIUM,
           "Whether groups may write what they give up to this topic (KIP-1191).", since="4.4"),
    Option("internal.segment.bytes", INT, None, None, MEDIUM,
           "As segment.bytes without its lower limit; for tests.", internal=True),
)  # fmt: skip

TOPIC_CONFIGS: dict[str, Option] = {option.name: option for option in _OPTIONS}

# A topic config's default is a broker option, or the first of several that is set; some count in
# other units, so each comes with the factor that makes it the topic's.
SYNONYMS: dict[str, tuple[tuple[str, int], ...]] = {
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", MINUTE_MS),
        ("log.retention.hours", HOUR_MS),
    ),
    "max.message.bytes": (("message.max.bytes", 1),),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "preallocate": (("log.preallocate", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
}


def validate_topic_config(name: str, value: str | None) -> str | None:
    """What is wrong with one topic config, in Kafka's words; None when nothing is."""
    option = TOPIC_CONFIGS.get(name)
    if option is None:
        return f"Unknown topic config name: {name}"
    try:
        option.parse(value)
    except InvalidValue as error:
        return str(error)
    return None

"""The channels: Flume 1.11's options and defaults."""

from __future__ import annotations

from .between import transaction_within_capacity
from .client_options import SERVERS
from .options import FLAG, FROM_0, FROM_1, ITEMS, NUMBER, PATH, TEXT, Option, between
from .types import PartKind, PartType

CHANNEL = PartKind.CHANNEL
WAITS = "a source waits as long as the channel is full"
ONE_LOG = "this channel has one log and finds its end by itself"
OLD_KAFKA = "it belongs to clients of old Kafka"

MEMORY = PartType(
    CHANNEL, "memory", ("org.apache.flume.channel.MemoryChannel",),
    "Events in memory.",
    options=(
        Option("capacity", NUMBER, 100, FROM_1, "Events that it holds at most."),
        Option("transactionCapacity", NUMBER, 100, FROM_1,
               "Events that a source puts or a sink takes at a time."),
        Option("keep-alive", NUMBER, 3, FROM_0, "Seconds that Flume waits for space.", idle=WAITS),
        Option("byteCapacity", NUMBER, None, FROM_0,
               "Bytes of bodies that it holds at most; 0 is no limit. Flume: 80 % of the JVM's "
               "memory; here 32 MiB unless set. 2 MiB at most of what can be read again."),
        Option("byteCapacityBufferPercentage", NUMBER, 20, between(0, 100),
               "The part of byteCapacity that is kept for headers."),
    ),
    between=transaction_within_capacity,
)  # fmt: skip

ONE_SYNC = "one sync serves all that waits for it"

FILE = PartType(
    CHANNEL, "file", ("org.apache.flume.channel.file.FileChannel",),
    "Events on disk, synced; they are there after a crash.",
    options=(
        Option("dataDirs", ITEMS, None, None,
               "Where its files are; the first of several. Unless set, in the agent's data "
               "directory."),
        Option("checkpointDir", PATH, None, None,
               "Where what is delivered is kept; unless set, beside the data."),
        Option("capacity", NUMBER, 1_000_000, FROM_1, "Events that it holds at most."),
        Option("transactionCapacity", NUMBER, 10_000, FROM_1,
               "Events that a source puts or a sink takes at a time."),
        Option("checkpointInterval", NUMBER, 30_000, FROM_1, "Milliseconds between checkpoints.",
               idle="one is written each second"),
        Option("maxFileSize", NUMBER, 2_146_435_071, FROM_1, "The bytes of a file at most."),
        Option("minimumRequiredSpace", NUMBER, 524_288_000, FROM_0,
               "Free bytes on the disk below which nothing is put."),
        Option("fsyncPerTransaction", FLAG, True, None, "Whether a put returns when it is synced.",
               idle=ONE_SYNC),
        Option("fsyncInterval", NUMBER, 5, FROM_1, "Seconds between syncs otherwise.",
               idle=ONE_SYNC),
        Option("checkpointOnClose", FLAG, True, None,
               "Whether a checkpoint is written at the end.", idle="one is always written"),
        Option("keep-alive", NUMBER, 3, FROM_0, "Seconds that Flume waits for space.", idle=WAITS),
        Option("useDualCheckpoints", FLAG, False, None, "A second checkpoint.", idle=ONE_LOG),
        Option("backupCheckpointDir", PATH, None, None, "Where that is.", idle=ONE_LOG),
        Option("compressBackupCheckpoint", FLAG, False, None, "Whether it is compressed.",
               idle=ONE_LOG),
        Option("use-log-replay-v1", FLAG, False, None, "Of old Flume.", idle=ONE_LOG),
        Option("use-fast-replay", FLAG, False, None, "Replay without the queue.", idle=ONE_LOG),
        Option("encryption.", TEXT, None, None, "Encryption of the files.",
               forbidden="cannot be honoured: this channel does not encrypt; put dataDirs on an "
                         "encrypted disk"),
    ),
    between=transaction_within_capacity,
    differs="Its files are Ottla's own: let Flume drain its channel before you move.",
)  # fmt: skip

KAFKA_CHANNEL = PartType(
    CHANNEL, "kafka", ("org.apache.flume.channel.kafka.KafkaChannel",),
    "A topic as the channel, also without a source or without a sink.",
    options=(
        Option("kafka.bootstrap.servers", TEXT, None, SERVERS, "Brokers to ask first.",
               required=True),
        Option("kafka.topic", TEXT, "flume-channel", None, "The topic."),
        Option("kafka.consumer.", TEXT, None, None,
               "Options of the consumer, such as kafka.consumer.group.id (flume unless set)."),
        Option("kafka.producer.", TEXT, None, None, "Options of the producer."),
        Option("parseAsFlumeEvent", FLAG, True, None,
               "Whether values are Flume's Avro events, with headers."),
        Option("kafka.pollTimeout", NUMBER, 500, FROM_0, "Milliseconds that a poll waits."),
        Option("defaultPartitionId", NUMBER, None, FROM_0, "The partition of all events."),
        Option("partitionIdHeader", TEXT, None, None, "A header that has the partition."),
        Option("migrateZookeeperOffsets", FLAG, True, None, "Of old Kafka.", idle=OLD_KAFKA),
        Option("zookeeperConnect", TEXT, None, None, "Of old Kafka.", idle=OLD_KAFKA),
        Option("readSmallestOffset", FLAG, False, None,
               "Use kafka.consumer.auto.offset.reset.", idle=OLD_KAFKA),
        Option("capacity", NUMBER, None, None, "A topic has none.", idle="a topic has no capacity"),
        Option("transactionCapacity", NUMBER, None, None, "A topic has none.",
               idle="a topic has no capacity"),
    ),
    aliases=("kafkachannel",),
    renamed={"brokerList": "kafka.bootstrap.servers", "topic": "kafka.topic",
             "groupId": "kafka.consumer.group.id", "pollTimeout": "kafka.pollTimeout"},
)  # fmt: skip

CHANNELS = (MEMORY, FILE, KAFKA_CHANNEL)

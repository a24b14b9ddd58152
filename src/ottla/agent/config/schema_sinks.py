"""The sinks: Flume 1.11's options and defaults, and ours beside them."""

from __future__ import annotations

from .client_options import SERVERS
from .options import FLAG, FROM_0, FROM_1, NUMBER, PATH, TEXT, Option
from .types import PartKind, PartType

SINK = PartKind.SINK
AVRO_FILES = "must be text or header_and_text: Avro's container files are not written here"
SERIALIZATION = "org.apache.flume.serialization"
SERIALIZERS = {
    "text": "text",
    f"{SERIALIZATION}.BodyTextEventSerializer": "text",
    "header_and_text": "header_and_text",
    f"{SERIALIZATION}.HeaderAndBodyTextEventSerializer": "header_and_text",
}
AVRO_SERIALIZERS = {
    "avro_event": AVRO_FILES,
    f"{SERIALIZATION}.FlumeEventAvroEventSerializer": AVRO_FILES,
}

KAFKA_SINK = PartType(
    SINK, "kafka", ("org.apache.flume.sink.kafka.KafkaSink",),
    "Records of a topic.",
    options=(
        Option("kafka.bootstrap.servers", TEXT, None, SERVERS, "Brokers to ask first.",
               required=True),
        Option("kafka.topic", TEXT, "default-flume-topic", None,
               "The topic; %{header} stands for a header's value, %Y-%m-%d for the time of the "
               "header timestamp."),
        Option("flumeBatchSize", NUMBER, 100, FROM_1, "Events that are delivered together."),
        Option("kafka.producer.", TEXT, None, None,
               "Options of the producer, such as kafka.producer.acks (1 unless set, as in Flume)."),
        Option("useFlumeEventFormat", FLAG, False, None,
               "Whether values are Flume's Avro events, with headers."),
        Option("defaultPartitionId", NUMBER, None, FROM_0, "The partition of all events."),
        Option("partitionIdHeader", TEXT, None, None, "A header that has the partition."),
        Option("allowTopicOverride", FLAG, True, None, "Whether a header may name the topic."),
        Option("topicHeader", TEXT, "topic", None, "The name of that header."),
        Option("timestampHeader", TEXT, None, None,
               "A header that has the record's timestamp in milliseconds."),
        Option("header.", TEXT, None, None,
               "Headers that become headers of records: header.HEADER = NAME."),
        Option("delivery", TEXT, None, None,
               "exactly-once or at-least-once; unless set, exactly-once where its sources can "
               "read again.",
               choices={"exactly-once": "exactly-once", "exactly_once": "exactly-once",
                        "at-least-once": "at-least-once", "at_least_once": "at-least-once"},
               ours=True),
    ),
    aliases=("kafkasink",),
    renamed={"kafka.flumeBatchSize": "flumeBatchSize", "batchSize": "flumeBatchSize",
             "brokerList": "kafka.bootstrap.servers", "topic": "kafka.topic",
             "requiredAcks": "kafka.producer.acks"},
    keeps_positions=True,
    batch_option="flumeBatchSize",
)  # fmt: skip

LOGGER = PartType(
    SINK, "logger", ("org.apache.flume.sink.LoggerSink",),
    "A line of the log for each event.",
    options=(
        Option("maxBytesToLog", NUMBER, 16, FROM_1, "The bytes of a body that are shown."),
    ),
)  # fmt: skip

NULL = PartType(
    SINK, "null", ("org.apache.flume.sink.NullSink",),
    "Takes events and drops them.",
    options=(
        Option("batchSize", NUMBER, 100, FROM_1, "Events that are taken together."),
        Option("logEveryNEvents", NUMBER, 10_000, FROM_1, "How often their number is logged."),
    ),
    batch_option="batchSize",
)  # fmt: skip

FILE_ROLL = PartType(
    SINK, "file_roll", ("org.apache.flume.sink.RollingFileSink",),
    "Files in a directory.",
    options=(
        Option("sink.directory", PATH, None, None, "The directory.", required=True),
        Option("sink.rollInterval", NUMBER, 30, FROM_0,
               "Seconds before the next file begins; 0 is never."),
        Option("sink.batchSize", NUMBER, 100, FROM_1, "Events that are written together."),
        Option("sink.serializer", TEXT, "text", None,
               "How an event is written: text or header_and_text.",
               choices=SERIALIZERS, refused=AVRO_SERIALIZERS),
        Option("sink.serializer.appendNewline", FLAG, True, None,
               "Whether a line end follows each event."),
        Option("sink.pathManager", TEXT, "default", None,
               "How files are named: default (a time and a number) or rolltime.",
               choices={"default": "default", "rolltime": "rolltime",
                        "org.apache.flume.formatter.output.DefaultPathManager": "default",
                        "org.apache.flume.formatter.output.RollTimePathManager": "rolltime"}),
        Option("sink.pathManager.prefix", TEXT, "", None, "What a name begins with."),
        Option("sink.pathManager.extension", TEXT, "", None, "What a name ends with, after a dot."),
    ),
    batch_option="sink.batchSize",
)  # fmt: skip

SINKS = (KAFKA_SINK, LOGGER, NULL, FILE_ROLL)

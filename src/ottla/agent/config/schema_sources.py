"""The sources: Flume 1.11's options and defaults, and ours beside them."""

from __future__ import annotations

from .between import kafka_source_topics, tail_groups, tls_needs_a_certificate
from .client_options import SERVERS
from .options import (
    CHARSET,
    FLAG,
    FROM_0,
    FROM_1,
    ITEMS,
    LONG_MAX,
    NAMES,
    NUMBER,
    PASSWORD,
    PATH,
    PATTERN,
    PORT,
    PORT_MAX,
    TEXT,
    Option,
    Rule,
    same,
)  # fmt: skip
from .types import PartKind, PartType

MiB = 1 << 20
SOURCE = PartKind.SOURCE
NO_THREADS = "one event loop serves all connections"
NO_BACKOFF = "a source here waits for the channel, and for a change of its files"
AT_ONCE = "what was read goes to the channel at once"
AS_IT_IS = "bytes stay as they are"
SYSLOG_FIELDS = ("priority", "version", "timestamp", "hostname")
ONE_BYTE_ENDS = Rule(
    "a character set whose line end is one byte: this one cannot be read here",
    lambda value: isinstance(value, str) and not value.startswith(("utf-16", "utf-32")),
    "UTF-8",
)
PORTS = Rule(
    f"numbers from 0 to {PORT_MAX} with spaces between them",
    lambda value: (
        isinstance(value, tuple)
        and bool(value)
        and all(item.isdecimal() and int(item) <= PORT_MAX for item in value)
    ),
    "10001 10002",
)
KEPT_FIELDS = Rule(
    f"all, none, or some of {', '.join(SYSLOG_FIELDS)}",
    lambda value: (
        isinstance(value, tuple)
        and (
            (len(value) == 1 and value[0].lower() in ("all", "none", "true", "false"))
            or all(item.lower() in SYSLOG_FIELDS for item in value)
        )
    ),
)

LINE_CLASS = "org.apache.flume.serialization.LineDeserializer"
BLOB_CLASS = "org.apache.flume.sink.solr.morphline.BlobDeserializer"
DESERIALIZERS = {
    "line": "line",
    LINE_CLASS: "line",
    "multiline": "multiline",
    "json": "json",
    "blob": "blob",
    BLOB_CLASS: "blob",
}
AVRO_FILES = "must not be AVRO: Avro's container files are not read here"
LONG_LINES = same("split", "cut", "drop")


def deserializer_options(
    line_length_max: int, long_lines: str, as_they_are: str = ""
) -> tuple[Option, ...]:
    return (
        Option("deserializer", TEXT, "line", None,
               "How a file becomes events: line, multiline, json (a line each), blob.",
               choices=DESERIALIZERS,
               refused={"avro": AVRO_FILES,
                        "org.apache.flume.serialization.AvroEventDeserializer": AVRO_FILES}),
        Option("deserializer.maxLineLength", NUMBER, line_length_max, FROM_1,
               "The bytes of an event at most."),
        Option("deserializer.longLines", TEXT, long_lines, None,
               "What becomes of a longer line: split into several events, cut, or dropped; each "
               "is counted.",
               choices=LONG_LINES, ours=True),
        Option("deserializer.outputCharset", CHARSET, "utf-8", None,
               "The character set of the events.", idle=as_they_are),
        Option("deserializer.firstLine", PATTERN, None, None,
               "With multiline: what the first line of an event looks like; others belong to the "
               "event before.",
               ours=True),
        Option("deserializer.continuation", PATTERN, None, None,
               "With multiline, instead of firstLine: what a further line of an event looks like.",
               ours=True),
        Option("deserializer.flushTimeout", NUMBER, 1000, FROM_0,
               "With multiline: milliseconds after which the last event of a file counts as whole.",
               ours=True),
        Option("deserializer.maxLines", NUMBER, 500, FROM_1,
               "With multiline: the lines of an event at most.", ours=True),
        Option("deserializer.bodyField", TEXT, None, None,
               "With json: the field that becomes the body; unless set, the line is.", ours=True),
        Option("deserializer.headerFields", NAMES, None, None,
               "With json: fields that become headers.", ours=True),
        Option("deserializer.maxBlobLength", NUMBER, 100_000_000, FROM_1,
               "With blob: the bytes of an event at most."),
    )  # fmt: skip


TLS_OPTIONS = (
    Option("ssl", FLAG, False, None, "Whether connections use TLS."),
    Option("keystore", PATH, None, None, "The certificate and its key, in a PEM file."),
    Option("keystore-password", PASSWORD, None, None, "The password of the key."),
    Option("keystore-type", TEXT, "jks", None, "PEM; Java's own keystores are not read here.",
           choices=same("jks", "pkcs12", "pem")),
    Option("exclude-protocols", NAMES, ("SSLv3",), None, "Versions of TLS that are not accepted."),
    Option("include-protocols", NAMES, None, None,
           "Versions of TLS that are accepted; unless set, all."),
    Option("exclude-cipher-suites", NAMES, None, None, "Cipher suites that are not accepted."),
    Option("include-cipher-suites", NAMES, None, None,
           "Cipher suites that are accepted; unless set, all."),
)  # fmt: skip
POLLING_OPTIONS = (
    Option("backoffSleepIncrement", NUMBER, 1000, FROM_0, "Flume's pause when there is nothing.",
           idle=NO_BACKOFF),
    Option("maxBackoffSleep", NUMBER, 5000, FROM_0, "The longest such pause.", idle=NO_BACKOFF),
)  # fmt: skip
FILE_HEADER_OPTIONS = (
    Option("fileHeader", FLAG, False, None, "Whether a header has the absolute path of the file."),
    Option("fileHeaderKey", TEXT, "file", None, "The name of that header."),
)  # fmt: skip

EXEC = PartType(
    SOURCE, "exec", ("org.apache.flume.source.ExecSource",),
    "What a command prints, a line an event.",
    options=(
        Option("command", TEXT, None, None, "The command.", required=True),
        Option("shell", TEXT, None, None, "What runs the command, such as /bin/bash -c."),
        Option("restart", FLAG, False, None, "Whether the command starts again when it ends."),
        Option("restartThrottle", NUMBER, 10_000, FROM_0, "Milliseconds before it does."),
        Option("logStdErr", FLAG, False, None, "Whether what it prints on stderr is logged."),
        Option("batchSize", NUMBER, 20, FROM_1, "Lines that go to the channel together."),
        Option("batchTimeout", NUMBER, 3000, FROM_0,
               "Milliseconds that a smaller batch waits at most.", idle=AT_ONCE),
        Option("charset", CHARSET, "utf-8", ONE_BYTE_ENDS, "The character set of what it prints.",
               idle=AS_IT_IS),
    ),
)  # fmt: skip

SPOOLDIR = PartType(
    SOURCE, "spooldir", ("org.apache.flume.source.SpoolDirectorySource",),
    "Whole files that are put into a directory.",
    options=(
        Option("spoolDir", PATH, None, None, "The directory.", required=True),
        Option("fileSuffix", TEXT, ".COMPLETED", None, "What a file that is read is renamed with."),
        Option("deletePolicy", TEXT, "never", None,
               "Whether a file that is read is deleted: never or immediate.",
               choices=same("never", "immediate")),
        Option("trackingPolicy", TEXT, "rename", None,
               "How a file that is read is marked: rename, or tracker_dir (an empty file there).",
               choices=same("rename", "tracker_dir")),
        Option("trackerDir", TEXT, ".flumespool", None,
               "Where such empty files are; relative to spoolDir unless absolute."),
        *FILE_HEADER_OPTIONS,
        Option("basenameHeader", FLAG, False, None, "Whether a header has the name of the file."),
        Option("basenameHeaderKey", TEXT, "basename", None, "The name of that header."),
        Option("includePattern", PATTERN, "^.*$", None, "Names of files that are read."),
        Option("ignorePattern", PATTERN, "^$", None,
               "Names of files that are not read all the same."),
        Option("consumeOrder", TEXT, "oldest", None,
               "Which file is next: oldest, youngest or random.",
               choices=same("oldest", "youngest", "random")),
        Option("pollDelay", NUMBER, 500, FROM_0,
               "Milliseconds between looks at the directory.",
               idle="changes of a directory are noticed"),
        Option("recursiveDirectorySearch", FLAG, False, None,
               "Whether directories inside are read too."),
        Option("maxBackoff", NUMBER, 4000, FROM_0, "Flume's pause while a channel is full.",
               idle=NO_BACKOFF),
        Option("batchSize", NUMBER, 100, FROM_1, "Events that go to the channel together."),
        Option("inputCharset", CHARSET, "utf-8", None, "The character set of the files."),
        Option("decodeErrorPolicy", TEXT, "FAIL", None,
               "What becomes of bytes that are not in it: FAIL, REPLACE or IGNORE.",
               choices=same("FAIL", "REPLACE", "IGNORE")),
        *deserializer_options(2048, "split"),
        Option("bufferMaxLines", NUMBER, 100, None, "Of old Flume.", idle="Flume ignores it too"),
    ),
    renamed={"bufferMaxLineLength": "deserializer.maxLineLength"},
    replays=True,
)  # fmt: skip

TAILDIR = PartType(
    SOURCE, "taildir", ("org.apache.flume.source.taildir.TaildirSource",),
    "Files that grow, are renamed, rotated and cut.",
    options=(
        Option("filegroups", NAMES, None, None, "Names of groups of files.", required=True),
        Option("filegroups.", PATH, None, None,
               "The path of a group; its last part is a regular expression."),
        Option("headers.", TEXT, None, None, "Headers of a group's events: headers.GROUP.NAME."),
        Option("positionFile", PATH, "~/.flume/taildir_position.json", None,
               "Flume's positions, taken over at the first start; not written."),
        Option("skipToEnd", FLAG, False, None,
               "Whether a file without a position begins at its end."),
        Option("idleTimeout", NUMBER, 120_000, FROM_0,
               "Milliseconds after which a quiet file is closed."),
        Option("writePosInterval", NUMBER, 3000, FROM_0,
               "Milliseconds between writes of positions.",
               idle="positions are kept with what is delivered"),
        Option("batchSize", NUMBER, 100, FROM_1, "Lines that go to the channel together."),
        Option("maxBatchCount", NUMBER, LONG_MAX, None,
               "Batches of one file before the others have their turn."),
        Option("byteOffsetHeader", FLAG, False, None,
               "Whether the header byteoffset says where a line begins."),
        Option("cachePatternMatching", FLAG, True, None, "Whether lists of files are kept.",
               idle="changes of a directory are noticed"),
        *FILE_HEADER_OPTIONS,
        *POLLING_OPTIONS,
        *deserializer_options(MiB - 1024, "cut", AS_IT_IS),
    ),
    between=tail_groups,
    replays=True,
)  # fmt: skip

NETCAT_OPTIONS = (
    Option("bind", TEXT, None, None, "The address to listen on.", required=True),
    Option("port", NUMBER, None, PORT, "The port to listen on.", required=True),
)
NETCAT = PartType(
    SOURCE, "netcat", ("org.apache.flume.source.NetcatSource",),
    "Lines that come over TCP.",
    options=(
        *NETCAT_OPTIONS,
        Option("max-line-length", NUMBER, 512, FROM_1, "The bytes of a line at most."),
        Option("ack-every-event", FLAG, True, None, "Whether each line is answered with OK."),
        Option("encoding", CHARSET, "utf-8", None, "The character set of the lines."),
    ),
)  # fmt: skip
NETCATUDP = PartType(
    SOURCE, "netcatudp", ("org.apache.flume.source.NetcatUdpSource",),
    "Lines that come over UDP.",
    options=(
        *NETCAT_OPTIONS,
        Option("remoteAddress", TEXT, None, None, "A header that has the sender's address."),
    ),
    renamed={"remoteAddressHeader": "remoteAddress"},
)  # fmt: skip

SYSLOG_OPTIONS = (
    Option("keepFields", NAMES, ("none",), KEPT_FIELDS,
           "What of the head of a message stays in the body: all, none, or some of priority, "
           "version, timestamp, hostname."),
    Option("clientIPHeader", TEXT, None, None, "A header that has the client's address."),
    Option("clientHostnameHeader", TEXT, None, None, "A header that has the client's host name."),
)  # fmt: skip
SYSLOG_ADDRESS = (
    Option("host", TEXT, None, None, "The address to listen on; unless set, all."),
    Option("port", NUMBER, None, PORT, "The port to listen on.", required=True),
)
SYSLOGTCP = PartType(
    SOURCE, "syslogtcp", ("org.apache.flume.source.SyslogTcpSource",),
    "Syslog over TCP: RFC 3164 and 5424, framed by lines or by RFC 6587's octet counts.",
    options=(
        *SYSLOG_ADDRESS,
        Option("eventSize", NUMBER, 2500, FROM_1, "The bytes of a message at most."),
        *SYSLOG_OPTIONS,
        *TLS_OPTIONS,
    ),
    between=tls_needs_a_certificate,
)  # fmt: skip
SYSLOGUDP = PartType(
    SOURCE, "syslogudp", ("org.apache.flume.source.SyslogUDPSource",),
    "Syslog over UDP: RFC 3164 and 5424.",
    options=(*SYSLOG_ADDRESS, *SYSLOG_OPTIONS),
)  # fmt: skip
MULTIPORT_SYSLOGTCP = PartType(
    SOURCE, "multiport_syslogtcp", ("org.apache.flume.source.MultiportSyslogTCPSource",),
    "Syslog over TCP on several ports.",
    options=(
        SYSLOG_ADDRESS[0],
        Option("ports", NAMES, None, PORTS, "The ports to listen on.", required=True),
        Option("eventSize", NUMBER, 2500, FROM_1, "The bytes of a message at most."),
        Option("portHeader", TEXT, None, None, "A header that has the port of the connection."),
        Option("charset.default", CHARSET, "utf-8", None, "The character set of the messages.",
               idle=AS_IT_IS),
        Option("charset.port.", CHARSET, None, None, "That of one port: charset.port.10001.",
               idle=AS_IT_IS),
        Option("batchSize", NUMBER, 100, FROM_1, "Messages that go to the channel together."),
        Option("readBufferBytes", NUMBER, 1024, FROM_1, "Flume's read buffer.", idle=NO_THREADS),
        Option("numProcessors", NUMBER, None, FROM_1, "Flume's threads.", idle=NO_THREADS),
        *SYSLOG_OPTIONS,
        *TLS_OPTIONS,
    ),
    renamed={"readBufferSize": "readBufferBytes"},
    between=tls_needs_a_certificate,
)  # fmt: skip

NO_JETTY = "it is Jetty's, which does not serve here"
HTTP = PartType(
    SOURCE, "http", ("org.apache.flume.source.http.HTTPSource",),
    "Events that come with POST, a request a batch.",
    options=(
        Option("bind", TEXT, "0.0.0.0", None, "The address to listen on."),
        Option("port", NUMBER, None, PORT, "The port to listen on.", required=True),
        Option("handler", TEXT, "json", None, "How a request becomes events: json or blob.",
               choices={"json": "json", "org.apache.flume.source.http.JSONHandler": "json",
                        "blob": "blob", "org.apache.flume.source.http.BLOBHandler": "blob",
                        "org.apache.flume.sink.solr.morphline.BlobHandler": "blob"}),
        Option("handler.maxBlobLength", NUMBER, 100_000_000, FROM_1,
               "The bytes of a request at most."),
        Option("handler.mandatoryParameters", ITEMS, None, None,
               "With blob: parameters of the URL that must be there; they become headers."),
        *TLS_OPTIONS,
        Option("QueuedThreadPool.", TEXT, None, None, "Jetty's.", idle=NO_JETTY),
        Option("HttpConfiguration.", TEXT, None, None, "Jetty's.", idle=NO_JETTY),
        Option("SslContextFactory.", TEXT, None, None, "Jetty's.", idle=NO_JETTY),
        Option("ServerConnector.", TEXT, None, None, "Jetty's.", idle=NO_JETTY),
    ),
    renamed={"keystorePassword": "keystore-password", "excludeProtocols": "exclude-protocols",
             "enableSSL": "ssl"},
    between=tls_needs_a_certificate,
)  # fmt: skip

SEQ = PartType(
    SOURCE, "seq", ("org.apache.flume.source.SequenceGeneratorSource",),
    "The numbers from 0, for trying things out.",
    options=(
        Option("batchSize", NUMBER, 1, FROM_1, "Numbers that go to the channel together."),
        Option("totalEvents", NUMBER, LONG_MAX, FROM_1, "Where it ends."),
        *POLLING_OPTIONS,
    ),
    replays=True,
)  # fmt: skip

KAFKA_SOURCE = PartType(
    SOURCE, "kafka", ("org.apache.flume.source.kafka.KafkaSource",),
    "The records of topics.",
    options=(
        Option("kafka.bootstrap.servers", TEXT, None, SERVERS, "Brokers to ask first.",
               required=True),
        Option("kafka.topics", ITEMS, None, None, "The topics."),
        Option("kafka.topics.regex", PATTERN, None, None,
               "The topics whose names match; instead of kafka.topics."),
        Option("kafka.consumer.", TEXT, None, None,
               "Options of the consumer, such as kafka.consumer.group.id (flume unless set); "
               "kafka.consumer.isolation.level is read_committed unless set."),
        Option("batchSize", NUMBER, 1000, FROM_1, "Records that go to the channel together."),
        Option("batchDurationMillis", NUMBER, 1000, FROM_0,
               "Milliseconds that a smaller batch waits at most.", idle="it goes on at once"),
        Option("useFlumeEventFormat", FLAG, False, None,
               "Whether values are Flume's Avro events, with headers."),
        Option("setTopicHeader", FLAG, True, None, "Whether a header has the topic."),
        Option("topicHeader", TEXT, "topic", None, "The name of that header."),
        Option("header.", TEXT, None, None,
               "Headers that come from headers of records: header.NAME = HEADER."),
        *POLLING_OPTIONS,
        Option("migrateZookeeperOffsets", FLAG, True, None, "Of old Kafka.",
               idle="offsets are in Kafka"),
        Option("zookeeperConnect", TEXT, None, None, "Of old Kafka.", idle="offsets are in Kafka"),
    ),
    aliases=("kafkasource",),
    renamed={"topic": "kafka.topics", "groupId": "kafka.consumer.group.id"},
    between=kafka_source_topics,
    replays=True,
)  # fmt: skip

SOURCES = (
    EXEC, SPOOLDIR, TAILDIR, NETCAT, NETCATUDP, SYSLOGTCP, SYSLOGUDP, MULTIPORT_SYSLOGTCP, HTTP,
    SEQ, KAFKA_SOURCE,
)  # fmt: skip

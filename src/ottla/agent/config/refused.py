"""Types of Flume 1.11 that are not here, each with the reason and what to use instead."""

from __future__ import annotations

from .types import PartKind, RefusedType

SOURCE, CHANNEL, SINK = PartKind.SOURCE, PartKind.CHANNEL, PartKind.SINK
BETWEEN_AGENTS = "agents hand events to each other through topics here, not by remote calls"
TOPIC_BETWEEN = "a KafkaSink on the one agent and a Kafka source on the other"
READ_THE_TOPIC = "a KafkaSink, and a pipeline or a connector that reads the topic"
HDFS_WAY = "a KafkaSink, and a Spark pipeline that writes files: ottla pipeline"

REFUSED = (
    RefusedType(SOURCE, "avro", ("org.apache.flume.source.AvroSource",),
                BETWEEN_AGENTS, TOPIC_BETWEEN),
    RefusedType(SOURCE, "thrift", ("org.apache.flume.source.ThriftSource",),
                BETWEEN_AGENTS, TOPIC_BETWEEN),
    RefusedType(SOURCE, "jms", ("org.apache.flume.source.jms.JMSSource",),
                "JMS is an interface of Java's", "a bridge from the message broker to Kafka"),
    RefusedType(SOURCE, "avrolegacy", ("org.apache.flume.source.avroLegacy.AvroLegacySource",),
                "it is for agents of Flume 0.9", TOPIC_BETWEEN),
    RefusedType(SOURCE, "thriftlegacy",
                ("org.apache.flume.source.thriftLegacy.ThriftLegacySource",),
                "it is for agents of Flume 0.9", TOPIC_BETWEEN),
    RefusedType(SOURCE, "scribe", ("org.apache.flume.source.scribe.ScribeSource",),
                "Scribe has ended", "syslogtcp or http"),
    RefusedType(SOURCE, "twitter", ("org.apache.flume.source.twitter.TwitterSource",),
                "Twitter's free sample stream has ended", "exec with a program that reads it"),
    RefusedType(SOURCE, "stress", ("org.apache.flume.source.StressSource",),
                "it only measures Flume", "seq, or ottla perf produce"),
    RefusedType(CHANNEL, "jdbc", ("org.apache.flume.channel.jdbc.JdbcChannel",),
                "it keeps events in Java's Derby", "the file channel"),
    RefusedType(CHANNEL, "spillablememory", ("org.apache.flume.channel.SpillableMemoryChannel",),
                "Flume itself calls it experimental, and it loses what is in memory",
                "the file channel"),
    RefusedType(CHANNEL, "pseudotxnmemory", ("org.apache.flume.channel.PseudoTxnMemoryChannel",),
                "it is for tests of Flume's", "the memory channel"),
    RefusedType(SINK, "hdfs", ("org.apache.flume.sink.hdfs.HDFSEventSink",),
                "HDFS is reached through Java's libraries", HDFS_WAY),
    RefusedType(SINK, "hive", ("org.apache.flume.sink.hive.HiveSink",),
                "Hive is reached through Java's libraries", HDFS_WAY),
    RefusedType(SINK, "avro", ("org.apache.flume.sink.AvroSink",), BETWEEN_AGENTS, TOPIC_BETWEEN),
    RefusedType(SINK, "thrift", ("org.apache.flume.sink.ThriftSink",),
                BETWEEN_AGENTS, TOPIC_BETWEEN),
    RefusedType(SINK, "irc", ("org.apache.flume.sink.irc.IRCSink",),
                "a chat keeps nothing", READ_THE_TOPIC),
    RefusedType(SINK, "elasticsearch",
                ("org.apache.flume.sink.elasticsearch.ElasticSearchSink",),
                "only Kafka and files are written", READ_THE_TOPIC),
    RefusedType(SINK, "hbase", ("org.apache.flume.sink.hbase.HBaseSink",),
                "HBase is reached through Java's libraries", READ_THE_TOPIC),
    RefusedType(SINK, "hbase2", ("org.apache.flume.sink.hbase2.HBase2Sink",),
                "HBase is reached through Java's libraries", READ_THE_TOPIC),
    RefusedType(SINK, "asynchbase", ("org.apache.flume.sink.hbase.AsyncHBaseSink",),
                "HBase is reached through Java's libraries", READ_THE_TOPIC),
    RefusedType(SINK, "morphline_solr",
                ("org.apache.flume.sink.solr.morphline.MorphlineSolrSink",),
                "morphlines are Java's", READ_THE_TOPIC),
    RefusedType(SINK, "dataset", ("org.apache.flume.sink.kite.DatasetSink",),
                "Kite has ended", HDFS_WAY),
    RefusedType(SINK, "kudu", ("org.apache.flume.sink.kudu.KuduSink",),
                "Kudu is reached through Java's libraries", READ_THE_TOPIC),
    RefusedType(SINK, "http", ("org.apache.flume.sink.http.HttpSink",),
                "only Kafka and files are written", READ_THE_TOPIC),
    RefusedType(PartKind.INTERCEPTOR, "morphline",
                ("org.apache.flume.sink.solr.morphline.MorphlineInterceptor",),
                "morphlines are Java's", "the python interceptor: function = MODULE:FUNCTION"),
)  # fmt: skip

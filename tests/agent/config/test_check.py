"""The validator: what Flume's files mean, and what is wrong with a file, by line."""

from __future__ import annotations

import pytest

from ottla.agent.config.promises import promise_of
from ottla.agent.config.schema_channels import WAITS

from .descriptions import (
    SMALL,
    agent_of,
    problems_of,
    warnings_of,
    with_channel,
    with_sink,
    with_source,
)


def case(text: str, *complaints: str) -> tuple[str, list[str]]:
    return text, list(complaints)


# What a file says, and the whole complaint about it.
WRONG = {
    "no type": case(
        SMALL.replace("a1.sources.r1.type = seq\n", ""),
        "f.conf line 1: a1.sources.r1.type must be set: the type of the source\n"
        "Try: a1.sources.r1.type = exec",
    ),
    "unknown type": case(
        SMALL.replace("= seq", "= TAILDR"),
        "f.conf line 4: a1.sources.r1.type is no type of source: exec, spooldir, taildir, netcat, "
        "netcatudp, syslogtcp, syslogudp, multiport_syslogtcp, http, seq, kafka are "
        "(got 'TAILDR')\nTry: a1.sources.r1.type = taildir",
    ),
    "a class of somebody's": case(
        SMALL.replace("= logger", "= org.example.MySink"),
        "f.conf line 7: a1.sinks.k1.type is no type of sink here, where Java's classes do not run: "
        "kafka, logger, null, file_roll are (got 'org.example.MySink')\n"
        "Try: a1.sinks.k1.type = kafka",
    ),
    "a refused source": case(
        SMALL.replace("= seq", "= avro"),
        "f.conf line 4: a1.sources.r1.type cannot be avro: agents hand events to each other "
        "through topics here, not by remote calls\n"
        "Try: a KafkaSink on the one agent and a Kafka source on the other",
    ),
    "a refused sink by its class": case(
        SMALL.replace("= logger", "= org.apache.flume.sink.hdfs.HDFSEventSink"),
        "f.conf line 7: a1.sinks.k1.type cannot be hdfs: HDFS is reached through Java's libraries\n"
        "Try: a KafkaSink, and a Spark pipeline that writes files: ottla pipeline",
    ),
    "a source without a channel": case(
        SMALL.replace("a1.sources.r1.channels = c1\n", ""),
        "f.conf line 1: a1.sources.r1.channels must be set: a source has channels\n"
        "Try: a1.sources.r1.channels = c1",
    ),
    "a source with `channel`": case(
        SMALL.replace("r1.channels", "r1.channel"),
        "f.conf line 5: a1.sources.r1.channels must be set: a source has channels\n"
        "Try: a1.sources.r1.channels = c1",
    ),
    "a channel that is not there": case(
        SMALL.replace("r1.channels = c1", "r1.channels = c2"),
        "f.conf line 5: a1.sources.r1.channels names c2, which is no channel of a1 (got 'c2')\n"
        "Try: a1.sources.r1.channels = c1",
    ),
    "a sink with two channels": case(
        SMALL.replace("k1.channel = c1", "k1.channel = c1 c1"),
        "f.conf line 8: a1.sinks.k1.channel must be one channel: a sink takes from one "
        "(got 'c1 c1')\nTry: a1.sinks.k1.channel = c1, and another sink for each other channel",
    ),
    "a sink with `channels`": case(
        SMALL.replace("k1.channel =", "k1.channels ="),
        "f.conf line 8: a1.sinks.k1.channel must be set: a sink takes from one channel\n"
        "Try: a1.sinks.k1.channel = c1",
    ),
    "names with commas": case(
        SMALL.replace("a1.sources = r1", "a1.sources = r1,"),
        "f.conf line 1: a1.sources must have spaces between the names, not commas (got 'r1,')\n"
        "Try: a1.sources = r1",
    ),
    "no number": case(
        with_channel("type = memory", "capacity = many"),
        "f.conf line 10: a1.channels.c1.capacity must be a whole number (got 'many')\n"
        "Try: a1.channels.c1.capacity = 100",
    ),
    "out of range": case(
        with_channel("type = memory", "capacity = 0"),
        "f.conf line 10: a1.channels.c1.capacity must be 1 or more (got '0')\n"
        "Try: a1.channels.c1.capacity = 100",
    ),
    "no flag": case(
        with_source("type = exec", "command = date", "restart = yes"),
        "f.conf line 10: a1.sources.r1.restart must be true or false (got 'yes')\n"
        "Try: a1.sources.r1.restart = true",
    ),
    "no such choice": case(
        with_source("type = spooldir", "spoolDir = /tmp", "deletePolicy = later"),
        "f.conf line 10: a1.sources.r1.deletePolicy must be never or immediate (got 'later')\n"
        "Try: a1.sources.r1.deletePolicy = never",
    ),
    "a required option": case(
        with_source("type = exec"),
        "f.conf line 8: a1.sources.r1.command must be set: the command\n"
        "Try: a1.sources.r1.command = …",
    ),
    "a port too high": case(
        with_source("type = netcat", "bind = localhost", "port = 70000"),
        "f.conf line 10: a1.sources.r1.port must be from 0 to 65535 (got '70000')\n"
        "Try: a1.sources.r1.port = 44444",
    ),
    "a regular expression that is none": case(
        with_source("type = spooldir", "spoolDir = /tmp", "includePattern = (a"),
        "f.conf line 10: a1.sources.r1.includePattern must be a regular expression: missing ), "
        "unterminated subpattern at position 0 (got '(a')\n"
        "Try: a1.sources.r1.includePattern = ^.*$",
    ),
    "a filegroup without its path": case(
        with_source("type = TAILDIR", "filegroups = f1 f2", "filegroups.f1 = /var/log/x.log"),
        "f.conf line 9: a1.sources.r1.filegroups names f2, and filegroups.f2 is missing\n"
        "Try: a1.sources.r1.filegroups.f2 = /var/log/app/.*log",
    ),
    "TLS with a Java keystore": case(
        with_source("type = http", "port = 1", "ssl = true", "keystore = /k.jks"),
        "f.conf line 8: a1.sources.r1.keystore-type must be PEM with ssl: Java's keystores are not "
        "read here\nTry: a1.sources.r1.keystore-type = PEM after keytool -importkeystore "
        "-deststoretype PKCS12 …, openssl pkcs12 -in … -out server.pem",
    ),
    "a selector's channel": case(
        with_source("type = seq", "selector.type = multiplexing", "selector.mapping.CZ = c9"),
        "f.conf line 10: a1.sources.r1.selector.mapping.CZ must name channels of the source (c1) "
        "(got 'c9')\nTry: a1.sources.r1.channels = c1 c9",
    ),
    "an interceptor without a type": case(
        with_source("type = seq", "interceptors = i1"),
        "f.conf line 9: a1.sources.r1.interceptors.i1.type must be set: the type of the "
        "interceptor\nTry: a1.sources.r1.interceptors.i1.type = timestamp",
    ),
    "more serializers than groups": case(
        with_source(
            "type = seq", "interceptors = i1", "interceptors.i1.type = regex_extractor",
            "interceptors.i1.regex = (\\\\d)", "interceptors.i1.serializers = s1 s2",
            "interceptors.i1.serializers.s1.name = one", "interceptors.i1.serializers.s2.name = b",
        ),
        "f.conf line 11: a1.sources.r1.interceptors.i1.regex has 1 groups in parentheses, and "
        "there are 2 serializers\nTry: a group for each serializer",
    ),
    "exactly once of a command": case(
        with_sink(
            "type = kafka", "kafka.bootstrap.servers = h:1", "delivery = exactly-once"
        ).replace("= seq", "= exec\na1.sources.r1.command = date"),
        "f.conf line 9: a1.sinks.k1.delivery cannot be exactly-once: r1 (exec) cannot be read "
        "again\nTry: a1.sinks.k1.delivery = at-least-once",
    ),
    "a producer's option": case(
        with_sink(
            "type = kafka", "kafka.bootstrap.servers = h:1", "kafka.producer.linger.ms = soon"
        ),
        "f.conf line 10: a1.sinks.k1.kafka.producer.linger.ms must be a whole number of 0 or more "
        "(got 'soon')\nTry: a1.sinks.k1.kafka.producer.linger.ms = 5",
    ),
    "encryption of a connection": case(
        with_sink(
            "type = kafka", "kafka.bootstrap.servers = h:1", "requiredAcks = 1",
            "kafka.producer.ssl.engine.factory.class = x.Y",
            "kafka.producer.sasl.login.secret = 1234",
        ),
        "f.conf line 11: a1.sinks.k1.kafka.producer.ssl.engine.factory.class cannot be honoured: "
        "our clients have no such option (got 'x.Y')\n"
        "Try: keys and certificates in PEM or PKCS12, a login with PLAIN, SCRAM or OAUTHBEARER",
        "f.conf line 12: a1.sinks.k1.kafka.producer.sasl.login.secret cannot be honoured: "
        "our clients have no such option (got '(hidden)')\n"
        "Try: keys and certificates in PEM or PKCS12, a login with PLAIN, SCRAM or OAUTHBEARER",
    ),
    "options that contradict each other": case(
        with_sink(
            "type = kafka", "kafka.bootstrap.servers = h:1", "kafka.producer.retries = 0",
        ),
        "f.conf line 8: a1.sinks.k1.kafka.producer options contradict each other: an idempotent "
        "producer needs other options: retries must be more than 0\n"
        "Try: without a1.sinks.k1.kafka.producer.…",
    ),
    "servers that are none": case(
        with_sink("type = kafka", "kafka.bootstrap.servers = h:port"),
        "f.conf line 9: a1.sinks.k1.kafka.bootstrap.servers must be HOST:PORT, several with commas "
        "between them (got 'h:port')\nTry: a1.sinks.k1.kafka.bootstrap.servers = localhost:9092",
    ),
    "a group of nobody": case(
        f"{SMALL}a1.sinkgroups = g1\na1.sinkgroups.g1.sinks = k1 k9\n"
        "a1.sinkgroups.g1.processor.type = failover\n",
        "f.conf line 10: a1.sinkgroups.g1.sinks names k9, which is no sink of a1 (got 'k1 k9')\n"
        "Try: a1.sinkgroups.g1.sinks = k1",
    ),
    "no channels at all": case(
        "a1.sinks = k1\na1.sinks.k1.type = logger\na1.sinks.k1.channel = c1\n",
        "f.conf line 3: a1.sinks.k1.channel names c1, which is no channel of a1 (got 'c1')\n"
        "Try: a1.channels = c1",
        "f.conf line 1: a1.channels must be set: an agent has channels\nTry: a1.channels = c1",
    ),
    "a variable that is not set": case(
        SMALL.replace("= seq", "= ${env:KIND}"),
        "f.conf line 4: a1.sources.r1.type uses ${env:KIND}, which is not set\n"
        "Try: export KIND=VALUE",
    ),
    "encryption": case(
        with_channel("type = file", "encryption.activeKey = key-0"),
        "f.conf line 10: a1.channels.c1.encryption.activeKey cannot be honoured: this channel does "
        "not encrypt (got 'key-0')\nTry: put dataDirs on an encrypted disk",
    ),
    "a configuration filter": case(
        f"{SMALL}a1.configfilters = f1\n",
        "f.conf line 9: a1.configfilters cannot be honoured: values are not looked up by "
        "configuration filters here\nTry: ${env:NAME} where the value stands",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_named_by_line_key_rule_and_remedy(case: str) -> None:
    """One sentence each, and nothing else is said."""
    text, complaints = WRONG[case]
    assert problems_of(text) == complaints


def test_all_problems_are_said_at_once() -> None:
    """Nobody mends a file one start at a time."""
    text = SMALL.replace("= seq", "= avro").replace("= memory", "= jdbc").replace("logger", "hdfs")
    assert [problem.split(":")[0] for problem in problems_of(text)] == [
        "f.conf line 6",
        "f.conf line 4",
        "f.conf line 7",
    ]


LISTED = "a1.sources.r1.interceptors"
PUSH = "a1.sinks.k1.kafka.producer.enable.metrics.push"
WARNED = {
    "an unknown option": (
        with_source("type = seq", "batchsize = 5"),
        ["f.conf line 9: a1.sources.r1.batchsize is unknown, and ignored"],
    ),
    "a part that no list names": (
        f"{SMALL}a1.sinks.k2.type = logger\n",
        ["f.conf line 9: a1.sinks.k2.type is ignored: a1.sinks does not name k2"],
    ),
    "a word that is no list": (
        f"{SMALL}a1.source.r1.batchSize = 2\n",
        ["f.conf line 9: a1.source.r1.batchSize is ignored: not a property of an agent"],
    ),
    "an interceptor that no list names": (
        with_source("type = seq", "interceptors.i1.type = host"),
        [f"f.conf line 9: {LISTED}.i1.type is ignored: {LISTED} does not name i1"],
    ),
    "a variable that nobody sets": (
        with_sink("type = logger", "maxBytesToLog = 5").replace(
            "= seq", "= exec\na1.sources.r1.shell = ${SH}\na1.sources.r1.command = echo ${i}"
        ),
        ["f.conf line 5: a1.sources.r1.shell has ${…} that nobody sets: it stays as it is"],
    ),
    "a key said twice": (
        f"{SMALL}a1.sinks.k1.channel = c1\n",
        ["f.conf line 8: a1.sinks.k1.channel is said again (f.conf line 9): the last one counts"],
    ),
    "an option without effect": (
        with_channel("type = memory", "keep-alive = 30"),
        [f"f.conf line 10: a1.channels.c1.keep-alive has no effect: {WAITS}"],
    ),
    "an option of Java's producer": (
        with_sink(
            "type = kafka", "kafka.bootstrap.servers = h:1", "kafka.producer.acks = 1",
            f"{PUSH.removeprefix('a1.sinks.k1.')} = false",
        ),
        [
            f"f.conf line 11: {PUSH} has no effect: it is no option of our producer",
            "f.conf line 8: a1.sinks.k1.kafka.producer.acks has no effect: exactly once needs all",
        ],
    ),
    "a channel without a sink": (
        SMALL.replace("a1.channels = c1", "a1.channels = c1 c2")
        + "a1.channels.c2.type = file\n",
        ["f.conf line 9: a1.channels.c2 has no sink: it fills, and then its sources wait"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WARNED)
def test_what_flume_ignores_is_a_warning(case: str) -> None:
    """Files that Flume runs shall run; what has no effect is said."""
    text, warnings = WARNED[case]
    assert warnings_of(text) == warnings


def test_several_agents_in_a_file_do_not_meet() -> None:
    """Each agent of a file is checked by itself."""
    text = SMALL + SMALL.replace("a1", "a2").replace("seq", "nonsense")
    assert list(agent_of(text).sources) == ["r1"]


def test_promises() -> None:
    """Exactly once is the default where the source can be read again, and only there."""
    kafka = with_sink("type = kafka", "kafka.bootstrap.servers = h:1")

    def promise(text: str) -> str:
        agent = agent_of(text)
        return str(promise_of(agent, agent.sinks["k1"]))

    assert promise(kafka) == "exactly once"
    assert promise(f"{kafka}\na1.sinks.k1.delivery = at-least-once") == (
        "at least once: delivery says so"
    )
    command = kafka.replace("= seq", "= exec\na1.sources.r1.command = date")
    assert promise(command) == "at least once: r1 (exec) cannot be read again"
    assert promise(SMALL) == "at least once: logger keeps no positions"
    two = kafka.replace("sinks = k1", "sinks = k1 k2")
    two += "\na1.sinks.k2.type = null\na1.sinks.k2.channel = c1"
    assert promise(two) == "at least once: k1 and k2 share the channel c1"


KAFKA_SOURCE = (
    "type = org.apache.flume.source.kafka.KafkaSource", "kafka.topics = t",
    "kafka.bootstrap.servers = h:1,h:2",
)  # fmt: skip


def test_promises_of_a_kafka_source() -> None:
    """Exactly once on one cluster, through memory or through the only file channel: the offsets are
    in the sink's transaction."""

    def promise(servers: str, channel: str = "memory") -> str:
        text = with_source(*KAFKA_SOURCE).replace("c1.type = memory", f"c1.type = {channel}")
        if "c2" in channel:
            text = text.replace("channels = c1", "channels = c1 c2")
        sink = f"type = kafka\na1.sinks.k1.kafka.bootstrap.servers = {servers}"
        agent = agent_of(text.replace("type = logger", sink))
        return str(promise_of(agent, agent.sinks["k1"]))

    assert promise("H:2 , h:3") == "exactly once"
    assert promise("other:1") == (
        "at least once: r1 and k1 have no server in common, so no transaction"
    )
    assert promise("h:1", "file") == "exactly once"
    assert promise("h:1", "file\na1.channels.c2.type = memory") == (
        "at least once: r1 has several channels, so its offsets are committed when c1 has the "
        "events"
    )


def test_a_circle_is_a_warning() -> None:
    """As in Flume a KafkaSink takes the topic from the header that a Kafka source sets."""

    def warnings(*source: str, servers: str = "h:1", more: str = "") -> list[str]:
        sink = f"type = kafka\na1.sinks.k1.kafka.bootstrap.servers = {servers}{more}"
        text = with_source(*KAFKA_SOURCE, *source).replace("type = logger", sink)
        return warnings_of(text)

    [circle] = warnings()
    assert circle.endswith(
        "a1.sinks.k1.topicHeader is the header that r1 sets: events go back to the topic they are "
        "from"
    )
    assert warnings("setTopicHeader = false") == []
    assert warnings("topicHeader = from") == []
    assert warnings(servers="other:1") == []
    assert warnings(more="\na1.sinks.k1.allowTopicOverride = false") == []

"""Options are read, layered, checked against each other, and distinguished from unknown ones."""

import subprocess
import sys

import pytest

from ottla.settings import (
    BROKER_OPTIONS,
    TOPIC_CONFIGS,
    Entry,
    LogConfig,
    Settings,
    SettingsError,
    broker_rows,
    entries_of_environment,
    entry_of_assignment,
    parse_properties,
    topic_rows,
)
from ottla.settings.option import HIGH, INT_MAX, Option, Type, double_text, parse_text
from ottla.settings.topic import SYNONYMS

# What Apache Kafka 4.3 ships as config/server.properties, without its comments.
STOCK = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\
SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def problems(**options: object) -> list[str]:
    """The options complained about, with the rule and the hint."""
    with pytest.raises(SettingsError) as caught:
        Settings.from_properties({name.replace("_", "."): value for name, value in options.items()})
    return [str(problem) for problem in caught.value.problems]


def test_kafkas_own_file_is_accepted_without_a_word() -> None:
    """A user's first server.properties works, and its controller's listener is not opened."""
    settings = Settings.load(parse_properties(STOCK, "server.properties"))
    assert settings.warnings == ()
    assert [(each.name, each.host, each.port) for each in settings.listeners] == [
        ("PLAINTEXT", "", 9092)
    ]
    assert settings.listeners[0].advertised_host == "localhost"
    assert settings.data_directory == "/tmp/kraft-combined-logs"
    assert settings.inter_broker_listener == "PLAINTEXT"
    assert "num.recovery.threads.per.data.dir" in settings.idle


def test_defaults_let_nobody_in_from_outside() -> None:
    """Without any option: node 1, loopback, Kafka's limits."""
    settings = Settings.load()
    assert settings.node_id == 1
    assert settings.values["broker.id"] == 1
    assert settings.listeners[0][:5] == ("PLAINTEXT", "127.0.0.1", 9092, "127.0.0.1", 9092)
    assert settings.log_config({}) == LogConfig()
    assert settings.integer("socket.request.max.bytes") == 100 * 1024 * 1024


def test_later_layers_win() -> None:
    """File, then environment, then --set."""
    file = parse_properties("num.partitions=2\nmessage.max.bytes=5\nfetch.max.bytes=2000", "f")
    environment = entries_of_environment(
        {
            "OTTLA_NUM_PARTITIONS": "3",
            "OTTLA_LONG": "1",
            "OTTLA_MESSAGE_MAX_BYTES": "6",
            "HOME": "/",
        }
    )
    settings = Settings.load(file, environment, [entry_of_assignment("num.partitions = 4")])
    assert settings.integer("num.partitions") == 4
    assert settings.integer("message.max.bytes") == 6
    assert settings.integer("fetch.max.bytes") == 2000
    assert settings.given["num.partitions"].where == "--set"
    assert settings.warnings == ()


def test_an_unknown_option_is_named_with_what_it_may_have_meant() -> None:
    """A warning, not an error: plug-ins of Kafka have options of their own."""
    settings = Settings.load(
        [
            Entry("num.partitons", "3", "server.properties line 7"),
            Entry("qwertz", "1", ""),
            Entry("inter.broker.protocol.version", "3.9", ""),
        ]
    )
    meant = "did you mean num.partitions?"
    assert settings.warnings == (
        f"unknown option num.partitons is ignored (from server.properties line 7); {meant}",
        "unknown option qwertz is ignored",
        "option inter.broker.protocol.version belongs to older Kafka and is ignored",
    )


def test_a_bad_value_says_option_value_rule_origin_and_what_to_try() -> None:
    """The two lines of an error message."""
    with pytest.raises(SettingsError) as caught:
        Settings.load([Entry("log.segment.bytes", "14", "server.properties line 3")])
    assert str(caught.value) == (
        "log.segment.bytes: Value must be at least 1048576 "
        "(got '14', from server.properties line 3)\n"
        "Try: log.segment.bytes=1073741824"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("broker.session.timeout.ms", -5),
        ("broker.heartbeat.interval.ms", 0),
        ("initial.broker.registration.timeout.ms", 0),
        ("controller.socket.timeout.ms", -1),
        ("replica.lag.time.max.ms", 0),
        ("replica.socket.timeout.ms", -30_000),
        ("replica.fetch.wait.max.ms", -1),
        ("replica.fetch.min.bytes", -1),
    ],
)
def test_no_broker_starts_with_a_time_that_never_comes(name: str, value: int) -> None:
    """Kafka has no bound for these; a broker with such a value would be fenced, or spin."""
    with pytest.raises(SettingsError) as caught:
        Settings.from_properties({name: value})
    problem = caught.value.problems[0]
    assert (problem.option, problem.value) == (name, str(value))
    assert problem.rule.endswith("or more")
    option, default = problem.hint.split("=")
    assert Settings.from_properties({option: default})


def test_a_session_is_longer_than_the_time_between_heartbeats() -> None:
    """A living broker would be fenced again and again."""
    (problem,) = problems(broker_session_timeout_ms=2000)
    assert "must be more than broker.heartbeat.interval.ms, 2000 (got '2000')" in problem
    assert "Try: broker.session.timeout.ms=9000" in problem


def test_all_problems_come_at_once() -> None:
    """Nobody mends a file one restart at a time."""
    assert len(problems(num_partitions="x", message_max_bytes=-1, zookeeper_connect="a:x")) == 3


@pytest.mark.parametrize(
    "value",
    [
        "a:99999",
        "a:2181,,b:2181",
        "a:x",
        "a:1/x,b:1",
        "a:1/x//y",
        "a:1/..",
        "/x",
        "http://a:1",
        "a b",
    ],
)
def test_a_malformed_zookeeper_connect_says_what_to_try(value: str) -> None:
    """The option, the rule, the value that was given, and an example."""
    (problem,) = problems(zookeeper_connect=value, node_id=1)
    assert problem.startswith(
        "zookeeper.connect: must be HOST:PORT,HOST:PORT…, and perhaps a /path"
    )
    assert f"(got '{value}'" in problem
    assert "Try: zookeeper.connect=node01:2181,node02:2181,node03:2181/kafka" in problem


@pytest.mark.parametrize(
    "value", ["a", "a:1", "a:2181,b", "[::1]:2181,b:1/x/y", "a:1/x/", "a:1/.x"]
)
def test_zookeeper_connect(value: str) -> None:
    """Ports and the path may be left out."""
    settings = Settings.from_properties({"zookeeper.connect": value, "node.id": 1})
    assert settings.zookeeper_connect == value


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"zookeeper.connect": "localhost:2181", "broker.id.generation.enable": "false"},
            "must be set with zookeeper.connect unless broker.id.generation.enable is true",
        ),
        (
            {"zookeeper.connect": "localhost:2181", "broker.id": "1001"},
            "must be at most reserved.broker.max.id, 1000",
        ),
        ({"broker.id": "-1"}, "must be 0 or more"),
        ({"zookeeper.connect": "localhost:port", "node.id": "1"}, "must be HOST:PORT"),
        ({"zookeeper.connect": "a:1/x,b:1", "node.id": "1"}, "must be HOST:PORT"),
        (
            {"zookeeper.connect": "a", "node.id": "1", "ottla.cluster.directory": "/d"},
            "a cluster has one place for its state",
        ),
        ({"authorizer.class.name": "x.Y"}, "runs no Java classes"),
        ({"super.users": "User:admin"}, "means nothing without an authorizer"),
        ({"remote.log.storage.system.enable": "true"}, "tiered storage is not there"),
        ({"create.topic.policy.class.name": "x.Y"}, "Class x.Y could not be found"),
        ({"replica.selector.class": "x.Y"}, "runs no Java classes"),
        ({"process.roles": "controller"}, "must include broker"),
        ({"node.id": "3", "broker.id": "4"}, "must be the same as node.id"),
        ({"node.id": "-1"}, "at least 0"),
        ({"listeners": "127.0.0.1:9092"}, "must be NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://127.0.0.1"}, "must be NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://127.0.0.1:99999"}, "between 0 and 65535"),
        ({"listeners": "MINE://127.0.0.1:9092"}, "has no protocol for MINE"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "different name"),
        ({"listeners": "PLAINTEXT://a:1,B://b:1"}, "different port"),
        ({"listeners": "CONTROLLER://:9093"}, "not in controller.listener.names"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "non-routable"),
        ({"advertised.listeners": "OTHER://a:1"}, "names OTHER"),
        ({"advertised.listeners": "PLAINTEXT://a:0"}, "between 1 and 65535"),
        ({"listener.security.protocol.map": "A:B"}, "must be NAME:PROTOCOL"),
        ({"inter.broker.listener.name": "OTHER"}, "one of the advertised listeners"),
        ({"log.retention.ms": "0"}, "must be -1"),
        ({"log.roll.ms": "0"}, "must be 1 or more"),
        ({"log.roll.jitter.ms": "-1"}, "must be 0 or more"),
        ({"log.cleaner.dedupe.buffer.size": "1000"}, "more than 1 MiB"),
        (
            {
                "log.cleaner.min.compaction.lag.ms": "9",
                "log.cleaner.max.compaction.lag.ms": "5",
            },
            "no more than log.cleaner.max",
        ),
        ({"queued.max.request.bytes": "5"}, "at least socket.request.max.bytes"),
        ({"max.connections.per.ip": "0"}, "overrides is set"),
        ({"max.connections.per.ip.overrides": "foo"}, "HOST:LIMIT"),
        ({"replica.lag.time.max.ms": "100"}, "at least replica.fetch.wait.max.ms"),
        ({"log.dirs": ""}, "must not be empty"),
        ({"ottla.cluster.directory": "", "node.id": "1"}, "must be non-empty"),
        ({"ottla.cluster.directory": "/shared"}, "each broker of a cluster has its own"),
        (
            {"ottla.cluster.directory": "/data", "log.dirs": "/data", "node.id": "1"},
            "another directory than log.dirs",
        ),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, str], words: str) -> None:
    """Options that contradict each other, or that it would be a lie to accept."""
    with pytest.raises(SettingsError) as caught:
        Settings.from_properties(options)
    assert words in str(caught.value)
    assert "\nTry: " in str(caught.value)


def test_a_password_is_not_repeated() -> None:
    """A complaint about a secret does not show it."""
    option = Option("x", Type.PASSWORD, None, None, HIGH, "")
    assert option.sensitive
    assert BROKER_OPTIONS["ssl.key.password"].sensitive


def test_several_listeners_each_advertise_their_own() -> None:
    """Inside and outside clients get different addresses; IPv4 and IPv6 share a port."""
    settings = Settings.from_properties(
        {
            "listeners": "inside://127.0.0.1:9092,OUTSIDE://0.0.0.0:0,SIX://[::1]:9092",
            "advertised.listeners": "INSIDE://127.0.0.1:9092,OUTSIDE://kafka.example:443,SIX://[::1]:9092",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,SIX:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
        }
    )
    assert [tuple(each) for each in settings.listeners] == [
        ("INSIDE", "127.0.0.1", 9092, "127.0.0.1", 9092, "PLAINTEXT"),
        ("OUTSIDE", "0.0.0.0", 0, "kafka.example", 443, "PLAINTEXT"),
        ("SIX", "::1", 9092, "::1", 9092, "PLAINTEXT"),
    ]


def test_broker_id_is_the_older_name_of_node_id() -> None:
    """Either alone sets both."""
    assert Settings.from_properties({"broker.id": 7}).node_id == 7
    assert Settings.from_properties({"node.id": 8}).values["broker.id"] == 8


@pytest.mark.parametrize(
    ("options", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": 1}, 3_600_000),
        ({"log.retention.minutes": 2, "log.retention.hours": 1}, 120_000),
        ({"log.retention.ms": 3, "log.retention.minutes": 2}, 3),
        ({"log.retention.hours": -1}, -1),
        ({"log.retention.ms": -5}, -1),
    ],
)
def test_the_first_synonym_that_is_set_gives_a_topics_default(
    options: dict[str, object], retention_ms: int
) -> None:
    """log.retention.ms wins over minutes, minutes over hours; negative is for ever."""
    assert Settings.from_properties(options).log_config({}).retention_ms == retention_ms


def test_a_topics_configs_lie_over_the_brokers() -> None:
    """LogConfig: topic, else broker, else default; equal overrides share one object."""
    settings = Settings.from_properties(
        {"log.segment.bytes": 2_000_000, "log.flush.scheduler.interval.ms": 7,
         "producer.id.expiration.ms": 5}
    )  # fmt: skip
    config = settings.log_config({"cleanup.policy": "compact,delete", "retention.bytes": " 9 "})
    assert config.segment_bytes == 2_000_000
    assert config.flush_ms == 7
    assert config.compact
    assert config.delete
    assert config.retention_bytes == 9
    assert config.producer_id_expiration_ms == 5
    again = settings.log_config({"retention.bytes": " 9 ", "cleanup.policy": "compact,delete"})
    assert again is config
    assert settings.log_config({"internal.segment.bytes": "300"}).segment_bytes == 300


def test_remembered_configs_of_logs_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics with ever other configs do not grow the memory: at the limit it is begun anew."""
    monkeypatch.setattr("ottla.settings.settings.LOG_CONFIGS_MAX", 3)
    settings = Settings.load([])
    for number in range(10):
        assert settings.log_config({"retention.bytes": str(number)}).retention_bytes == number
        assert len(settings._log_configs) <= 3
    assert settings.log_config({"retention.bytes": "9"}).retention_bytes == 9


def test_dynamic_configs_lie_over_static_ones() -> None:
    """Per broker over cluster-wide over file; taking them away brings the file back."""
    base = Settings.from_properties({"log.retention.ms": 1000, "message.max.bytes": 10})
    changed = base.with_dynamic({"log.retention.ms": "2000"}, {"message.max.bytes": "20"})
    assert changed.log_config({}).retention_ms == 2000
    assert changed.integer("message.max.bytes") == 20
    own = base.with_dynamic({"log.retention.ms": "2000"}, {"log.retention.ms": "3000"})
    assert own.log_config({}).retention_ms == 3000
    assert own.with_dynamic({}, {}).log_config({}).retention_ms == 1000
    # What can only be set at the start, or is no number, is not applied.
    odd = base.with_dynamic({"num.partitions": "9", "max.connections": "x"}, {"nope": "1"})
    assert odd.integer("num.partitions") == 1
    assert odd.integer("max.connections") == INT_MAX


def test_every_default_obeys_its_own_rule() -> None:
    """And its text means the same value again."""
    for option in (*BROKER_OPTIONS.values(), *TOPIC_CONFIGS.values()):
        if option.default is not None:
            assert option.parse(option.text(option.default)) == option.default, option.name
        assert option.doc.endswith("."), option.name


def test_synonyms_name_real_options() -> None:
    """Both sides of the table are declared, with values that fit."""
    for topic_config, brokers in SYNONYMS.items():
        for name, factor in brokers:
            default = BROKER_OPTIONS[name].default
            assert factor == 1 or isinstance(default, int | None)
        assert topic_config in TOPIC_CONFIGS
    assert Settings.load().topic_values({}) == {
        name: option.default for name, option in TOPIC_CONFIGS.items()
    }


def test_the_table_of_options_is_complete() -> None:
    """`--list-options` has every option a user may set, with type, default and meaning."""
    rows = {row.name: row for row in broker_rows()}
    assert len(rows) > 330
    assert rows["log.retention.hours"][:4] == ("log.retention.hours", "int", "168", "")
    assert rows["message.max.bytes"].update == "at once"
    assert rows["num.partitions"].update == "at start"
    assert rows["num.io.threads"].standing == "no effect here"
    assert rows["authorizer.class.name"].standing == ""
    topics = {row.name: row for row in topic_rows()}
    assert topics["segment.ms"].default == "604800000 (log.roll.ms, log.roll.hours)"
    assert "internal.segment.bytes" not in topics


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (Type.INT, " +5 ", 5),
        (Type.INT, "-2147483648", -(1 << 31)),
        (Type.BOOLEAN, "TRUE", True),
        (Type.LIST, "", ()),
        (Type.LIST, " a , b ", ("a", "b")),
        (Type.LIST, "a,", ("a", "")),
        (Type.DOUBLE, "0.5d", 0.5),
        (Type.DOUBLE, "1e-1", 0.1),
        (Type.DOUBLE, ".5", 0.5),
        (Type.STRING, " x ", "x"),
        (Type.LONG, None, None),
    ],
)
def test_text_is_read_as_java_reads_it(type_: Type, text: str | None, value: object) -> None:
    """Signs, blanks, suffixes, lists."""
    assert parse_text("x", type_, text) == value


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (Type.INT, "2147483648"),
        (Type.INT, "1_000"),
        (Type.INT, "0x10"),
        (Type.INT, ""),
        (Type.INT, "1.0"),
        (Type.SHORT, "32768"),
        (Type.BOOLEAN, "yes"),
        (Type.DOUBLE, "inf"),
        (Type.DOUBLE, "1_0"),
        (Type.DOUBLE, ""),
        (Type.DOUBLE, "."),
    ],
)
def test_text_that_java_would_refuse_is_refused(type_: Type, text: str) -> None:
    """Python reads more than Java does; the difference is refused."""
    with pytest.raises(ValueError, match="Invalid value"):
        parse_text("x", type_, text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1.0, "1.0"),
        (sys.float_info.max, "1.7976931348623157E308"),
        (12_345_678.0, "1.2345678E7"),
        (1e-5, "1.0E-5"),
        (1e7, "1.0E7"),
        (0.001, "0.001"),
    ],
)
def test_doubles_are_written_as_java_writes_them(value: float, text: str) -> None:
    """DescribeConfigs shows them to Java people."""
    assert double_text(value) == text


def test_a_bad_assignment_says_how_it_should_look() -> None:
    """`--set num.partitions` without a value."""
    with pytest.raises(SettingsError, match="must be name=value"):
        entry_of_assignment("num.partitions")


def test_importing_the_settings_loads_nothing_heavy() -> None:
    """The tables of options load no event loop, database, codec or other package of ours."""
    code = "import sys; import ottla.settings; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    loaded = set(run.stdout.split())
    assert not loaded & {"asyncio", "uvloop", "sqlite3", "cramjam", "google_crc32c", "pyarrow"}
    ours = {name.split(".")[1] for name in loaded if name.startswith("ottla.")}
    assert ours <= {"settings"}


@pytest.mark.parametrize("options", [{}, {"broker.id": -1}])
def test_with_zookeeper_a_broker_may_draw_its_id(options: dict[str, object]) -> None:
    """As in Kafka 3; what was drawn may be beyond the ids that are set by hand."""
    settings = Settings.from_properties({"zookeeper.connect": "a:1", **options})
    assert settings.draws_broker_id
    drawn = settings.with_node_id(1001)
    assert (drawn.node_id, drawn.draws_broker_id) == (1001, False)
    assert drawn.with_dynamic({}, {}).node_id == 1001
    assert drawn.with_dynamic({}, {}).warnings == drawn.warnings
    given = Settings.from_properties({"zookeeper.connect": "a:1", "broker.id": 7})
    assert (given.node_id, given.draws_broker_id) == (7, False)

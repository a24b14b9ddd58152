"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.cluster.requests import Op
from ottla.wire.api import alter_configs, incremental_alter_configs
from ottla.wire.api.alter_configs import AlterConfigsRequest
from ottla.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.wire.api.list_config_resources import ListConfigResourcesRequest
from ottla.wire.errors import ErrorCode
from tests.broker.harness import BrokerHarness

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.fixture
def harness() -> Iterator[BrokerHarness]:
    with BrokerHarness() as harness:
        harness.create("t")
        yield harness


def describe(
    harness: BrokerHarness,
    type_: int,
    name: str,
    keys: list[str] | None = None,
    *,
    version: int = 4,
    synonyms: bool = True,
    docs: bool = False,
) -> Any:
    resource = DescribeConfigsResource(
        resource_type=type_, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=synonyms, include_documentation=docs
    )
    return harness.ask(request, version).results[0]


def configs(
    harness: BrokerHarness, type_: int, name: str, keys: list[str] | None = None, **how: Any
) -> Any:
    result = describe(harness, type_, name, keys, **how)
    assert result.error_code == 0, result.error_message
    return {config.name: config for config in result.configs}


def synonyms(config: Any) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.source) for each in config.synonyms]


def alter(
    harness: BrokerHarness, *resources: tuple[int, str, dict[str, str | None]], **how: Any
) -> Any:
    request = AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=type_,
                resource_name=name,
                configs=[
                    alter_configs.AlterableConfig(name=key, value=value)
                    for key, value in values.items()
                ],
            )
            for type_, name, values in resources
        ],
        validate_only=how.get("dry", False),
    )
    return [
        (each.error_code, each.error_message)
        for each in harness.ask(request, how.get("version", 2)).responses
    ]


def change(
    harness: BrokerHarness,
    *resources: tuple[int, str, list[tuple[str, int, str | None]]],
    **how: Any,
) -> Any:
    request = IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=type_,
                resource_name=name,
                configs=[
                    incremental_alter_configs.AlterableConfig(
                        name=key, config_operation=operation, value=value
                    )
                    for key, operation, value in operations
                ],
            )
            for type_, name, operations in resources
        ],
        validate_only=how.get("dry", False),
    )
    return [
        (each.error_code, each.error_message)
        for each in harness.ask(request, how.get("version", 1)).responses
    ]


OK = (0, None)


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topic_is_described_whole_in_every_version(harness: BrokerHarness, version: int) -> None:
    """All 33 configs of Kafka 4.3, none of them read-only or secret; types since version 3."""
    found = configs(harness, TOPIC, "t", version=version)
    assert len(found) == 33
    assert not any(config.read_only or config.is_sensitive for config in found.values())
    assert found["cleanup.policy"].value == "delete"
    assert found["segment.bytes"].config_type == (3 if version >= 3 else 0)
    assert found["segment.bytes"].documentation is None or version < 3


def test_defaults_are_not_overrides(harness: BrokerHarness) -> None:
    """What nobody set has the source DEFAULT_CONFIG, and its synonyms say what would set it."""
    assert alter(harness, (TOPIC, "t", {"cleanup.policy": "compact"})) == [OK]
    found = configs(harness, TOPIC, "t")
    assert {name for name, config in found.items() if config.config_source == 1} == {
        "cleanup.policy"
    }
    assert synonyms(found["cleanup.policy"]) == [
        ("cleanup.policy", "compact", 1),
        ("log.cleanup.policy", "delete", 5),
    ]
    assert synonyms(found["segment.bytes"]) == [("log.segment.bytes", "1073741824", 5)]
    assert synonyms(found["segment.ms"]) == []  # log.roll.ms is null, and Kafka shows no more


def test_synonyms_and_documentation_come_only_when_asked_for(harness: BrokerHarness) -> None:
    """Both cost bytes; a key filter, null and empty alike, is honoured."""
    keys = ["retention.ms", "nope"]
    found = configs(harness, TOPIC, "t", keys, synonyms=False)
    assert list(found) == ["retention.ms"]
    assert found["retention.ms"].synonyms == []
    assert found["retention.ms"].documentation is None
    documented = configs(harness, TOPIC, "t", keys, docs=True, version=3)
    assert "older than this" in documented["retention.ms"].documentation
    assert len(configs(harness, TOPIC, "t", [])) == 33


def test_a_brokers_config_shows_where_it_comes_from() -> None:
    """File, cluster-wide, per broker: each beats the one before, and all are listed."""
    with BrokerHarness(log_retention_ms=1000, log_retention_hours=5) as harness:
        harness.create("t")
        assert change(harness, (BROKER, "", [("log.retention.ms", Op.SET, "2000")])) == [OK]
        assert change(harness, (BROKER, "1", [("log.retention.ms", Op.SET, "3000")])) == [OK]
        found = configs(harness, BROKER, "1")["log.retention.ms"]
        expected = [
            ("log.retention.ms", "3000", 2),
            ("log.retention.ms", "2000", 3),
            ("log.retention.ms", "1000", 4),
            ("log.retention.hours", "5", 4),
            ("log.retention.hours", "168", 5),
        ]
        assert (found.value, found.config_source, found.read_only) == ("3000", 2, False)
        assert synonyms(found) == expected
        topic = configs(harness, TOPIC, "t", ["retention.ms"])["retention.ms"]
        assert (topic.value, topic.config_source) == ("3000", 2)
        assert synonyms(topic) == expected
        everyones = configs(harness, BROKER, "")["log.retention.ms"]
        assert synonyms(everyones) == [("log.retention.ms", "2000", 3)]


def test_a_brokers_secrets_and_unknown_options_have_no_value() -> None:
    """Passwords, and options that nobody knows (they may be passwords), are shown as null."""
    with BrokerHarness(ssl_key_password="secret", my_plug_in="x") as harness:
        found = configs(harness, BROKER, "1")
        for name in ("ssl.key.password", "my.plug.in"):
            assert found[name].is_sensitive
            assert found[name].value is None
            assert synonyms(found[name])[0][1] is None
        assert found["node.id"].read_only
        assert not found["message.max.bytes"].read_only
        assert "internal.metadata.log.segment.bytes" not in found
        assert len(found) > 330


@pytest.mark.parametrize(
    ("type_", "name", "code", "message"),
    [
        (TOPIC, "nobody", 3, ""),
        (TOPIC, "a b", 17, "Topic name is invalid: 'a b' contains"),
        (BROKER, "2", 42, "Unexpected broker id, expected 1 or empty string, but received 2"),
        (BROKER, "x", 42, "Broker id must be an integer, but it is: x"),
        (LOGGER, "", 42, "Broker id must not be empty"),
        (LOGGER, "2", 42, "Unexpected broker id, expected 1 but received 2"),
        (METRICS, "", 42, "Client metrics subscription name must not be empty"),
        (GROUP, "", 42, "Group name must not be empty"),
        (0, "x", 42, ""),
        (77, "x", 42, ""),
    ],
)
def test_what_cannot_be_described_says_why(
    harness: BrokerHarness, type_: int, name: str, code: int, message: str
) -> None:
    """Kafka's code and words."""
    result = describe(harness, type_, name)
    assert result.error_code == code
    assert result.error_message.startswith(message)
    assert result.configs == []


def test_groups_and_client_metrics_are_described_with_defaults(harness: BrokerHarness) -> None:
    """A group's come from the broker's group options."""
    found = configs(harness, GROUP, "g")
    assert len(found) == 17
    assert synonyms(found["consumer.session.timeout.ms"]) == [
        ("group.consumer.session.timeout.ms", "45000", 5)
    ]
    assert configs(harness, METRICS, "m")["interval.ms"].value == "300000"


def test_configs_come_in_kafkas_order(harness: BrokerHarness) -> None:
    """That of a Java hash map of their names, also where the request names some of them."""
    asked = ["segment.bytes", "retention.ms", "cleanup.policy", "compression.type"]
    kafkas = ["compression.type", "cleanup.policy", "segment.bytes", "retention.ms"]
    assert list(configs(harness, TOPIC, "t", asked)) == kafkas
    everything = list(configs(harness, TOPIC, "t"))
    assert [name for name in everything if name in asked] == kafkas
    assert list(configs(harness, GROUP, "g"))[:3] == [
        "consumer.session.timeout.ms",
        "consumer.assignment.interval.ms",
        "share.auto.offset.reset",
    ]


def test_configs_of_groups_are_stored(harness: BrokerHarness) -> None:
    """Set, described over the broker's, listed, removed; they outlive the broker."""
    odd = "a/b..ü%2F"
    for group in ("g", odd):
        assert change(harness, (GROUP, group, [("consumer.session.timeout.ms", 0, "50000")])) == [
            OK
        ]
    assert alter(harness, (GROUP, "h", {"share.isolation.level": "read_committed"})) == [OK]
    harness.close()
    with BrokerHarness(disk=harness.disk, clock=harness.clock) as later:
        for group in ("g", odd):
            found = configs(later, GROUP, group)["consumer.session.timeout.ms"]
            assert (found.value, found.config_source) == ("50000", 8)
            assert synonyms(found) == [
                ("consumer.session.timeout.ms", "50000", 8),
                ("group.consumer.session.timeout.ms", "45000", 5),
            ]
        assert listed(later, 1, GROUP) == (0, [(GROUP, odd), (GROUP, "g"), (GROUP, "h")])
        assert alter(later, (GROUP, "h", {})) == [OK]
        assert change(later, (GROUP, "g", [("consumer.session.timeout.ms", 1, None)])) == [OK]
        assert listed(later, 1, GROUP) == (0, [(GROUP, odd)])


@pytest.mark.parametrize("version", range(3))
def test_altering_replaces_all_of_a_topics_configs(harness: BrokerHarness, version: int) -> None:
    """What the second request does not name is back at its default; the log obeys at once."""
    assert alter(harness, (TOPIC, "t", {"retention.ms": "5"}), version=version) == [OK]
    assert harness.partition("t").log.config.retention_ms == 5
    assert alter(harness, (TOPIC, "t", {"segment.ms": "7"}), version=version) == [OK]
    config = harness.partition("t").log.config
    assert (config.retention_ms, config.segment_ms) == (604_800_000, 7)


@pytest.mark.parametrize("version", range(2))
def test_changing_single_configs_leaves_the_others(harness: BrokerHarness, version: int) -> None:
    """SET, DELETE, APPEND and SUBTRACT on a topic."""

    def policy() -> str:
        value: str = configs(harness, TOPIC, "t")["cleanup.policy"].value
        return value

    def apply(operation: int, value: str | None) -> None:
        operations = [("cleanup.policy", operation, value), ("retention.ms", Op.SET, "5")]
        assert change(harness, (TOPIC, "t", operations), version=version) == [OK]

    apply(Op.APPEND, "compact")
    assert policy() == "delete,compact"
    assert harness.partition("t").log.config.compact
    apply(Op.APPEND, "compact")
    assert policy() == "delete,compact"
    apply(Op.SUBTRACT, "delete")
    assert policy() == "compact"
    apply(Op.SET, "delete")
    assert policy() == "delete"
    apply(Op.DELETE, None)
    assert configs(harness, TOPIC, "t")["cleanup.policy"].config_source == 5
    assert configs(harness, TOPIC, "t")["retention.ms"].value == "5"


def test_trying_out_changes_nothing(harness: BrokerHarness) -> None:
    """validate_only, for both ways to alter."""
    assert alter(harness, (TOPIC, "t", {"retention.ms": "5"}), dry=True) == [OK]
    assert change(harness, (TOPIC, "t", [("retention.ms", Op.SET, "5")]), dry=True) == [OK]
    assert change(harness, (BROKER, "1", [("message.max.bytes", Op.SET, "5")]), dry=True) == [OK]
    assert harness.partition("t").log.config.retention_ms == 604_800_000
    assert harness.broker.settings.integer("message.max.bytes") == 1_048_588


@pytest.mark.parametrize(
    ("type_", "name", "operations", "code", "message"),
    [
        (TOPIC, "t", [("nope", 0, "1")], 40, "Unknown topic config name: nope"),
        (TOPIC, "t", [("retention.ms", 2, "1")], 40, "Can't APPEND to key retention.ms because"),
        (TOPIC, "t", [("retention.ms", 0, None)], 42, "Null value not supported for : retention"),
        (TOPIC, "t", [("a", 0, "1"), ("a", 1, None)], 42, "Error due to duplicate config keys"),
        (TOPIC, "t", [("retention.ms", 9, "1")], -1, None),
        (TOPIC, "nobody", [("retention.ms", 0, "1")], 3, "The topic 'nobody' does not exist."),
        (TOPIC, "", [], 42, "Default topic resources are not allowed."),
        (BROKER, "2", [], 42, "Unexpected broker id, expected 1, but received 2"),
        (BROKER, "x", [], 42, "Node id must be an integer, but it is: x"),
        (BROKER, "1", [("num.partitions", 0, "3")], 42,
         "Cannot update these configs dynamically: [num.partitions]"),
        (BROKER, "", [("sasl.jaas.config", 0, "x")], 42,
         "Cannot update these configs at default cluster level, broker id must be specified: [s"),
        (BROKER, "1", [("ssl.key.password", 0, "x")], 42, "These security configs can be dynam"),
        (BROKER, "1", [("message.max.bytes", 0, "x")], 42,
         "Invalid value x for configuration message.max.bytes: Not a number of type INT"),
        (BROKER, "1", [("message.max.bytes", 2, "1")], 40,
         "Config value append is not allowed for config key: message.max.bytes"),
        (BROKER, "1", [("nope", 3, "1")], 40, "Unknown config name: nope"),
        (BROKER, "1", [("log.cleanup.policy", 7, "x")], 42, "Unknown operations type 7"),
        (BROKER, "1", [("log.roll.ms", 0, "0")], 42,
         "requirement failed: log.roll.ms must be greater than or equal to 1"),
        (BROKER, "1", [("log.cleaner.dedupe.buffer.size", 0, "5")], 42,
         "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB"),
        (BROKER, "1", [("max.connections.per.ip", 0, "0")], 42, "requirement failed: max.conn"),
        (BROKER, "1", [("cordoned.log.dirs", 0, "/zz")], 42, "requirement failed: All entries"),
        (BROKER, "1", [("num.io.threads", 0, "99")], 42, "Dynamic thread count update validation"),
        (BROKER, "1", [("log.cleaner.threads", 0, "9")], 42, "Log cleaner threads cannot be inc"),
        (LOGGER, "2", [("root", 0, "INFO")], 42, "Unexpected node id. Expected 1, but received 2"),
        (LOGGER, "1", [("root", 0, "LOUD")], 40, "Cannot set the log level of root to LOUD"),
        (LOGGER, "1", [("root", 1, None)], 42, "Removing the log level of the root logger"),
        (LOGGER, "1", [("no.such", 0, "INFO")], 40, "Logger no.such does not exist!"),
        (LOGGER, "1", [("root", 2, "INFO")], 42, "APPEND operation is not allowed for the BROKER"),
        (0, "x", [], 42, "Unknown resource type 0"),
        (99, "x", [], 42, "Unknown resource type 99"),
    ],
)  # fmt: skip
def test_a_change_that_cannot_be_says_why(
    harness: BrokerHarness,
    type_: int,
    name: str,
    operations: list[tuple[str, int, str | None]],
    code: int,
    message: str | None,
) -> None:
    """Kafka's code and words, and nothing is stored."""
    [(found_code, found_message)] = change(harness, (type_, name, operations))
    assert found_code == code
    assert found_message is None if message is None else found_message.startswith(message)
    assert harness.broker.image.configs_of("t") == {}
    assert str(harness.broker.node_id) not in harness.broker.image.broker_configs


def test_one_bad_resource_leaves_the_others_alone(harness: BrokerHarness) -> None:
    """Answers in the order of the request; a resource named twice is refused both times."""
    harness.create("u")
    twice = (42, "Each resource must appear at most once.")
    answers = change(
        harness,
        (TOPIC, "t", [("retention.ms", Op.SET, "1")]),
        (TOPIC, "nobody", [("retention.ms", Op.SET, "1")]),
        (TOPIC, "u", [("retention.ms", Op.SET, "2")]),
        (TOPIC, "t", [("retention.ms", Op.SET, "3")]),
    )
    assert answers == [twice, (3, "The topic 'nobody' does not exist."), OK, twice]
    assert alter(harness, (TOPIC, "t", {}), (TOPIC, "t", {}), (TOPIC, "u", {})) == [
        twice,
        twice,
        OK,
    ]
    assert alter(harness, (LOGGER, "1", {})) == [(42, "Unknown resource type 8")]


def test_a_dynamic_broker_config_takes_effect_at_once(harness: BrokerHarness) -> None:
    """On the settings, and through them on every topic that has no config of its own."""
    harness.create("own", retention_ms="1")
    operations = [("log.retention.ms", Op.SET, "5"), ("message.max.bytes", Op.SET, "100")]
    assert change(harness, (BROKER, "", operations)) == [OK]
    assert harness.partition("t").log.config.retention_ms == 5
    assert harness.partition("own").log.config.retention_ms == 1
    assert harness.produce("t", 0, b"x" * 200).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert change(harness, (BROKER, "", [("message.max.bytes", Op.DELETE, None)])) == [OK]
    assert harness.produce("t", 0, b"x" * 200).error_code == ErrorCode.NONE


def test_a_dynamic_config_outlives_the_broker(harness: BrokerHarness) -> None:
    """It is in the metadata tree, not in the process."""
    assert change(harness, (BROKER, "1", [("max.connections", Op.SET, "7")])) == [OK]
    assert change(harness, (TOPIC, "t", [("retention.ms", Op.SET, "7")])) == [OK]
    harness.close()
    with BrokerHarness(disk=harness.disk) as again:
        assert again.broker.settings.integer("max.connections") == 7
        assert again.partition("t").log.config.retention_ms == 7


def test_levels_of_loggers_are_set_and_reset(harness: BrokerHarness) -> None:
    """KIP-412: at once, for this run of the broker."""
    logger = logging.getLogger("ottla.broker")
    try:
        assert change(harness, (LOGGER, "1", [("ottla.broker", Op.SET, "DEBUG")])) == [OK]
        assert logger.level == logging.DEBUG
        found = configs(harness, LOGGER, "1")
        assert (found["ottla.broker"].value, found["ottla.broker"].config_source) == ("DEBUG", 6)
        assert "root" in found
        dry = change(harness, (LOGGER, "1", [("ottla.broker", Op.SET, "ERROR")]), dry=True)
        assert dry == [OK]
        assert logger.level == logging.DEBUG
        assert change(harness, (LOGGER, "1", [("ottla.broker", Op.DELETE, None)])) == [OK]
        assert logger.level == logging.NOTSET
    finally:
        logger.setLevel(logging.NOTSET)


def listed(harness: BrokerHarness, version: int, *types: int) -> Any:
    response = harness.ask(ListConfigResourcesRequest(resource_types=list(types)), version)
    found = [(each.resource_type, each.resource_name) for each in response.config_resources]
    return response.error_code, found


def test_config_resources_are_listed(harness: BrokerHarness) -> None:
    """All types, or those asked for; version 0 knows client metrics only."""
    assert listed(harness, 0) == (0, [])
    assert listed(harness, 1) == (0, [(LOGGER, "1"), (BROKER, "1"), (TOPIC, "t")])
    assert listed(harness, 1, TOPIC) == (0, [(TOPIC, "t")])
    assert listed(harness, 1, TOPIC, 99) == (ErrorCode.UNSUPPORTED_VERSION, [])

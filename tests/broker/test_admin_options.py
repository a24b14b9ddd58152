"""Our tables of options against what Apache Kafka 4.3.1 itself says of each."""

from typing import Any

import pytest

from ottla.settings import Settings
from ottla.settings.describe import ConfigEntry, broker_entries, group_entries, topic_entries
from ottla.wire.errors import ErrorCode
from tests.apache.client import RawClient
from tests.apache.kafka import ApacheKafka

pytestmark = pytest.mark.apache

TOPIC, BROKER, GROUP = 2, 4, 32

# Where we differ on purpose: option and field, and why.
DIFFERENT = {
    ("listeners", "read_only"): "the ports are bound once, at the start",
    ("listener.security.protocol.map", "read_only"): "the ports are bound once, at the start",
    ("listeners", "default"): "loopback only, as long as there is no security",
    ("log.dir", "default"): "not under /tmp, where data vanishes",
}
OURS = {
    "log.flush.before.ack",
    "log.scrub.bytes.per.second",
    "log.scrub.interval.ms",
    "ottla.cluster.directory",
    "ottla.insecure",
}
# With ZooKeeper, which Kafka 4 knows no more.
KAFKA_3 = {
    "broker.id.generation.enable",
    "reserved.broker.max.id",
    "zookeeper.connect",
    "zookeeper.connection.timeout.ms",
    "zookeeper.session.timeout.ms",
}


def kafkas(kafka: ApacheKafka, type_: int, name: str) -> dict[str, dict[str, Any]]:
    """What Kafka says of each config."""
    resource = {"resource_type": type_, "resource_name": name, "configuration_keys": None}
    asked = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
    with RawClient(kafka.port) as client:
        [result] = client.ask("DescribeConfigs", 4, asked)["results"]
        # Kafka answers CreateTopics before its broker has applied the change.
        while result["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            [result] = client.ask("DescribeConfigs", 4, asked)["results"]
    assert result["error_code"] == 0, result
    return {config["name"]: fields_of_wire(config) for config in result["configs"]}


def fields_of_wire(config: dict[str, Any]) -> dict[str, Any]:
    defaults = [s["value"] for s in config["synonyms"] if s["source"] == 5]
    return {
        "type": config["config_type"],
        "read_only": config["read_only"],
        "sensitive": config["is_sensitive"],
        "default": defaults[0] if defaults else None,
        "documented": bool(config["documentation"]),
        # The cluster itself has one dynamic config, min.insync.replicas (KIP-966).
        "synonyms": [s["name"] for s in config["synonyms"] if s["source"] == 5],
    }


def fields_of_entry(entry: ConfigEntry) -> dict[str, Any]:
    defaults = [synonym.value for synonym in entry.synonyms if synonym.source == 5]
    return {
        "type": entry.type,
        "read_only": entry.read_only,
        "sensitive": entry.sensitive,
        "default": defaults[0] if defaults else None,
        "documented": bool(entry.doc),
        "synonyms": [synonym.name for synonym in entry.synonyms if synonym.source == 5],
    }


def differences(theirs: dict[str, dict[str, Any]], entries: Any) -> dict[tuple[str, str], Any]:
    ours = {entry.name: fields_of_entry(entry) for entry in entries}
    assert set(ours) - OURS - KAFKA_3 == set(theirs)
    return {
        (name, field): (fields[field], ours[name][field])
        for name, fields in theirs.items()
        for field in fields
        if fields[field] != ours[name][field] and (name, field) not in DIFFERENT
    }


def test_every_broker_option_is_kafkas(apache_kafka: ApacheKafka) -> None:
    """All names, types, defaults, stand-ins, and whether they can change while the broker runs."""
    found = differences(kafkas(apache_kafka, BROKER, "1"), broker_entries(Settings.load()))
    assert found == {}


def test_every_topic_config_is_kafkas(apache_kafka: ApacheKafka) -> None:
    """All 33, as a new topic has them."""
    topic = "test_admin_options"
    with RawClient(apache_kafka.port) as client:
        wanted = {
            "name": topic,
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        fields = {"topics": [wanted], "timeout_ms": 10_000, "validate_only": False}
        assert client.ask("CreateTopics", 7, fields)["topics"][0]["error_code"] in (0, 36)
    found = differences(kafkas(apache_kafka, TOPIC, topic), topic_entries(Settings.load(), {}))
    assert found == {}


def test_every_group_config_is_kafkas(apache_kafka: ApacheKafka) -> None:
    """All 17, with the broker options that set their defaults."""
    found = differences(kafkas(apache_kafka, GROUP, "g"), group_entries(Settings.load(), {}))
    assert found == {}

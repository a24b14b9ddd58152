"""A script written for kafka-python's KafkaConsumer finds all that it uses here."""

from __future__ import annotations

import inspect
import math
import selectors
from typing import Any

import kafka
import pytest

import ottla
from ottla import Consumer, KafkaConsumer
from ottla.client import errors
from ottla.client.consumer.options import CONSUMER, read_options

THEIR_OPTIONS = kafka.KafkaConsumer.DEFAULT_CONFIG
OUR_OPTIONS = {option.name: option for option in CONSUMER}
# Ours on purpose, see SKIPPED.md.
OTHER_DEFAULTS = {
    "client_id",
    "bootstrap_servers",
    "kafka_client",
    "selector",
    "partition_assignment_strategy",
    "default_offset_commit_callback",
    "reconnect_backoff_max_ms",
    "socket_options",
}
METHODS = [
    name
    for name, member in inspect.getmembers(kafka.KafkaConsumer, inspect.isfunction)
    if not name.startswith("_")
]


def test_both_names_are_the_same_class() -> None:
    """`from ottla import KafkaConsumer` is the consumer."""
    assert KafkaConsumer is Consumer
    assert ottla.ConsumerRebalanceListener is not None


@pytest.mark.parametrize("name", THEIR_OPTIONS)
def test_every_option_is_known(name: str) -> None:
    """Each option of kafka-python is taken, with its default, which is ours too."""
    option = OUR_OPTIONS[name]
    value = THEIR_OPTIONS[name]
    if name == "partition_assignment_strategy":
        assert [each().name for each in value] == [each().name for each in option.default]
        return
    config = read_options({name: value}, None)
    if name not in OTHER_DEFAULTS:
        assert config[name] == read_options({}, None)[name]
        assert option.default == value or math.isinf(value), name


@pytest.mark.parametrize("name", METHODS)
def test_every_method_takes_the_same_arguments(name: str) -> None:
    """Each public method is there, with kafka-python's parameters in their order and defaults."""
    theirs = inspect.signature(getattr(kafka.KafkaConsumer, name)).parameters
    ours = inspect.signature(getattr(Consumer, name)).parameters
    assert list(theirs) == list(ours)[: len(theirs)]
    for parameter in theirs.values():
        assert ours[parameter.name].kind == parameter.kind
        assert ours[parameter.name].default == parameter.default


def test_properties_are_taken_too(bootstrap: str) -> None:
    """Kafka's own names with dots, all values as text, Java's class names."""
    java = "org.apache.kafka.clients.consumer."
    properties: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "properties",
        "enable.auto.commit": "false",
        "auto.offset.reset": "earliest",
        "max.poll.records": "10",
        "session.timeout.ms": "10000",
        "isolation.level": "read_committed",
        "partition.assignment.strategy": f"{java}RangeAssignor,{java}StickyAssignor",
        "key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
        "value.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer",
    }
    with Consumer(properties, max_poll_records=20) as consumer:
        assert consumer.config["enable_auto_commit"] is False
        assert consumer.config["max_poll_records"] == 20
        names = [each.name for each in consumer.config["partition_assignment_strategy"]]
        assert names == ["range", "sticky"]
    with pytest.raises(errors.KafkaConfigurationError, match="did you mean"):
        Consumer({"bootstrap.server": bootstrap})


def test_the_records_have_the_same_fields() -> None:
    """ConsumerRecord and TopicPartition have kafka-python's fields in their order."""
    from kafka.consumer.fetcher import ConsumerRecord as Theirs

    assert ottla.ConsumerRecord._fields == Theirs._fields
    assert ottla.TopicPartition._fields == kafka.TopicPartition._fields
    assert selectors.DefaultSelector is THEIR_OPTIONS["selector"]

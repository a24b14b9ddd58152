"""Options: kafka-python's are taken, properties too, and what is wrong is named with advice."""

from __future__ import annotations

import inspect
import math
from typing import Any, get_args, get_type_hints

import kafka
import pytest

import ottla
from ottla.client import errors
from ottla.client.config import COMMON, Option, parse, servers
from ottla.client.consumer.options import CONSUMER
from ottla.client.producer.options import PRODUCER, agree
from ottla.client.typed_config import ClientConfig, ConsumerConfig, ProducerConfig
from tests.client import compatibility


def options(**given: Any) -> dict[str, Any]:
    return parse(PRODUCER, given, who="Producer")


@pytest.mark.parametrize("name", sorted(kafka.KafkaProducer.DEFAULT_CONFIG))
def test_every_option_of_kafka_pythons_producer_is_taken(name: str) -> None:
    """Each with kafka-python's own default, so that a script that spells it out runs."""
    if name in compatibility.OPTIONS:
        pytest.skip(compatibility.OPTIONS[name])
    assert name in options(**{name: kafka.KafkaProducer.DEFAULT_CONFIG[name]})


def test_every_method_of_kafka_pythons_producer_is_there() -> None:
    """With the same parameters, in the same order, with the same defaults; ours may have more."""
    for name, method in inspect.getmembers(kafka.KafkaProducer, callable):
        if name.startswith("_") or name in compatibility.PRODUCER_METHODS:
            continue
        theirs = inspect.signature(method).parameters
        ours = inspect.signature(getattr(ottla.KafkaProducer, name)).parameters
        assert list(ours)[: len(theirs)] == list(theirs), name
        assert {each: ours[each].default for each in theirs} == {
            each.name: each.default for each in theirs.values()
        }


def test_every_error_of_kafka_python_is_there() -> None:
    """Under its name, with its number and its word on retrying; some of its own inventions not."""
    theirs = {
        name: made
        for name, made in inspect.getmembers(kafka.errors, inspect.isclass)
        if issubclass(made, kafka.errors.BrokerResponseError) and made.errno is not None
    }
    for name, made in theirs.items():
        if isinstance(made.errno, int) and made.errno in errors.BY_CODE:
            ours = getattr(errors, name)
            assert ours.errno == made.errno, name
    assert len(theirs) > 80


def test_properties_are_options_too() -> None:
    """Kafka's names with dots and values as strings; keywords win."""
    config = parse(
        PRODUCER,
        {"linger_ms": 7},
        {
            "bootstrap.servers": "one:9092, two:9093",
            "linger.ms": "5",
            "acks": "all",
            "enable.idempotence": "true",
            "compression.type": "lz4",
            "max.in.flight.requests.per.connection": "1",
            "key.serializer": "org.apache.kafka.common.serialization.LongSerializer",
            "retries": "3",
        },
    )
    assert config["bootstrap_servers"] == [("one", 9092), ("two", 9093)]
    assert (config["linger_ms"], config["acks"], config["compression_type"]) == (7, -1, 3)
    assert config["max_in_flight_requests_per_connection"] == 1
    assert type(config["key_serializer"]).__name__ == "IntSerializer"
    assert config["retries"] == 3


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1,b:2", [("a", 1), ("b", 2)]),
        (["a:1", "b"], [("a", 1), ("b", 9092)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("PLAINTEXT://a:1", [("a", 1)]),
        ([("a", 1)], [("a", 1)]),
    ],
)
def test_addresses(given: Any, expected: list[tuple[str, int]]) -> None:
    """Hosts with and without ports, lists, IPv6."""
    assert servers(given) == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"linger": 5}, "no option 'linger'.*did you mean 'linger_ms'"),
        ({"bootstrap_server": "x"}, "did you mean 'bootstrap_servers'"),
        ({"wholly_unknown_thing": 1}, "it knows: acks"),
        ({"linger_ms": "soon"}, "linger_ms must be a whole number of 0 or more .got 'soon'"),
        ({"linger_ms": -1}, "linger_ms must be"),
        ({"linger_ms": True}, "linger_ms must be"),
        ({"acks": 2}, "acks must be 0, 1 or 'all' .got 2"),
        ({"compression_type": "brotli"}, "'gzip', 'snappy', 'lz4', 'zstd'"),
        ({"enable_idempotence": "yes"}, "enable_idempotence must be True or False"),
        ({"bootstrap_servers": "a:port"}, "the port in 'a:port'"),
        ({"bootstrap_servers": 9092}, "addresses such as"),
        ({"bootstrap_servers": []}, "addresses such as"),
        ({"value_serializer": "yaml"}, "value_serializer must be a function"),
        ({"partitioner": "mine"}, "partitioner must be 'default', 'round_robin'"),
        ({"interceptors": [5]}, "interceptors must be a list"),
        ({"security_protocol": "TLS"}, "security_protocol must be one of"),
        ({"sasl_mechanism": "GSSAPI"}, "Kerberos is not supported"),
        ({"proxy_url": "http://127.0.0.1"}, "not there yet"),
        ({"ssl_context": "/x"}, "ssl_context must be an ssl.SSLContext"),
    ],
)
def test_a_wrong_option_is_named_with_its_value_and_rule(given: dict[str, Any], words: str) -> None:
    """Option, value, rule, and what to try."""
    with pytest.raises(errors.KafkaConfigurationError, match=f"(?s)Producer: .*{words}"):
        options(**given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"enable_idempotence": True, "acks": 1}, "acks must be 'all'"),
        ({"transactional_id": "x", "retries": 0}, "retries must be more than 0"),
        ({"transactional_id": "x", "enable_idempotence": False}, "needs enable_idempotence=True"),
        (
            {"enable_idempotence": True, "max_in_flight_requests_per_connection": 6},
            "must be 5 or less",
        ),
        ({"delivery_timeout_ms": 10}, "linger_ms . request_timeout_ms = 30005 or more"),
    ],
)
def test_options_that_contradict_each_other(given: dict[str, Any], words: str) -> None:
    """Asked for together they are refused; a default gives way in silence."""
    with pytest.raises(errors.KafkaConfigurationError, match=words):
        agree(options(**given), set(given))


def test_defaults_give_way() -> None:
    """acks=1 alone just means: not idempotent."""
    assert agree(options(), set())
    assert not agree(options(acks=1), {"acks"})
    config = options(request_timeout_ms=200_000)
    agree(config, {"request_timeout_ms"})
    assert config["delivery_timeout_ms"] == 200_005
    assert options()["retries"] == math.inf


@pytest.mark.parametrize(
    ("options", "typed"),
    [(COMMON, ClientConfig), (PRODUCER, ProducerConfig), (CONSUMER, ConsumerConfig)],
    ids=["common", "producer", "consumer"],
)
def test_the_typed_configs_have_every_option_and_no_other(
    options: tuple[Option, ...], typed: type
) -> None:
    """What mypy believes about `config[…]` is what `parse` returns, defaults included."""
    kinds = get_type_hints(typed)
    assert set(kinds) == {option.name for option in options}
    for name, value in parse(options, {}).items():
        kind = kinds[name]
        plain = {int, str, bool, float, type(None)}
        if kind is float:
            assert isinstance(value, int | float), name
        elif kind in plain or (set(get_args(kind)) <= plain and get_args(kind)):
            assert isinstance(value, kind), name

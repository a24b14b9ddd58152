"""The options of the sink."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark.sql.datasource")

from ottla.spark.sink.options import read_options
from ottla.spark.sink.rows import SinkError
from ottla.spark.sink.writing import option_name

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def test_defaults() -> None:
    """Exactly once, strictly, without compression."""
    found = read_options({**SERVERS, "topic": "t", "checkpointLocation": "/x"})
    assert found.properties == {"bootstrap.servers": "localhost:9092"}
    assert (found.topic, found.carrier, found.compression) == ("t", "auto", "none")
    assert (found.exactly_once, found.accept) == (True, False)
    assert (found.batch_bytes, found.name, found.batch) == (512 * 1024, None, None)


def test_what_goes_to_the_client_and_what_does_not() -> None:
    """`kafka.*` is the client's, but for what the sink itself must know."""
    found = read_options(
        {
            **SERVERS,
            "kafka.compression.type": "ZSTD",
            "kafka.linger.ms": "3",
            "kafka.transactional.id": "mine",
            "kafka.batch.size": "100000",
            "kafka.max.request.size": "50000",
            "Delivery": "at-least-once",
            "stagingDirectory": "/shared",
        }
    )
    assert found.properties == {
        "bootstrap.servers": "localhost:9092",
        "linger.ms": "3",
        "max.request.size": "50000",
    }
    assert (found.compression, found.name, found.staging_root) == ("zstd", "mine", "/shared")
    assert found.batch_bytes < 50_000
    assert not found.exactly_once


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "no broker to write to"),
        ({**SERVERS, "delivery": "once"}, "one of: exactly-once, at-least-once"),
        ({**SERVERS, "ledger": "ignore"}, "one of: strict, accept"),
        ({**SERVERS, "staging": "s3"}, "one of: auto, inline, directory, topic"),
        ({**SERVERS, "delivry": "at-least-once"}, "delivry does not exist"),
        ({**SERVERS, "kafka.value.serializer": "x"}, "not for a sink"),
        ({**SERVERS, "kafka.partitioner.class": "x"}, "use the column 'partition'"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], words: str) -> None:
    """A mistake is named before anything runs."""
    with pytest.raises(SinkError, match=words):
        read_options(options)


def test_names_in_python() -> None:
    """Keywords of write() are the sink's own, or the client's with dots."""
    assert option_name("staging_directory") == "stagingDirectory"
    assert option_name("delivery") == "delivery"
    assert option_name("compression_type") == "kafka.compression.type"
    assert option_name("kafka.linger.ms") == "kafka.linger.ms"


def test_a_broker_that_is_away_is_waited_for() -> None:
    """Tasks and commits get brokerTimeout as the client's time-outs; what the user said about
    delivery prevails, and a broken value is an error that names the rule."""
    servers = {"kafka.bootstrap.servers": "localhost:9092"}
    found = read_options({**servers, "brokerTimeout": "5m"})
    assert found.patient == {
        "bootstrap.servers": "localhost:9092",
        "bootstrap.timeout.ms": 300_000,
        "max.block.ms": 300_000,
        "delivery.timeout.ms": 300_000,
    }
    assert (found.properties, found.retry_s) == ({"bootstrap.servers": "localhost:9092"}, 120)
    said = read_options({**servers, "kafka.delivery.timeout.ms": "60000"})
    assert (said.patient["delivery.timeout.ms"], said.retry_s) == ("60000", 60)
    assert read_options({**servers, "brokerTimeout": "1s"}).patient["delivery.timeout.ms"] == 30_000
    with pytest.raises(SinkError, match="brokerTimeout must be a time such as"):
        read_options({**servers, "brokerTimeout": "soon"})

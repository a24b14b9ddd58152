"""The options of the source: Spark's names and rules, and errors that say what to do."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ottla.client.structs import TopicPartition
from ottla.spark.source.option_values import EARLIEST, LATEST, duration_ms
from ottla.spark.source.options import OPTIONS, OptionError, read_options

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def read(kind: str = "stream", **given: str) -> Any:
    return read_options({**BASE, **given}, kind)


def test_defaults_are_sparks() -> None:
    """A stream begins at the end, a batch at the start; loss fails; headers are left out."""
    stream, batch = read("stream"), read("batch")
    assert (stream.starting.everywhere, batch.starting.everywhere) == (LATEST, EARLIEST)
    assert batch.ending.everywhere == LATEST
    assert stream.fail_on_data_loss
    assert "headers" not in stream.columns
    assert (stream.retries, stream.retry_interval_ms) == (3, 1000)
    assert stream.max_trigger_delay_ms == 15 * 60_000
    assert stream.max_offsets is None


def test_names_come_in_any_case() -> None:
    """Spark hands options over in lower case."""
    found = read_options(
        {"KAFKA.bootstrap.servers": "h:1", "SUBSCRIBE": "a, b,,a", "startingoffsets": " Earliest "},
        "stream",
    )
    assert found.subscription.topics == ("a", "b")
    assert found.starting.everywhere == EARLIEST
    assert found.servers == "h:1"


def test_places_by_partition() -> None:
    """Offsets and times come as JSON; -1 is latest, -2 earliest."""
    assert read(startingOffsets='{"t": {"0": 23, "1": -2}}').starting.offsets == {T0: 23, T1: -2}
    found = read(startingOffsetsByTimestamp='{"t": {"0": 170}}')
    assert found.starting.timestamps == {T0: 170}
    found = read_options({**BASE, "subscribe": "t", "startingTimestamp": "99"}, "batch")
    assert found.starting.timestamp == 99


def test_a_time_for_all_comes_before_times_and_offsets() -> None:
    """Spark's order: startingTimestamp, startingOffsetsByTimestamp, startingOffsets."""
    found = read(
        startingTimestamp="5",
        startingOffsetsByTimestamp='{"t": {"0": 6}}',
        startingOffsets="latest",
    )
    assert found.starting.option == "startingTimestamp"
    found = read(startingOffsetsByTimestamp='{"t": {"0": 6}}', startingOffsets="latest")
    assert found.starting.option == "startingOffsetsByTimestamp"


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("15m", 900_000), ("90", 90), ("2s", 2_000), ("1min", 60_000), ("1d", 86_400_000)],
)
def test_durations(text: str, milliseconds: int) -> None:
    """Times have Spark's units; a bare number is milliseconds."""
    assert duration_ms(text) == milliseconds


def test_columns_are_chosen_in_order() -> None:
    """`columns` says which and in which order, whatever their case; includeHeaders adds one."""
    assert read(columns="timestampTYPE, value").columns == ("timestampType", "value")
    assert read(includeHeaders="true").columns[-1] == "headers"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffset": "earliest"}, "no option 'startingoffset'.*did you mean 'startingOff"),
        ({"topic": "orders"}, "no option 'topic'.*did you mean 'subscribe'"),
        ({"verbose": "yes"}, "no option 'verbose'.*one of subscribe"),
        ({"assign": '{"t": [0]}'}, r"exactly one of subscribe.*got subscribe, assign"),
        ({"subscribe": " , "}, "subscribe must be topics such as"),
        ({"startingOffsets": "first"}, "startingOffsets must be earliest, latest or JSON.*'first'"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "offsets of 0 or more"),
        ({"startingOffsets": '{"t": {"0": "x"}}'}, "startingOffsets must be"),
        ({"startingTimestamp": "noon"}, "startingTimestamp must be a whole number.*'noon'"),
        ({"startingOffsetsByTimestamp": "[]"}, "startingOffsetsByTimestamp must be JSON"),
        ({"startingOffsetsByTimestampStrategy": "skip"}, "must be error or latest"),
        ({"minPartitions": "0"}, "minPartitions must be a whole number of 1 or more"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition must be"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss must be true or false"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay must be a time such as"),
        ({"columns": "value,value"}, "columns must be some of key, value"),
        ({"endingOffsets": "latest"}, "endingOffsets .* batch queries.*availableNow"),
        ({"endingTimestamp": "5"}, "endingTimestamp .* batch queries"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, r"\(9\) is more than .*\(5\)"),
        ({"kafka.auto.offset.reset": "latest"}, "auto.offset.reset .*Try: startingOffsets"),
        ({"kafka.key.deserializer": "x"}, "key.deserializer .* keys come as bytes"),
        ({"kafka.value.deserializer": "x"}, "value.deserializer .* values come as bytes"),
        ({"kafka.enable.auto.commit": "true"}, "enable.auto.commit .*Try: commitGroup"),
        ({"kafka.interceptor.classes": "x"}, "interceptor.classes"),
        ({"kafka.isolation.level": "read_some"}, "kafka.isolation.level must be one of"),
        ({"kafka.fetch.max.wait": "5"}, "no option 'fetch.max.wait'.*did you mean"),
        ({"kafka.security.protocol": "TLS"}, "security.protocol must be one of"),
        ({"kafka.bootstrap.servers": "nowhere:x"}, "bootstrap.servers must be addresses"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_advice(given: dict[str, str], words: str) -> None:
    """An error names the option, the rule, the value and what to try."""
    with pytest.raises(OptionError, match=f"(?s){words}"):
        read(**given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest in a batch"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "cannot be latest for t-0"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "cannot be earliest for t-0"),
        (
            {"startingOffsets": '{"t": {"0": 9}}', "endingOffsets": '{"t": {"0": 5}}'},
            r"startingOffsets \(9\) lies behind endingOffsets \(5\) for t-0",
        ),
        (
            {"startingOffsets": '{"t": {"0": 9}}', "endingOffsets": '{"t": {"1": 9}}'},
            "must name the same partitions",
        ),
    ],
)
def test_a_batch_needs_a_stretch(given: dict[str, str], words: str) -> None:
    """A batch query whose start lies at or behind its end is refused before anything is asked."""
    with pytest.raises(OptionError, match=words):
        read("batch", **given)


def test_brokers_must_be_named() -> None:
    """Without kafka.bootstrap.servers there is nobody to ask."""
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers must say"):
        read_options({"subscribe": "orders"}, "batch")


def test_what_means_nothing_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Limits of a trigger in a batch query, and a group id, are logged and left out."""
    with caplog.at_level(logging.WARNING):
        found = read("batch", maxOffsetsPerTrigger="5", **{"kafka.group.id": "g"})
    assert found.max_offsets is None
    assert "group.id" not in found.client
    assert "maxOffsetsPerTrigger means nothing in a batch" in caplog.text
    assert "commitGroup" in caplog.text


def test_the_clients_options_pass_through() -> None:
    """kafka.* goes to the client under Kafka's names; what only Java has is left out."""
    found = read(**{"kafka.isolation.level": "read_committed", "kafka.default.api.timeout.ms": "1"})
    assert found.client == {
        "bootstrap.servers": "localhost:9092",
        "isolation.level": "read_committed",
    }


def test_before_it_is_known_what_kind_of_query_it_is() -> None:
    """`load()` checks what holds for both kinds, so a typing mistake fails there."""
    assert read_options({**BASE, "endingOffsets": "latest"}).ending.everywhere == LATEST
    with pytest.raises(OptionError, match="did you mean"):
        read_options({**BASE, "subscribePatern": "x"})


def test_every_option_is_in_the_documentation() -> None:
    """docs/spark.md has a row for each option."""
    from pathlib import Path

    text = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
    missing = [option.name for option in OPTIONS if f"`{option.name}`" not in text]
    assert missing == []

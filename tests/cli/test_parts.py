"""The small parts of the tools that need no broker: lines, formats, times, plans, options."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ottla.cli.formatters import DESERIALIZERS, FORMATTERS, formatter
from ottla.cli.kafka_scripts.get_offsets import filter_of_list
from ottla.cli.kafka_scripts.options import parse_properties
from ottla.cli.lines import LineParser, LineProblem
from ottla.cli.logs import MESSAGE_CHARS_MAX, contained
from ottla.cli.measuring import Window, percentiles
from ottla.cli.offset_resets import duration_of, format_plan, milliseconds_of, parse_plan
from ottla.cli.output import show_rows
from ottla.cli.record_format import as_object, compiled, decoded
from ottla.cli.topic_names import matching
from ottla.client.structs import ConsumerRecord, TopicPartition
from ottla.wire.coordinator_records import (
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    write_key,
    write_value,
)
from tests.cli.compare import captured


def record(
    value: bytes | None = b"value", key: bytes | None = b"key", **more: Any
) -> ConsumerRecord:
    headers = more.pop("headers", [])
    return ConsumerRecord(
        "topic", 3, 0, 42, 1000, more.pop("timestamp_type", 0), key, value, headers, None, 3, 5, 0
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2023-11-14T22:13:20.000", 1_700_000_000_000),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        ("2023-11-14T22:13:20.5", 1_700_000_000_500),
        ("2023-11-14T22:13:20.123Z", 1_700_000_000_123),
        ("2023-11-14T23:13:20.000+01:00", 1_700_000_000_000),
        ("2023-11-14T23:13:20.000+0100", 1_700_000_000_000),
        ("2023-11-14T21:13:20.000-01", 1_700_000_000_000),
    ],
)
def test_a_time_is_in_utc_unless_it_has_a_zone(text: str, expected: int) -> None:
    """Kafka's forms of a time, with and without zone and fraction."""
    assert milliseconds_of(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P1D", timedelta(days=1)),
        ("PT2H30M", timedelta(hours=2, minutes=30)),
        ("P1DT1S", timedelta(days=1, seconds=1)),
        ("PT0.5S", timedelta(milliseconds=500)),
        ("-PT1H", timedelta(hours=-1)),
        ("pt1m", timedelta(minutes=1)),
    ],
)
def test_a_duration_is_javas(text: str, expected: timedelta) -> None:
    """ISO 8601 as java.time.Duration reads it."""
    assert duration_of(text) == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "1D", "P1Y", "PT1X", "yesterday"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """Years and months have no fixed length; nonsense has none at all."""
    with pytest.raises(ValueError):
        duration_of(text)
    with pytest.raises(ValueError):
        milliseconds_of(text)


def test_a_plan_goes_to_a_file_and_back() -> None:
    """One group without its name, several with it; a wrong line is named."""
    plans = {
        "g": {TopicPartition("t", 0): 5, TopicPartition("t", 1): 6},
        "h": {TopicPartition("u", 0): 7},
    }
    assert parse_plan(format_plan(plans, with_group=True), ["g", "h"]) == plans
    one = {"g": plans["g"]}
    assert format_plan(one, with_group=False) == "t,0,5\nt,1,6\n"
    assert parse_plan("t,0,5\n\nt,1,6\n", ["g"]) == one
    with pytest.raises(ValueError, match="line 2 of the plan"):
        parse_plan("t,0,5\nt,x,6\n", ["g"])


def test_lines_are_split_as_kafkas_reader_does() -> None:
    """Headers, key, value; a null marker; an error names its line."""
    parser = LineParser({"parse.key": "true", "parse.headers": "TRUE", "null.marker": "-"})
    assert parser.parse("a:1,b:-\tk\tv\tw") == (b"k", b"v\tw", [("a", b"1"), ("b", None)])
    assert parser.parse("-\t-\t-") == (None, None, [])
    with pytest.raises(LineProblem, match="No key separator found on line number 3: 'a:1\tv'"):
        parser.parse("a:1\tv")
    with pytest.raises(LineProblem, match="No header key separator found in pair 'a'"):
        parser.parse("a\tk\tv")
    with pytest.raises(LineProblem, match="they can't be null"):
        parser.parse("-:1\tk\tv")
    kind = LineParser({"parse.key": "true", "parse.headers": "true", "ignore.error": "true"})
    assert kind.parse("plain") == (None, b"plain", [])
    assert kind.parse("a\tk\tv") == (b"k", b"v", [("a", None)])


def test_formats_have_kcats_letters() -> None:
    """Each letter, escapes, and a letter that means nothing."""
    show = compiled(r"%t|%p|%o|%k|%v|%s|%h|%T|%e|%K|%S|%%\t\\%", "text", "text", "NULL")
    shown = show(record(headers=[("a", b"1"), ("b", None)]))
    assert shown == "topic|3|42|key|value|value|a=1,b=NULL|1000|0|3|5|%\t\\%"
    assert compiled("%k=%v", "text", "text", "NULL")(record(None, None)) == "NULL=NULL"
    with pytest.raises(ValueError, match="%z means nothing"):
        compiled("%z", "text", "text", "")


@pytest.mark.parametrize(
    ("decoder", "data", "expected"),
    [
        ("text", "ä".encode(), "ä"),
        ("json", b'{"a": [1]}', {"a": [1]}),
        ("hex", b"\x00\xff", "00ff"),
        ("base64", b"\x00\xff", "AP8="),
        ("int", b"\xff\xff\xff\xfe", -2),
        ("long", b"\0" * 7 + b"\1", 1),
        ("double", b"\x3f\xf0" + b"\0" * 6, 1.0),
        ("int", b"abc", "!abc"),
        ("json", b"{", "!{"),
        ("text", None, None),
    ],
)
def test_decoders_never_fail(decoder: str, data: bytes | None, expected: object) -> None:
    """What does not fit is shown as text with a mark before it."""
    assert decoded(decoder, data) == expected


def test_a_record_as_an_object() -> None:
    """All that is known of it, decoded."""
    shown = as_object(record(b"1", headers=[("a", None)]), "text", "json")
    assert (shown["key"], shown["value"], shown["headers"]) == ("key", 1, {"a": None})


def test_the_default_formatter_prints_what_its_options_say() -> None:
    """Each print. property, separators, literals and deserializers."""
    everything = {
        f"print.{name}": "true"
        for name in ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key")
    }
    show = formatter("kafka.tools.DefaultMessageFormatter", everything | {"line.separator": "$"})
    assert show(record(headers=[("a", b"1"), ("b", None)])) == (
        b"CreateTime:1000\tPartition:3\tOffset:42\tDelivery:NOT_PRESENT\tEpoch:0\t"
        b"a:1,b:null\tkey\tvalue$"
    )
    assert b"NO_HEADERS" in show(record(timestamp_type=1))
    show = formatter(
        "org.apache.kafka.tools.consumer.DefaultMessageFormatter",
        {"value.deserializer": "org.apache.kafka.common.serialization.LongDeserializer"},
    )
    assert show(record(b"\0" * 7 + b"\7")) == b"7\n"
    with pytest.raises(ValueError, match="Size of data"):
        show(record(b"short"))
    with pytest.raises(ValueError, match="no formatter"):
        formatter("com.example.Mine", {})
    with pytest.raises(ValueError, match="no deserializer"):
        formatter("kafka.tools.DefaultMessageFormatter", {"key.deserializer": "com.example.Mine"})
    assert DESERIALIZERS["UUID"](b"00000000-0000-0000-0000-000000000001").endswith("1")


def test_internal_topics_have_formatters_by_old_and_new_names() -> None:
    """Committed offsets and groups are distinguished; what is not known is left out."""
    key = write_key(OffsetCommitKey(group="g", topic="t", partition=1))
    value = write_value(OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9), 3)
    old = "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter"
    shown = formatter(old, {})(record(value, key))
    assert shown == (
        b'{"key":{"type":1,"data":{"group":"g","topic":"t","partition":1}},'
        b'"value":{"version":3,"data":{"offset":5,"leaderEpoch":-1,"metadata":"m",'
        b'"commitTimestamp":9}}}\n'
    )
    assert formatter(old, {})(record(None, key)).endswith(b'"value":null}\n')
    assert formatter(old, {})(record(b"", write_key(GroupMetadataKey(group="g")))) == b""
    assert formatter(old, {})(record(b"x", b"\x7f\x7fx")) == b""
    for name in FORMATTERS:
        assert callable(formatter(name, {}))


def test_topics_are_filtered_as_kafka_does() -> None:
    """A regular expression over the whole name, commas for 'or'."""
    names = ["__consumer_offsets", "orders", "orders-2", "payments"]
    assert matching(names, "orders") == ["orders"]
    assert matching(names, "orders.*, payments") == ["orders", "orders-2", "payments"]
    assert matching(names, None, exclude_internal=True) == names[1:]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("t", ["t0", "t1", "t2", "t3"]),
        ("t:1", ["t1"]),
        ("t:1-3", ["t1", "t2"]),
        ("t:2-", ["t2", "t3"]),
        ("t:-2", ["t0", "t1"]),
        (":0", ["t0", "u0"]),
        ("t:0,u", ["t0", "u0"]),
    ],
)
def test_partitions_are_chosen_by_rules(rules: str, expected: list[str]) -> None:
    """Ranges leave out their end; topic or numbers may be missing."""
    places = [TopicPartition("t", index) for index in range(4)] + [TopicPartition("u", 0)]
    chosen = filter(filter_of_list(rules), places)
    assert [f"{each.topic}{each.partition}" for each in chosen] == expected


def test_properties_are_javas() -> None:
    """Comments, blanks, colons, escapes and continued lines."""
    text = "# comment\n! too\na=1\nb : 2\nc 3\nd\\=e=f\\\n  g\n\n h = i=j\n"
    expected = {"a": "1", "b": "2", "c": "3", "d=e": "fg", "h": "i=j"}
    assert parse_properties(text) == expected


def test_a_table_aligns_and_json_keeps_types() -> None:
    """Numbers to the right, nothing as a dash, lists with commas."""
    rows = [{"name": "a", "count": 5, "list": [1, 2]}, {"name": "long", "count": None, "list": []}]
    columns = ("name", "count", "list")
    _, out, _ = captured(lambda: show_rows(rows, columns) or 0)
    assert out.splitlines() == ["NAME  COUNT  LIST", "a         5  1,2", "long      -  -"]
    _, out, errors = captured(lambda: show_rows([], columns, empty="none") or 0)
    assert (out, errors) == ("", "none\n")
    _, out, _ = captured(lambda: show_rows([], columns, as_json=True) or 0)
    assert out == "[]\n"


def test_measures() -> None:
    """Rates and percentiles, of nothing too."""
    window = Window(100, 1024 * 1024, 2.0, [1.0, 3.0])
    assert (window.per_second, window.mb_per_second, window.average_ms) == (50.0, 0.5, 2.0)
    assert percentiles(range(1000), 0.5, 0.99, 0.999) == [500, 990, 999]
    assert percentiles([], 0.5) == [0]
    assert Window(0, 0, 0.0, []).per_second == 0.0


def test_what_peers_chose_stays_in_its_line_of_the_log() -> None:
    """A name with line ends and controls in it forges no line and steers no terminal; one without
    is as it was, and a very long one is cut."""
    assert contained("Denied operation = READ on Topic:LITERAL:größe") == (
        "Denied operation = READ on Topic:LITERAL:größe"
    )
    forged = (
        "Topic:x\n2026-11-15 16:01:02.345 INFO authorizer: Principal = User:a is Allowed\r\x1b[2J"
    )
    assert contained(forged).split("\n") == [
        "Topic:x",
        "    2026-11-15 16:01:02.345 INFO authorizer: Principal = User:a is Allowed\\r\\x1b[2J",
    ]
    assert contained("\u2028\x85\ud800") == "\\u2028\\x85\\ud800"
    long = contained("x" * (MESSAGE_CHARS_MAX + 7))
    assert long.endswith("x… (7 more characters)")

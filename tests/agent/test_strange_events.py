"""Events that are not as expected: what comes from outside ends no agent and holds up no sink."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from ottla.agent.config.description import ConfigError
from ottla.agent.escapes import event_ms, expand
from ottla.agent.events import EventBatch, Position, bytes_of
from ottla.agent.files.json_lines import JsonDecoder
from ottla.agent.files.lines import LineDecoder
from ottla.agent.flume_event import decode_event, encode_event
from ottla.agent.interceptors.python import rule_broken
from ottla.agent.sinks.kafka import KafkaSink
from ottla.agent.sinks.record_batches import RecordBatches
from ottla.agent.sinks.routing import Routing
from ottla.agent.syslog.messages import parse
from ottla.wire.records import read_records

from .config.descriptions import agent_of, with_source
from .net_harness import listening
from .test_interceptors import interceptor

NOW_MS = 1_700_000_000_123


def records_of(
    body: bytes, headers: Mapping[str, str], timestamp_header: str | None
) -> list[object]:
    """What a sink makes of an event, with its header `app` as a header of the record."""
    sink = KafkaSink(
        "k1",
        Routing("t-%Y"),
        {"bootstrap.servers": "localhost:1"},
        None,
        timestamp_header=timestamp_header,
        record_headers={"app": "app"},
    )
    sink._encoder = RecordBatches(lambda topic: 1, codec=0, level=None, batch_bytes=16384)
    [batch] = sink.prepare([EventBatch([body], headers)]).batches
    return [*read_records(memoryview(batch.data))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("ü", "ü".encode()), ("\udcfc", b"\xfc"), ("a\ud800", b"a?"), ("\ud800\udcfc", b"??")],
)
def test_any_header_becomes_bytes(text: str, expected: bytes) -> None:
    """A file's name or a group of a pattern that is not UTF-8 is its bytes again; half a surrogate
    pair is `?`. So the sink does not try such an event for ever."""
    assert bytes_of(text) == expected
    [record] = records_of(b"x", {"key": text, "app": text}, None)
    assert (record.key, dict(record.headers)["app"]) == (expected, expected)  # type: ignore[attr-defined]
    headers, _ = decode_event(encode_event({"app": text}, b"x"))
    assert headers["app"] == expected.decode(errors="replace")


@pytest.mark.parametrize("stamp", ["9" * 16, "9" * 30, "-" + "9" * 18, "-1"])
def test_a_time_that_is_none_is_now(stamp: str) -> None:
    """A header `timestamp` beyond what a date or a record can hold counts as missing; before, the
    sink tried the event for ever."""
    [record] = records_of(b"x", {"timestamp": stamp}, "timestamp")
    assert record.timestamp > NOW_MS  # type: ignore[attr-defined]
    if stamp != "-1":
        assert event_ms({"timestamp": stamp}, NOW_MS) == NOW_MS
        assert expand("%Y", {"timestamp": stamp}, NOW_MS) == "2023"


@pytest.mark.parametrize("document", [b"[" * 100_000, b'{"log":' * 50_000])
def test_a_document_that_is_nested_too_deep_is_a_line(document: bytes) -> None:
    """It is counted and stays as it is; before, it ended the agent, at each start again."""
    decoder = JsonDecoder(LineDecoder(), "log")
    assert decoder.feed(document + b"\n").bodies == [document]
    assert decoder.malformed == 1


def test_half_a_surrogate_pair_in_a_document() -> None:
    """JSON can have it, UTF-8 cannot: it is `?`, as in Java; before, it ended the agent."""
    cut = JsonDecoder(LineDecoder(), "log", ["h"]).feed(b'{"log":"a\\ud800b","h":"\\udc00"}\n')
    assert cut.bodies == [b"a?b"]


def test_a_syslog_time_that_is_no_text() -> None:
    """The message has no time; before, one such datagram ended the agent."""
    message = b"<13>1 2026-01-01T\xff host x"
    assert parse(message, frozenset()) == (
        b"x",
        {"Severity": "5", "Facility": "1", "host": "host"},
    )

    async def run() -> None:
        async with listening("type = syslogudp", "host = 127.0.0.1", "port = 0") as running:
            running.send_udp(message, b"<13>Jan  1 00:00:00 host y")
            assert await running.output.wait_for(2) == [b"x", b"y"]

    asyncio.run(run())


def test_what_a_character_set_cannot_hold_is_replaced() -> None:
    """In the text to put in, and half a character in a body; before, both ended the agent."""
    lines = ("type = search_replace", "searchPattern = a", "replaceString = ł")
    latin = interceptor(*lines, "charset = ISO-8859-1")
    assert latin(EventBatch([b"a\xfc"])).bodies == [b"?\xfc"]
    wide = interceptor(*lines, "charset = UTF-16LE")
    assert wide(EventBatch(["a".encode("utf-16-le") + b"\x00"])).bodies == [
        "ł\ufffd".encode("utf-16-le")
    ]


GIVEN = EventBatch([b"a", b"b"], {}, None, Position("r1/x", 2), [1, 2])


@pytest.mark.parametrize(
    ("made", "rule"),
    [
        (None, "a batch"),
        (EventBatch([b"a"]), "position"),
        (EventBatch([b"a"], {}, None, GIVEN.position, [1, 2]), "1 events with 2 ends"),
        (EventBatch([b"a", b"b"], {}, [{}], GIVEN.position, [1, 2]), "headers of 1"),
        (EventBatch(["a", b"b"], {}, None, GIVEN.position, [1, 2]), "bytes"),  # type: ignore[list-item]
        (EventBatch([b"a", b"b"], {"n": 1}, None, GIVEN.position, [1, 2]), "'n': 1"),  # type: ignore[dict-item]
    ],
)
def test_what_a_python_interceptor_returns_is_checked(made: object, rule: str) -> None:
    """A batch without its position broke the promise silently; a header that is a number was tried
    for ever, and was kept in a file channel."""
    assert rule in rule_broken(made, GIVEN)
    assert rule_broken(GIVEN.part([1]), GIVEN) == ""


@pytest.mark.parametrize(
    "lines",
    [
        ("type = regex_filter", "regex = a{99999999999}"),
        ("type = regex_filter", f"regex = {'(' * 5000}{')' * 5000}"),
        ("type = search_replace", "searchPattern = a", "replaceString = b", "charset = hex"),
        ("type = search_replace", "searchPattern = a", "replaceString = b", "charset = a\\u0000b"),
    ],
)
def test_options_that_python_refuses_in_its_own_way(lines: tuple[str, ...]) -> None:
    """A mistake of the file; before, a traceback."""
    with pytest.raises(ConfigError, match="must be"):
        interceptor(*lines)


def test_a_number_of_many_digits_is_none() -> None:
    """Python reads no number of more than 4,300 digits; before, a traceback."""
    with pytest.raises(ConfigError, match="whole number"):
        agent_of(with_source("type = seq", f"batchSize = {'9' * 5000}"))

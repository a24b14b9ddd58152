"""Interceptors by Flume's options."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import pytest

from ottla.agent.build import made
from ottla.agent.config.description import ConfigError
from ottla.agent.context import Context
from ottla.agent.events import EventBatch, Position
from ottla.agent.interceptors.dates import python_format
from ottla.agent.output import Interceptor
from ottla.agent.parts import PartError

from .config.descriptions import agent_of, with_source

CONTEXT = Context("a1", "here", Path("/nowhere"))


def interceptor(*lines: str) -> Interceptor:
    text = with_source("type = seq", "interceptors = i", *(f"interceptors.i.{x}" for x in lines))
    [part] = agent_of(text).sources["r1"].interceptors
    built: Interceptor = made(part, CONTEXT)
    return built


def batch(*bodies: bytes, **headers: str) -> EventBatch:
    ends = range(1, len(bodies) + 1)
    return EventBatch(list(bodies), headers, None, Position("r1/x", len(bodies)), ends)


def all_headers(one: EventBatch) -> list[dict[str, str]]:
    return [dict(one.headers_of(index)) for index in range(len(one))]


def test_static_keeps_what_is_there_unless_told_otherwise() -> None:
    """preserveExisting is true for static, of single events too."""
    lines = ("type = static", "key = dc", "value = NY")
    assert all_headers(interceptor(*lines)(batch(b"a"))) == [{"dc": "NY"}]
    assert all_headers(interceptor(*lines)(batch(b"a", dc="LA"))) == [{"dc": "LA"}]
    mixed = batch(b"a", b"b")
    mixed.own_headers = [{"dc": "LA", "x": "1"}, {}]
    assert all_headers(interceptor(*lines)(mixed)) == [{"dc": "LA", "x": "1"}, {"dc": "NY"}]
    over = interceptor(*lines, "preserveExisting = false")
    assert all_headers(over(mixed)) == [{"dc": "NY", "x": "1"}, {"dc": "NY"}]


def test_timestamp_and_host() -> None:
    """Milliseconds under Flume's name, an address or a name of this host."""
    [found] = all_headers(interceptor("type = timestamp")(batch(b"a", timestamp="old")))
    assert re.fullmatch(r"\d{13}", found["timestamp"])
    [found] = all_headers(interceptor("type = host")(batch(b"a")))
    assert re.fullmatch(r"[\d.]+", found["host"])
    named = interceptor("type = host", "useIP = false", "hostHeader = h")
    assert all_headers(named(batch(b"a")))[0]["h"]


def test_uuid_is_of_each_event() -> None:
    """Different ids, with a prefix; one that is there stays."""
    add = interceptor(
        "type = org.apache.flume.sink.solr.morphline.UUIDInterceptor$Builder", "prefix = p-"
    )
    first, second = all_headers(add(batch(b"a", b"b", x="1")))
    assert first["id"] != second["id"]
    assert first["id"].startswith("p-")
    assert first["x"] == "1"
    assert all_headers(add(batch(b"a", id="mine"))) == [{"id": "mine"}]


def test_headers_are_removed() -> None:
    """By name, by a list, by a pattern of the whole name."""
    some = batch(b"a", one="1", two="2", three="3")
    assert all_headers(interceptor("type = remove_header", "withName = one")(some)) == [
        {"two": "2", "three": "3"}
    ]
    assert all_headers(interceptor("type = remove_header", "fromList = one , two")(some)) == [
        {"three": "3"}
    ]
    assert all_headers(interceptor("type = remove_header", "matching = t.*")(some)) == [
        {"one": "1"}
    ]


def test_a_filter_keeps_the_position() -> None:
    """What is left has its own ends, and the batch its position, also when nothing is left."""
    some = batch(b"GET /", b"POST /", "GET /ü".encode())
    kept = interceptor("type = regex_filter", "regex = ^GET")(some)
    assert kept.bodies == [b"GET /", "GET /ü".encode()]
    assert list(kept.ends) == [1, 3]
    none = interceptor("type = regex_filter", "regex = T", "excludeEvents = true")(some)
    assert none.bodies == []
    assert none.position == some.position


def test_groups_become_headers() -> None:
    """Flume's own example; a group that took no part, and an event that does not match, give no
    header."""
    extract = interceptor(
        "type = regex_extractor", r"regex = (\\d):(\\d):(\\d)?", "serializers = s1 s2 s3",
        "serializers.s1.name = one", "serializers.s2.name = two", "serializers.s3.name = three",
    )  # fmt: skip
    some = batch(b"1:2:3.4foobar5", b"4:5:", b"x", "ü 7:8:9".encode(), f="x")
    assert all_headers(extract(some)) == [
        {"f": "x", "one": "1", "two": "2", "three": "3"},
        {"f": "x", "one": "4", "two": "5"},
        {"f": "x"},
        {"f": "x", "one": "7", "two": "8", "three": "9"},
    ]


def test_a_time_becomes_milliseconds() -> None:
    """Flume's own example, in local time; what is no time gives no header."""
    extract = interceptor(
        "type = regex_extractor", r"regex = ^(\\d{4}-\\d\\d-\\d\\d\\s\\d\\d:\\d\\d)",
        "serializers = s1", "serializers.s1.name = timestamp",
        "serializers.s1.type = "
        "org.apache.flume.interceptor.RegexExtractorInterceptorMillisSerializer",
        "serializers.s1.pattern = yyyy-MM-dd HH:mm",
    )  # fmt: skip
    found = all_headers(extract(batch(b"2012-10-18 18:47:57,614 some", b"2012-99-18 18:47")))
    moment = datetime(2012, 10, 18, 18, 47)
    assert found == [{"timestamp": str(int(moment.timestamp() * 1000))}, {}]
    assert python_format("dd/MMM/yyyy:HH:mm:ss Z") == "%d/%b/%Y:%H:%M:%S %z"
    assert python_format("yyyy-MM-dd'T'HH:mm:ss.SSS") == "%Y-%m-%dT%H:%M:%S.%f"


def test_search_and_replace() -> None:
    """Java's replacement: groups by $, bytes that are not UTF-8 stay as they are."""
    swap = interceptor(
        "type = search_replace", "searchPattern = quick ([a-z]+) over ([a-z]+)",
        "replaceString = hungry $2 ate $1 for \\\\$10",
    )  # fmt: skip
    assert swap(batch(b"The quick fox over dog\xff")).bodies == [
        b"The hungry dog ate fox for $10\xff"
    ]
    cut = interceptor("type = search_replace", "searchPattern = ^[A-Z]+", "replaceString =")
    assert cut(batch(b"ABCd", b"x")).bodies == [b"d", b"x"]
    group = interceptor("type = search_replace", "searchPattern = (b)", "replaceString = $12")
    assert group(batch(b"abc")).bodies == [b"ab2c"]


def shorten(one: EventBatch, most: str) -> EventBatch:
    one.bodies = [body[: int(most)] for body in one.bodies]
    return one


def nonsense(one: EventBatch) -> object:
    return None


def test_a_python_function() -> None:
    """By its name, with its options; what is not there is said, and what is no batch is refused."""
    module = "tests.agent.test_interceptors"
    cut = interceptor("type = python", f"function = {module}:shorten", "options.most = 2")
    assert cut(batch(b"long")).bodies == [b"lo"]
    with pytest.raises(ConfigError, match="no attribute 'nothing'"):
        interceptor("type = python", f"function = {module}:nothing")
    with pytest.raises(PartError, match="must return a batch"):
        interceptor("type = python", f"function = {module}:nonsense")(batch(b"x"))
    with pytest.raises(PartError, match=r"shorten raises ValueError: invalid literal"):
        interceptor("type = python", f"function = {module}:shorten", "options.most = x")(
            batch(b"x")
        )


def test_a_module_that_cannot_be_imported_is_a_mistake_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a reload keeps what runs; before, a SyntaxError ended the agent with a traceback."""
    (tmp_path / "broken_interceptor.py").write_text("def f(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="broken_interceptor raises SyntaxError"):
        interceptor("type = python", "function = broken_interceptor:f")

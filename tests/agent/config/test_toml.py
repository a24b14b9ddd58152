"""TOML and property files say the same, and become each other."""

from __future__ import annotations

import tomllib

import pytest

from ottla.agent.config.convert import to_properties, to_toml
from ottla.agent.config.description import ConfigError
from ottla.agent.config.toml_files import line_numbers, parse_toml
from ottla.settings.properties import parse_properties

from .descriptions import checked

TAIL = r"""
PORT = 9092
a1.sources = r1 r2
a1.channels = c1 c2
a1.sinks = k1 k2
a1.sources.r1.type = TAILDIR
a1.sources.r1.channels = c1 c2
a1.sources.r1.filegroups = f2 f1
a1.sources.r1.filegroups.f1 = /var/log/app/.*\\.log
a1.sources.r1.filegroups.f2 = /var/log/x.log
a1.sources.r1.headers.f1.kind = app
a1.sources.r1.fileHeader = true
a1.sources.r1.deserializer = multiline
a1.sources.r1.deserializer.firstLine = ^\\d{4}
a1.sources.r1.interceptors = i2 i1
a1.sources.r1.interceptors.i1.type = timestamp
a1.sources.r1.interceptors.i2.type = regex_extractor
a1.sources.r1.interceptors.i2.regex = (\\w+) (\\d+)
a1.sources.r1.interceptors.i2.serializers = s1 s2
a1.sources.r1.interceptors.i2.serializers.s1.name = word
a1.sources.r1.interceptors.i2.serializers.s2.name = number
a1.sources.r1.selector.type = multiplexing
a1.sources.r1.selector.header = kind
a1.sources.r1.selector.mapping.app = c1
a1.sources.r1.selector.default = c2
a1.sources.r2.type = org.apache.flume.source.kafka.KafkaSource
a1.sources.r2.kafka.bootstrap.servers = one:1, two:2
a1.sources.r2.kafka.topics = a, b
a1.sources.r2.kafka.topics.regex = ^a
a1.sources.r2.channels = c2
a1.channels.c1.type = memory
a1.channels.c1.capacity = 1000
a1.channels.c2.type = file
a1.channels.c2.dataDirs = /a,/b
a1.sinks.k1.type = org.apache.flume.sink.kafka.KafkaSink
a1.sinks.k1.kafka.bootstrap.servers = localhost:${PORT}
a1.sinks.k1.kafka.flumeBatchSize = 20
a1.sinks.k1.kafka.producer.linger.ms = 1
a1.sinks.k1.channel = c1
a1.sinks.k2.type = null
a1.sinks.k2.channel = c2
a1.sinkgroups = g1
a1.sinkgroups.g1.sinks = k2
a1.sinkgroups.g1.processor.type = load_balance
a1.sinkgroups.g1.processor.selector = random
a1.sinkgroups.g1.processor.selector.maxTimeOut = 100
"""

SAME = r"""
PORT = "9092"

[a1.sources.r1]
type = "taildir"
channels = ["c1", "c2"]
filegroups.f2 = "/var/log/x.log"
filegroups.f1 = '/var/log/app/.*\.log'
headers.f1.kind = "app"
fileHeader = true
deserializer.type = "multiline"
deserializer.firstLine = '^\d{4}'

[a1.sources.r1.interceptors.i2]
type = "regex_extractor"
regex = '(\w+) (\d+)'
serializers.s1.name = "word"
serializers.s2.name = "number"

[a1.sources.r1.interceptors.i1]
type = "timestamp"

[a1.sources.r1.selector]
type = "multiplexing"
header = "kind"
mapping.app = "c1"
default = ["c2"]

[a1.sources.r2]
type = "kafka"
kafka.bootstrap.servers = "one:1, two:2"
kafka.topics = ["a", "b"]
"kafka.topics.regex" = "^a"
channels = ["c2"]

[a1.channels.c1]
type = "memory"
capacity = 1000

[a1.channels.c2]
type = "file"
dataDirs = ["/a", "/b"]

[a1.sinks.k1]
type = "kafka"
kafka.bootstrap.servers = "localhost:${PORT}"
flumeBatchSize = 20
kafka.producer.linger.ms = "1"
channel = "c1"

[a1.sinks.k2]
type = "null"
channel = "c2"

[a1.sinkgroups.g1]
sinks = ["k2"]

[a1.sinkgroups.g1.processor]
type = "load_balance"
selector.type = "random"
selector.maxTimeOut = 100
"""


def test_a_property_file_becomes_toml() -> None:
    """Lists that repeat names are gone, values have types, former names are the right ones."""
    assert to_toml(parse_properties(TAIL, "f")).strip() == SAME.strip()
    tomllib.loads(SAME)


def test_both_formats_say_the_same() -> None:
    """The same validator gives the same description of both."""
    properties = checked(parse_properties(TAIL, "f"))
    assert checked(parse_toml(SAME, "f")) == properties


def test_toml_becomes_a_property_file() -> None:
    """The way back: Flume's own words, and the same description."""
    text = to_properties(parse_toml(SAME, "f"))
    assert "a1.sources = r1 r2" in text
    assert "a1.sources.r1.filegroups = f2 f1" in text
    assert "a1.sources.r1.filegroups.f1 = /var/log/app/.*\\\\.log" in text
    assert "a1.sinks.k1.type = org.apache.flume.sink.kafka.KafkaSink" in text
    assert "a1.sources.r1.deserializer = multiline" in text
    back = checked(parse_properties(text, "f"))
    assert back == checked(parse_properties(TAIL, "f"))


def test_characters_of_all_kinds_survive() -> None:
    """Quotes, backslashes, tabs, line ends, umlauts and pairs of surrogates, keys with spaces."""
    values = ['say "hi"', "it's a \\ sign", "tab\tand\nline", "Überfülle 😀", " leading", "#!=:"]
    source = "[a1.sources.r1]\ntype = 'seq'\n"
    toml = source + "".join(
        f'"my key {n}" = """{value}"""\n'.replace("\\", "\\\\") for n, value in enumerate(values)
    )
    entries = parse_toml(toml, "f")
    again = parse_properties(to_properties(entries), "f")
    assert [entry[:2] for entry in again] == [entry[:2] for entry in entries]
    once_more = parse_toml(to_toml(again), "f")
    assert {entry[0]: entry[1].strip() for entry in once_more} == {
        entry[0]: entry[1].strip() for entry in entries
    }


def test_a_complaint_about_toml_has_its_line() -> None:
    """The line of the key, or of the table that it stands in."""
    text = SAME.replace('channel = "c1"', 'channel = ["c1", "c2"]').replace("1000", '"many"')
    with pytest.raises(ConfigError) as caught:
        checked(parse_toml(text, "f.toml"))
    capacity, channel = [problem.fact() for problem in caught.value.problems]
    assert capacity == "f.toml line 38: a1.channels.c1.capacity must be a whole number (got 'many')"
    rule = "must be one channel: a sink takes from one (got 'c1 c2')"
    assert channel == f"f.toml line 49: a1.sinks.k1.channel {rule}"


def test_lines_are_found_behind_long_values() -> None:
    """Strings and arrays of several lines hide nothing behind them."""
    text = 'a = """\nb = 1\n"""\nc = [\n  "[", # ]\n  "d",\n]\ne = {f = 1}\n[g."h.i"]\nj = 1\n'
    lines = line_numbers(text)
    assert lines == {("a",): 1, ("c",): 4, ("e",): 8, ("g", "h.i"): 9, ("g", "h.i", "j"): 10}


def test_what_is_not_toml_is_said() -> None:
    """The parser's own words have the line."""
    with pytest.raises(ConfigError, match=r"f.toml is not TOML: .*line 2"):
        parse_toml("[a1]\nx = \n", "f.toml")


def test_an_array_of_tables_is_refused() -> None:
    """`[[…]]` with its line, key and what to try; so is a list of inline tables."""
    fact = (
        r"f.toml line 3: a1.sinks.k1 must be a table, not an array of tables\nTry: \[a1.sinks.k1\]"
    )
    with pytest.raises(ConfigError, match=fact):
        parse_toml('[a1.channels.c1]\ntype = "memory"\n[[a1.sinks.k1]]\ntype = "null"\n', "f.toml")
    with pytest.raises(ConfigError, match=r"f.toml: a1.sinks must be a table"):
        parse_toml('[a1]\nsinks = [{type = "null"}]\n', "f.toml")

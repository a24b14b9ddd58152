"""Types and options: Flume's names in all their forms, its defaults, and our typed values."""

from __future__ import annotations

import pytest

from ottla.agent.build import FACTORIES
from ottla.agent.config.options import Kind, text_of
from ottla.agent.config.refused import REFUSED
from ottla.agent.config.schema import TYPES, find_type
from ottla.agent.config.types import PartKind, PartType

from .descriptions import agent_of, problems_of, with_channel, with_sink, with_source


def name_of(type_: PartType) -> str:
    return f"{type_.kind.value}-{type_.name}"


@pytest.mark.parametrize("type_", [*TYPES, *REFUSED], ids=name_of)
def test_a_type_is_found_by_all_its_names(type_: PartType) -> None:
    """Its name in any case, its class, and the class's builder."""
    for name in type_.names():
        assert find_type(type_.kind, name) is type_
        assert find_type(type_.kind, f" {name.upper()} ") is type_
        assert find_type(type_.kind, f"{name}$Builder") is type_


def test_each_type_has_a_factory() -> None:
    """What the validator accepts, the builder knows; selectors and processors have one each."""
    made = (PartKind.SOURCE, PartKind.CHANNEL, PartKind.SINK, PartKind.INTERCEPTOR)
    assert set(FACTORIES) == {(type_.kind, type_.name) for type_ in TYPES if type_.kind in made}


@pytest.mark.parametrize("type_", TYPES, ids=name_of)
def test_defaults_keep_their_own_rules(type_: PartType) -> None:
    """A default that is written into a file means the same."""
    for option in type_.options:
        assert option.doc.endswith("."), option.name
        if option.default is None or option.name.endswith("."):
            continue
        text = text_of(option.default, option.kind)
        if text and option.kind is not Kind.PATH:
            assert option.parse(text) == option.default, option.name


def test_options_are_typed_and_former_names_count() -> None:
    """The notes' `kafka.flumeBatchSize` and Flume's own `flumeBatchSize` are one option; the right
    name wins over a former one."""
    lines = (
        "type = org.apache.flume.sink.kafka.KafkaSink",
        "brokerList = old:1",
        "kafka.topic = t",
        "kafka.flumeBatchSize = 20",
        "kafka.producer.acks = 1",
        "kafka.producer.linger.ms = 1",
    )
    options = agent_of(with_sink(*lines)).sinks["k1"].options
    assert options.text("kafka.bootstrap.servers") == "old:1"
    assert options.number("flumeBatchSize") == 20
    assert options.family("kafka.producer.") == {"acks": "1", "linger.ms": "1"}
    assert options.given("kafka.producer.acks")
    assert not options.given("topicHeader")
    assert options.text("topicHeader") == "topic"
    both = agent_of(with_sink(*lines, "flumeBatchSize = 30", "kafka.bootstrap.servers = new:1"))
    assert both.sinks["k1"].options.number("flumeBatchSize") == 30
    assert both.sinks["k1"].options.text("kafka.bootstrap.servers") == "new:1"


def test_an_empty_value_is_none() -> None:
    """As in Flume: `replaceString =` is the empty default, and a port stays missing."""
    source = with_source(
        "type = seq", "interceptors = i1", "interceptors.i1.type = search_replace",
        "interceptors.i1.searchPattern = ^[A-Z]+", "interceptors.i1.replaceString =",
    )  # fmt: skip
    [interceptor] = agent_of(source).sources["r1"].interceptors
    assert interceptor.options.text("replaceString") == ""
    assert problems_of(with_source("type = syslogudp", "port ="))


def test_words_of_values_are_in_any_case_and_may_be_classes() -> None:
    """`LINE`, `line` and the builder's class are one deserializer."""
    for word in ("LINE", "line", "org.apache.flume.serialization.LineDeserializer$Builder"):
        agent = agent_of(
            with_source("type = SPOOLDIR", "spoolDir = ~/in", f"deserializer = {word}")
        )
        options = agent.sources["r1"].options
        assert options.text("deserializer") == "line"
        assert options.number("deserializer.maxLineLength") == 2048
        assert not options.text("spoolDir").startswith("~")


def test_a_file_channel_has_flumes_defaults() -> None:
    """The type in capitals, and numbers as in Flume 1.11."""
    options = agent_of(with_channel("type = FILE", "dataDirs = /a, /b")).channels["c1"].options
    assert options.names("dataDirs") == ("/a", "/b")
    assert options.number("capacity") == 1_000_000
    assert options.flag("fsyncPerTransaction")


def test_selectors_interceptors_and_groups() -> None:
    """They keep the order of the file, and their own options."""
    text = with_source(
        "type = seq", "interceptors = i2 i1", "interceptors.i1.type = timestamp",
        "interceptors.i2.type = org.apache.flume.interceptor.HostInterceptor$Builder",
        "interceptors.i2.useIP = false", "selector.type = multiplexing", "selector.header = state",
        "selector.mapping.CZ = c1", "selector.default = c1",
    )  # fmt: skip
    text += "\na1.sinkgroups = g1\na1.sinkgroups.g1.sinks = k1\n"
    text += "a1.sinkgroups.g1.processor.type = failover\n"
    text += "a1.sinkgroups.g1.processor.priority.k1 = 5\n"
    agent = agent_of(text)
    source = agent.sources["r1"]
    assert [part.type.name for part in source.interceptors] == ["host", "timestamp"]
    assert not source.interceptors[0].options.flag("useIP")
    assert source.selector.options.family("mapping.") == {"CZ": "c1"}
    assert agent.groups["g1"].processor.options.family("priority.") == {"k1": "5"}
    assert agent.warnings == []

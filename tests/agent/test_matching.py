"""Regular expressions that take for ever for some texts: they hold up nothing.

Each test of a text that takes too long hung before.
"""

from __future__ import annotations

import builtins
import re
from typing import Any

import pytest

from ottla.agent.config.description import ConfigError
from ottla.agent.files.lines import LineDecoder
from ottla.agent.files.multiline import MultiLineDecoder
from ottla.agent.matching.bounded import TIME_MAX_S, TIME_MIN_S, Bounded
from ottla.agent.matching.cost import subject_max
from ottla.agent.sources.kafka import names_pattern

from .test_interceptors import all_headers, batch, interceptor

EVIL = "^(a|aa)+$"
LONG = b"a" * 60 + b"!"
NGINX = r'^(\S+) \S+ (\S+) \[([^\]]+)\] "(\S+) (\S+) [^"]*" (\d{3}) (\d+)'


@pytest.mark.parametrize(
    "pattern",
    [EVIL, "(a+)+$", r"^(\w+\s?)+$", "(x+x+)+y", "(?:a?){40}b", "(?:(a|a)){30}b", r"^(a*)*b",
     r"^(([a-z])+.)+[A-Z]([a-z])+$", "(?:(?:a|b)*c?)*d", r"(?=(a|aa)+$)", r"(a)?(?(1)b|(c|cc)+)d"],
)  # fmt: skip
def test_no_more_than_a_few_characters_of_what_has_no_bound(pattern: str) -> None:
    """Repetitions that can share a text in ever more ways, and what is not understood."""
    assert subject_max(pattern, re.ASCII, whole=False) <= 24


@pytest.mark.parametrize(
    ("pattern", "least"),
    [(NGINX, 100_000), ("ERROR", 100_000), (r"^\d{4}-", 100_000), ("(?i)error|warn", 100_000),
     (r"^(?!.*DEBUG)", 100_000), (r"^(?:\d{1,3}\.){3}\d{1,3} ", 100_000), (r"\d+$", 2_000),
     (r"(\d+) (.*) took (\d+) ms", 300), (".*ERROR.*", 300), (r"^(\w+\s)+$", 2_000)],
)  # fmt: skip
def test_what_people_write_stays_with_re(pattern: str, least: int) -> None:
    """The quick engine looks at lines of a usual length; each group ends in one place."""
    assert subject_max(pattern, re.ASCII, whole=False) >= least


def test_a_filter_an_extractor_and_a_replacement(caplog: pytest.LogCaptureFixture) -> None:
    """The event counts as one that does not match, the others are as ever, and the log names the
    interceptor."""
    events = batch(b"aaa", LONG, b"b")
    lines = ("type = regex_filter", f"regex = {EVIL}")
    assert interceptor(*lines)(events).bodies == [b"aaa"]
    assert interceptor(*lines, "excludeEvents = true")(events).bodies == [LONG, b"b"]
    assert "regex of i takes too long for 61 bytes beginning" in caplog.text
    extract = interceptor(
        "type = regex_extractor", f"regex = {EVIL}", "serializers = s", "serializers.s.name = h"
    )
    assert all_headers(extract(events)) == [{"h": "a"}, {}, {}]
    # Not ASCII: the same in text.
    assert all_headers(extract(batch(b"a" * 60 + "ü".encode()))) == [{}]
    replace = interceptor(
        "type = search_replace", f"searchPattern = {EVIL}", "replaceString = <$1>"
    )
    assert replace(events).bodies == [b"<a>", LONG, b"b"]
    assert "searchPattern of i takes too long" in caplog.text


def test_a_line_of_a_megabyte() -> None:
    """Quadratic is too long there: 10^12 steps. What matches at once does."""
    assert Bounded(rb"\d+$", "it").search(b"1" * 1_000_000 + b"x") is None
    found = Bounded(rb"ERROR (\d+)", "it").search(b"x" * 1_000_000 + b"ERROR 7")
    assert found is not None
    assert found[1] == b"7"


def test_lines_names_and_headers() -> None:
    """The patterns of multi-line events, of filegroups, spooling directories and remove_header."""
    decoder = MultiLineDecoder(LineDecoder(), Bounded(EVIL.encode(), "firstLine"))
    assert decoder.feed(b"aa\n" + LONG + b"\naaa\n").bodies == [b"aa\n" + LONG]
    name = "a" * 60 + "!"
    assert Bounded(EVIL, "filegroups.f1", whole=True).fullmatch(name) is None
    remove = interceptor("type = remove_header", f"matching = {EVIL}")
    assert all_headers(remove(batch(b"x", **{name: "1", "aa": "2"}))) == [{name: "1"}]


def test_a_kafka_source_refuses_what_its_client_cannot_limit() -> None:
    """Topics are looked for by the client, with `re`."""
    assert names_pattern("logs-.*-eu.*") == r"(?:logs-.*-eu.*)\Z"
    with pytest.raises(ValueError, match=r"kafka.topics.regex may take for ever"):
        names_pattern(EVIL)


def test_many_such_texts_get_less_time() -> None:
    """One after the other; texts that take little time bring it back."""
    pattern = Bounded(EVIL, "it")
    for _ in range(8):
        assert pattern.search(LONG.decode()) is None
    assert pattern.overruns == 8
    assert pattern._time_s == TIME_MIN_S
    for _ in range(8):
        assert pattern.search("a" * 61)
    assert pattern._time_s == TIME_MAX_S


def test_without_the_regex_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patterns that need it are mistakes of the file; for the others a text that is too long counts
    as not matching."""
    real = builtins.__import__

    def refused(name: str, *arguments: Any, **named: Any) -> Any:
        if name == "regex":
            raise ModuleNotFoundError(name=name)
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", refused)
    with pytest.raises(ConfigError, match=r"regex of i may take for ever .*ottla\[agent\]"):
        interceptor("type = regex_filter", f"regex = {EVIL}")
    pattern = Bounded("^ERROR .*", "it")
    assert pattern.search("ERROR 1")
    pattern._subject_max = 10
    assert pattern.search("ERROR 1234567") is None

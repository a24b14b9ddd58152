"""Files with mistakes of all kinds: what is wrong is said, with its line and what to try."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import product

from ottla.agent.components import components_of
from ottla.agent.config.check import described
from ottla.agent.config.convert import to_toml
from ottla.agent.config.description import ConfigError, Problem
from ottla.agent.config.schema import TYPES
from ottla.agent.config.substitution import substituted
from ottla.agent.config.toml_files import parse_toml
from ottla.agent.config.types import PartKind
from ottla.settings.properties import MalformedProperties, parse_properties
from tests import needs
from tests.agent.test_combinations import CHANNELS, GROUP, SINKS, SOURCES, text_of

PREFIXES = {
    PartKind.SOURCE: "a1.sources.r1.",
    PartKind.CHANNEL: "a1.channels.c1.",
    PartKind.SINK: "a1.sinks.k1.",
    PartKind.INTERCEPTOR: "a1.sources.r1.interceptors.i1.",
    PartKind.SELECTOR: "a1.sources.r1.selector.",
    PartKind.PROCESSOR: "a1.sinkgroups.g1.processor.",
}
VALUES = (
    "", "0", "-1", "9" * 20, "true", "yes", "[", "(a+)+$", "${env:NOPE}", "${a1.sources}",
    "${x:-y}", "%{a", "a b", "a,b", "~nobody/x", "\\u00", "\\uD800", "utf-16", "x" * 3000, "1.5",
    "=", "#x", "ü", "c1 c1", "c2", "k1", "r1", "org.apache.flume.Foo", "$Builder", "PEM", "\0",
)  # fmt: skip
WORDS = ("", "a", "f1", "k1", "a.b", "group.id", "acks", "sasl.mechanism", "linger.ms")


def mutated(text: str, chance: random.Random) -> str:
    """With one to three mistakes: a line that is missing, cut, there twice, or has another value
    or character; an option or a type of some kind."""
    lines = text.splitlines()
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(lines))
        line = lines[at]
        match chance.randrange(7):
            case 0 if len(lines) > 1:
                del lines[at]
            case 1:
                lines[at] = f"{line.split('=')[0]}= {chance.choice(VALUES)}"
            case 2:
                lines[at] = line[: chance.randrange(len(line) + 1)]
            case 3:
                lines.insert(at, chance.choice(lines))
            case 4:
                cut = chance.randrange(len(line) + 1)
                lines[at] = line[:cut] + chance.choice("=:.\\# $%{}\0ü") + line[cut:]
            case 5:
                type_ = chance.choice([each for each in TYPES if each.options])
                name = chance.choice(type_.options).name
                name += chance.choice(WORDS) if name.endswith(".") else ""
                lines.append(f"{PREFIXES[type_.kind]}{name} = {chance.choice(VALUES)}")
            case _:
                type_ = chance.choice(TYPES)
                lines.append(f"{PREFIXES[type_.kind]}type = {type_.name}")
                lines.append("a1.sources.r1.interceptors = i1")
    return "\n".join(lines)


def problems_in(text: str, environment: Mapping[str, str]) -> list[Problem]:
    try:
        entries, unset = substituted(parse_properties(text, "f.conf"), environment, {})
        found = described(entries, "a1")
    except MalformedProperties:
        return []  # it says line and rule
    except ConfigError as error:
        return [*unset, *error.problems]
    if not found.warnings:  # such as a part that no list names
        toml = to_toml(parse_properties(text, "f.conf"))
        again, _ = substituted(parse_toml(toml, "f.toml"), environment, {})
        assert components_of(described(again, "a1")) == components_of(found), (text, toml)
    return unset


def test_whatever_is_wrong_is_said() -> None:
    """Each problem names its line and has a remedy, and nothing ends with a traceback: before, a
    word as `a1.hello` that is like no list did. What is in order can be had as TOML as well."""
    chance = random.Random(12)
    files = [text_of(*each) for each in product(SOURCES, CHANNELS, SINKS, ("", GROUP))]
    problems = 0
    for _ in range(needs.rounds(3_000, 100_000)):
        text = mutated(chance.choice(files), chance)
        for problem in problems_in(text, {}):
            problems += 1
            assert problem.hint, (str(problem), text)
            assert "f.conf line " in problem.where or text.count("a1.") == 0, (str(problem), text)
    assert problems > 1_000

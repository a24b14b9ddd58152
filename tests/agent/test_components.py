"""Which parts of an agent belong together, and what a changed description replaces."""

from __future__ import annotations

from ottla.agent.components import changes_between, components_of, is_as_before

from .config.descriptions import agent_of

TWO = """
a1.sources = r1 r2
a1.channels = c1 c2 c3
a1.sinks = k1 k2 k3
a1.sources.r1.type = seq
a1.sources.r1.channels = c1
a1.sources.r2.type = netcat
a1.sources.r2.bind = 127.0.0.1
a1.sources.r2.port = 1
a1.sources.r2.channels = c2 c3
a1.channels.c1.type = memory
a1.channels.c2.type = memory
a1.channels.c3.type = memory
a1.sinks.k1.type = null
a1.sinks.k1.channel = c1
a1.sinks.k2.type = null
a1.sinks.k2.channel = c2
a1.sinks.k3.type = null
a1.sinks.k3.channel = c3
"""


def names(text: str) -> list[str]:
    return [
        " ".join([*each.sources, *each.channels, *each.sinks, *each.groups])
        for each in components_of(agent_of(text))
    ]


def test_channels_connect() -> None:
    """Two sources with channels of their own are two components, one of them with both of its
    channels; a source into all of them makes one; so does a group over their sinks."""
    assert names(TWO) == ["r1 c1 k1", "r2 c2 c3 k2 k3"]
    joined = TWO.replace("r1.channels = c1", "r1.channels = c1 c2")
    assert names(joined) == ["r1 r2 c1 c2 c3 k1 k2 k3"]


def test_a_group_belongs_to_its_sinks() -> None:
    """The sinks of a group are in one component with it."""
    grouped = TWO.replace("k3.channel = c3", "k3.channel = c2") + (
        "a1.sinkgroups = g1\na1.sinkgroups.g1.sinks = k2 k3\n"
        "a1.sinkgroups.g1.processor.type = failover\n"
    )
    assert names(grouped) == ["r1 c1 k1", "r2 c2 c3 k2 k3 g1"]


def test_what_is_as_before_stays() -> None:
    """A changed option ends the component that has it, and begins it anew; the same text, a
    comment, another order of lines change nothing."""
    old = components_of(agent_of(TWO))
    lines = TWO.splitlines()
    same = agent_of("\n".join(["# a comment", *lines[:4], *reversed(lines[4:])]))
    assert changes_between(old, same) == ([0, 1], [], [])
    changes = changes_between(old, agent_of(TWO + "a1.channels.c3.capacity = 7\n"))
    assert (changes.stay, changes.end) == ([0], [1])
    assert [list(each.sources) for each in changes.begin] == [["r2"]]
    assert changes_between(old, same, restart=[0])[:2] == ([1], [0])


def test_a_source_is_as_before_by_type_and_options() -> None:
    """Not by its channels or interceptors: they are behind it."""
    old = agent_of(TWO).sources
    rewired = agent_of(TWO.replace("r2.channels = c2 c3", "r2.channels = c1 c2 c3"))
    assert is_as_before(old, rewired.sources["r2"])
    moved = agent_of(TWO.replace("port = 1", "port = 2"))
    assert not is_as_before(old, moved.sources["r2"])
    retyped = agent_of(TWO.replace("r1.type = seq", "r1.type = exec\na1.sources.r1.command = x"))
    assert not is_as_before(old, retyped.sources["r1"])

"""Which parts of an agent belong together, and what a new description of it changes.

A component is what channels connect: sources, channels, sinks, groups. Nothing passes between two
components, so one that a new description leaves as it is goes on while others are replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .config.description import AgentDescription, SourcePart

Node = tuple[str, str]  # kind and name


def components_of(agent: AgentDescription) -> list[AgentDescription]:
    """The components, each a description of its own, in the order of the channels. A source or
    sink always has a channel, so each is in one."""
    joined: dict[Node, Node] = {}

    def root(node: Node) -> Node:
        while node in joined:
            node = joined[node]
        return node

    def join(one: Node, other: Node) -> None:
        one, other = root(one), root(other)
        if one != other:
            joined[other] = one

    for source in agent.sources.values():
        for channel in source.channels:
            join(("channel", channel), ("source", source.name))
    for sink in agent.sinks.values():
        join(("channel", sink.channel), ("sink", sink.name))
    for group in agent.groups.values():
        for name in group.sinks:
            join(("sink", name), ("group", group.name))

    found: dict[Node, AgentDescription] = {}
    for name, channel_part in agent.channels.items():
        component = found.setdefault(root(("channel", name)), AgentDescription(agent.name))
        component.channels[name] = channel_part
    for name, source in agent.sources.items():
        found[root(("source", name))].sources[name] = source
    for name, sink in agent.sinks.items():
        found[root(("sink", name))].sinks[name] = sink
    for name, group in agent.groups.items():
        found[root(("group", name))].groups[name] = group
    return list(found.values())


class Changes(NamedTuple):
    """What a new description asks for, as places in the list of old components and new ones."""

    stay: list[int]  # of the old
    end: list[int]  # of the old
    begin: list[AgentDescription]


def changes_between(
    old: Sequence[AgentDescription], new: AgentDescription, restart: Sequence[int] = ()
) -> Changes:
    """`restart`: old components that do not stay, even if they are as they were."""
    begin = components_of(new)
    stay: list[int] = []
    end: list[int] = []
    for place, component in enumerate(old):
        if component in begin and place not in restart:
            begin.remove(component)
            stay.append(place)
        else:
            end.append(place)
    return Changes(stay, end, begin)


def is_as_before(old: Mapping[str, SourcePart], new: SourcePart) -> bool:
    """Whether a source has the type and options that it had; its channels and interceptors may be
    others."""
    before = old.get(new.name)
    return before is not None and (before.type, before.options) == (new.type, new.options)

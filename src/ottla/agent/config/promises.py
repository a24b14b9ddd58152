"""What an agent promises of each sink: exactly once where all can be read again from positions that
the sink keeps in one transaction with what it delivers; at least once elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

from .description import AgentDescription, Problem, SinkPart

EXACTLY_ONCE = "exactly-once"


class Promise(NamedTuple):
    exactly_once: bool
    why: str  # of at least once

    def __str__(self) -> str:
        return "exactly once" if self.exactly_once else f"at least once: {self.why}"


def promise_of(agent: AgentDescription, sink: SinkPart) -> Promise:
    """What holds for a sink, given what its options wish."""
    if not sink.type.keeps_positions:
        return Promise(False, f"{sink.type.name} keeps no positions")
    if sink.options.text_or_none("delivery") == "at-least-once":
        return Promise(False, "delivery says so")
    obstacle = obstacle_of(agent, sink)
    return Promise(not obstacle, obstacle)


def obstacle_of(agent: AgentDescription, sink: SinkPart) -> str:
    """Why a sink cannot deliver exactly once; empty if it can."""
    if any(sink.name in group.sinks for group in agent.groups.values()):
        return "a group's sinks have no transaction in common"
    rivals = [other.name for other in agent.sinks.values() if other.channel == sink.channel]
    if len(rivals) > 1:
        return f"{' and '.join(rivals)} share the channel {sink.channel}"
    channel = agent.channels[sink.channel]
    wished = sink.options.text_or_none("delivery") == EXACTLY_ONCE
    if channel.type.name == "kafka":
        return "the offsets of a kafka channel are committed after delivery"
    if channel.type.name == "file" and wished:
        return ""  # whatever the source is: what is in the channel is delivered once
    for source in agent.sources.values():
        if sink.channel in source.channels and not source.type.replays:
            return f"{source.name} ({source.type.name}) cannot be read again"
    return ""


def check_promises(agent: AgentDescription, problems: list[Problem]) -> None:
    """A wish for exactly once that cannot be fulfilled is a problem."""
    for sink in agent.sinks.values():
        if not sink.type.keeps_positions or sink.channel not in agent.channels:
            continue
        if sink.options.text_or_none("delivery") != EXACTLY_ONCE:
            continue
        obstacle = obstacle_of(agent, sink)
        if obstacle:
            key = f"{agent.name}.sinks.{sink.name}.delivery"
            rule = f"cannot be {EXACTLY_ONCE}: {obstacle}"
            problems.append(Problem(sink.where, key, rule, f"{key} = at-least-once"))

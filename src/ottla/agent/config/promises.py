"""What an agent promises of each sink: exactly once where all can be read again from positions that
the sink keeps in one transaction with what it delivers; at least once elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

from .client_options import producer_conflict
from .description import AgentDescription, Problem, SinkPart
from .options import Options

EXACTLY_ONCE = "exactly-once"
PRODUCER = "kafka.producer."


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
    for sink in agent.sinks.values():
        if sink.type.name == "kafka" and not problems:
            check_producer(agent, sink, problems)


def check_producer(agent: AgentDescription, sink: SinkPart, problems: list[Problem]) -> None:
    """A transaction has acks=all, whatever the file says; other options must allow for it."""
    given = sink.options.family(PRODUCER)
    key = f"{agent.name}.sinks.{sink.name}.{PRODUCER}"
    exactly_once = promise_of(agent, sink).exactly_once
    if exactly_once and given.get("acks", "all") not in ("all", "-1"):
        rule = "has no effect: exactly once needs all"
        hint = f"{agent.name}.sinks.{sink.name}.delivery = at-least-once"
        agent.warnings.append(Problem(sink.where, f"{key}acks", rule, hint))
    conflict = producer_conflict(producer_options(sink.options, exactly_once=exactly_once))
    if conflict:
        rule = f"options contradict each other: {conflict}"
        problems.append(Problem(sink.where, key.removesuffix("."), rule, f"without {key}…"))


def producer_options(options: Options, *, exactly_once: bool) -> dict[str, object]:
    """What the producer of a Kafka sink is made with; its transactional id is the sink's."""
    made: dict[str, object] = {"acks": "1", **options.family(PRODUCER)}
    made["bootstrap.servers"] = options.text("kafka.bootstrap.servers")
    made.pop("transactional.id", None)
    if exactly_once:
        made["acks"] = "all"
        made["enable.idempotence"] = made.get("enable.idempotence", "true")
    return made

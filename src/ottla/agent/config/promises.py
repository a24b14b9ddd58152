"""What an agent promises of each sink: exactly once where all can be read again from positions that
the sink keeps in one transaction with what it delivers; at least once elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

from .client_options import producer_conflict
from .description import AgentDescription, Part, Problem, SinkPart, SourcePart
from .options import Options

EXACTLY_ONCE = "exactly-once"
PRODUCER, CONSUMER = "kafka.producer.", "kafka.consumer."
SERVERS = "kafka.bootstrap.servers"
GROUP = "flume"  # of a Kafka source, as in Flume


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
        if sink.channel not in source.channels:
            continue
        if not source.type.replays:
            return f"{source.name} ({source.type.name}) cannot be read again"
        if source.type.name == "kafka":
            if channel.type.name == "file" and len(source.channels) > 1:
                return (
                    f"{source.name} has several channels, so its offsets are committed when "
                    f"{channel.name} has the events"
                )
            if not share_servers(source, sink):
                return f"{source.name} and {sink.name} have no server in common, so no transaction"
    return ""


def commits_offsets(agent: AgentDescription, source: SourcePart, sink: SinkPart) -> bool:
    """Whether the offsets of a Kafka source are in the transactions of this sink behind it."""
    kind = agent.channels[sink.channel].type.name
    return (
        (kind == "memory" or (kind == "file" and len(source.channels) == 1))
        and promise_of(agent, sink).exactly_once  # so it is a Kafka sink
        and share_servers(source, sink)
    )


def share_servers(source: Part, sink: Part) -> bool:
    """Whether a Kafka source and a Kafka sink are of one cluster, as far as a file can say."""
    named = [
        {each.strip().lower() for each in part.options.text(SERVERS).split(",") if each.strip()}
        for part in (source, sink)
    ]
    return not named[0].isdisjoint(named[1])


def group_of(source: Part) -> str:
    """The consumer group of a Kafka source."""
    return source.options.family(CONSUMER).get("group.id") or GROUP


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
            check_circle(agent, sink)


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


def check_circle(agent: AgentDescription, sink: SinkPart) -> None:
    """A Kafka source says in a header which topic an event is from, and a Kafka sink takes the
    topic from a header: of the same name, by default."""
    options = sink.options
    for source in agent.sources.values():
        if source.type.name != "kafka" or sink.channel not in source.channels:
            continue
        header = source.options.text("topicHeader")
        if (
            source.options.flag("setTopicHeader")
            and options.flag("allowTopicOverride")
            and options.text("topicHeader") == header
            and not source.interceptors
            and share_servers(source, sink)
        ):
            key = f"{agent.name}.sinks.{sink.name}"
            rule = (
                f"is the header that {source.name} sets: events go back to the topic they are from"
            )
            hint = f"{key}.allowTopicOverride = false"
            agent.warnings.append(Problem(sink.where, f"{key}.topicHeader", rule, hint))


def producer_options(options: Options, *, exactly_once: bool) -> dict[str, object]:
    """What the producer of a Kafka sink is made with; its transactional id is the sink's."""
    made: dict[str, object] = {"acks": "1", **options.family(PRODUCER)}
    made["bootstrap.servers"] = options.text(SERVERS)
    made.pop("transactional.id", None)
    if exactly_once:
        made["acks"] = "all"
        made["enable.idempotence"] = made.get("enable.idempotence", "true")
    return made

"""From a checked description to the parts of an agent, put together.

A factory is imported when a part of its type is made, so that an agent pays for what it uses:
`from_options(name, options, context)` makes a source, a channel, a sink or an interceptor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .config.description import AgentDescription, ConfigError, Part, Problem, SourcePart
from .config.promises import commits_offsets, group_of, promise_of
from .config.types import PartKind
from .context import Context
from .delivery import Delivery
from .output import SourceOutput
from .parts import Channel, Sink, Source
from .positions import PositionFile
from .progress import Progress
from .runner import Wiring

if TYPE_CHECKING:
    from .group_offsets import GroupOffsets

SOURCE, CHANNEL, SINK = PartKind.SOURCE, PartKind.CHANNEL, PartKind.SINK
INTERCEPTOR = PartKind.INTERCEPTOR
# Events that a sink without such an option takes at a time.
SINK_EVENTS_MAX = 100

# (kind, type) -> module below ottla.agent, and the function in it.
FACTORIES: dict[tuple[PartKind, str], tuple[str, str]] = {
    (SOURCE, "exec"): ("sources.exec", "from_options"),
    (SOURCE, "spooldir"): ("sources.spooldir", "from_options"),
    (SOURCE, "taildir"): ("sources.taildir", "from_options"),
    (SOURCE, "netcat"): ("sources.netcat", "from_options"),
    (SOURCE, "netcatudp"): ("sources.netcatudp", "from_options"),
    (SOURCE, "syslogtcp"): ("sources.syslogtcp", "from_options"),
    (SOURCE, "syslogudp"): ("sources.syslogudp", "from_options"),
    (SOURCE, "multiport_syslogtcp"): ("sources.syslogtcp", "multiport_from_options"),
    (SOURCE, "http"): ("sources.http", "from_options"),
    (SOURCE, "seq"): ("sources.seq", "from_options"),
    (SOURCE, "kafka"): ("sources.kafka", "from_options"),
    (CHANNEL, "memory"): ("channels.memory", "from_options"),
    (CHANNEL, "file"): ("channels.file", "from_options"),
    (CHANNEL, "kafka"): ("channels.kafka", "from_options"),
    (SINK, "kafka"): ("sinks.kafka", "from_options"),
    (SINK, "logger"): ("sinks.logger", "from_options"),
    (SINK, "null"): ("sinks.null", "from_options"),
    (SINK, "file_roll"): ("sinks.file_roll", "from_options"),
    (INTERCEPTOR, "timestamp"): ("interceptors.headers", "timestamp"),
    (INTERCEPTOR, "host"): ("interceptors.headers", "host"),
    (INTERCEPTOR, "static"): ("interceptors.headers", "static"),
    (INTERCEPTOR, "remove_header"): ("interceptors.headers", "remove_header"),
    (INTERCEPTOR, "uuid"): ("interceptors.headers", "uuid"),
    (INTERCEPTOR, "search_replace"): ("interceptors.bodies", "search_replace"),
    (INTERCEPTOR, "regex_filter"): ("interceptors.bodies", "regex_filter"),
    (INTERCEPTOR, "regex_extractor"): ("interceptors.bodies", "regex_extractor"),
    (INTERCEPTOR, "python"): ("interceptors.python", "python"),
}
# output_of(selector part, channels by name in the source's order, interceptors)
SELECTORS = ("selectors", "output_of")
# group_of(name, processor part, sinks by name): one sink to the channel
GROUPS = ("sink_groups", "group_of")


def build(agent: AgentDescription, data_directory: Path, instance: str) -> Wiring:
    """The parts of an agent, not started. Raises ConfigError for what cannot be made."""
    context = Context(agent.name, instance, data_directory, groups=groups_of(agent))
    channels: dict[str, Channel] = {
        name: made(part, context) for name, part in agent.channels.items()
    }
    committing = {name for group in context.groups.values() for name in group.sinks}
    for sink in agent.sinks.values():
        if sink.name in committing:
            channels[sink.channel].takes_group_positions = True
    sources = [
        source_of(part, {name: channels[name] for name in part.channels}, context)
        for part in agent.sources.values()
    ]
    deliveries = deliveries_of(agent, channels, context)
    for source, output, _ in sources:
        if source.name in context.groups:
            required = output.required_channels()
            context.groups[source.name].runs_with(
                [
                    each
                    for each in deliveries
                    if each.channel in required and each.channel.takes_group_positions
                ],
                waits_for_put=not all(channel.takes_group_positions for channel in required),
            )
    return Wiring(sources, list(channels.values()), deliveries)


def groups_of(agent: AgentDescription) -> dict[str, GroupOffsets]:
    """The groups of Kafka sources, with the sinks whose transactions have their offsets."""
    found = {}
    for name, source in agent.sources.items():
        if source.type.name == "kafka":
            from .group_offsets import GroupOffsets

            sinks = [
                sink.name
                for sink in agent.sinks.values()
                if sink.channel in source.channels and commits_offsets(agent, source, sink)
            ]
            found[name] = GroupOffsets(name, group_of(source), sinks)
    return found


def source_of(
    part: SourcePart, channels: Mapping[str, Channel], context: Context
) -> tuple[Source, SourceOutput, list[Channel]]:
    interceptors = [made(interceptor, context) for interceptor in part.interceptors]
    selector = part.selector
    if selector.type.name == "replicating" and not selector.options.names("optional"):
        output = SourceOutput(list(channels.values()), interceptors)
    else:
        output = factory(SELECTORS, selector)(selector, channels, interceptors)
    return made(part, context), output, list(channels.values())


def deliveries_of(
    agent: AgentDescription, channels: Mapping[str, Channel], context: Context
) -> list[Delivery]:
    """One for each sink that stands alone, one for each group."""
    sinks: dict[str, Sink] = {}
    for name, part in agent.sinks.items():
        promise = promise_of(agent, part)
        sinks[name] = made(part, replace(context, exactly_once=promise.exactly_once))
    units: list[tuple[str, Sink, str, int]] = []  # name, sink, channel, events at a time
    grouped: set[str] = set()
    for group in agent.groups.values():
        grouped.update(group.sinks)
        members = {name: sinks[name] for name in group.sinks}
        first = agent.sinks[group.sinks[0]]
        if group.processor.type.name == "default":
            unit = members[first.name]
        else:
            unit = factory(GROUPS, group.processor)(group.name, group.processor, members)
        most = max(events_max(agent.sinks[name]) for name in group.sinks)
        units.append((group.name, unit, first.channel, most))
    for name, part in agent.sinks.items():
        if name not in grouped:
            units.append((name, sinks[name], part.channel, events_max(part)))
    # What shares a channel competes for its events, and has its positions in common.
    names: dict[str, list[str]] = {}
    for name, _, channel, _ in units:
        names.setdefault(channel, []).append(name)
    shared = {
        channel: (PositionFile(context.data_directory / f"positions-{'+'.join(each)}"), Progress())
        for channel, each in names.items()
    }
    deliveries = []
    for _, unit, channel, most in units:
        file, progress = shared[channel]
        deliveries.append(Delivery(unit, channels[channel], most, file, progress=progress))
    return deliveries


def events_max(sink: Part) -> int:
    option = sink.type.batch_option
    return sink.options.number(option) if option else SINK_EVENTS_MAX


def made(part: Part, context: Context) -> Any:
    """A source, channel, sink or interceptor. Raises ConfigError, so that a reload keeps what
    runs."""
    make = factory(FACTORIES[part.type.kind, part.type.name], part)
    try:
        return make(part.name, part.options, context)
    except (OSError, ValueError) as error:  # such as a certificate that is not there
        rule = f"({part.type.name}) cannot be made: {error}"
        raise ConfigError([Problem(part.where, part.name, rule, "")]) from None


def factory(place: tuple[str, str], part: Part) -> Callable[..., Any]:
    module, function = place
    try:
        there = find_spec(f"ottla.agent.{module}") is not None
    except ModuleNotFoundError:
        there = False
    if not there:
        rule = f"({part.type.name}) is not built yet"
        raise ConfigError([Problem(part.where, part.name, rule, "a later version of ottla")])
    try:
        found: Callable[..., Any] = getattr(import_module(f"ottla.agent.{module}"), function)
    except ModuleNotFoundError as missing:
        rule = f"({part.type.name}) needs {missing.name}"
        raise ConfigError(
            [Problem(part.where, part.name, rule, "pip install 'ottla[agent]'")]
        ) from None
    return found

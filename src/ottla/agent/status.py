"""What a running agent has done and holds: one value that monitoring and live view are made from.

`status_of` reads counters and never waits; `with_files` asks the operating system how long the
files are, and belongs in a thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .delivery import Counts, Delivery
from .parts import Channel, FileSource, FileStatus
from .runner import Wiring
from .sink_groups import SinkGroup

FILES_MAX = 1000  # those with the largest lag; the others are counted


@dataclass(frozen=True)
class SourceStatus:
    name: str
    type: str
    started_ms: int
    events_received: int  # before the interceptors
    events_accepted: int  # of these, those that the channels have
    batches_received: int
    batches_accepted: int
    connections: int  # that are open


@dataclass(frozen=True)
class ChannelStatus:
    name: str
    type: str
    started_ms: int
    capacity: int  # events; 0 where there is no such limit
    events: int  # that wait to be taken
    events_put: int
    events_taken: int  # and delivered
    take_attempts: int  # events that were taken, delivered or not
    events_lost: int  # by damage of its files


@dataclass(frozen=True)
class SinkStatus:
    name: str
    type: str
    channel: str
    group: str | None
    started_ms: int
    events_taken: int
    events_delivered: int
    events_skipped: int  # that it had before a restart
    deliveries: int
    full_deliveries: int
    failures: int
    connected: int  # times
    connect_failures: int
    send_ms: int
    ready: bool


@dataclass(frozen=True)
class FileProgress:
    """One file: how long it is, how much was read and delivered."""

    source: str
    path: str
    position: int  # read
    delivered: int | None  # by the sink that is furthest behind; None before it has anything
    size: int | None  # None of a compressed file
    lag: int | None  # bytes that are not delivered


@dataclass(frozen=True)
class AgentStatus:
    agent: str
    instance: str
    process: int
    started_ms: int
    time_ms: int
    up_ms: int  # since the start, whatever the clock of the machine was set to meanwhile
    reloads: int
    sources: Sequence[SourceStatus]
    channels: Sequence[ChannelStatus]
    sinks: Sequence[SinkStatus]
    files: Sequence[FileProgress] = ()
    files_total: int = 0
    lag_bytes: int = 0  # of all files


@dataclass(frozen=True)
class Running:
    """Parts that run, with the types of their description and the time of their start."""

    wiring: Wiring
    started_ms: int
    types: Mapping[str, str] = field(default_factory=dict)  # "source r1" -> "taildir"

    def type_of(self, kind: str, name: str) -> str:
        return self.types.get(f"{kind} {name}", "")


@dataclass(frozen=True)
class SeenFile:
    source: str
    file: FileStatus
    delivered: int | None


def sources_of(running: Running) -> list[SourceStatus]:
    found = []
    for source, output, _ in running.wiring.sources:
        counts = output.counts
        found.append(
            SourceStatus(
                source.name,
                running.type_of("source", source.name),
                running.started_ms,
                counts.events_received,
                counts.events_accepted,
                counts.batches_received,
                counts.batches_accepted,
                len(getattr(getattr(source, "server", None), "open", ())),
            )
        )
    return found


def channels_of(running: Running) -> list[ChannelStatus]:
    found = []
    for channel in running.wiring.channels:
        taken = sum(
            each.counts.taken for each in running.wiring.deliveries if each.channel is channel
        )
        found.append(
            ChannelStatus(
                channel.name,
                running.type_of("channel", channel.name),
                running.started_ms,
                channel.capacity,
                channel.events,
                channel.events_put,
                channel.events_taken,
                max(taken, channel.events_taken),
                getattr(channel, "events_lost", 0),
            )
        )
    return found


def sinks_of(running: Running) -> list[SinkStatus]:
    """Those of a group one by one: what they delivered and how often they failed is counted of
    each, the rest of the group."""
    found = []
    for delivery in running.wiring.deliveries:
        sink = delivery.sink
        if not isinstance(sink, SinkGroup):
            found.append(sink_status(running, delivery, sink.name, None, delivery.counts))
            continue
        for name, delivered in sink.counts.items():
            counts = Counts()
            counts.taken = counts.delivered = delivered
            counts.failures = sink.failures[name]
            found.append(sink_status(running, delivery, name, sink.name, counts))
    return found


def sink_status(
    running: Running, delivery: Delivery, name: str, group: str | None, counts: Counts
) -> SinkStatus:
    return SinkStatus(
        name,
        running.type_of("sink", name),
        delivery.channel.name,
        group,
        running.started_ms,
        counts.taken,
        counts.delivered,
        counts.skipped,
        counts.deliveries,
        counts.full,
        counts.failures,
        counts.connected,
        counts.connect_failures,
        int(counts.send_s * 1000),
        delivery.started.is_set(),
    )


def files_of(running: Running) -> list[SeenFile]:
    found = []
    for source, _, channels in running.wiring.sources:
        if isinstance(source, FileSource):
            deliveries = running.wiring.deliveries
            found += [
                SeenFile(source.name, file, delivered_of(file.stream, channels, deliveries))
                for file in source.files()
            ]
    return found


def delivered_of(
    stream: str, channels: Sequence[Channel], deliveries: Sequence[Delivery]
) -> int | None:
    """How far a stream is delivered out of every channel; None if one has nothing of it yet."""
    least: int | None = None
    for channel in channels:
        held = [
            each.positions[stream].offset
            for each in deliveries
            if each.channel is channel and stream in each.positions
        ]
        if not held:
            return None
        least = max(held) if least is None else min(least, max(held))
    return least


def printable(path: str) -> str:
    """A name that is not UTF-8, with its bytes as escapes: it can be written anywhere."""
    return os.fsencode(path).decode(errors="backslashreplace")


def with_files(status: AgentStatus, seen: Iterable[SeenFile]) -> AgentStatus:
    """The status with the files; looks at each of them, so it belongs in a thread."""
    files = [progress_of(each) for each in seen]
    files.sort(key=lambda each: (-(each.lag or 0), each.path))
    return replace(
        status,
        files=files[:FILES_MAX],
        files_total=len(files),
        lag_bytes=sum(each.lag or 0 for each in files),
    )


def progress_of(seen: SeenFile) -> FileProgress:
    file = seen.file
    size: int | None = None
    if not file.packed:
        size = max(size_of(file.path, file.size), file.position)
    lag = None if size is None else size - (seen.delivered or 0)
    path = printable(file.path)
    return FileProgress(seen.source, path, file.position, seen.delivered, size, lag)


def size_of(path: str, last: int) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return last

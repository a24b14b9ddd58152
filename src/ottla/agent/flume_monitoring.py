"""The status of an agent as Flume 1.11 shows it: its JSON, and its metrics for Prometheus.

Flume's own agent gives, for `flume.monitoring.type=http`, an object for each part that counts, with
all values as strings. What does not happen here (an append of Avro's, an empty batch: a sink waits)
or is not timed (the Kafka source and channel) is 0. The names for Prometheus are those of Flume's
next version: 1.11 documents the type, and does not have it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from decimal import Decimal

from .status import AgentStatus, ChannelStatus, SinkStatus, SourceStatus

DOUBLE_MAX = 1.7976931348623157e308  # Flume's fill percentage of a channel without a capacity
# What can go down; anything else only grows.
GAUGES = {"OpenConnectionCount", "ChannelSize", "ChannelCapacity", "Open", "Unhealthy", "Closed"}
NOT_FOR_PROMETHEUS = {"Type", "StartTime", "StopTime", "ChannelFillPercentage"}
PREFIX = "Flume_"

Attributes = dict[str, int | float | bool | str]


def flume_metrics(status: AgentStatus) -> dict[str, Attributes]:
    """The parts and their attributes: `SOURCE.r1`, `CHANNEL.c1`, `SINK.k1`."""
    found: dict[str, Attributes] = {}
    for source in status.sources:
        found[f"SOURCE.{source.name}"] = source_attributes(source)
    for channel in status.channels:
        found[f"CHANNEL.{channel.name}"] = channel_attributes(channel)
    for sink in status.sinks:
        found[f"SINK.{sink.name}"] = sink_attributes(sink)
    return found


def source_attributes(source: SourceStatus) -> Attributes:
    attributes: Attributes = {
        "Type": "SOURCE",
        "StartTime": source.started_ms,
        "StopTime": 0,
        "EventReceivedCount": source.events_received,
        "EventAcceptedCount": source.events_accepted,
        "AppendReceivedCount": 0,
        "AppendAcceptedCount": 0,
        "AppendBatchReceivedCount": source.batches_received,
        "AppendBatchAcceptedCount": source.batches_accepted,
        "OpenConnectionCount": source.connections,
    }
    if source.type == "kafka":
        return attributes | {
            "KafkaEventGetTimer": 0,
            "KafkaCommitTimer": 0,
            "KafkaEmptyCount": 0,
        }
    return attributes | {"EventReadFail": 0, "ChannelWriteFail": 0, "GenericProcessingFail": 0}


def channel_attributes(channel: ChannelStatus) -> Attributes:
    fill = DOUBLE_MAX
    if channel.capacity:
        fill = channel.events / channel.capacity * 100
    attributes: Attributes = {
        "Type": "CHANNEL",
        "StartTime": channel.started_ms,
        "StopTime": 0,
        "ChannelCapacity": channel.capacity,
        "ChannelSize": channel.events,
        "ChannelFillPercentage": fill,
        "EventPutAttemptCount": channel.events_put,
        "EventPutSuccessCount": channel.events_put,
        "EventTakeAttemptCount": channel.take_attempts,
        "EventTakeSuccessCount": channel.events_taken,
    }
    if channel.type == "file":
        attributes |= {
            "Open": True,
            "Closed": 0,
            "Unhealthy": 0,
            "EventPutErrorCount": 0,
            "EventTakeErrorCount": channel.events_lost,
            "CheckpointWriteErrorCount": 0,
            "CheckpointBackupWriteErrorCount": 0,
        }
    if channel.type == "kafka":
        attributes |= {
            "KafkaEventGetTimer": 0,
            "KafkaEventSendTimer": 0,
            "KafkaCommitTimer": 0,
            "RollbackCount": 0,
        }
    return attributes


def sink_attributes(sink: SinkStatus) -> Attributes:
    attributes: Attributes = {
        "Type": "SINK",
        "StartTime": sink.started_ms,
        "StopTime": 0,
        "ConnectionCreatedCount": sink.connected,
        "ConnectionClosedCount": max(0, sink.connected - 1),
        "ConnectionFailedCount": sink.connect_failures,
        "BatchEmptyCount": 0,
        "BatchUnderflowCount": sink.deliveries - sink.full_deliveries,
        "BatchCompleteCount": sink.full_deliveries,
        "EventDrainAttemptCount": sink.events_taken,
        "EventDrainSuccessCount": sink.events_delivered,
    }
    if sink.type == "kafka":
        return attributes | {"KafkaEventSendTimer": sink.send_ms, "RollbackCount": sink.failures}
    return attributes | {"EventWriteFail": sink.failures, "ChannelReadFail": 0}


def flume_json(status: AgentStatus) -> str:
    """As `flume.monitoring.type=http` gives it."""
    return json.dumps(
        {
            part: {name: java_text(value) for name, value in attributes.items()}
            for part, attributes in flume_metrics(status).items()
        },
        separators=(",", ":"),
        ensure_ascii=False,
    )


def prometheus_lines(status: AgentStatus) -> Iterator[str]:
    """As `flume.monitoring.type=prometheus` gives it."""
    families: dict[str, list[str]] = {}
    for part, attributes in flume_metrics(status).items():
        component = escaped(part.partition(".")[2])
        for name, value in attributes.items():
            if name not in NOT_FOR_PROMETHEUS:
                shown = PREFIX + name + ("" if name in GAUGES else "_total")
                families.setdefault(shown, []).append(
                    f'{shown}{{component="{component}"}} {float(value)}'
                )
    for shown, samples in families.items():
        yield f"# HELP {shown} {shown.removesuffix('_total')}"
        yield f"# TYPE {shown} {'counter' if shown.endswith('_total') else 'gauge'}"
        yield from samples


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def java_text(value: float | str) -> str:
    """As Java writes it: `true`, `5.0E-4`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, float):
        return str(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return str(value) if "e" not in repr(value) else f"{Decimal(repr(value)):f}"
    if not math.isfinite(value):
        return "NaN" if value != value else f"{'-' if value < 0 else ''}Infinity"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, rest = digits[0], "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{first}.{rest}E{exponent + len(digits) - 1}"

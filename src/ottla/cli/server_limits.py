"""The limits of a server from its options."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.server.limits import Limits
    from ottla.settings import Settings


def buffer_bytes(settings: Settings, name: str) -> int:
    """As set; unless set it is the system's choice, which grows with the line, unlike Kafka's."""
    return settings.integer(name) if name in settings.given else -1


def backlog_of(settings: Settings) -> int:
    """As set; unless set it is larger than Kafka's, which many connections at a time overflow."""
    from ottla.server.server import BACKLOG

    name = "socket.listen.backlog.size"
    return settings.integer(name) if name in settings.given else BACKLOG


def number_of(settings: Settings, listener: str, name: str) -> int:
    """An option of a listener."""
    value = settings.of_listener(listener, name)
    assert isinstance(value, int)
    return value


def limits_of(settings: Settings, connections_fit: int) -> Limits:
    """The options' limits; `connections_fit` are as many as leave descriptors for the log."""
    from ottla.server.limits import Limits, ListenerLimits
    from ottla.settings.checks import connection_overrides

    return Limits(
        frame_bytes_max=settings.integer("socket.request.max.bytes"),
        held_bytes_max=settings.integer("queued.max.request.bytes"),
        unanswered_max=settings.integer("queued.max.requests"),
        connections_max=min(settings.integer("max.connections"), connections_fit),
        connections_per_ip_max=settings.integer("max.connections.per.ip"),
        connections_per_ip_overrides=connection_overrides(
            settings.values["max.connections.per.ip.overrides"]
        ),
        connections_per_second_max=settings.integer("max.connection.creation.rate"),
        connections_idle_ms_max=settings.integer("connections.max.idle.ms"),
        listeners={
            each.name: ListenerLimits(
                *(
                    number_of(settings, each.name, name)
                    for name in ("max.connections", "max.connection.creation.rate")
                )
            )
            for each in settings.listeners
        },
    )

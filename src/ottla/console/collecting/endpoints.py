"""Figures of brokers from their Prometheus endpoints."""

from __future__ import annotations

from typing import NamedTuple

from ..picture import RequestPicture


class TopicFigures(NamedTuple):
    """Rates of one topic, summed over its brokers."""

    bytes_in: float | None = None
    bytes_out: float | None = None


class BrokerFigures(NamedTuple):
    """What one broker's endpoint says of it."""

    version: str | None = None
    requests: tuple[RequestPicture, ...] = ()
    connections: int | None = None
    bytes_in: float | None = None
    bytes_out: float | None = None
    cpu_cores: float | None = None
    memory_bytes: int | None = None
    age_ms: int | None = None

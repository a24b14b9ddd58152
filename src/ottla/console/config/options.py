"""The options of a console, checked and complete, wherever they were written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

PORT = 8084  # the notes' console has it
HOST = "127.0.0.1"
DATA_DIRECTORY = "./ottla-console"


class ConfigError(Exception):
    """A mistake of whoever wrote the options: a fact, then a line `Try: `."""


def check_metrics(given: str, option: str) -> None:
    """Raises ConfigError unless it is `URL` or `ID=URL`."""
    head, equals, rest = given.partition("=")
    url = urlsplit(rest if equals and head.isdigit() else given)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigError(
            f"{option} must be URLs of http or https (got {given!r})\n"
            f"Try: {option} http://HOST:PORT/metrics, or 0=http://… for the broker of id 0"
        )


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """One cluster: how clients reach it, and where its brokers' metrics are."""

    name: str
    client_properties: Mapping[str, Any]  # bootstrap_servers among them
    metrics: tuple[str, ...] = ()  # URLs, each perhaps with `ID=` in front


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    clusters: tuple[ClusterOptions, ...]
    host: str = HOST
    port: int = PORT
    data_directory: str = DATA_DIRECTORY
    names: tuple[str, ...] = ()  # under which browsers may ask for it, besides this host's own
    read_only: bool = False
    login: bool = True
    warnings: tuple[str, ...] = field(default=())

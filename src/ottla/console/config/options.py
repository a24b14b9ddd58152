"""The options of a console, checked and complete, wherever they were written."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

PORT = 8084  # the notes' console has it
PORT_MAX = 65_535
HOST = "127.0.0.1"
DATA_DIRECTORY = "./ottla-console"
CLUSTERS_MAX = 50
NAME_CHARACTERS_MAX = 100
INTERVAL_S = 10  # the finest step of the history
INTERVAL_S_MAX = 30  # pages call a picture of a minute old, and rules know nothing from it


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
    client_properties: Mapping[str, Any]  # bootstrap_servers among them, unless ZooKeeper has them
    metrics: tuple[str, ...] = ()  # URLs, each perhaps with `ID=` in front
    zookeeper: str = ""  # where the brokers are registered


@dataclass(frozen=True, slots=True)
class RoleOfClaim:
    """Whoever has the value in the claim of roles has this role."""

    value: str
    role: str
    clusters: str = "*"
    topics: str = "*"


@dataclass(frozen=True, slots=True)
class OidcOptions:
    """An OpenID Connect issuer whose users may log in."""

    issuer: str
    url: str  # of the console, as browsers and the issuer know it, without a path
    client_id: str
    client_secret: str = field(default="", repr=False)  # empty: a public client
    scopes: tuple[str, ...] = ("openid", "profile")
    label: str = ""  # of the link on the login page
    name_claim: str = "preferred_username"
    roles_claim: str = "groups"
    roles: tuple[RoleOfClaim, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    clusters: tuple[ClusterOptions, ...]
    host: str = HOST
    port: int = PORT
    data_directory: str = DATA_DIRECTORY
    names: tuple[str, ...] = ()  # under which browsers may ask for it, besides this host's own
    read_only: bool = False
    login: bool = True
    certificate: str = ""  # a file with certificate and key (PEM); empty: it is not encrypted
    insecure: bool = False  # other machines may come in without encryption
    interval_s: int = INTERVAL_S  # how often a cluster is asked, and rules are looked at
    alerts: Mapping[str, Any] = field(default_factory=dict)  # the table `alerts` of the file
    schemas: Sequence[Mapping[str, Any]] = ()  # its tables `schemas`
    oidc: OidcOptions | None = None  # None: only users of the console's own log in
    directory: str = "."  # where its paths begin
    warnings: tuple[str, ...] = ()


def check(options: ConsoleOptions) -> ConsoleOptions:
    """The same; raises ConfigError for what cannot be."""
    if not 0 <= options.port <= PORT_MAX:
        raise ConfigError(
            f"--port must be from 0 to {PORT_MAX} (got {options.port})\nTry: --port {PORT}"
        )
    if not 1 <= options.interval_s <= INTERVAL_S_MAX:
        raise ConfigError(
            f"--interval must be from 1 to {INTERVAL_S_MAX} seconds (got {options.interval_s})\n"
            f"Try: --interval {INTERVAL_S}"
        )
    beyond = not is_loopback(options.host) and not options.insecure
    if not options.login and beyond:
        raise ConfigError(
            f"--no-login would let everybody in who reaches {options.host}\n"
            "Try: without --host, so that only this machine does, or with login"
        )
    if not options.login and options.oidc is not None:
        raise ConfigError(
            "oidc says who logs in, and login = false or --no-login that nobody does\n"
            "Try: without one of both"
        )
    if not options.certificate and beyond:
        raise ConfigError(
            f"--host {options.host} would have passwords come from other machines unencrypted\n"
            "Try: --certificate broker.pem, as `ottla secure` makes one; without --host, behind a "
            "proxy that encrypts; or --insecure"
        )
    if not 0 < len(options.clusters) <= CLUSTERS_MAX:
        raise ConfigError(
            f"from 1 to {CLUSTERS_MAX} clusters can be shown (got {len(options.clusters)})\n"
            "Try: several consoles, each with its own --data-dir and --port"
        )
    for cluster in options.clusters:
        if not cluster.name or len(cluster.name) > NAME_CHARACTERS_MAX or "/" in cluster.name:
            raise ConfigError(
                f"a cluster's name has from 1 to {NAME_CHARACTERS_MAX} characters without / "
                f"(got {cluster.name!r})\nTry: a short word, such as main"
            )
    return options


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

"""The options of the command line, as those of a console."""

from __future__ import annotations

import ipaddress

from .options import (
    DATA_DIRECTORY,
    HOST,
    PORT,
    ClusterOptions,
    ConfigError,
    ConsoleOptions,
    check_metrics,
)

DEFAULT_SERVERS = "localhost:9092"
CLUSTER = "main"
PORT_MAX = 65_535


def options_of(
    *,
    bootstrap: str | None = None,
    command_config: str | None = None,
    metrics: str | None = None,
    host: str | None = None,
    port: int | None = None,
    data_dir: str | None = None,
    names: tuple[str, ...] = (),
    read_only: bool = False,
    login: bool = True,
) -> ConsoleOptions:
    """Raises ConfigError with what to try."""
    properties: dict[str, object] = {"bootstrap_servers": bootstrap or DEFAULT_SERVERS}
    urls = tuple(each.strip() for each in (metrics or "").split(",") if each.strip())
    for each in urls:
        check_metrics(each, "--metrics")
    if port is not None and not 0 <= port <= PORT_MAX:
        raise ConfigError(f"--port must be from 0 to {PORT_MAX} (got {port})\nTry: --port {PORT}")
    if not login and host is not None and not is_loopback(host):
        raise ConfigError(
            f"--no-login would let everybody in who reaches {host}\n"
            "Try: without --host, so that only this machine does, or with login"
        )
    return ConsoleOptions(
        clusters=(ClusterOptions(CLUSTER, properties, urls),),
        host=host or HOST,
        port=PORT if port is None else port,
        data_directory=data_dir or DATA_DIRECTORY,
        names=names,
        read_only=read_only,
        login=login,
    )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

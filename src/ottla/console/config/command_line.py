"""The options of the command line, on top of those of a file, as the options of a console."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from .client_options import client_options, properties_of
from .eagle import options_of_eagle
from .options import ClusterOptions, ConfigError, ConsoleOptions, check, check_metrics
from .toml_file import options_of_toml

DEFAULT_SERVERS = "localhost:9092"
CLUSTER = "main"


def options_of(
    *,
    config: str | None = None,
    bootstrap: str | None = None,
    command_config: str | None = None,
    metrics: str | None = None,
    host: str | None = None,
    port: int | None = None,
    data_dir: str | None = None,
    names: tuple[str, ...] = (),
    read_only: bool = False,
    login: bool = True,
    certificate: str | None = None,
    insecure: bool = False,
    interval_s: int | None = None,
) -> ConsoleOptions:
    """Raises ConfigError with what to try."""
    options = ConsoleOptions(())
    if config is not None:
        reads = options_of_eagle if Path(config).suffix == ".properties" else options_of_toml
        options = reads(config)
    if bootstrap is not None or command_config is not None or metrics or not options.clusters:
        if options.clusters:
            raise ConfigError(
                f"{config} says which clusters are shown\n"
                "Try: without --bootstrap-server, --command-config and --metrics, or without "
                "clusters in the file"
            )
        options = replace(options, clusters=(one_cluster(bootstrap, command_config, metrics),))
    return check(
        replace(
            options,
            host=host or options.host,
            port=options.port if port is None else port,
            data_directory=data_dir or options.data_directory,
            names=(*options.names, *names),
            read_only=read_only or options.read_only,
            login=login and options.login,
            certificate=certificate or options.certificate,
            insecure=insecure or options.insecure,
            interval_s=options.interval_s if interval_s is None else interval_s,
        )
    )


def one_cluster(
    bootstrap: str | None, command_config: str | None, metrics: str | None
) -> ClusterOptions:
    properties: dict[str, object] = {}
    if command_config is not None:
        properties, _ = client_options(properties_of(command_config), command_config)
    servers = bootstrap or properties.get("bootstrap_servers") or DEFAULT_SERVERS
    urls = tuple(each.strip() for each in (metrics or "").split(",") if each.strip())
    for each in urls:
        check_metrics(each, "--metrics")
    return ClusterOptions(CLUSTER, {**properties, "bootstrap_servers": servers}, urls)

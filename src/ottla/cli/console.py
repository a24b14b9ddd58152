"""`ottla console`: clusters in the browser, until a signal comes."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.failure import Failure, cannot_listen
from ottla.cli.logs import LEVELS, start_logging

if TYPE_CHECKING:
    from ottla.console.config.options import ClusterOptions

log = logging.getLogger("ottla.console")


@click.command(context_settings={"max_content_width": 100})
@click.option(
    "-b",
    "--bootstrap-server",
    "bootstrap",
    metavar="HOST:PORT,…",
    envvar="OTTLA_BOOTSTRAP_SERVERS",
    help="Brokers to ask first; or OTTLA_BOOTSTRAP_SERVERS in the environment.",
)
@click.option("--command-config", metavar="FILE", help="Options of its clients, as properties.")
@click.option(
    "--config",
    metavar="FILE",
    envvar="OTTLA_CONSOLE_CONFIG",
    help="Several clusters, alerts and all below, in TOML; or Kafka-Eagle's "
    "system-config.properties.",
)
@click.option(
    "--metrics",
    metavar="URL,…",
    help="The brokers' Prometheus endpoints, in the order of their ids, or as ID=URL.",
)
@click.option("--host", metavar="HOST", help="Where it listens.  [default: 127.0.0.1]")
@click.option("--port", metavar="PORT", type=int, help="0 takes any free one.  [default: 8084]")
@click.option(
    "--data-dir",
    metavar="DIR",
    envvar="OTTLA_CONSOLE_DATA_DIR",
    help="Where history and users are kept.  [default: ./ottla-console]",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="HOST",
    help="A name under which browsers ask for it, besides this host's; may be repeated.",
)
@click.option("--no-login", is_flag=True, help="Everybody on this machine may do everything.")
@click.option(
    "--certificate",
    metavar="FILE",
    help="Serve https with this certificate and its key, in one file (PEM).",
)
@click.option("--insecure", is_flag=True, help="Let other machines in without encryption.")
@click.option(
    "--interval",
    "interval_s",
    metavar="SECONDS",
    type=int,
    help="How often clusters are asked and alert rules are looked at.  [default: 10]",
)
@click.option("--read-only", is_flag=True, help="Nobody may change anything.")
@click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="info",
    show_default=True,
    help="What is logged on stderr.",
)
@click.option("--until-input-ends", is_flag=True, hidden=True, help="For who starts it.")
def console(
    bootstrap: str | None,
    command_config: str | None,
    config: str | None,
    metrics: str | None,
    host: str | None,
    port: int | None,
    data_dir: str | None,
    names: tuple[str, ...],
    no_login: bool,
    certificate: str | None,
    insecure: bool,
    interval_s: int | None,
    read_only: bool,
    log_level: str,
    until_input_ends: bool,
) -> int:
    """Show clusters in the browser: Ottla's and Apache Kafka's.

    It prints its address when it is ready and logs on stderr; SIGTERM or Ctrl-C stops it. The
    first start prints the password of the user admin, which works once.

    \b
    ottla console --bootstrap-server localhost:9092
    ottla console --bootstrap-server localhost:9092 --metrics http://localhost:9100/metrics
    ottla console --config console.toml
    """
    try:
        from ottla.console import serving
    except ImportError as missing:
        raise Failure(
            f"ottla console needs {missing.name}, which is not installed",
            "pip install 'ottla[console]'",
        ) from None
    from ottla.console.access.store import AccessFileError
    from ottla.console.alerts.rules import RuleError
    from ottla.console.config.command_line import options_of
    from ottla.console.config.options import ConfigError
    from ottla.console.data.schemas import SchemaError
    from ottla.console.directory import held
    from ottla.console.history.store import HistoryFileError

    start_logging(log_level)
    try:
        options = options_of(
            config=config,
            bootstrap=bootstrap,
            command_config=command_config,
            metrics=metrics,
            host=host,
            port=port,
            data_dir=data_dir,
            names=names,
            login=not no_login,
            certificate=certificate,
            insecure=insecure,
            interval_s=interval_s,
            read_only=read_only,
        )
    except ConfigError as error:
        fact, _, hint = str(error).partition("\nTry: ")
        raise Failure(fact, hint, exit_code=2) from None
    for warning in options.warnings:
        log.warning("%s", warning)
    options = replace(options, clusters=tuple(map(with_servers, options.clusters)))
    try:
        context = serving.context_of(options.certificate)
        lock = held(Path(options.data_directory))
        access = serving.access_of(options)
    except ConfigError as error:
        fact, _, hint = str(error).partition("\nTry: ")
        raise Failure(fact, hint) from None
    except AccessFileError as error:
        fact, _, hint = str(error).partition("\nTry: ")
        raise Failure(fact, hint) from None
    password = getattr(access, "first_password", None)
    try:
        listener = serving.listening(options.host, options.port)
    except OSError as error:
        raise cannot_listen(
            error, f"{options.host}:{options.port}", "--port 0 --host", "ottla console"
        ) from None
    if until_input_ends:
        threading.Thread(target=end_with_input, name="input", daemon=True).start()
    try:
        serving.run(
            options,
            access,
            listener,
            lambda: say_ready(listener, password, secured=context is not None),
            context,
        )
    except HistoryFileError as error:
        fact, _, hint = str(error).partition("\nTry: ")
        raise Failure(fact, hint) from None
    except (RuleError, SchemaError) as error:
        raise Failure(f"{config}: {error}", "the example in docs/console.md", exit_code=2) from None
    finally:
        lock.close()
    return 0


def with_servers(cluster: ClusterOptions) -> ClusterOptions:
    """The brokers' addresses from ZooKeeper, where it has them: those of its hosts else."""
    if not cluster.zookeeper:
        return cluster
    from ottla.cli.zookeeper_brokers import bootstrap_servers
    from ottla.console.config.eagle import servers_beside

    hint = f"{cluster.name}.bootstrap.servers=HOST:PORT in the file"
    try:
        servers = bootstrap_servers(cluster.zookeeper, hint)
    except Failure as failure:
        servers = servers_beside(cluster.zookeeper)
        told = failure.fact.removeprefix("--zookeeper: ")
        log.warning("%s: %s; brokers are looked for at %s", cluster.name, told, servers)
    properties = {**cluster.client_properties, "bootstrap_servers": servers}
    return replace(cluster, client_properties=properties)


def end_with_input() -> None:
    """Stops this process when whoever started it is gone."""
    with contextlib.suppress(OSError):
        while os.read(0, 1024):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


def say_ready(listener: socket.socket, password: str | None, *, secured: bool = False) -> None:
    host, port, *_ = listener.getsockname()
    shown = f"[{host}]" if ":" in host else host
    try:
        scheme = "https" if secured else "http"
        print(f"ottla console ready on {scheme}://{shown}:{port}/", flush=True)
        if password is not None:
            print(f"Log in as admin with {password}, which works once.", flush=True)
    except OSError:  # nobody reads it
        pass

"""A whole console: collectors, history and pages, from `run` to a signal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from starlette.types import ASGIApp

from .access.guard import Access
from .access.local import LocalAccess, local
from .access.open import OpenAccess, everybody
from .alerts.service import AlertService
from .alerts.settings import alerts_of
from .app import protected_app
from .collecting.collector import CollectedCluster
from .config.options import ConfigError, ConsoleOptions, OidcOptions
from .connections import Connection, end_stuck
from .context import Console
from .data.schemas import schemas_of
from .history.kept import KeptHistory
from .picture import ClusterPicture
from .series import Sample

if TYPE_CHECKING:
    from .access.issuer import Issuer

DRAIN_S = 2  # for answers under way; a stream of events never ends by itself
BACKLOG = 128

log = logging.getLogger("ottla.console")


class Server(uvicorn.Server):
    """uvicorn's, without its signal handlers: it would end the process by the signal."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        watching = asyncio.create_task(end_stuck(self.server_state.connections))
        try:
            await super().serve(sockets)
        finally:
            watching.cancel()


def listening(host: str, port: int) -> socket.socket:
    """The open address. Raises OSError."""
    [(family, *_, address), *_] = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    # asyncio sets TCP_NODELAY only where the protocol is named; without it the second piece of an
    # answer waits 40 ms for the browser's acknowledgement of the first.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    return made


def access_of(options: ConsoleOptions) -> LocalAccess | OpenAccess:
    """Who may come in. Raises AccessFileError, ConfigError."""
    if options.login:
        issuer = issuer_of(options.oidc) if options.oidc is not None else None
        access = local(
            Path(options.data_directory),
            read_only=options.read_only,
            tls=bool(options.certificate),
        )
        access.issuer = issuer
        return access
    return OpenAccess(everybody(options.read_only))


def issuer_of(options: OidcOptions) -> Issuer:
    try:
        from .access.issuer import Issuer

        import_module("joserfc")
    except ImportError as error:
        package = (error.name or "authlib").partition(".")[0]
        raise ConfigError(
            f"oidc needs the package {package}\nTry: pip install 'ottla[console-oidc]'"
        ) from None
    return Issuer(options)


def context_of(certificate: str) -> ssl.SSLContext | None:
    """What https is served with; None without a certificate. Raises ConfigError."""
    if not certificate:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # Without a password OpenSSL would ask for one at the terminal.
        context.load_cert_chain(certificate, password=lambda: "")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
        said = str(reason).lower().replace("_", " ")
        raise ConfigError(
            f"--certificate: {certificate} cannot be used: {said}\n"
            "Try: a file with the certificate and its private key in PEM, unencrypted"
        ) from None
    return context


def run(
    options: ConsoleOptions,
    access: Access,
    at: socket.socket,
    ready: Callable[[], None],
    context: ssl.SSLContext | None = None,
) -> None:
    """Until SIGINT or SIGTERM; `ready` is called when pages are served. Raises HistoryFileError,
    RuleError, SchemaError."""
    directory = Path(options.data_directory)
    settings = alerts_of(options.alerts)
    schemas = schemas_of(options.schemas, Path(options.directory))
    history = KeptHistory(directory)

    def keep(picture: ClusterPicture, samples: Sequence[Sample]) -> None:
        history.append(samples)

    clusters = {
        each.name: CollectedCluster(
            each.name,
            each.client_properties,
            (keep,),
            metrics=each.metrics,
            interval_s=options.interval_s,
        )
        for each in options.clusters
    }
    alerts = AlertService(
        clusters,
        directory,
        settings.rules,
        settings.receivers,
        look_every_s=options.interval_s,
    )
    console = Console(clusters, history, options.read_only, access, alerts, schemas)
    app = protected_app(console, hosts=(options.host, *options.names), tls=context is not None)
    history.start()
    alerts.start()
    for cluster in clusters.values():
        cluster.start()
    try:
        asyncio.run(serve(app, at, ready, context))
    finally:
        alerts.stop()
        for cluster in clusters.values():
            cluster.close()
        history.close()


async def serve(
    app: ASGIApp,
    at: socket.socket,
    ready: Callable[[], None],
    context: ssl.SSLContext | None = None,
) -> None:
    server = server_of(app, context)

    def stop() -> None:
        server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    serving = asyncio.create_task(server.serve([at]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    if not serving.done():
        ready()
    await serving


def server_of(app: ASGIApp, context: ssl.SSLContext | None = None) -> Server:
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="on",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=DRAIN_S,
    )
    config.load()
    config.ssl = context
    return Server(config)

"""What `ottla server` refuses to open to other machines: what lets everybody in, unencrypted."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.cli.failure import Failure

if TYPE_CHECKING:
    from ottla.cli.server_options import MetricsAddress
    from ottla.settings import Settings

SECURE = "ottla secure --dir DIR --hosts NAME, then ottla server --config DIR/server.properties"
OR_INSECURE = "or --insecure, where everybody on the network may read and write"

log = logging.getLogger("ottla")


def check_exposure(settings: Settings, metrics: MetricsAddress | None) -> None:
    """Raises Failure, unless `ottla.insecure` is set; says what is weak all the same."""
    from ottla.server.listener import address_text
    from ottla.settings.exposure import beyond_loopback, unprotected, weaknesses

    for warning in weaknesses(settings):
        log.warning("%s", warning)
    if settings.flag("ottla.insecure"):
        return
    for listener in unprotected(settings):
        where = address_text(listener.host or "all interfaces", listener.port)
        raise Failure(
            f"listener {listener.name} ({where}) would let other machines in without encryption "
            "and login",
            f"{SECURE}; {OR_INSECURE}",
        )
    if metrics is not None and not metrics.secured and beyond_loopback(metrics.host):
        raise Failure(
            f"--metrics {address_text(metrics.host or 'all interfaces', metrics.port)} would show "
            "names of topics to other machines without encryption and login",
            "--metrics https://HOST:PORT beside a listener of TLS, which asks for a certificate; "
            "or --insecure",
        )

"""Where a running agent shows its metrics: `--metrics`, or Flume's `flume.monitoring.*`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.failure import Failure, cannot_listen
from ottla.cli.server_options import split_option

if TYPE_CHECKING:
    from ottla.agent.status import AgentStatus
    from ottla.server.metrics_http import MetricsServer

log = logging.getLogger("ottla.agent")
LOOPBACK = "127.0.0.1"  # Flume listens on all addresses
PORT = 41414  # Flume's default
PORT_MAX = 65_535
PREFIX = "flume.monitoring."
EXAMPLE = "-Dflume.monitoring.type=http -Dflume.monitoring.port=34545"
PACKAGE = "org.apache.flume.instrumentation.http."
TYPES = {
    "http": "http",
    "prometheus": "prometheus",
    f"{PACKAGE}HTTPMetricsServer".lower(): "http",
    f"{PACKAGE}PrometheusHTTPMetricsServer".lower(): "prometheus",
}


class Address(NamedTuple):
    form: str  # "http" is Flume's JSON, or "prometheus"
    host: str
    port: int
    option: str  # that said so


def address_in(properties: Mapping[str, str], metrics: str | None) -> Address | None:
    """What the options ask for. Raises Failure."""
    given = properties.get(f"{PREFIX}type")
    if metrics is not None:
        if given is not None:
            rule = "--metrics and -Dflume.monitoring.type are two ways to say one thing"
            raise Failure(rule, "one of them", exit_code=2)
        return Address("prometheus", *split_option("--metrics", metrics, METRICS_HINT), "--metrics")
    if given is None:
        return None
    form = TYPES.get(given.lower())
    if form is None:
        fact = f"{PREFIX}type: must be http or prometheus (got {given!r})"
        raise Failure(fact, EXAMPLE, exit_code=2)
    port = properties.get(f"{PREFIX}port", str(PORT))
    if not (port.isascii() and port.isdecimal() and int(port) <= PORT_MAX):
        fact = f"{PREFIX}port: must be a port between 0 and {PORT_MAX} (got {port!r})"
        raise Failure(fact, EXAMPLE, exit_code=2)
    host = properties.get(f"{PREFIX}host", LOOPBACK)
    return Address(form, host, int(port), f"-D{PREFIX}port")


METRICS_HINT = "ottla agent run FILE --metrics 127.0.0.1:9404"


class FlumeJson:
    content_type = "application/json;charset=utf-8"

    def __init__(self, status: Callable[[], AgentStatus]) -> None:
        self._status = status

    def lines(self) -> Iterator[str]:
        from ottla.agent.flume_monitoring import flume_json

        yield flume_json(self._status())


class Prometheus:
    def __init__(self, status: Callable[[], AgentStatus]) -> None:
        from ottla.metrics import CONTENT_TYPE

        self.content_type = CONTENT_TYPE
        self._status = status

    def lines(self) -> Iterator[str]:
        from ottla.agent.flume_monitoring import prometheus_lines

        yield from prometheus_lines(self._status())


def not_ready(status: AgentStatus) -> str:
    """Which sinks have not started; empty if all have."""
    waiting = [sink.name for sink in status.sinks if not sink.ready]
    return f"sinks that have not started: {', '.join(waiting)}" if waiting else ""


def serve(address: Address, status: Callable[[], AgentStatus]) -> MetricsServer:
    """Listens, on the loop that runs. Raises Failure."""
    from ottla.seams.clock import RealClock
    from ottla.seams.network import RealNetwork
    from ottla.server.listener import address_text
    from ottla.server.metrics_http import MetricsServer

    loop = asyncio.get_running_loop()
    page = FlumeJson(status) if address.form == "http" else Prometheus(status)
    server = MetricsServer(RealNetwork(loop), RealClock(loop), page, lambda: not_ready(status()))
    try:
        port = server.listen(address.host, address.port)
    except OSError as error:
        text = address_text(address.host, address.port)
        raise cannot_listen(error, text, "--metrics", "ottla agent run FILE") from None
    log.info("metrics on http://%s/metrics", address_text(address.host, port))
    return server

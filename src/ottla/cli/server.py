"""`ottla server`: puts a broker together from real parts, runs it, and stops it well.

    options -> settings -> broker and server -> ready line -> signal -> drain, flush, exit 0

The only module that imports every package. What fails before the ready line is one sentence with a
`Try:` line and exit code 1.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
from typing import TYPE_CHECKING

import click

from ottla import __version__
from ottla.cli.failure import Failure, cannot_listen
from ottla.cli.logs import LEVELS, change_level, start_logging
from ottla.cli.server_exposure import check_exposure
from ottla.cli.server_limits import backlog_of, buffer_bytes, limits_of
from ottla.cli.server_options import metrics_address, read_settings
from ottla.cli.server_zookeeper import broker_id_of, drawn_ids, tree_of
from ottla.cli.start_failure import why_not_started

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.cli.control import Control
    from ottla.cli.server_console import ConsoleBeside
    from ottla.cli.server_options import MetricsAddress
    from ottla.metrics import Metrics
    from ottla.server.metrics_http import MetricsServer
    from ottla.settings import Settings

log = logging.getLogger("ottla")

# Collect young objects less often: requests make and drop many, hardly any in cycles.
GC_THRESHOLDS = (20_000, 20, 50)


@click.command(context_settings={"max_content_width": 100})
@click.option("--data-dir", metavar="DIR", help="Where the data lies.  [default: ./ottla-data]")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Where clients connect; port 0 takes any free one.  [default: 127.0.0.1:9092]",
)
@click.option("--config", metavar="FILE", help="Options by Kafka's names, as server.properties.")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    help="One option by Kafka's name; may be repeated, and wins over the file.",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Prometheus metrics, /healthz, /readyz.  [default: JMX_PORT in the environment, or off]",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="info",
    show_default=True,
    help="What is logged on stderr.",
)
@click.option(
    "--workers",
    type=int,
    metavar="N",
    help="N brokers on this host, a process each, with consecutive ports.",
)
@click.option(
    "--console",
    "console_port",
    type=click.IntRange(0, 65_535),
    is_flag=False,
    flag_value=8084,
    metavar="[PORT]",
    help="A console in the browser beside the broker.  [PORT: 8084]",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Let other machines in without encryption and logins; or ottla.insecure=true.",
)
@click.option("--list-options", is_flag=True, help="Print every option and its meaning, and end.")
@click.option("--control", is_flag=True, hidden=True, help="For tests: faults on demand, by stdin.")
def server(
    data_dir: str | None,
    listen: str | None,
    config: str | None,
    assignments: tuple[str, ...],
    metrics: str | None,
    log_level: str,
    workers: int | None,
    console_port: int | None,
    insecure: bool,
    list_options: bool,
    control: bool,
) -> int:
    """Run a broker that Kafka clients connect to.

    Without options it listens on 127.0.0.1:9092, for this machine alone, and keeps its data in
    ./ottla-data; for other machines `ottla secure` makes a server.properties. It prints one line
    when it is ready and logs on stderr. SIGTERM or Ctrl-C stops it cleanly; SIGUSR1 logs more,
    SIGUSR2 as much as at the start.

    A broker is one process on one core. With --workers N brokers form a cluster on this host: one
    that ends is started again, after a pause if it ends again and again.
    """
    if list_options:
        print_options()
        return 0
    start_logging(log_level)
    if insecure:
        assignments = (*assignments, "ottla.insecure=true")
    settings = read_settings(config, assignments, data_dir, listen)
    address = metrics_address(metrics)
    check_exposure(settings, address)
    for warning in settings.warnings:
        log.warning("%s", warning)
    if settings.idle:
        log.info("options that change nothing here: %s", ", ".join(settings.idle))
    if workers is not None:
        from ottla.cli.server_workers import Workers, run_workers

        if console_port is not None:
            raise Failure(
                "--console: with --workers the console is started by itself",
                "ottla console --bootstrap-server HOST:PORT",
                exit_code=2,
            )
        chosen = Workers(workers, config, assignments, address, log_level, control)
        return run_workers(settings, chosen, lambda count: drawn_ids(settings, count))
    gc.disable()  # what is made while starting stays
    loop = new_loop()
    try:
        if settings.draws_broker_id:
            settings = loop.run_until_complete(broker_id_of(settings, loop))
        running = Running(loop, settings, address, log_level, control, console_port)
        return loop.run_until_complete(running.run())
    finally:
        loop.close()


# Options


def print_options() -> None:
    """Every option: name, type, default, rule, when a change takes effect, meaning."""
    from ottla.settings import broker_rows, topic_rows

    for title, rows in (("Broker", broker_rows()), ("Topic", topic_rows())):
        click.echo(f"{title} options\n")
        for row in rows:
            click.echo(f"{row.name}={row.default}")
            facts = [row.type.lower(), row.rule, row.update, row.standing]
            click.echo(f"    {row.doc}")
            click.echo(f"    ({'; '.join(fact for fact in facts if fact)})\n")


# Running


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        loop = asyncio.new_event_loop()
    else:
        loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop


async def first_of(task: asyncio.Future[None], event: asyncio.Event) -> None:
    """Wait until the task is done or the event is set."""
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


class Running:
    """One run of a server, from its parts to its end."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: Settings,
        metrics_address: MetricsAddress | None,
        log_level: str,
        controlled: bool = False,
        console_port: int | None = None,
    ) -> None:
        from ottla.broker.broker import Broker
        from ottla.cli.server_sasl import Sasl
        from ottla.cli.server_tls import Tls
        from ottla.metrics import Metrics
        from ottla.seams.background import RealBackground
        from ottla.seams.chance import RealChance
        from ottla.seams.clock import RealClock
        from ottla.seams.disk import RealDisk
        from ottla.seams.network import RealNetwork
        from ottla.seams.posix import descriptor_limit
        from ottla.seams.process import raise_descriptor_limit
        from ottla.server.limits import connections_that_fit
        from ottla.server.listener import endpoints_of
        from ottla.server.server import Server

        raise_descriptor_limit()
        disk = RealDisk()
        self._connections_fit = connections_that_fit(descriptor_limit(), disk.descriptors_max)
        self._descriptors_of_log = disk.descriptors_max
        self._settings = settings
        self._metrics_address = metrics_address
        self._log_level = log_level
        self._stopping = asyncio.Event()
        self._not_ready = "starting"
        self._metrics_server: MetricsServer | None = None
        self._metrics_url: str | None = None
        self._console_port = console_port
        self._console: ConsoleBeside | None = None
        self.metrics: Metrics = Metrics()
        self.clock = RealClock(loop)
        self.network = RealNetwork(
            loop,
            send_buffer_bytes=buffer_bytes(settings, "socket.send.buffer.bytes"),
            receive_buffer_bytes=buffer_bytes(settings, "socket.receive.buffer.bytes"),
        )
        self._tls = Tls(settings, self.clock)
        self._sasl = sasl = Sasl(settings, self.clock, lambda: self.broker.image)
        to_brokers = sasl.network_of_brokers(self._tls.network_of_brokers(self.network))
        self.background = RealBackground(loop)
        self.broker: Broker = Broker(
            settings,
            clock=self.clock,
            disk=disk,
            chance=RealChance(),
            background=self.background,
            metrics=self.metrics,
            network=to_brokers if settings.in_cluster else None,
            connect_tree=tree_of(settings, loop, self.clock, self.background),
        )
        self._control = self._put_under_control(loop) if controlled else None
        self.server = Server(
            self.network,
            self.clock,
            self.broker.dispatcher.handle,
            endpoints_of(settings.listeners, socket.gethostname),
            limits_of(settings, self._connections_fit),
            backlog=backlog_of(settings),
            inter_broker_listener=settings.inter_broker_listener,
            background=self.background,
            secure=self._tls.listeners,
            logins=sasl.listeners,
            windows=self.broker.quotas.windows,
        )
        self.broker.on_configured.append(self._configured)
        self.broker.quotas.on_address_rates.append(self.server.change_address_rates)
        self.broker.config_checks.append(self._tls.check)

    def _put_under_control(self, loop: asyncio.AbstractEventLoop) -> Control:
        from ottla.broker.faults import Faults, FaultyDispatcher
        from ottla.cli.control import Control

        faults = Faults()
        self.broker.dispatcher = FaultyDispatcher(self.broker, faults)
        return Control(loop, faults, self._stopping.set)

    def _configured(self, settings: Settings) -> None:
        """The broker's dynamic configs have changed, or hold for the first time."""
        self.server.change_limits(limits_of(settings, self._connections_fit))
        self._tls.configure(settings)

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGUSR1, change_level, "debug")
        loop.add_signal_handler(signal.SIGUSR2, change_level, self._log_level)
        try:
            if not await self._start():
                log.info("stopped before it was ready")
                self._close()
                return 0
        except BaseException:
            self._close()
            raise
        if not self._stopping.is_set():
            self._tell_ready()
            if self._console_port is not None:
                self._start_console(self._console_port)
        if self._control is not None:
            self._control.start()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        gc.enable()
        await self._stopping.wait()
        log.info("stopping")
        if self._console is not None:
            self._console.stop()
        await self.broker.controlled_shutdown()
        await self.server.drain()
        try:
            await self.broker.stop()
        finally:
            self._close()
        log.info("stopped")
        return 0

    async def _start(self) -> bool:
        """Whether the broker has started; False when a signal came while it waited for others.

        Ports first, so that a second server fails before it touches anything.
        """
        from ottla.broker.readiness import wait_unfenced
        from ottla.cluster.state import NotController, RegistrationRefused
        from ottla.log.directories import DirectoryProblem
        from ottla.metadata_store.tree import TreeError
        from ottla.wire.errors import ErrorCode

        self._tls.watch(self.background)
        await self._sasl.begin(self.background)
        try:
            self.server.open()
        except OSError as error:
            raise cannot_listen(error, str(error.filename), "--listen") from None
        if self._metrics_address is not None:
            self._start_metrics(self._metrics_address)
        directory = os.path.abspath(self._settings.data_directory)
        try:
            if not await self._start_broker():
                return False
        except (OSError, DirectoryProblem, TreeError) as error:
            raise why_not_started(error, directory) from None
        except RegistrationRefused as error:
            hint = "another number: --set node.id=N"
            if error.error_code == ErrorCode.UNSUPPORTED_VERSION:
                hint = "a later version; kafka-features.sh describe shows what the cluster needs"
            raise Failure(f"cannot start: {error}", hint) from None
        except NotController as error:
            raise Failure(f"cannot start: {error}", "look at the log of the controller") from None
        self.server.accept()
        try:
            await wait_unfenced(self.broker, unless=self._stopping.is_set)
        except NotController as error:
            await self.broker.stop()
            raise Failure(f"cannot start: {error}", "look at the log of the controller") from None
        return True

    async def _start_broker(self) -> bool:
        """Whether it has started; False when a signal came before."""
        endpoints = {endpoint.name: endpoint.advertised for endpoint in self.server.endpoints}
        start = asyncio.ensure_future(self.broker.start(endpoints))
        await first_of(start, self._stopping)
        if self.broker.in_cluster:
            await first_of(start, self.broker.start_may_end)
            if not start.done():
                log.info("stopping while the broker waits for the cluster")
                start.cancel()
        try:
            await start
        except asyncio.CancelledError:
            return False
        return True

    def _start_metrics(self, address: MetricsAddress) -> None:
        from ottla.broker.readiness import why_behind
        from ottla.broker.replication_metrics import missing_replicas
        from ottla.server.listener import address_text
        from ottla.server.metrics_http import MetricsServer
        from ottla.server.monitoring import watch

        broker = self.broker
        watch(
            self.metrics,
            self.clock,
            self.server,
            opened=broker.partitions.all_opened,
            placed=lambda: [
                (partition.leader == broker.node_id, missing_replicas(partition))
                for topic in broker.image.topics.values()
                for partition in topic.partitions
                if broker.node_id in partition.replicas
            ],
        )
        network = (
            self.network if not address.secured else self._tls.network_of_metrics(self.network)
        )
        self._metrics_server = MetricsServer(
            network, self.clock, self.metrics, lambda: self._not_ready or why_behind(broker)
        )
        host, port = address.host, address.port
        try:
            port = self._metrics_server.listen(host, port)
        except OSError as error:
            raise cannot_listen(error, address_text(host, port), "--metrics") from None
        scheme = "https" if address.secured else "http"
        self._metrics_url = f"{scheme}://{address_text(host, port)}/metrics"
        log.info("metrics on %s", self._metrics_url)

    def _start_console(self, port: int) -> None:
        """Its clients come as others do, to the first listener without encryption."""
        from ottla.cli.server_console import ConsoleBeside, console_command
        from ottla.server.listener import address_text

        plain = [
            endpoint
            for listener, endpoint in zip(
                self._settings.listeners, self.server.endpoints, strict=True
            )
            if listener.protocol == "PLAINTEXT"
        ]
        if not plain:
            log.error("--console: every listener is encrypted; start ottla console by itself")
            return
        directory = self._settings.data_directory
        self._console = ConsoleBeside(
            console_command(address_text(*plain[0].advertised), directory, port, self._metrics_url)
        )

    def _tell_ready(self) -> None:
        from ottla.seams.posix import descriptor_limit

        log.info(
            "at most %d connections: the process may have %d descriptors, of which %d are kept for "
            "files of the log",
            self._connections_fit,
            descriptor_limit(),
            self._descriptors_of_log,
        )
        first, *others = self.server.endpoints
        for endpoint in others:
            log.info("listener %s on %s", endpoint.name, endpoint)
        self._not_ready = ""
        directory = os.path.abspath(self._settings.data_directory)
        node = self._settings.node_id
        try:
            print(
                f"ottla {__version__} ready on {first}, node {node}, data in {directory}",
                flush=True,
            )
        except OSError:  # nobody reads it
            pass

    def _stop(self, number: int) -> None:
        if self._stopping.is_set():
            log.warning("stopped by force with a second signal; the next start will recover")
            os._exit(128 + number)
        self._not_ready = "stopping"
        self._stopping.set()

    def _close(self) -> None:
        self.server.close()
        if self._metrics_server is not None:
            self._metrics_server.close()
        self.background.close()
        if self._console is not None:
            self._console.wait()

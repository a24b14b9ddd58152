"""`ottla agent run`: one agent, until a signal comes; SIGHUP reads its files again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from ottla.agent.config.description import AgentDescription, ConfigError
from ottla.cli.agent_files import (
    data_directory_option,
    define_option,
    definitions_in,
    description_of,
    failure_of,
    files_argument,
    name_option,
    say_warnings,
)
from ottla.cli.failure import Failure
from ottla.cli.hangup import hang_ups

if TYPE_CHECKING:
    from ottla.agent.instance import Instance
    from ottla.agent.reloading import Reloader, Stamp
    from ottla.agent.supervisor import Supervisor
    from ottla.cli.agent_monitoring import Address
    from ottla.cli.agent_view import View

logger = logging.getLogger("ottla.agent")
VIEW_INTERVAL_S = 1.0


@click.command()
@files_argument
@name_option
@define_option
@data_directory_option
@click.option(
    "--instance",
    metavar="ID",
    envvar="OTTLA_AGENT_INSTANCE",
    help="The id of this instance, where the data directory does not last (containers).",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Metrics for Prometheus, /healthz, /readyz.  [default: -Dflume.monitoring.*, or off]",
)
@click.option(
    "--no-reload-conf",
    is_flag=True,
    help="Do not read FILE again, neither when it changes nor on SIGHUP.",
)
@click.option("--live", is_flag=True, help="Show what happens, every second.")
@click.option("--json", "as_json", is_flag=True, help="With --live: a JSON object every second.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What is logged on stderr.",
)
def run(
    files: tuple[str, ...],
    name: str | None,
    definitions: tuple[str, ...],
    data_dir: str,
    instance: str | None,
    metrics: str | None,
    no_reload_conf: bool,
    live: bool,
    as_json: bool,
    log_level: str,
) -> int:
    """Run an agent of FILE until SIGINT (Ctrl-C) or SIGTERM.

    What later files say counts more. When a FILE changes, or on SIGHUP, it is read again: what it
    changes is replaced, what has mistakes is logged.

    \b
    ottla agent run jobs/flume-kafka.conf --name a1
    ottla agent run agent.toml --instance web-1 --data-dir /var/lib/agent
    ottla agent run agent.toml --live
    """
    from ottla.agent.instance import InstanceError, open_instance
    from ottla.agent.reloading import stamp_of
    from ottla.cli.agent_monitoring import address_in
    from ottla.cli.logs import start_logging
    from ottla.seams.process import raise_descriptor_limit

    raise_descriptor_limit()
    address = address_in(definitions_in(definitions), metrics)
    stamp = stamp_of([Path(file) for file in files])
    try:
        described = description_of(files, name, definitions)
    except ConfigError as error:
        raise failure_of(error) from None
    view = None
    if live or as_json:
        from ottla.cli.agent_view import View

        view = View(sys.stdout, as_json=as_json)
    start_logging(log_level, view.above(sys.stderr) if view is not None else None)
    say_warnings(described)
    try:
        opened = open_instance(Path(data_dir).expanduser(), described.name, instance)
    except InstanceError as error:
        fact, _, hint = str(error).partition("\nTry: ")
        raise Failure(fact, hint) from None
    wanted = Wanted(
        described,
        opened,
        address,
        view,
        None if no_reload_conf else stamp,
        [Path(file) for file in files],
        lambda: description_of(files, described.name, definitions),
    )
    try:
        return run_agent(wanted)
    except ConfigError as error:
        raise failure_of(error) from None
    finally:
        opened.close()


class Wanted(NamedTuple):
    """What the options ask for."""

    described: AgentDescription
    instance: Instance
    metrics: Address | None
    view: View | None
    stamp: Stamp | None  # of the files when they were read; None: they are not read again
    paths: list[Path]
    read: Callable[[], AgentDescription]


def run_agent(wanted: Wanted) -> int:
    """Runs until a signal comes; a sink that another instance fences ends it with a sentence."""
    from ottla.agent.parts import FencedError, PartError
    from ottla.client.errors import KafkaError

    name = wanted.described.name
    try:
        with asyncio.Runner(loop_factory=loop_factory(wanted.described)) as runner:
            runner.run(until_stopped(wanted))
    except FencedError:
        raise Failure(
            f"agent {name}: another process of this instance has taken over",
            "one agent for each data directory, or --instance ANOTHER-ID",
        ) from None
    except PartError as error:
        fact, _, hint = str(error).partition("\nTry: ")
        raise Failure(f"agent {name}: {fact}", hint) from None
    except (KafkaError, OSError) as error:
        raise Failure(f"agent {name}: {error}") from None
    return 0


def loop_factory(described: AgentDescription) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed and helps: for connections and commands. Who reads files and
    topics is as fast without it, and has 3 MB less in memory."""
    if all(source.type.replays for source in described.sources.values()):
        return None
    try:
        import uvloop
    except ImportError:
        return None
    made: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return made


async def until_stopped(wanted: Wanted) -> None:
    from ottla.agent.build import build
    from ottla.agent.reloading import Reloader
    from ottla.agent.supervisor import Supervisor

    instance = wanted.instance
    supervisor = Supervisor(
        wanted.described, lambda each: build(each, instance.directory, instance.id), instance.id
    )
    async with monitored(supervisor, wanted):
        running = asyncio.create_task(supervisor.run())
        helpers = []
        reloader = None
        if wanted.stamp is not None:
            reloader = Reloader(supervisor, wanted.paths, wanted.read, wanted.stamp)
            helpers.append(asyncio.create_task(reloader.run()))
        if wanted.view is not None:
            helpers.append(asyncio.create_task(show(supervisor, wanted.view)))
        take_signals(running, reloader)
        try:
            await first_end(running, helpers)
        except asyncio.CancelledError:
            if not running.cancelled():
                raise
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            if wanted.view is not None:
                wanted.view.finish()


async def first_end(running: asyncio.Task[None], helpers: list[asyncio.Task[None]]) -> None:
    """Until the agent ends; a helper that fails ends it."""
    await asyncio.wait({running, *helpers}, return_when=asyncio.FIRST_COMPLETED)
    if not running.done():
        running.cancel()
        await asyncio.wait({running})
    for helper in helpers:
        if helper.done() and not helper.cancelled():
            helper.result()
    await running


def take_signals(running: asyncio.Task[None], reloader: Reloader | None) -> None:
    def hung_up() -> None:
        if hang_ups.terminal_is_gone():
            running.cancel()
        elif reloader is None:
            logger.info("SIGHUP has no effect: --no-reload-conf")
        else:
            reloader.ask()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, running.cancel)
    loop.add_signal_handler(signal.SIGHUP, hung_up)
    if hang_ups.came:  # while the agent started
        hung_up()


@contextlib.asynccontextmanager
async def monitored(supervisor: Supervisor, wanted: Wanted) -> AsyncIterator[None]:
    """Others may ask for the status meanwhile."""
    from ottla.agent.status_socket import StatusServer
    from ottla.cli.agent_monitoring import serve

    async def status() -> str:
        return json.dumps(await status_of(supervisor))

    asked = StatusServer(wanted.instance.directory, status)
    metrics = serve(wanted.metrics, supervisor.status) if wanted.metrics is not None else None
    await asked.start()
    try:
        yield
    finally:
        await asked.close()
        if metrics is not None:
            metrics.close()


async def status_of(supervisor: Supervisor) -> dict[str, object]:
    """With the files, which are looked at in a thread."""
    from dataclasses import asdict

    from ottla.agent.status import with_files

    return asdict(await asyncio.to_thread(with_files, supervisor.status(), supervisor.files()))


async def show(supervisor: Supervisor, view: View) -> None:
    while True:
        view.show(await status_of(supervisor))
        await asyncio.sleep(VIEW_INTERVAL_S)

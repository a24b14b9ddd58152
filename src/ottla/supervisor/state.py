"""`cluster.json`: which processes a cluster on one host has, and where they listen.

Written by the supervisor whenever something changes, as a whole; read by the other commands. It
stays when the cluster is down: the next start takes the same ports.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any, NamedTuple

from ottla.supervisor.plan import STATE_FILE, start_request
from ottla.supervisor.processes import ProcessId, running, send

VERSION = 1


class BadState(Exception):
    """The file is not what a supervisor wrote; the text is one sentence."""


class BrokerState(NamedTuple):
    """One broker; `process` is None when it does not run."""

    node_id: int
    host: str
    port: int
    process: ProcessId | None = None
    ready: bool = False  # it has started, and serves clients

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


class ClusterState(NamedTuple):
    """The whole file."""

    supervisor: ProcessId | None
    brokers: tuple[BrokerState, ...]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def broker(self, node_id: int) -> BrokerState | None:
        return next((each for each in self.brokers if each.node_id == node_id), None)


def write_state(directory: Path, state: ClusterState) -> None:
    """Replace the file."""
    data = {
        "version": VERSION,
        "supervisor": _process_value(state.supervisor),
        "brokers": [
            {**broker._asdict(), "process": _process_value(broker.process)}
            for broker in state.brokers
        ],
    }
    temporary = directory / f"{STATE_FILE}.tmp"
    temporary.write_text(json.dumps(data, indent=1) + "\n")
    os.replace(temporary, directory / STATE_FILE)


def read_state(directory: Path) -> ClusterState | None:
    """What is written; None if no cluster was ever started there. Raises BadState."""
    path = directory / STATE_FILE
    try:
        data = json.loads(path.read_bytes())
        if data["version"] != VERSION:
            raise BadState(f"{path} has version {data['version']}, not {VERSION}")
        brokers = tuple(_broker(each) for each in data["brokers"])
        return ClusterState(_process(data["supervisor"]), brokers)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BadState(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError):
        raise BadState(f"{path} is damaged: it is not what `ottla cluster up` writes") from None


def ask_for_start(directory: Path, node_id: int) -> bool:
    """Ask the supervisor to start a broker that does not run; False if there is no supervisor."""
    state = read_state(directory)
    if state is None or not running(state.supervisor):
        return False
    start_request(directory, node_id).touch()
    return send(state.supervisor, signal.SIGHUP)


def _process_value(process: ProcessId | None) -> dict[str, Any] | None:
    return None if process is None else process._asdict()


def _process(value: Any) -> ProcessId | None:
    return None if value is None else ProcessId(int(value["pid"]), str(value["started"]))


def _broker(value: Any) -> BrokerState:
    return BrokerState(
        node_id=int(value["node_id"]),
        host=str(value["host"]),
        port=int(value["port"]),
        process=_process(value["process"]),
        ready=bool(value["ready"]),
    )

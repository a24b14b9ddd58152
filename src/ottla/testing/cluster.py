"""A real cluster for a test: several broker processes on this host, run by `ottla cluster up`.

    with ottla.testing.cluster(brokers=3) as cluster:
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
        cluster.kill(cluster.leader("orders", 0))

Brokers are killed, suspended and started again one by one. If the test process dies, all end by
themselves.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ottla.supervisor.link_ports import PORTS_PER_BROKER, LinkPorts
from ottla.supervisor.ports import free_ports
from ottla.supervisor.processes import running, send, stopped
from ottla.supervisor.state import BrokerState, ClusterState, ask_for_start, read_state
from ottla.testing.broker import (
    DEFAULTS,
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    BrokerFailed,
    option_name,
    setting,
)

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.testing.links import Links

BROKERS = 3
LOOK_AGAIN_S = 0.02
READY = re.compile(r"ready on (\S+),")


class Cluster:
    """Brokers 1 to N. `options` are every broker's, by Kafka's names with `_` for `.` allowed."""

    def __init__(
        self,
        brokers: int = BROKERS,
        *,
        directory: str | os.PathLike[str] | None = None,
        links: bool = False,
        client_options: Mapping[str, Any] | None = None,
        **options: object,
    ) -> None:
        """`links`: connections between brokers can be cut (`cut`, `heal`); `client_options`: what
        clients need besides the addresses, for TLS or a login."""
        self.client_options = dict(client_options or {})
        self.node_ids = tuple(range(1, brokers + 1))
        self.bootstrap_servers = ""
        self.options = DEFAULTS | {option_name(name): value for name, value in options.items()}
        self._given_directory = directory
        self._root: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._wants_links = links
        self._links: Links | None = None

    # ---- what a test uses ------------------------------------------------------------------------

    @property
    def directory(self) -> Path:
        """Where state, data and logs of the cluster lie."""
        assert self._root is not None, "the cluster was never started"
        return self._root

    def address(self, broker: int) -> str:
        """Host and port of one broker."""
        return self._broker(broker).address

    def pid(self, broker: int) -> int:
        """The process of a broker that runs."""
        process = self._broker(broker).process
        if process is None:
            raise BrokerFailed(f"broker {broker} is not running")
        return process.pid

    def running(self, broker: int) -> bool:
        return running(self._broker(broker).process)

    def logs(self, broker: int | None = None) -> str:
        """What a broker has logged so far, or the process that runs them all."""
        if self._root is None:
            return ""
        name = "cluster.log" if broker is None else f"broker-{broker}.log"
        path = self._root / name
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> Cluster:
        """Start all brokers, or start them again on the same data and ports."""
        if self._process is not None:
            raise BrokerFailed("the cluster is running already")
        if self._root is None:
            given = self._given_directory
            self._root = Path(tempfile.mkdtemp(prefix="ottla-test-") if given is None else given)
            self._root.mkdir(parents=True, exist_ok=True)
        if self._wants_links and self._links is None:
            from ottla.testing.links import Links

            count = len(self.node_ids)
            self._links = Links(LinkPorts(free_ports(PORTS_PER_BROKER * count), count))
        if self._links is not None:
            for node_id in self.node_ids:
                self._links.open(node_id)
        with (self._root / "cluster.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        assert self._process.stdout is not None
        found = READY.search(self._process.stdout.readline().decode())
        servers = [] if found is None else found[1].split(",")
        if len(servers) < len(self.node_ids):
            self._end()
            raise BrokerFailed(f"not all brokers have started:\n{self.logs()}")
        self.bootstrap_servers = ",".join(servers)
        return self

    def stop(self) -> int:
        """Stop all brokers cleanly; the exit code, which is 0 too if nothing runs."""
        if self._process is None:
            return 0
        if self._links is not None:
            self._links.heal()  # a broker that stops asks others to lead
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(2 * STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise BrokerFailed(f"the cluster did not stop:\n{self.logs()}") from None
        finally:
            self._end()

    def kill(self, broker: int) -> None:
        """SIGKILL to one broker: what a crash of its process does."""
        before = self._broker(broker)
        if self._links is not None:
            self._links.close(broker)  # a dead process refuses connections
        send(before.process, signal.SIGKILL)
        # Until its end is noted: then it can be started again.
        self._until(
            lambda: self._broker(broker).process != before.process or before.process is None,
            f"broker {broker} does not end",
        )

    def pause(self, broker: int) -> None:
        """SIGSTOP: the process stands still, keeps its connections, and answers nothing."""
        process = self._broker(broker).process
        if process is None or not send(process, signal.SIGSTOP):
            raise BrokerFailed(f"broker {broker} is not running")
        self._until(
            lambda: stopped(process) or not running(process), f"broker {broker} does not stop"
        )

    def resume(self, broker: int) -> None:
        """SIGCONT after `pause`."""
        if not send(self._broker(broker).process, signal.SIGCONT):
            raise BrokerFailed(f"broker {broker} is not running")

    def restart(self, broker: int, *, kill: bool = False) -> None:
        """Stop (or kill) a broker if it runs, and start it again; returns when it is ready."""
        before = self._broker(broker).process
        if kill:
            self.kill(broker)
        elif send(before, signal.SIGTERM):
            send(before, signal.SIGCONT)
            self._until(lambda: not running(before), f"broker {broker} does not stop")

        if self._links is not None:
            self._links.open(broker)
        if not ask_for_start(self.directory, broker):
            raise BrokerFailed(f"the cluster is not running:\n{self.logs()}")

        def ready() -> bool:
            now = self._broker(broker)
            return now.ready and now.process != before

        self._until(ready, f"broker {broker} does not start")

    def cut(self, one: int, other: int, *, one_way: bool = False) -> None:
        """Let nothing pass between two brokers, or nothing from `one` to `other`.

        Connections stay open and are silent, as when packets are lost. Clients are not cut off.
        """
        for each in (one, other):
            self._broker(each)
        self._proxies().cut(one, other, one_way=one_way)

    def slow(self, one: int, other: int, *, latency_s: float, lost: float = 0.0) -> None:
        """Let what passes between two brokers take so long each way.

        `lost` is the share of it that is lost and sent again, which takes 0.2 s, or longer if that
        is lost too.
        """
        for each in (one, other):
            self._broker(each)
        self._proxies().slow(one, other, latency_s, lost)

    def isolate(self, broker: int) -> None:
        """Cut a broker off from all others."""
        for other in self.node_ids:
            if other != broker:
                self.cut(broker, other)

    def heal(self, one: int | None = None, other: int | None = None) -> None:
        """Let everything pass again: between two brokers, or between all."""
        self._proxies().heal(one, other)

    # ---- what the brokers say --------------------------------------------------------------------

    @contextlib.contextmanager
    def admin(self) -> Iterator[Admin]:
        """An admin client of the cluster."""
        from ottla.client.admin import Admin

        with Admin(bootstrap_servers=self.bootstrap_servers, **self.client_options) as client:
            yield client

    def controller(self) -> int:
        """The broker that is the controller now."""
        with self.admin() as client:
            return int(client.describe_cluster()["controller_id"])

    def leader(self, topic: str, partition: int = 0) -> int:
        """The broker that leads a partition now; -1: none."""
        with self.admin() as client:
            return int(self._partition(client, topic, partition)["leader_id"])

    def wait_for_isr(self, topic: str, partition: int = 0, *, size: int | None = None) -> None:
        """Wait until so many replicas are in sync, or all of them."""
        with self.admin() as client:

            def reached() -> bool:
                found = self._partition(client, topic, partition)
                return len(found["isr_nodes"]) >= (size or len(found["replica_nodes"]))

            self._until(reached, f"the ISR of {topic}-{partition} does not grow")

    # ---- inside ----------------------------------------------------------------------------------

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        finally:
            self.remove()

    def __repr__(self) -> str:
        state = self.bootstrap_servers if self._process is not None else "not running"
        return f"<ottla.testing.Cluster {state}>"

    def remove(self) -> None:
        """End it and throw its data away, unless the directory was given."""
        self._end()
        links, self._links = self._links, None
        if links is not None:
            links.stop()
        if self._root is not None and self._given_directory is None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None

    def _command(self) -> list[str]:
        sets = [
            part for name, value in self.options.items() for part in ("--set", setting(name, value))
        ]
        # Free ports at the first start, the same ones afterwards.
        port = [] if (self.directory / "cluster.json").exists() else ["--port", "0"]
        if self._links is not None:
            port += ["--links", str(self._links.ports.first)]
        return [
            sys.executable, "-m", "ottla", "cluster", "up", "--control",
            "--brokers", str(len(self.node_ids)), "--dir", str(self.directory), *port, *sets,
        ]  # fmt: skip

    def _proxies(self) -> Links:
        if self._links is None:
            raise BrokerFailed("links can be cut in a cluster that was made with links=True")
        return self._links

    def _end(self) -> None:
        """End the process that runs the brokers; they end when it does."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.kill()
            process.wait()
            state = self._state()
            for broker in state.brokers:
                send(broker.process, signal.SIGKILL)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def _state(self) -> ClusterState:
        state = read_state(self.directory)
        if state is None:
            raise BrokerFailed("the cluster was never started")
        return state

    def _broker(self, node_id: int) -> BrokerState:
        found = self._state().broker(node_id)
        if found is None:
            raise BrokerFailed(f"there is no broker {node_id}")
        return found

    def _partition(self, client: Admin, topic: str, partition: int) -> dict[str, Any]:
        (found,) = client.describe_topics([topic])
        for each in found["partitions"]:
            if each["partition_index"] == partition:
                return dict(each)
        raise BrokerFailed(f"there is no partition {topic}-{partition}")

    def _until(self, reached: Callable[[], bool], otherwise: str) -> None:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not reached():
            if time.monotonic() > deadline_s:
                raise BrokerFailed(f"{otherwise}:\n{self.logs()}")
            time.sleep(LOOK_AGAIN_S)


@contextlib.contextmanager
def cluster(
    brokers: int = BROKERS,
    *,
    directory: str | os.PathLike[str] | None = None,
    links: bool = False,
    **options: Any,
) -> Iterator[Cluster]:
    """A running cluster for a `with` block."""
    with Cluster(brokers, directory=directory, links=links, **options) as started:
        yield started

"""Brokers in network namespaces of their own: links that are cut, both ways or one way.

    with Namespaces(3) as network, NamespaceCluster(network, folder) as cluster:
        network.cut(1)                  # broker 1 reaches nobody, and nobody reaches it
        network.block(1, 2)             # what broker 1 sends to broker 2 does not arrive
        network.heal()

Each namespace has a veth pair to one bridge; the test's own clients are on the bridge's address.
What is cut off is dropped without a word, as a broken cable does it. A link is cut by taking its
end off the bridge; one direction by a neighbour entry of the sender that nobody listens to. Needs
root, and the program `ip`; packets are not delayed or lost at random here.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Self

from ottla.client.admin import Admin
from ottla.supervisor.plan import BrokerPlan, ClusterPlan, replication_options
from tests import needs
from tests.apache.client import RawClient
from tests.waiting import GIVE_UP_S, eventually

PORT = 9092
HOST = 254  # the machine's own address on the bridge
NOBODY = "02:00:00:00:00:01"
CLIENTS = 0  # in place of a broker: whatever runs outside of the namespaces
STOP_TIMEOUT_S = 60


def available() -> None:
    """Skip the test where namespaces and veth pairs cannot be made, or fail it in the CI."""
    if shutil.which("ip") is None:
        needs.missing("`ip` is not installed (Debian's package iproute2)")
    if os.geteuid() != 0:
        needs.missing("network namespaces need root")
    name = f"ottla-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode:
        needs.missing(f"network namespaces cannot be made here: {made.stderr.strip()}")
    ip("netns", "del", name)


def ip(*words: str) -> str:
    """One command of iproute2."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Namespaces:
    """The network of brokers 1 to N."""

    def __init__(self, brokers: int) -> None:
        self.brokers = tuple(range(1, brokers + 1))
        self._tag = f"{os.getpid() % 100_000}"
        self._bridge = f"otb{self._tag}"
        self._subnet = ""
        self._cut: set[int] = set()
        self._blocked: set[tuple[int, int]] = set()

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers:
            for words in (("link", "del", self._link(broker)), ("netns", "del", self.name(broker))):
                with contextlib.suppress(AssertionError):
                    ip(*words)
        with contextlib.suppress(AssertionError):
            ip("link", "del", self._bridge)

    def name(self, broker: int) -> str:
        return f"ottla-{self._tag}-{broker}"

    def address(self, broker: int) -> str:
        return f"{self._subnet}.{broker if broker != CLIENTS else HOST}"

    def cut(self, broker: int) -> None:
        """Nothing gets to this broker or from it."""
        ip("link", "set", self._link(broker), "nomaster")
        self._cut.add(broker)

    def block(self, sender: int, receiver: int) -> None:
        """What `sender` sends to `receiver` does not arrive; the other way it does."""
        entry = (self.address(receiver), "lladdr", NOBODY, "nud", "permanent")
        ip(*self._of(sender), "neigh", "replace", *entry, "dev", self._device(sender))
        self._blocked.add((sender, receiver))

    def heal(self) -> None:
        """Everything reaches everyone again."""
        for broker in self._cut:
            ip("link", "set", self._link(broker), "master", self._bridge)
        for sender, receiver in self._blocked:
            device = self._device(sender)
            ip(*self._of(sender), "neigh", "del", self.address(receiver), "dev", device)
        self._cut, self._blocked = set(), set()

    def _make(self) -> None:
        taken = ip("-4", "route")
        while not self._subnet or f"{self._subnet}." in taken:
            chance = random.SystemRandom()
            self._subnet = f"10.{chance.randrange(64, 250)}.{chance.randrange(250)}"
        ip("link", "add", self._bridge, "type", "bridge")
        ip("addr", "add", f"{self.address(CLIENTS)}/24", "dev", self._bridge)
        ip("link", "set", self._bridge, "up")
        for broker in self.brokers:
            name, link = self.name(broker), self._link(broker)
            ip("netns", "add", name)
            ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", link, "master", self._bridge)
            ip("link", "set", link, "up")
            ip("-n", name, "addr", "add", f"{self.address(broker)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", name, "link", "set", device, "up")

    def _link(self, broker: int) -> str:
        return f"otv{self._tag}x{broker}"

    def _of(self, broker: int) -> tuple[str, ...]:
        return () if broker == CLIENTS else ("-n", self.name(broker))

    def _device(self, broker: int) -> str:
        return self._bridge if broker == CLIENTS else "eth0"


class NamespaceCluster:
    """One broker process in each namespace; they share a directory, as brokers of one host do."""

    def __init__(self, network: Namespaces, directory: Path, **options: str) -> None:
        self.network = network
        brokers = tuple(BrokerPlan(each, network.address(each), PORT) for each in network.brokers)
        named = {name.replace("_", "."): value for name, value in options.items()}
        every = replication_options(len(brokers)) | {
            "group.initial.rebalance.delay.ms": "0",
            "ottla.insecure": "true",  # nobody else is on this network
        }
        self.plan = ClusterPlan(directory, brokers, every | named)
        self.bootstrap_servers = self.plan.bootstrap_servers
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            for broker in self.plan.brokers:
                self._start(broker)
            for process in self._processes.values():
                assert process.stdout is not None
                assert b" ready on " in process.stdout.readline(), self.logs()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for process in self._processes.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def logs(self) -> str:
        paths = [self.plan.log_path(each) for each in self.network.brokers]
        return "\n".join(
            f"{path.name}\n{path.read_text(errors='replace')[-4000:]}"
            for path in paths
            if path.exists()
        )

    def admin(self) -> Admin:
        return Admin(bootstrap_servers=self.bootstrap_servers)

    def controller(self) -> int:
        with self.admin() as admin:
            return int(admin.describe_cluster()["controller_id"])

    def wait_for_preferred_leaders(self, topic: str) -> int:
        """Have the first replicas of a topic lead; gives that of the first partition."""
        with self.admin() as admin:

            def all_preferred() -> bool:
                admin.elect_leaders("preferred", [topic], raise_errors=False)
                (found,) = admin.describe_topics([topic])
                return all(
                    each["leader_id"] == each["replica_nodes"][0] for each in found["partitions"]
                )

            eventually(all_preferred, f"the preferred replicas of {topic} lead", 2 * GIVE_UP_S)
            (found,) = admin.describe_topics([topic])
        leader: int = found["partitions"][0]["replica_nodes"][0]
        return leader

    def leader_seen_by(self, broker: int, topic: str) -> int:
        """Who leads the first partition, as this broker knows it."""
        with RawClient(PORT, host=self.network.address(broker)) as client:
            fields = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
            (found,) = client.ask("Metadata", 12, fields)["topics"]
        leader: int = found["partitions"][0]["leader_id"]
        return leader

    def wait_for_isr(self, topic: str) -> None:
        """Until all replicas of a topic are in sync."""
        with self.admin() as admin:

            def in_sync() -> bool:
                (found,) = admin.describe_topics([topic])
                return all(
                    len(each["isr_nodes"]) == len(each["replica_nodes"])
                    for each in found["partitions"]
                )

            eventually(in_sync, f"all replicas of {topic} are in sync", 2 * GIVE_UP_S)

    def _start(self, broker: BrokerPlan) -> None:
        self.plan.directory.mkdir(parents=True, exist_ok=True)
        inside = ["ip", "netns", "exec", self.network.name(broker.node_id)]
        with self.plan.log_path(broker.node_id).open("ab") as log:
            self._processes[broker.node_id] = subprocess.Popen(
                [*inside, *self.plan.command(broker)], stdout=subprocess.PIPE, stderr=log
            )

"""One broker beside itself before there were clusters: what the cluster's code costs it.

The earlier one runs from a worktree of its last commit, which is made and removed here. Rounds
alternate; a row is CPU now over CPU then, so it needs no quiet machine.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks import clients, raw
from benchmarks.cluster_run import ClusterRun, Kinds
from benchmarks.servers import Ottla
from tests.live import environment_with

# The parent of 5f36704, "Replicate a partition".
BEFORE = "8e555bf"
ROOT = Path(__file__).parent.parent
ROW = "one node: {}, now over before clusters"
SECONDS = 3.0
LABELS = (
    "CPU s per GB in",
    "CPU s per GB out",
    "CPU µs per small request, one at a time",
    "CPU µs per small request, 50 in flight",
)


class EarlierOttla(Ottla):
    """The broker of another source tree."""

    source: Path

    def command(self) -> list[str]:
        return ["env", f"PYTHONPATH={self.source / 'src'}", *super().command()]


@contextmanager
def worktree(commit: str) -> Iterator[Path]:
    """The files of a commit; raises where there is no git, or no such commit."""
    folder = Path(tempfile.mkdtemp(prefix="bench-before-"))
    git = ["git", "-C", str(ROOT), "worktree"]
    try:
        subprocess.run(
            [*git, "add", "--quiet", "--detach", str(folder), commit],
            check=True,
            env=environment_with({}),
        )
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def one_node(run: ClusterRun, kinds: Kinds) -> None:
    """CPU for a gigabyte in and out, and for a small request: now over before."""
    with ExitStack() as stack:
        EarlierOttla.source = stack.enter_context(worktree(BEFORE))
        brokers = [EarlierOttla(), Ottla()]
        for broker in brokers:
            stack.callback(broker.remove)
            broker.start()
            clients.make_topic(broker.bootstrap, "small")
            costs(run, broker, "warm")
        for number in run.numbers():
            before, now = (costs(run, broker, f"round-{number}") for broker in brokers)
            for label, then_cost, now_cost in zip(LABELS, before, now, strict=True):
                run.record(ROW.format(label), Ottla.name, now_cost / then_cost)


def costs(run: ClusterRun, broker: Ottla, topic: str) -> list[float]:
    """One round, in the order of `LABELS`."""
    clients.make_topic(broker.bootstrap, topic)
    marks = [broker.cpu_s()]
    clients.produce(broker.bootstrap, topic, run.megabytes)
    marks.append(broker.cpu_s())
    clients.consume(broker.bootstrap, topic, run.megabytes)
    marks.append(broker.cpu_s())
    clients.delete_topic(broker.bootstrap, topic)
    gigabytes = run.megabytes / 1000
    found = [(marks[1] - marks[0]) / gigabytes, (marks[2] - marks[1]) / gigabytes]
    for in_flight in (1, 50):
        start = broker.cpu_s()
        rate = raw.produce_rate(broker.port, "small", in_flight=in_flight, seconds=SECONDS)
        found.append((broker.cpu_s() - start) / (rate * SECONDS) * 1e6)
    return found


ONE_NODE = {"one-node": one_node}

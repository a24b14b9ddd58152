"""One broker beside itself before there were clusters: what the cluster's code costs it.

The earlier one runs from a worktree of its last commit, which is made and removed here. Many short
rounds alternate; a row is the lower quartile of CPU now over that of CPU then: what else goes on in
the machine only ever adds to the CPU time of a round.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
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
ROUNDS = 24  # with the default number of rounds; the first does not count
SECONDS = 1.0
MEGABYTES = 200
CPUCLOCK_SCHED = 2  # Linux: with a process id, what clock_getcpuclockid(3) returns
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
        found: list[list[list[float]]] = [[], []]
        for broker in brokers:
            stack.callback(broker.remove)
            broker.start()
            clients.make_topic(broker.bootstrap, "small")
        for number in range(ROUNDS * run.rounds // ClusterRun.rounds):
            for broker, rounds in zip(brokers, found, strict=True):
                rounds.append(costs(broker, f"round-{number}"))
        before, now = (map(lower_quartile, zip(*rounds[1:], strict=True)) for rounds in found)
        for label, then_cost, now_cost in zip(LABELS, before, now, strict=True):
            run.record(ROW.format(label), Ottla.name, now_cost / then_cost)


def lower_quartile(costs: Sequence[float]) -> float:
    return sorted(costs)[len(costs) // 4]


def cpu_s(broker: Ottla) -> float:
    """CPU seconds of the process so far, to the nanosecond: /proc counts in hundredths."""
    assert broker.process is not None
    clock = ~broker.process.pid << 3 | CPUCLOCK_SCHED
    return time.clock_gettime(clock)


def costs(broker: Ottla, topic: str) -> list[float]:
    """One round, in the order of `LABELS`."""
    clients.make_topic(broker.bootstrap, topic)
    marks = [cpu_s(broker)]
    clients.produce(broker.bootstrap, topic, MEGABYTES)
    marks.append(cpu_s(broker))
    clients.consume(broker.bootstrap, topic, MEGABYTES)
    marks.append(cpu_s(broker))
    clients.delete_topic(broker.bootstrap, topic)
    gigabytes = MEGABYTES / 1000
    found = [(marks[1] - marks[0]) / gigabytes, (marks[2] - marks[1]) / gigabytes]
    for in_flight in (1, 50):
        start = cpu_s(broker)
        rate = raw.produce_rate(broker.port, "small", in_flight=in_flight, seconds=SECONDS)
        found.append((cpu_s(broker) - start) / (rate * SECONDS) * 1e6)
    return found


ONE_NODE = {"one-node": one_node}

"""One run of the cluster benchmarks: how much of it, and the clusters that it compares."""

from __future__ import annotations

import math
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks.cluster_servers import Cluster
from benchmarks.measures import Run

Kinds = tuple[type[Cluster], ...]


@dataclass
class ClusterRun(Run):
    """How much is measured: amounts in MB, and the medians of how many rounds."""

    rounds: int = 5
    megabytes: int = 1000
    load_megabytes: int = 3000
    catch_up_megabytes: int = 5000
    partitions: int = 3000
    ends_s: float = math.inf  # on the monotonic clock
    # Figures of another run, which stand until they are measured.
    earlier: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)  # why, by measure

    def numbers(self, most: int | None = None) -> Iterator[int]:
        """Rounds of a measure, counted from 0: one at least, no other once the time is up."""
        for number in range(self.rounds if most is None else min(self.rounds, most)):
            if number and time.monotonic() > self.ends_s:
                return
            yield number

    def guarded(self, name: str, take: Callable[[], None]) -> None:
        """Take a measure; if it fails, or takes for ever, the others are taken all the same."""
        print(name, flush=True)
        try:
            with time_limit(MEASURE_S_MAX):
                take()
        except Exception as error:
            traceback.print_exc()
            self.failed[name] = " ".join(f"{type(error).__name__}: {error}".split())


MEASURE_S_MAX = 900


QUICK = {
    "rounds": 1,
    "megabytes": 200,
    "load_megabytes": 600,
    "catch_up_megabytes": 300,
    "partitions": 600,
}


@contextmanager
def both(kinds: Kinds) -> Iterator[list[Cluster]]:
    """Both clusters, started; removed at the end."""
    clusters = [kind() for kind in kinds]
    try:
        for cluster in clusters:
            cluster.start()
        yield clusters
    finally:
        for cluster in clusters:
            cluster.remove()


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in the main thread after so long."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"not done in {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)

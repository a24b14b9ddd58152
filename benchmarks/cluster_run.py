"""One run of the cluster benchmarks: how much of it, and the clusters that it compares."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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

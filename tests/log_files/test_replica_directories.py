"""Every replica's directory after kills: Kafka's DumpLogSegments finds it clean, and all agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.client.producer import Producer
from ottla.testing import Cluster
from tests import needs
from tests.crash.test_cluster import OPTIONS
from tests.log_files.dump import complaints, dump

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("dump_log_segments")]

TOPIC = "copied"
PARTITIONS = 2
CODECS = (None, "lz4", "zstd")  # one round each
RECORDS = 400  # a round, of 5 KB: several segments for each partition
SETTINGS = {
    "log_segment_bytes": 1_048_576,
    "log_index_interval_bytes": 1000,
    "offsets_topic_num_partitions": 1,
}


def write(producer: Producer[bytes, bytes], number: int) -> None:
    futures = [
        producer.send(TOPIC, b"%05d" % index * 1000, b"k%d" % index, partition=index % PARTITIONS)
        for index in range(number * RECORDS, (number + 1) * RECORDS)
    ]
    for future in futures:
        future.get(60)


def killed_now_and_then(folder: Path) -> None:
    """Three brokers; in each round the leader of a partition is killed amid records."""
    with Cluster(directory=folder, **OPTIONS, **SETTINGS) as cluster:
        with cluster.admin() as admin:
            admin.create_topics({TOPIC: {"num_partitions": PARTITIONS}}, wait_for_metadata=True)
        servers = cluster.bootstrap_servers
        for number, codec in enumerate(CODECS):
            with Producer(
                bootstrap_servers=servers, acks="all", compression_type=codec, linger_ms=1
            ) as producer:
                write(producer, 2 * number)
                victim = cluster.leader(TOPIC, number % PARTITIONS)
                cluster.kill(victim)
                write(producer, 2 * number + 1)
            cluster.restart(victim)
            for partition in range(PARTITIONS):
                cluster.wait_for_isr(TOPIC, partition)
        assert cluster.stop() == 0


def test_replicas_are_clean_and_the_same(tmp_path: Path) -> None:
    """Logs, both indexes and producer snapshots of each replica pass; their bytes are the same."""
    needs.apache()
    killed_now_and_then(tmp_path)
    groups, kinds = [], []
    for folder in sorted(tmp_path.glob(f"broker-*/{TOPIC}-*")):
        for suffix, option in (
            (".log", "--deep-iteration"),
            (".index", "--index-sanity-check"),
            (".timeindex", "--index-sanity-check"),
            (".snapshot", "--print-data-log"),
        ):
            found = sorted(map(str, folder.glob(f"*{suffix}")))
            if found:
                groups.append([option, "--files", ",".join(found)])
                kinds.append((folder, suffix))
    outputs = dump(*groups)
    counts: dict[str, set[int]] = {}
    for (folder, suffix), output in zip(kinds, outputs, strict=True):
        assert complaints(output) == [], f"{folder.parent.name}/{folder.name} {suffix}"
        if suffix == ".log":
            counts.setdefault(folder.name, set()).add(output.count("isvalid: true"))
    assert len(kinds) >= 3 * PARTITIONS * 3
    for partition in range(PARTITIONS):
        name = f"{TOPIC}-{partition}"
        assert len(counts[name]) == 1
        logs = {
            b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
            for folder in tmp_path.glob(f"broker-*/{name}")
        }
        assert len(logs) == 1, f"replicas of {name} differ"
        assert len(list(tmp_path.glob(f"broker-*/{name}"))) == 3
        assert len(next(iter(logs))) > 1_048_576

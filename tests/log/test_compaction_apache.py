"""Compaction beside Kafka's own: its tool reads what ours wrote, its cleaner leaves the same."""

import random
import shutil
import time
from pathlib import Path

import pytest

from ottla.log.segment import INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX
from ottla.seams.disk import RealDisk
from ottla.wire.compression import Compression
from ottla.wire.records import Record
from tests import needs
from tests.apache import java
from tests.apache.kafka import ApacheKafka
from tests.log.partition_files import ABORT, COMMIT, PartitionFiles, reads

START_MS = 1_700_000_000_000
DUMP = "org.apache.kafka.tools.DumpLogSegments"

pytestmark = pytest.mark.apache


def compacted(directory: str) -> PartitionFiles:
    """A log with everything that compaction may leave behind."""
    partition = PartitionFiles(RealDisk(), f"{directory}/first-0")
    for round_ in range(6):
        for codec in Compression:
            records = [
                Record(
                    b"value %d" % round_ * 20,
                    key=b"key %d %d" % (codec, number % (3 + round_)),
                    timestamp=START_MS + round_ * 100 + number,
                    headers=[("header", b"x")],
                )
                for number in range(8)
            ]
            partition.append(records, compression=codec)
        partition.append([Record(None, key=b"key 1 0", timestamp=START_MS + round_)])
        partition.append([Record(b"v", key=b"same")], producer_id=1)
        partition.append([Record(b"v", key=b"t")], producer_id=11, transactional=True)
        partition.end_transaction(11, ABORT if round_ % 2 else COMMIT, START_MS)
        partition.roll()
    for later_ms in (0, 10, 500):
        partition.clean_offset = 0
        plan = partition.plan(
            now_ms=START_MS + later_ms, delete_retention_ms=1_000, dedupe_bytes=1_000_000
        )
        assert plan is not None
        partition.clean(plan)
        partition.append([Record(b"v", key=b"more", timestamp=START_MS)], producer_id=1)
        partition.roll()
    return partition


def test_dump_log_segments_finds_compacted_segments_clean(tmp_path: Path) -> None:
    """Deep iteration and the index checks of DumpLogSegments have nothing to complain about."""
    needs.apache()
    partition = compacted(str(tmp_path))
    logs = [partition.path(base, LOG) for base in partition.bases if base < partition.end_offset]
    indexes = [
        path
        for base in partition.bases
        for kind in (INDEX, TIME_INDEX, TRANSACTION_INDEX)
        if partition.disk.exists(path := partition.path(base, kind))
    ]
    dumped = java.run(DUMP, "--deep-iteration", "--files", ",".join([*logs, *indexes]))
    lines = dumped.splitlines()
    batches = [line for line in lines if line.startswith("baseOffset:")]
    assert len(batches) == len(partition.batches())
    assert all("isvalid: true" in line for line in batches)
    assert any("deleteHorizonMs: OptionalLong[" in line for line in batches)
    assert any("count: 0" in line for line in batches)
    records = [line for line in lines if line.startswith("| offset:")]
    assert len(records) == sum(batch.record_count for batch in partition.batches())
    for complaint in ("Found timestamp mismatch", "Mismatches in", "Non-consecutive", "corrupt"):
        assert complaint not in dumped
    sane = java.run(DUMP, "--index-sanity-check", "--files", ",".join(indexes[:2]))
    assert "passed sanity check" in sane


def random_log(partition: PartitionFiles, seed: int) -> None:
    """Batches of all kinds of producers, with tombstones, in closed segments."""
    chance = random.Random(seed)
    now_ms = int(time.time() * 1_000)
    for _ in range(120):
        producer_id = chance.choice([-1, -1, 1, 2, 11, 12])
        transactional = producer_id > 10
        partition.append(
            [
                Record(
                    chance.choice([None, b"v" * chance.randrange(50)]),
                    key=b"key %d" % chance.randrange(30),
                    timestamp=now_ms - chance.randrange(1_000),
                )
                for _ in range(chance.randrange(1, 6))
            ],
            producer_id=producer_id,
            transactional=transactional,
            compression=chance.choice(list(Compression)),
        )
        if transactional and chance.random() < 0.5:
            partition.end_transaction(producer_id, chance.choice([ABORT, COMMIT]), now_ms)
        if chance.random() < 0.1:
            partition.roll()
    for producer_id in list(partition.open_transactions):
        partition.end_transaction(producer_id, ABORT, now_ms)
    partition.append([Record(b"v", key=b"key 1", timestamp=now_ms)], producer_id=3)
    partition.append([Record(b"v", key=b"key 1", timestamp=now_ms)])
    partition.roll()
    partition.append([Record(b"v", key=b"active", timestamp=now_ms)])


def shape(partition: PartitionFiles) -> list[tuple[object, ...]]:
    """All that matters of a compacted log: its batches, and what a consumer reads of each."""
    return [
        (
            batch.base_offset, batch.last_offset, batch.producer_id, batch.base_sequence,
            batch.attributes, batch.max_timestamp, batch.leader_epoch, reads(batch),
        )
        for batch in partition.batches()
    ]  # fmt: skip


def test_kafkas_cleaner_leaves_the_same(tmp_path: Path) -> None:
    """The same files cleaned by Apache Kafka and by us hold the same batches and records."""
    needs.apache()
    admin = pytest.importorskip("confluent_kafka.admin")
    kafka = ApacheKafka(tmp_path / "kafka", log_cleaner_backoff_ms="200")
    with kafka:
        client = admin.AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        client.create_topics([admin.NewTopic("first", 1, 1, config=config)])["first"].result(30)
    ours = PartitionFiles(RealDisk(), str(tmp_path / "first-0"))
    random_log(ours, seed=3)
    theirs = PartitionFiles(RealDisk(), str(tmp_path / "copy"))
    theirs.__dict__.update(ours.__dict__ | {"directory": str(kafka.data / "first-0")})
    for path in (kafka.data / "first-0").iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for path in (tmp_path / "first-0").iterdir():
        shutil.copy(path, kafka.data / "first-0")
    (kafka.data / ".kafka_cleanshutdown").unlink()
    with kafka:
        wait_for_cleaning(kafka.data / "cleaner-offset-checkpoint", ours.bases[-1])
    theirs.bases = sorted(int(p.stem) for p in (kafka.data / "first-0").glob("*.log"))
    plan = ours.plan(
        now_ms=int(time.time() * 1_000), delete_retention_ms=86_400_000,
        dedupe_bytes=1_000_000, segment_bytes=1 << 30,
    )  # fmt: skip
    assert plan is not None
    ours.clean(plan)
    assert ours.bases == theirs.bases
    assert shape(ours) == shape(theirs)
    assert ours.committed() == theirs.committed()
    assert any(not batch.record_count for batch in ours.batches())
    assert any(batch.delete_horizon_ms for batch in ours.batches())


def wait_for_cleaning(checkpoint: Path, offset: int) -> None:
    deadline = time.monotonic() + 60
    while not checkpoint.exists() or f"first 0 {offset}\n" not in checkpoint.read_text():
        assert time.monotonic() < deadline, "Kafka's cleaner did not come round"
        time.sleep(0.05)

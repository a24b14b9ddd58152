"""Kafka's own tool reads what compaction wrote: every batch valid, every index entry in place."""

from pathlib import Path

import pytest

from ottla.log.segment import INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX
from ottla.seams.disk import RealDisk
from ottla.wire.compression import Compression
from ottla.wire.records import Record
from tests import needs
from tests.apache import java
from tests.log.partition_files import ABORT, COMMIT, PartitionFiles

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
    assert len(records) == sum(batch.count for batch in partition.batches())
    for complaint in ("Found timestamp mismatch", "Mismatches in", "Non-consecutive", "corrupt"):
        assert complaint not in dumped
    sane = java.run(DUMP, "--index-sanity-check", "--files", ",".join(indexes[:2]))
    assert "passed sanity check" in sane

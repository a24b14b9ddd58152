"""Batches of a leader on a follower: as many at once as a segment takes, the same as one by one."""

from __future__ import annotations

import random

import pytest

from ottla.log.log import Log
from ottla.log.replicated import append_replicated
from ottla.seams.simulated.disk import SimulatedDisk, SimulatedFile
from ottla.settings import LogConfig
from ottla.wire.control import ABORT, COMMIT, write_marker
from ottla.wire.records import Record, write_batch
from tests.log.logs import DIRECTORY, NOW_MS, new_log

LAST_EPOCH = 9
SMALL = LogConfig(segment_bytes=1200, index_interval_bytes=100)
SHORT = LogConfig(segment_ms=40)


def leader_batches(rng: random.Random, count: int) -> list[bytes]:
    """Plain, idempotent and transactional batches, markers, gaps, and now and then an epoch."""
    batches, offset, epoch, sequences = [], 0, 0, [0] * 4
    for _ in range(count):
        epoch = min(epoch + (rng.random() < 0.1), LAST_EPOCH)
        offset += rng.choice((0, 0, 0, 3))  # compaction took what was there
        producer_id = rng.randrange(-1, 4)
        records = [Record(b"value", timestamp=NOW_MS + offset) for _ in range(rng.randint(1, 3))]
        if producer_id == 3 and rng.random() < 0.5:
            batch = bytearray(
                write_marker(
                    rng.choice((ABORT, COMMIT)),
                    producer_id=producer_id,
                    producer_epoch=0,
                    coordinator_epoch=1,
                    timestamp=NOW_MS + offset,
                )
            )
            batch[0:8] = offset.to_bytes(8, "big")
            batch[12:16] = epoch.to_bytes(4, "big")
            size = 1
        else:
            size = len(records)
            batch = bytearray(
                write_batch(
                    records,
                    base_offset=offset,
                    leader_epoch=epoch,
                    producer_id=producer_id,
                    producer_epoch=0 if producer_id >= 0 else -1,
                    base_sequence=sequences[producer_id] if producer_id >= 0 else -1,
                    transactional=producer_id == 3,
                )
            )
            if producer_id >= 0:
                sequences[producer_id] += size
        batches.append(bytes(batch))
        offset += size
    return batches


def files(disk: SimulatedDisk) -> dict[str, bytes]:
    return {name: disk.read(f"{DIRECTORY}/{name}") for name in disk.listdir(DIRECTORY)}


def append(log: Log, data: bytes) -> None:
    size = append_replicated(log, memoryview(data), leader_epoch=LAST_EPOCH, now_ms=NOW_MS)
    assert size == len(data)


@pytest.mark.parametrize("seed", range(12))
def test_many_batches_at_once_leave_the_files_that_single_ones_do(seed: int) -> None:
    """Segments, indexes, snapshots, epochs and producers: rolls, gaps and markers included."""
    rng = random.Random(seed)
    batches = leader_batches(rng, 80)
    config = (SMALL, SHORT)[seed % 2]
    disks = SimulatedDisk(), SimulatedDisk()
    one_by_one, together = (new_log(disk, config) for disk in disks)
    while batches:
        count = rng.randint(1, 30)
        some, batches = batches[:count], batches[count:]
        for batch in some:
            append(one_by_one, batch)
        append(together, b"".join(some))
        assert together.end_offset == one_by_one.end_offset
        assert together.producers.snapshot() == one_by_one.producers.snapshot()
        assert together.first_unstable_offset() == one_by_one.first_unstable_offset()
    assert len(together.segments) > 3
    for log in (one_by_one, together):
        log.roll(now_ms=NOW_MS)
    assert files(disks[0]) == files(disks[1])


def test_small_batches_are_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many the leader's answer has."""
    log = new_log(SimulatedDisk(), LogConfig())
    batches = [write_batch([Record(b"v", timestamp=NOW_MS)], base_offset=i) for i in range(101)]
    append(log, batches[0])
    writes = []
    write = SimulatedFile.append

    def counted(file: SimulatedFile, data: bytes) -> None:
        writes.append(len(data))
        write(file, data)

    monkeypatch.setattr(SimulatedFile, "append", counted)
    append(log, b"".join(batches[1:]))
    assert writes == [sum(map(len, batches[1:]))]
    assert log.end_offset == 101

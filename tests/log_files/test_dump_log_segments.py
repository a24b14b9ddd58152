"""Kafka's own DumpLogSegments finds the files that a live Ottla leaves behind clean."""

from __future__ import annotations

import random
import re
import shutil
import struct
import time
from pathlib import Path

import pytest

from ottla.log.append import Origin
from ottla.log.log import Log
from ottla.seams.disk import RealDisk
from ottla.settings import LogConfig
from tests import needs
from tests.apache.batches import CODECS, TIMESTAMP_MS, Record, batch
from tests.apache.client import RawClient
from tests.live import Server
from tests.log.logs import new_log, put
from tests.log.test_append import marker
from tests.log_files.dump import complaints, dump, files

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("dump_log_segments")]

BATCHES = 90
SETTINGS = {"log.segment.bytes": 1_048_576, "log.index.interval.bytes": 1000}


def produce(client: RawClient, topic: str, records: bytes, partition: int = 0) -> None:
    data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
    answer = client.ask("Produce", 9, {"acks": -1, "timeout_ms": 5000, "topic_data": data})
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0, answer


def fill(client: RawClient) -> None:
    """Several segments of every codec, keys, nulls, headers, gaps in time, two producers."""
    topic = [{"name": "mixed", "num_partitions": 1, "replication_factor": 1}]
    client.ask("CreateTopics", 7, {"topics": topic, "timeout_ms": 5000})
    chance = random.Random(3)
    sequences = [0, 0, 0]
    for number in range(BATCHES):
        records = [
            Record(
                value=chance.randbytes(chance.randrange(60_000)) if index else None,
                key=b"key-%d" % index if index % 2 else None,
                headers=((b"name", b"value"), (b"null", None)),
                timestamp_delta=chance.randrange(1000),
            )
            for index in range(1 + number % 3)
        ]
        producer = number % 3
        made = batch(
            records,
            codec=list(CODECS)[number % len(CODECS)],
            base_timestamp=TIMESTAMP_MS + number * 500,
            producer_id=7000 + producer if producer else -1,
            producer_epoch=1 if producer else -1,
            base_sequence=sequences[producer] if producer else -1,
        )
        sequences[producer] += len(records)
        produce(client, "mixed", made)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a broker that has stopped cleanly."""
    needs.apache()
    folder = tmp_path_factory.mktemp("dumped") / "data"
    with Server(folder, settings=SETTINGS) as server, RawClient(server.port) as client:
        fill(client)
        small = [{"name": "small", "num_partitions": 1, "replication_factor": 1}]
        client.ask("CreateTopics", 7, {"topics": small, "timeout_ms": 5000})
        produce(client, "small", batch([Record(value=b"v")], base_timestamp=TIMESTAMP_MS))
    return folder


def test_a_segment_too_short_for_an_index_entry(data: Path) -> None:
    """One batch needs no entry by offset, but one by time: Kafka's tool accepts both files."""
    small = data / "small-0"
    names = sorted(file.suffix for file in small.iterdir() if file.name.startswith("0000"))
    assert names == [".index", ".log", ".snapshot", ".timeindex"]
    index, time_index = dump(
        ["--index-sanity-check", "--files", files(small, ".index")],
        ["--index-sanity-check", "--files", files(small, ".timeindex")],
    )
    assert ".index is empty." in index
    assert ".timeindex passed sanity check." in time_index
    assert not complaints(index + time_index)


def test_segments_and_indexes_are_clean(data: Path) -> None:
    """Deep iteration, the sanity check of both indexes and producer snapshots find no fault."""
    mixed = data / "mixed-0"
    logs, indexes = files(mixed, ".log"), files(mixed, ".index")
    times, snapshots = files(mixed, ".timeindex"), files(mixed, ".snapshot")
    assert len(list(mixed.glob("*.log"))) > 2
    deep, index, index_only, time, time_only, snapshot = dump(
        ["--deep-iteration", "--files", logs],
        ["--index-sanity-check", "--files", indexes],
        ["--verify-index-only", "--files", indexes],
        ["--index-sanity-check", "--files", times],
        ["--verify-index-only", "--files", times],
        ["--files", snapshots],
    )
    for output in (deep, index, index_only, time, time_only, snapshot):
        assert complaints(output) == []
    records = sum(1 + number % 3 for number in range(BATCHES))
    assert deep.count("isvalid: true") == BATCHES
    assert len(re.findall(r"^\| offset: ", deep, re.MULTILINE)) == records
    for output in (index, time):
        assert output.count("passed sanity check") == len(list(mixed.glob("*.index")))
    assert "producerId: 7001 producerEpoch: 1" in snapshot
    assert "producerId: 7002 producerEpoch: 1" in snapshot


def test_transactions_on_disk_are_clean(tmp_path: Path) -> None:
    """Control batches, the index of aborted transactions and open ones in a snapshot."""
    needs.apache()
    log = new_log(
        RealDisk(),
        LogConfig(segment_bytes=3000, index_interval_bytes=150),
        directory=str(tmp_path / "events-0"),
    )
    write_transactions(log)
    log.flush()
    log.close()
    folder = tmp_path / "events-0"
    deep, aborted, snapshot = dump(
        ["--deep-iteration", "--print-data-log", "--files", files(folder, ".log")],
        ["--files", files(folder, ".txnindex")],
        ["--files", files(folder, ".snapshot")],
    )
    for output in (deep, aborted, snapshot):
        assert complaints(output) == []
    assert deep.count("endTxnMarker: ABORT") == 10
    assert deep.count("endTxnMarker: COMMIT") == 10
    assert len(re.findall(r"producerId: 9 firstOffset: \d+ lastOffset: \d+", aborted)) == 10
    assert re.search(r"producerId: 11 .*currentTxnFirstOffset: (OptionalLong\[)?0", snapshot)


def write_transactions(log: Log) -> None:
    """Ten aborted and ten committed, and one that stays open all the while."""
    put(log, b"open", producer_id=11, producer_epoch=0, base_sequence=0, transactional=True)
    for number in range(20):
        for step in range(3):
            put(
                log,
                b"value" * 20,
                producer_id=9,
                producer_epoch=0,
                base_sequence=number * 3 + step,
                transactional=True,
            )
        end = marker(9, 0, commit=bool(number % 2))
        result = log.append(end, leader_epoch=0, now_ms=TIMESTAMP_MS, origin=Origin.COORDINATOR)
        assert result.error_code == 0
    log.roll(now_ms=TIMESTAMP_MS)


def test_committed_offsets_can_be_read(tmp_path: Path) -> None:
    """What a group committed stands in `__consumer_offsets` as Kafka's decoder expects it."""
    needs.apache()
    settings = {"offsets.topic.num.partitions": 1}
    with Server(tmp_path / "data", settings=settings) as server, RawClient(server.port) as client:
        topic = [{"name": "read", "num_partitions": 1, "replication_factor": 1}]
        client.ask("CreateTopics", 7, {"topics": topic, "timeout_ms": 5000})
        commit(client, "team", "read", 42)
    (decoded,) = dump(
        [
            "--offsets-decoder",
            "--deep-iteration",
            "--files",
            files(tmp_path / "data" / "__consumer_offsets-0", ".log"),
        ]
    )
    assert complaints(decoded) == []
    assert '"group":"team"' in decoded
    assert '"topic":"read"' in decoded
    assert '"offset":42' in decoded
    assert '"metadata":"by hand"' in decoded


def commit(client: RawClient, group: str, topic: str, offset: int) -> None:
    """As a consumer without a group membership does; the coordinator may need a moment to load."""
    part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "by hand"}
    fields = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": topic, "partitions": [part]}],
    }
    deadline = time.monotonic() + 60
    while True:
        client.ask("FindCoordinator", 0, {"key": group})
        answer = client.ask("OffsetCommit", 8, fields)
        code = answer["topics"][0]["partitions"][0]["error_code"]
        if code == 0:
            return
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)


def test_transaction_states_can_be_read(tmp_path: Path) -> None:
    """Records of the transaction coordinator, kept by our log, are read by Kafka's decoder."""
    needs.apache()
    log = new_log(RealDisk(), LogConfig(), directory=str(tmp_path / "events-0"))
    key = struct.pack(">hh", 0, 5) + b"payer"
    partitions = struct.pack(">ih", 1, 4) + b"paid" + struct.pack(">ii", 1, 3)
    value = struct.pack(">hqhib", 0, 4711, 3, 60_000, 1) + partitions
    value += struct.pack(">qq", TIMESTAMP_MS, TIMESTAMP_MS)
    put(log, value, key=key)
    log.close()
    (decoded,) = dump(
        ["--transaction-log-decoder", "--files", files(tmp_path / "events-0", ".log")]
    )
    assert complaints(decoded) == []
    assert '"transactionalId":"payer"' in decoded
    assert '"producerId":4711' in decoded
    assert '"topic":"paid"' in decoded


def test_damage_is_seen(data: Path, tmp_path: Path) -> None:
    """The same tool complains of a flipped bit and of an index that points beside a batch."""
    shutil.copytree(data / "mixed-0", tmp_path / "mixed-0")
    segment = sorted((tmp_path / "mixed-0").glob("*.log"))[0]
    content = bytearray(segment.read_bytes())
    content[70] ^= 1
    segment.write_bytes(content)
    index = segment.with_suffix(".index")
    entries = bytearray(index.read_bytes())
    entries[3] ^= 1
    index.write_bytes(entries)
    (found,) = dump(["--files", f"{segment},{index}"])
    assert any("isvalid: false" in line for line in complaints(found))
    assert "Mismatches in" in found

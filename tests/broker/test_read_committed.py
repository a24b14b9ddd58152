"""Readers of committed records see each committed record once and no aborted one: from whatever
offset, in whatever pieces, and after a restart, a crash, a deletion or a compaction.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.broker.harness import BrokerHarness, fetch_request
from tests.broker.transactional import TOPIC, Client, visible

SETTINGS: dict[str, Any] = {
    "transaction_state_log_num_partitions": 1,
    "offsets_topic_num_partitions": 1,
}
# Many small segments and a dense index, so that transactions span them.
SMALL: dict[str, Any] = {"internal_segment_bytes": "500", "index_interval_bytes": "1"}


@dataclass
class Load:
    """What was written, by offset; None while its transaction is open."""

    values: dict[int, bytes] = field(default_factory=dict)
    committed: dict[int, bool | None] = field(default_factory=dict)
    keys: dict[int, bytes | None] = field(default_factory=dict)

    def expected(self, start: int = 0) -> list[bytes]:
        """What a reader from `start` may see: up to the first open transaction."""
        found = []
        for offset in sorted(self.values):
            if self.committed[offset] is None:
                break
            if offset >= start and self.committed[offset]:
                found.append(self.values[offset])
        return found


def write_load(harness: BrokerHarness, seed: int, steps: int = 120, keys: int = 0) -> Load:
    """Three producers of both generations and a plain one, interleaved; all ends are made."""
    chance = random.Random(seed)
    load = Load()
    clients = [Client(harness, "a", False), Client(harness, "b", False), Client(harness, "c", True)]
    for client in clients:
        client.begin()
    open_offsets: dict[str, list[int]] = {client.name: [] for client in clients}

    def note(offset: int, value: bytes, key: bytes | None, committed: bool | None) -> None:
        load.values[offset], load.keys[offset], load.committed[offset] = value, key, committed

    def end(client: Client, commit: bool) -> None:
        client.end(commit)
        for offset in open_offsets[client.name]:
            load.committed[offset] = commit
        open_offsets[client.name] = []

    for step in range(steps):
        harness.advance(1)
        value = b"%d" % step
        key = b"k%d" % chance.randrange(keys) if keys else None
        client = chance.choice(clients)
        if chance.random() < 0.15 and not keys:
            note(harness.produce(TOPIC, 0, value).base_offset, value, key, True)
        elif chance.random() < 0.75 or not open_offsets[client.name]:
            offset = client.write(0, value, key)
            open_offsets[client.name].append(offset)
            note(offset, value, key, None)
        else:
            end(client, chance.random() < 0.5)
    for client in clients:
        if open_offsets[client.name]:
            end(client, chance.random() < 0.5)
    return load


def check(harness: BrokerHarness, load: Load) -> None:
    """From every offset, whole and in pieces."""
    harness.partition(TOPIC)
    harness.settle()
    assert visible(harness, 0) == load.expected()
    start = harness.partition(TOPIC).log.log_start_offset
    for offset in range(start, max(load.values) + 1, 7):
        for bytes_max in (1, 200, 5000):
            assert visible(harness, 0, offset, bytes_max=bytes_max) == load.expected(offset)


def restarted(harness: BrokerHarness) -> BrokerHarness:
    harness.close()
    return BrokerHarness(disk=harness.disk, clock=harness.clock, **SETTINGS)


def killed(harness: BrokerHarness) -> BrokerHarness:
    harness.kill()
    harness.disk.kill()
    return BrokerHarness(disk=harness.disk, clock=harness.clock, **SETTINGS)


def killed_without_snapshots(harness: BrokerHarness) -> BrokerHarness:
    """Producer state must then come from the log itself."""
    harness.kill()
    harness.disk.kill()
    folder = f"/data/{TOPIC}-0"
    for name in harness.disk.listdir(folder):
        if name.endswith((".snapshot", ".index")):
            harness.disk.unlink(f"{folder}/{name}")
    return BrokerHarness(disk=harness.disk, clock=harness.clock, **SETTINGS)


def restarted_without_indexes(harness: BrokerHarness) -> BrokerHarness:
    """Stopped cleanly, and the index files deleted, those of one segment in three."""
    harness.close()
    folder = f"/data/{TOPIC}-0"
    names = sorted(entry.name for entry in harness.disk.entries(folder))
    segments = [name.removesuffix(".log") for name in names if name.endswith(".log")]
    for name in names:
        if name.endswith("index") and segments.index(name.partition(".")[0]) % 3 == 1:
            harness.disk.unlink(f"{folder}/{name}")
    return restarted(harness)


def as_it_is(harness: BrokerHarness) -> BrokerHarness:
    return harness


@pytest.mark.parametrize(
    "how", [as_it_is, restarted, killed, killed_without_snapshots, restarted_without_indexes]
)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_from_every_offset(how: Callable[[BrokerHarness], BrokerHarness], seed: int) -> None:
    """Whatever happened in between, what is read is what was committed."""
    harness = BrokerHarness(**SETTINGS)
    harness.create(TOPIC, **SMALL)
    load = write_load(harness, seed)
    assert len(harness.partition(TOPIC).log.segments) > 5
    harness = how(harness)
    check(harness, load)
    harness.close()


@pytest.mark.parametrize("flushed", [True, False])
def test_an_open_transaction_outlives_a_crash(flushed: bool) -> None:
    """It still holds readers back, and its producer may still commit it."""
    harness = BrokerHarness(**SETTINGS)
    harness.create(TOPIC)
    client = Client(harness, "a", bumps=False)
    client.begin()
    client.write(0, b"first")
    later = restarted(harness) if flushed else killed(harness)
    later.settle()
    [answer] = (
        later.ask(fetch_request((TOPIC, 0, 0), isolation_level=1), 11).responses[0].partitions
    )
    assert (answer.last_stable_offset, answer.high_watermark) == (0, 1)
    client.harness = later
    client.write(0, b"second")
    client.end(commit=True)
    assert visible(later, 0) == [b"first", b"second"]
    later.close()


def test_after_a_deletion_of_records() -> None:
    """Aborted transactions that began before the log's new start are still left out."""
    with BrokerHarness(**SETTINGS) as harness:
        harness.create(TOPIC, **SMALL)
        load = write_load(harness, 4)
        log = harness.partition(TOPIC).log
        for start in (10, 25, 60):
            log.delete_records_before(start)
            assert visible(harness, 0, start) == load.expected(start)
            assert visible(harness, 0, start, bytes_max=100) == load.expected(start)


@pytest.mark.parametrize("seed", range(6))
def test_after_a_compaction(seed: int) -> None:
    """The last committed value of each key is left, and no aborted one, also after a restart."""
    harness = BrokerHarness(**SETTINGS)
    harness.create(
        TOPIC,
        **SMALL,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0",
        delete_retention_ms="0",
    )
    load = write_load(harness, seed, 150, keys=8)
    log = harness.partition(TOPIC).log
    log.roll(now_ms=harness.clock.now_ms())
    last: dict[bytes | None, bytes] = {}
    for offset in sorted(load.values):
        if load.committed[offset]:
            last[load.keys[offset]] = load.values[offset]
    for _ in range(3):  # control batches go in a later round than what they ended
        harness.advance(1000)
        compact(harness)
        found = visible(harness, 0)
        assert sorted(found) == sorted(last.values())
        assert found == [value for value in load.expected() if value in found]
        harness = restarted(harness)
    client = Client(harness, "z", bumps=True)
    client.begin()
    client.write(0, b"dropped", b"k1")
    client.end(commit=False)
    client.write(0, b"kept", b"k2")
    client.end(commit=True)
    assert visible(harness, 0)[-1] == b"kept"
    harness.close()


def compact(harness: BrokerHarness) -> None:
    log = harness.partition(TOPIC).log
    cleaner = harness.broker.logs.cleaner
    cleaner.offsets.pop((TOPIC, 0), None)
    log.roll(now_ms=harness.clock.now_ms())

    async def run() -> int:
        return await cleaner.run()

    assert harness.run(run()) >= 1

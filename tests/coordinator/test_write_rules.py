"""How a coordinator's records are written: for how long one waits, gathers, and in which codec."""

from __future__ import annotations

from ottla.coordinator.coordinator_partition import CoordinatorState, WriteRules
from ottla.coordinator.effects import Producer
from ottla.coordinator.runtime import replay_batches
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.records import read_header
from tests.coordinator.test_runtime import Counter, Harness


def test_who_waits_too_long_for_the_replicas_asks_again() -> None:
    """What is not committed in time is answered COORDINATOR_NOT_AVAILABLE; the state stays.

    What was decided meanwhile has its own time, and a commit that comes late does no harm.
    """
    harness = Harness(rules=WriteRules(timeout_ms=5000))
    harness.partition.commits = False
    write, read = harness.ask(b"one"), harness.ask()
    harness.turn()
    harness.clock.advance(4000)
    later = harness.ask(b"two")
    harness.clock.advance(1000)
    assert write.answer is read.answer is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert later.open
    harness.partition.commit()
    harness.coordinator.committed()
    assert later.answer == 1
    assert harness.ask().answer == 2
    harness.clock.advance(60_000)
    assert harness.coordinator.state is CoordinatorState.ACTIVE


def test_records_are_gathered_for_as_long_as_is_wanted() -> None:
    """With a linger several turns of the loop are one batch; a transaction does not wait."""
    harness = Harness(rules=WriteRules(linger_ms=20))
    first = harness.ask(b"one")
    harness.turn()
    second = harness.ask(b"two")
    assert harness.partition.batches == []
    harness.clock.advance(20)
    assert len(harness.partition.batches) == 1
    assert not first.open
    assert not second.open
    third = harness.ask(b"three")
    fourth = harness.ask(b"four", producer=Producer(1, 0))
    harness.turn()
    assert len(harness.partition.batches) == 3
    assert not third.open
    assert not fourth.open


def test_a_compressed_log_is_loaded_as_any_other() -> None:
    """The codec counts for each batch, and loading finds the same records."""
    harness = Harness(rules=WriteRules(compression=Compression.GZIP))
    for number in range(3):
        harness.ask(b"%d" % number * 100)
        harness.turn()
    codecs = [read_header(each).compression for each in harness.partition.batches]
    assert codecs == [Compression.GZIP] * 3
    loaded = Counter()
    data = b"".join(map(bytes, harness.partition.batches))
    assert sum(count for _, count in replay_batches(data, loaded)) == 3
    assert loaded.replayed == harness.shard.replayed

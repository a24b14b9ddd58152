"""The comparison of replicas, batch by batch."""

from __future__ import annotations

from ottla.cli.replica_check import ChecksumMismatch, OffsetMismatch, PartitionCheck
from ottla.client.admin.replicas import ReplicaBatch, ReplicaRead


def read(*batches: tuple[int, int, int], high_watermark: int = 10, error: int = 0) -> ReplicaRead:
    found = [ReplicaBatch(*each) for each in batches]
    return ReplicaRead(error, 0, high_watermark, found)


SAME = ((0, 1, 7), (2, 5, 8))


def test_the_same_batches_are_the_same() -> None:
    """The position goes as far as all replicas have been seen, and the lag is what is left."""
    check = PartitionCheck([1, 2], 0)
    assert check.compare({1: read(*SAME), 2: read(*SAME, (6, 9, 9))}) == []
    assert (check.position, check.lag, check.batch_count) == (6, 4, 2)
    assert check.compare({1: read((6, 9, 9)), 2: read((6, 9, 9))}) == []
    assert (check.position, check.lag) == (10, 0)


def test_other_bytes_are_found() -> None:
    """A batch of other bytes is named with both checksums, and those behind it are compared."""
    check = PartitionCheck([3, 1, 2], 0)
    other = read((0, 1, 7), (2, 5, 99))
    assert check.compare({1: read(*SAME), 2: other, 3: read(*SAME)}) == [
        ChecksumMismatch(5, 3, 8, 2, 99)
    ]
    assert check.position == 6


def test_other_offsets_end_the_comparison() -> None:
    """Behind a batch that ends elsewhere nothing can be compared: the position stays before it."""
    check = PartitionCheck([1, 2], 0)
    other = read((0, 1, 7), (2, 4, 8), (5, 9, 9))
    assert check.compare({1: read(*SAME), 2: other}) == [OffsetMismatch(1, 5, 2, 4)]
    assert check.position == 2


def test_a_replica_that_does_not_answer_holds_the_comparison_up() -> None:
    """Nothing is said of replicas that could not be read; the lag says that they are behind."""
    check = PartitionCheck([1, 2], 0)
    for reads in ({1: read(*SAME)}, {1: read(*SAME), 2: read(error=6, high_watermark=-1)}):
        assert check.compare(reads) == []
        assert (check.position, check.lag) == (0, 10)

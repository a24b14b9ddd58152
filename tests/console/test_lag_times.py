"""Lag in time where only a record's own timestamp tells it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from ottla.client.structs import OffsetAndMetadata, TopicPartition
from ottla.console.collecting.ends import EndHistory
from ottla.console.collecting.known import Known, KnownGroup
from ottla.console.collecting.lag_times import READS_PER_ROUND_MAX, LagTimes

NOW_MS = 1_790_000_000_000


class Records:
    """An admin of partitions in which the record at offset N is of the N-th millisecond."""

    def __init__(self) -> None:
        self.asked: list[dict[TopicPartition, int]] = []

    def read_batches(self, asked: dict[TopicPartition, int], **options: Any) -> dict[Any, Any]:
        self.asked.append(dict(asked))
        return {
            where: SimpleNamespace(
                error=None,
                batches=[SimpleNamespace(header=SimpleNamespace(max_timestamp=offset))],
            )
            for where, offset in asked.items()
        }


def known_of(partitions: int, committed: int) -> Known:
    known = Known()
    offsets = {
        TopicPartition("t", each): OffsetAndMetadata(committed, "") for each in range(partitions)
    }
    known.groups = {"g": KnownGroup("g", "classic", "Stable", 0, committed=offsets)}
    known.ends = dict.fromkeys(offsets, 1000)
    return known


def test_a_group_that_commits_in_every_round_has_its_lag_in_time() -> None:
    """What is read is the record at the offset of now, not at that of the round before."""
    admin, times = Records(), LagTimes(EndHistory(0))
    for committed in (100, 200, 300):
        times.read_records(cast(Any, admin), known_of(1, committed))
        lag_ms = times.of(NOW_MS)(TopicPartition("t", 0), committed, 1000)
        assert lag_ms == NOW_MS - committed


def test_all_partitions_get_their_turn() -> None:
    """So many records are read in a round; after some rounds all partitions were among them."""
    admin, times = Records(), LagTimes(EndHistory(0))
    for committed in range(4):  # all move in all rounds
        times.read_records(cast(Any, admin), known_of(3 * READS_PER_ROUND_MAX, committed))
    assert {len(asked) for asked in admin.asked} == {READS_PER_ROUND_MAX}
    assert len(set().union(*admin.asked)) == 3 * READS_PER_ROUND_MAX


def test_what_stands_still_is_read_once() -> None:
    """An offset that was read is not read again, nor one at the end."""
    admin, times = Records(), LagTimes(EndHistory(0))
    for _ in range(3):
        times.read_records(cast(Any, admin), known_of(2, 5))
        times.read_records(cast(Any, admin), known_of(2, 1000))
    assert len(admin.asked) == 1

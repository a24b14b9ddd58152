"""Mistakes planted into a simulated cluster, each a known way to lose or double records.

A mistake replaces one decision of the real code while a test runs; nothing of it is in the code
itself. The simulation must find each, or it proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from ottla.broker.handlers import produce
from ottla.replica.follower import Fetcher
from ottla.replica.leader import LeaderState
from ottla.replica.partition import Partition
from tests.sim.cluster import KINDS

fetch_partition = Fetcher._fetch_partition
assign = Partition.assign


def _without_epochs(*names: str) -> Any:
    def changed(self: Fetcher, *arguments: Any) -> Any:
        asked = fetch_partition(self, *arguments)
        for name in names:
            setattr(asked, name, -1)
        return asked

    return patch.object(Fetcher, "_fetch_partition", changed)


@contextmanager
def truncate_by_watermark() -> Iterator[None]:
    """Before KIP-101: a new follower cuts its log to its own high watermark, not by epochs."""

    def changed(self: Partition, *arguments: Any) -> None:
        before = self.leader_epoch
        assign(self, *arguments)
        if self.leader_epoch > before >= 0 and not self.is_leader:
            self.truncate_to(self.high_watermark, now_ms=0)

    with _without_epochs("last_fetched_epoch"), patch.object(Partition, "assign", changed):
        yield


def no_epochs_in_the_fetch() -> AbstractContextManager[Any]:
    """Neither the leader's epoch nor the last record's: logs that part are not noticed."""
    return _without_epochs("current_leader_epoch", "last_fetched_epoch")


def answer_before_the_watermark() -> AbstractContextManager[Any]:
    """acks=all is answered once the leader has written."""
    return patch.object(produce, "_park", lambda response, *_: response)


def watermark_of_the_leader_alone() -> AbstractContextManager[Any]:
    """What the leader has counts as committed, whoever is in the ISR."""
    return patch.object(LeaderState, "end_offsets", lambda self: [])


class Mistake(NamedTuple):
    """A mistake, the faults that bring it to light, and the seeds within which it is found."""

    plant: Callable[[], AbstractContextManager[Any]]
    kinds: tuple[str, ...]
    seeds: int


MISTAKES = [
    Mistake(truncate_by_watermark, ("move",), 12),
    Mistake(no_epochs_in_the_fetch, KINDS, 12),
    Mistake(answer_before_the_watermark, KINDS, 12),
    Mistake(watermark_of_the_leader_alone, KINDS, 12),
]

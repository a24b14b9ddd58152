"""What arrives in a topic of one partition: how far it is, how many records, when each came."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from ottla.client.admin import Admin, NewTopic
from ottla.client.consumer.consumer import Consumer
from ottla.client.structs import TopicPartition

POLL_S = 0.01
STABLE_S = 0.3  # without a change before the records are counted
ARRIVE_TIMEOUT_S = 120.0  # without a change


class Arrival(NamedTuple):
    """Of some lines: from the first that could be read to the last."""

    seconds: float
    share: float  # of the lines, without those that were there at the first look


class Topic:
    """A reader of one partition, of what is committed."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.name = name
        self.partition = TopicPartition(name, 0)
        self._bootstrap = bootstrap
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([NewTopic(name, 1, 1)])
        self._consumer: Consumer[bytes, bytes] = Consumer(
            bootstrap_servers=bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            check_crcs=False,
        )
        self._consumer.assign([self.partition])
        self._read_to = 0  # all before is counted

    def end(self) -> int:
        """Behind the last record that is committed; markers of transactions count."""
        return self._consumer.end_offsets([self.partition])[self.partition]

    def count_new(self) -> int:
        """The records since the last count."""
        end = self.end()
        self._consumer.seek(self.partition, self._read_to)
        count = 0
        while (position := self._consumer.position(self.partition)) is not None and position < end:
            count += sum(map(len, self._consumer.poll_batches(timeout_ms=200, max_records=50_000)))
        self._read_to = end
        return count

    def wait_for(self, lines: int, check: Callable[[], None]) -> Arrival:
        """Until so many more lines than the last count saw are there, no more and no fewer."""
        before = self._read_to
        seen: list[tuple[float, int]] = []
        counted = 0
        while True:
            self._watch(before, lines, seen, check)
            counted += self.count_new()
            if counted >= lines:
                break
        if counted > lines:
            raise AssertionError(f"{self.name}: {counted} records of {lines} lines")
        (first_s, first), (last_s, last) = seen[0], seen[-1]
        return Arrival(last_s - first_s, 1 - (first - before) / (last - before))

    def _watch(
        self, before: int, lines: int, seen: list[tuple[float, int]], check: Callable[[], None]
    ) -> None:
        """Notes how the end moves, until it stands still behind so many lines at least."""
        changed_s = time.perf_counter()
        end = seen[-1][1] if seen else before
        while True:
            found = self.end()
            now_s = time.perf_counter()
            if found != end:
                end, changed_s = found, now_s
                seen.append((now_s, end))
            if end >= before + lines and now_s - changed_s >= STABLE_S:
                return
            if now_s - changed_s > ARRIVE_TIMEOUT_S:
                check()
                raise TimeoutError(f"{self.name}: {end - before} of {lines} lines came")
            time.sleep(POLL_S)

    def empty(self) -> None:
        """Forget what is there, so that the disk does not fill."""
        with Admin(bootstrap_servers=self._bootstrap) as admin:
            admin.delete_records({self.partition: self._read_to})

    def close(self) -> None:
        self._consumer.close()

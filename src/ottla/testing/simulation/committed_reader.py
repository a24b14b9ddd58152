"""A reader of committed records in a simulated cluster: leaves out what was aborted, as clients do.

What it was given stays: no offset that it has read is out of range, and the last stable offset that
ListOffsets has never goes back. (That of a Fetch may: KIP-207.)
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any, Protocol

from ottla.seams.simulated.simulation import Node
from ottla.testing.simulation.clients import ClusterClient, Place
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.errors import ErrorCode
from ottla.wire.records import batch_bounds, read_header, read_records

FETCH_WAIT_MS = 300
FETCH_BYTES_MAX = 1 << 20
RETRY_S = 0.05
READ_COMMITTED = 1
LATEST = -1
LATEST_SHARE = 0.1  # of its requests ask for the last stable offset


class Workload(Protocol):
    """What the clients share."""

    hosts: list[str]

    def problem(self, text: str) -> None:
        """Something that must not be."""


class CommittedReader:
    """Reads a partition from its start, all the while; `values` has what it was given."""

    def __init__(self, workload: Workload, node: Node, place: Place) -> None:
        self.place = place
        self.offset = 0
        self.values: list[str] = []
        self._workload = workload
        self._node = node
        self._stable = 0
        self._rng = random.Random(f"{node.simulation.seed} {node.name}")
        self._client = ClusterClient(node, workload.hosts, self._rng)

    async def run(self) -> None:
        while True:
            asks_latest = self._rng.random() < LATEST_SHARE
            if not await (self._ask_latest() if asks_latest else self._fetch()):
                self._client.forget(self.place)
                await asyncio.sleep(RETRY_S)

    async def _fetch(self) -> bool:
        found = await self._client.ask(
            self.place, lambda epoch: fetch(self.place, self.offset, READ_COMMITTED, epoch), 12
        )
        if found is None:
            return False
        data = found[0].responses[0].partitions[0]
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._workload.problem(f"{self.place}: offset {self.offset} is out of range")
        if data.error_code:
            return False
        self.values += [value for _, value in values_in(data, self.offset)]
        self.offset = max(self.offset, end_of(data))
        return True

    async def _ask_latest(self) -> bool:
        found = await self._client.ask(self.place, self._latest_request, 5)
        if found is None or found[0].topics[0].partitions[0].error_code:
            return False
        stable = int(found[0].topics[0].partitions[0].offset)
        expected = max(self._stable, self.offset)
        if stable < expected:
            self._workload.problem(
                f"{self._node.name}: the last stable offset went back from {expected} to {stable} "
                f"in epoch {found[1]}"
            )
        self._stable = max(self._stable, stable)
        return True

    def _latest_request(self, epoch: int) -> ListOffsetsRequest:
        partition = ListOffsetsPartition(
            partition_index=self.place.number, current_leader_epoch=epoch, timestamp=LATEST
        )
        topic = ListOffsetsTopic(name=self.place.topic, partitions=[partition])
        return ListOffsetsRequest(replica_id=-1, isolation_level=READ_COMMITTED, topics=[topic])


def fetch(
    place: Place, offset: int, isolation_level: int, epoch: int, wait_ms: int = FETCH_WAIT_MS
) -> FetchRequest:
    """A fetch of one partition, outside of a session."""
    partition = FetchPartition(
        partition=place.number,
        fetch_offset=offset,
        current_leader_epoch=epoch,
        partition_max_bytes=FETCH_BYTES_MAX,
    )
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=FETCH_BYTES_MAX,
        isolation_level=isolation_level,
        session_epoch=-1,
        topics=[FetchTopic(topic=place.topic, partitions=[partition])],
    )


def values_in(data: Any, offset: int) -> list[tuple[int, str]]:
    """Offsets and values from `offset` on, without those of aborted transactions."""
    aborted = sorted(data.aborted_transactions or [], key=lambda each: each.first_offset)
    skipped: set[int] = set()
    found = []
    for batch in whole_batches(data):
        header = read_header(batch)
        while aborted and aborted[0].first_offset <= header.last_offset:
            skipped.add(aborted.pop(0).producer_id)
        if header.is_control:
            skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            found += [
                (record.offset, bytes(record.value or b"").decode())
                for record in read_records(batch)
                if record.offset >= offset
            ]
    return found


def epoch_before(data: Any, offset: int) -> int:
    """The leader epoch of the last batch before an offset; -1 without one."""
    headers = map(read_header, whole_batches(data))
    return max((each.leader_epoch for each in headers if each.base_offset < offset), default=-1)


def end_of(data: Any) -> int:
    """The offset after the last batch that is there whole; -1 without one."""
    return max((read_header(batch).last_offset + 1 for batch in whole_batches(data)), default=-1)


def whole_batches(data: Any) -> Iterator[bytes]:
    records = bytes(data.records or b"")
    for start, end in batch_bounds(records):
        yield records[start:end]

"""The coordinator runtime: the partitions of one coordinator topic that this broker leads.

A partition is loaded when this broker becomes its leader: its log is replayed in slices between
other work. Until that is done, requests for its keys are answered COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Generic

from ottla.coordinator.coordinator_partition import (
    CoordinatorPartition,
    CoordinatorState,
    ShardT,
    WriteRules,
)
from ottla.coordinator.effects import Producer, Record
from ottla.replica.partition import FetchIsolation
from ottla.seams.disk import OutOfDescriptors
from ottla.wire.control import COMMIT, control_type
from ottla.wire.errors import ErrorCode
from ottla.wire.key_values import KeyValue, is_plain, key_values_of, read_key_values
from ottla.wire.records import batch_bounds, read_header, read_records

if TYPE_CHECKING:
    from ottla.replica.partition import Partition
    from ottla.seams.clock import Clock

log = logging.getLogger("ottla.coordinator")

# Read from the log at once while loading; a batch larger than this is still read whole.
LOAD_READ_BYTES = 256 * 1024
# Records that are replayed in one turn of the loop.
LOAD_SLICE_RECORDS = 1000
# The same groups send many requests, and Java's hash of a long string is slow here.
KEYS_REMEMBERED_MAX = 16_384
# How long after a failed append or load a partition is loaded again from its log.
RELOAD_DELAY_S = 1.0
_STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


class CoordinatorRuntime(Generic[ShardT]):
    """The partitions of one coordinator topic."""

    def __init__(
        self,
        topic: str,
        make_shard: Callable[[], ShardT],
        clock: Clock,
        rules: Callable[[], WriteRules] = WriteRules,
    ) -> None:
        self.topic = topic
        self._make_shard = make_shard
        self._rules = rules
        self._clock = clock
        self._coordinators: dict[int, CoordinatorPartition[ShardT]] = {}
        self._loads: dict[int, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()

    def coordinator(self, index: int) -> CoordinatorPartition[ShardT] | ErrorCode:
        """The coordinator of this partition's keys, or the error to answer instead."""
        coordinator = self._coordinators.get(index)
        if coordinator is None or coordinator.state is CoordinatorState.CLOSED:
            return ErrorCode.NOT_COORDINATOR
        if coordinator.is_deposed:
            return ErrorCode.NOT_COORDINATOR
        if coordinator.state is CoordinatorState.LOADING or coordinator.overloaded:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return coordinator

    def active(self, index: int) -> CoordinatorPartition[ShardT] | None:
        """The partition for work that no limit may turn away; None unless it is loaded."""
        coordinator = self._coordinators.get(index)
        return (
            coordinator
            if coordinator is not None and coordinator.state is CoordinatorState.ACTIVE
            else None
        )

    def all_active(self) -> Iterator[CoordinatorPartition[ShardT]]:
        return (
            coordinator
            for coordinator in self._coordinators.values()
            if coordinator.state is CoordinatorState.ACTIVE
        )

    @property
    def loading(self) -> bool:
        return any(
            coordinator.state is CoordinatorState.LOADING
            for coordinator in self._coordinators.values()
        )

    def lead(self, partition: Partition) -> None:
        """This broker leads `partition` from now on: load it."""
        self.resign(partition.index)
        coordinator = CoordinatorPartition(
            partition, self._make_shard(), self._clock, self._lost, self._rules()
        )
        self._coordinators[partition.index] = coordinator
        if partition.end_offset == partition.log_start_offset:
            coordinator.activate()
            return
        task = asyncio.ensure_future(self._load(coordinator))
        self._loads[partition.index] = task

    def _lost(self, coordinator: CoordinatorPartition[ShardT]) -> None:
        """An append or a load failed and the state is dropped: load it again from the log."""
        self._clock.call_later(RELOAD_DELAY_S, self._reload, coordinator)

    def _reload(self, coordinator: CoordinatorPartition[ShardT]) -> None:
        partition = coordinator.partition
        if self._coordinators.get(partition.index) is coordinator and partition.offline is None:
            self.lead(partition)

    def resign(self, index: int) -> None:
        """This broker no longer leads the partition: unload it."""
        task = self._loads.pop(index, None)
        if task is not None:
            task.cancel()
        coordinator = self._coordinators.pop(index, None)
        if coordinator is not None:
            coordinator.close(ErrorCode.NOT_COORDINATOR)

    def committed(self, index: int) -> None:
        """The high watermark of a partition has moved."""
        coordinator = self._coordinators.get(index)
        if coordinator is not None and coordinator.state is CoordinatorState.ACTIVE:
            coordinator.committed()

    def close(self) -> None:
        """Append what is decided, then unload every partition."""
        for index, coordinator in list(self._coordinators.items()):
            if coordinator.state is CoordinatorState.ACTIVE:
                coordinator.flush()
            self.resign(index)

    async def _load(self, coordinator: CoordinatorPartition[ShardT]) -> None:
        began = self._clock.monotonic()
        count = 0
        try:
            # One after the other: a slice each of fifty partitions would hold the loop too long.
            async with self._turn:
                for number in load(coordinator.partition, coordinator.shard):
                    count += number
                    await asyncio.sleep(0)
        except OutOfDescriptors as error:
            log.warning("%s: cannot load for now: %s", coordinator, error)
            coordinator.close(ErrorCode.NOT_COORDINATOR)
            self._lost(coordinator)
            return
        except Exception:
            # A record that cannot be replayed must not stop the other partitions.
            log.exception("%s: cannot load", coordinator)
            coordinator.close(ErrorCode.NOT_COORDINATOR)
            return
        if coordinator.is_deposed:
            return  # and about to be closed; its log may be another leader's by now
        self._loads.pop(coordinator.partition.index, None)
        log.info(
            "%s: %d records loaded in %.3f s", coordinator, count, self._clock.monotonic() - began
        )
        coordinator.activate()


def load(partition: Partition, shard: ShardT) -> Iterator[int]:
    """Replay a partition from its start; yields after each slice how many records it had."""
    offset = partition.log_start_offset
    while offset < partition.end_offset:
        info = partition.read(offset, bytes_max=LOAD_READ_BYTES, isolation=FetchIsolation.LOG_END)
        if info.error_code:
            reason = f"{partition} cannot be read at offset {offset}: {info.error_code.name}"
            is_online = info.error_code is _STORAGE_ERROR and partition.offline is None
            raise OutOfDescriptors(reason) if is_online else OSError(reason)
        found = info.records
        if found is None or found.size == 0:
            break
        data = found.file.pread(found.size, found.position)
        began = offset
        for next_offset, count in replay_batches(data, shard):
            offset = next_offset
            yield count
        if offset <= began:
            raise OSError(f"{partition} has no whole batch at offset {offset}")
    for _ in shard.finish_loading():
        yield 0


def replay_batches(data: bytes, shard: ShardT) -> Iterator[tuple[int, int]]:
    """Replay the whole batches in `data`; yields the next offset and the records of each slice."""
    position = 0
    while position < len(data):
        records: list[KeyValue] = []
        position, next_offset = read_key_values(data, position, records, LOAD_SLICE_RECORDS)
        count = len(records)
        if records:
            shard.load(records)
        # Batches of transactions, markers and compressed ones.
        while count < LOAD_SLICE_RECORDS:
            bounds = next(batch_bounds(data, position), None)
            if bounds is None:
                position = len(data)
                break
            if is_plain(data, position):
                break
            position = bounds[1]
            batch = data[bounds[0] : position]
            count += replay_batch(batch, shard)
            next_offset = read_header(batch).last_offset + 1
        if next_offset >= 0:
            yield next_offset, count


def replay_batch(batch: bytes, shard: ShardT) -> int:
    header = read_header(batch)
    producer = Producer(header.producer_id, header.producer_epoch)
    records = read_records(batch)
    if header.is_control:
        for record in records:
            shard.replay_marker(producer, control_type(bytes(record.key or b"")) == COMMIT)
    elif header.is_transactional:
        for key, value, offset in key_values_of(records):
            if key is not None:
                shard.replay(Record(key, value), producer, offset)
    else:
        shard.load(key_values_of(records))
    return len(records)


@lru_cache(maxsize=KEYS_REMEMBERED_MAX)
def partition_of(key: str, partition_count: int) -> int:
    """The partition of a key: by Java's hash of the string, as on every broker."""
    code = 0
    encoded = key.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(encoded), 2):
        code = (31 * code + (encoded[i] << 8 | encoded[i + 1])) & 0xFFFFFFFF
    # The absolute value of a signed number, and 0 for the least; not what is left without the sign.
    code = min(code, (1 << 32) - code)
    return (code if code < 1 << 31 else 0) % partition_count

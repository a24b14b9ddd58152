"""DescribeLogDirs: the data directories, how large each partition is, and how full their disks.

`offset_lag` is 0 as in Kafka, for leaders and followers alike: what a replica lacks of its leader's
log is not told here, only what a copy lacks that moves to another directory (`is_future_key`). A
partition that was asked for and is not here is left out, as Kafka does. The sizes of logs that are
not open are looked up on disk, in a thread: there may be ten thousand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.broker.context import Context
from ottla.wire.api.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from ottla.log.future import FutureLog
    from ottla.seams.disk import Disk

Key = tuple[str, int]  # topic, partition


async def handle(request: DescribeLogDirsRequest, context: Context) -> DescribeLogDirsResponse:
    broker = context.broker
    here = [(topic, index) for topic, index, _ in broker.logs.found()]
    keys = _wanted(request.topics, here)
    known: dict[str, dict[Key, int]] = {home.path: {} for home in broker.logs.directories}
    opened = {(log.topic, log.partition): log for log in broker.logs.opened()}
    unopened = []
    for key in keys:
        log = opened.get(key)
        if log is None:
            unopened.append(key)
        else:
            known[log.directory.rpartition("/")[0]][key] = log.size_bytes
    if unopened:
        await broker.background.thread(_measure, broker.disk, known, unopened)
    wanted = set(keys)
    moving: dict[str, list[FutureLog]] = {}
    for future in broker.logs.moves.futures():
        if future.key in wanted:
            moving.setdefault(future.data_dir.path, []).append(future)
    return DescribeLogDirsResponse(
        results=[
            _result(broker.disk, path, sizes, moving.get(path, ())) for path, sizes in known.items()
        ]
    )


def _wanted(asked: list[DescribableLogDirTopic] | None, here: list[Key]) -> Iterable[Key]:
    if asked is None:
        return here
    wanted = {(topic.topic, index) for topic in asked for index in topic.partitions}
    return sorted(wanted.intersection(here)) if wanted else ()


def _measure(disk: Disk, known: dict[str, dict[Key, int]], keys: list[Key]) -> None:
    """Adds the sizes of partitions that are only on disk, each to the directory it is in."""
    for topic, index in keys:
        for path, sizes in known.items():
            try:
                entries = disk.entries(f"{path}/{topic}-{index}")
            except OSError:
                continue  # in another directory, or deleted a moment ago
            sizes[topic, index] = sum(
                entry.size for entry in entries if entry.name.endswith(".log")
            )
            break


def _result(
    disk: Disk, path: str, sizes: dict[Key, int], moving: Iterable[FutureLog]
) -> DescribeLogDirsResult:
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for (topic, index), size_bytes in sizes.items():
        partition = DescribeLogDirsPartition(partition_index=index, partition_size=size_bytes)
        topics.setdefault(topic, []).append(partition)
    for future in moving:
        topic, index = future.key
        partition = DescribeLogDirsPartition(
            partition_index=index,
            partition_size=future.size_bytes,
            offset_lag=future.lag,
            is_future_key=True,
        )
        topics.setdefault(topic, []).append(partition)
    return DescribeLogDirsResult(
        log_dir=path,
        topics=[DescribeLogDirsTopic(name=name, partitions=topics[name]) for name in topics],
        total_bytes=disk.total_bytes(path),
        usable_bytes=disk.free_bytes(path),
    )

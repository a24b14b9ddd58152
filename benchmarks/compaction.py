"""How fast a log is compacted, from the moment at which it becomes due to the last swap.

A tenth of the records is the last of its key. While the log is written `min.compaction.lag.ms`
keeps the cleaner off; then it is set to 0, and the sizes of the closed segments on the disk tell
when each key is left once. The first compaction of each broker is not counted: Kafka's code is
compiled by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import clients
from benchmarks.measures import Run
from benchmarks.servers import BOTH, Broker, Ottla
from ottla.log.offset_map import offset_map_of

SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.segment.bytes": "16777216",
    "log.segment.delete.delay.ms": "0",
}
DEDUPE_BYTES, LOAD_FACTOR = 128 << 20, 0.9  # the defaults of both brokers
COMPACT = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(2**62)}
DUPLICATES = 10  # records of each key
DONE_TIMEOUT_S = 300.0
VALUES = {"100 B": (100, 4), "1 KB": (1000, 1)}  # bytes, and the share of the megabytes to write


def compaction(run: Run) -> None:
    """MB/s of compaction and its CPU, with small and large records; the map's bytes for a key."""
    brokers: list[Broker] = [kind(SETTINGS) for kind in BOTH]
    try:
        for broker in brokers:
            broker.start()
            compact(broker, "warm", 1000, run.compacted_megabytes // 4)
        for number in range(run.rounds):
            for label, (value_bytes, share) in VALUES.items():
                for broker in brokers:
                    topic = f"round-{number}-{value_bytes}"
                    megabytes = run.compacted_megabytes // share
                    mb, seconds, cpu_s = compact(broker, topic, value_bytes, megabytes)
                    name = broker.name
                    run.record(f"compaction of {label} records, MB/s", name, mb / seconds)
                    run.record(
                        f"compaction of {label} records, CPU s per GB", name, cpu_s / mb * 1e3
                    )
    finally:
        for broker in brokers:
            broker.remove()
    keys = offset_map_of(DEDUPE_BYTES, LOAD_FACTOR, bytes(16), records_max=1 << 40).entries_max
    run.record("compaction: bytes of the offset map for a key", Ottla.name, DEDUPE_BYTES / keys)


def compact(
    broker: Broker, topic: str, value_bytes: int, megabytes: int
) -> tuple[float, float, float]:
    """MB in closed segments, the seconds until each key is left once, and their CPU seconds."""
    keys = megabytes * 1_000_000 // value_bytes // DUPLICATES
    clients.make_topic(broker.bootstrap, topic, **COMPACT)
    clients.produce_keyed(broker.bootstrap, topic, megabytes, keys=keys, value_bytes=value_bytes)
    folder = broker.directory / "data" / f"{topic}-0"
    before = closed_bytes(folder)
    left = before / DUPLICATES * 1.2
    cpu_s = broker.cpu_s()
    clients.set_topic_config(broker.bootstrap, topic, "min.compaction.lag.ms", "0")
    began = time.monotonic()
    while closed_bytes(folder) > left:
        if time.monotonic() - began > DONE_TIMEOUT_S:
            raise TimeoutError(f"{folder}: not compacted within {DONE_TIMEOUT_S:g} s")
        time.sleep(0.01)
    seconds = time.monotonic() - began
    cpu_s = broker.cpu_s() - cpu_s
    clients.delete_topic(broker.bootstrap, topic)
    return before / 1e6, seconds, cpu_s


def closed_bytes(folder: Path) -> int:
    """The size of all segments but the active one, as they are named when in use."""
    sizes = []
    for file in sorted(folder.glob("*.log")):
        try:
            sizes.append(file.stat().st_size)
        except FileNotFoundError:
            continue  # swapped meanwhile
    return sum(sizes[:-1])


MEASURES: dict[str, Callable[[Run], None]] = {"compaction": compaction}

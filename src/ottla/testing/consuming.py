"""For tests: read all of a topic, and wait until a group has read all.

    records = consume_all(ottla_broker, "orders")
    wait_for_lag_zero(ottla_broker, "billing")

Both take a broker of `ottla.testing` or an address, and work on Apache Kafka as well.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ottla.client.consumer import Consumer
from ottla.client.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from ottla.testing.broker import Broker

POLL_MS = 100
LOOK_AGAIN_S = 0.02


def consume_all(
    broker: Broker | str,
    topics: str | Iterable[str],
    *,
    count: int | None = None,
    timeout_s: float = 10.0,
    **options: Any,
) -> list[ConsumerRecord]:
    """All records of the topics, by topic, partition and offset.

    Without `count`: what is there now. With it: waits until there are so many, and raises
    `AssertionError` if they do not come. Options are the consumer's (`isolation_level`, …).
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    options = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **options}
    deadline = time.monotonic() + timeout_s
    found: list[ConsumerRecord] = []
    with Consumer(bootstrap_servers=address_of(broker), **options) as consumer:
        partitions = _partitions(consumer, names, count, deadline)
        if not partitions:
            _fail_if(count, found, names, timeout_s)
            return found
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        while True:
            enough = (
                all((consumer.position(each) or 0) >= ends[each] for each in partitions)
                if count is None
                else len(found) >= count
            )
            if enough:
                break
            if time.monotonic() > deadline:
                _fail_if(count, found, names, timeout_s)
                break
            for records in consumer.poll(POLL_MS).values():
                found += records
    return sorted(found, key=lambda each: (each.topic, each.partition, each.offset))


def _partitions(
    consumer: Consumer, names: list[str], count: int | None, deadline: float
) -> list[TopicPartition]:
    """The partitions of the topics; if records are waited for, so are topics."""
    while True:
        found = [
            TopicPartition(name, number)
            for name in names
            for number in sorted(consumer.partitions_for_topic(name))
        ]
        if count is None or {each.topic for each in found} == set(names):
            return found
        if time.monotonic() > deadline:
            return found
        time.sleep(LOOK_AGAIN_S)


def _fail_if(
    count: int | None, found: list[ConsumerRecord], names: list[str], timeout_s: float
) -> None:
    if count is not None and len(found) < count:
        raise AssertionError(
            f"{len(found)} of {count} records of {', '.join(names)} came within {timeout_s:g} s"
        )


def wait_for_lag_zero(
    broker: Broker | str,
    group_id: str,
    topics: str | Iterable[str] | None = None,
    *,
    timeout_s: float = 10.0,
) -> None:
    """Wait until the group has committed the end of every partition it has committed at all, or of
    all partitions of `topics`. Raises `AssertionError` with what is missing."""
    names = [topics] if isinstance(topics, str) else topics
    deadline = time.monotonic() + timeout_s
    with Consumer(
        bootstrap_servers=address_of(broker), group_id=group_id, enable_auto_commit=False
    ) as consumer:
        while True:
            lags = _lags(consumer, None if names is None else list(names))
            behind = {each: lag for each, lag in lags.items() if lag > 0}
            if lags and not behind:
                return
            if time.monotonic() > deadline:
                break
            time.sleep(LOOK_AGAIN_S)
    if not lags:
        raise AssertionError(f"group {group_id!r} committed nothing within {timeout_s:g} s")
    shown = ", ".join(f"{p.topic}-{p.partition} by {lag}" for p, lag in sorted(behind.items()))
    raise AssertionError(f"group {group_id!r} is behind after {timeout_s:g} s: {shown}")


def _lags(consumer: Consumer, topics: list[str] | None) -> dict[TopicPartition, int]:
    assert consumer._commits is not None
    committed = {each: found.offset for each, found in consumer._commits.committed(None).items()}
    if topics is None:
        partitions = list(committed)
    else:
        partitions = [
            TopicPartition(name, number)
            for name in topics
            for number in consumer.partitions_for_topic(name)
        ]
    ends = consumer.end_offsets(partitions) if partitions else {}
    begins = consumer.beginning_offsets(partitions) if partitions else {}
    return {each: ends[each] - committed.get(each, begins[each]) for each in partitions}


def address_of(broker: Broker | str) -> str:
    """Where to connect."""
    return broker if isinstance(broker, str) else broker.bootstrap_servers

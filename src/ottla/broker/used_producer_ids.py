"""The producer ids that this broker's logs know: a new tree must not allocate them once more.

Under an id that was used before, a new producer's records would be taken for duplicates.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.broker.coordinators import TRANSACTION_TOPIC
from ottla.log.failures import LogProblem
from ottla.log.producer_ids import NO_ID, highest_producer_id, plausible
from ottla.log.upkeep import TimeSlice
from ottla.wire.coordinator_records import TransactionLogValue, read_value
from ottla.wire.malformed import MalformedMessage
from ottla.wire.records import read_records

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.log.log import Log

log = logging.getLogger("ottla.broker")


async def skip_used_ids(broker: Broker) -> None:
    """Have the controller allocate only ids beyond those in this broker's logs."""
    highest = await highest_on_disk(broker)
    if highest > NO_ID:
        await broker.controller.skip_producer_ids(broker.node_id, highest)


async def highest_on_disk(broker: Broker) -> int:
    """The highest id in all logs of this broker, -1 for none. Opens every log."""
    highest = NO_ID
    time_slice = TimeSlice(broker.clock)
    for topic, index, _ in broker.logs.found():
        partition_log = broker.logs.get(topic, index)
        if partition_log is None:
            continue
        try:
            highest = max(highest, highest_id(partition_log))
        except OSError as error:
            partition_log.fail("cannot be read for producer ids", error)
        await time_slice.yield_if_over()
    return highest


def highest_id(partition_log: Log) -> int:
    """The highest id in one log, -1 for none. Raises OSError."""
    highest = highest_producer_id(partition_log)
    if partition_log.topic == TRANSACTION_TOPIC:
        highest = max(highest, highest_transactional_id(partition_log))
    return highest


def highest_transactional_id(partition_log: Log) -> int:
    """The highest producer id in a partition of `__transaction_state`; -1 for none."""
    ids = [NO_ID]
    try:
        for value in transactions_in(partition_log):
            ids += [value.producer_id, value.previous_producer_id, value.next_producer_id]
    except (LogProblem, MalformedMessage, OSError) as problem:
        log.warning("%s: not read to its end for producer ids: %s", partition_log.name, problem)
    return plausible(ids, partition_log.name)


def transactions_in(partition_log: Log) -> Iterator[TransactionLogValue]:
    for segment in partition_log.segments:
        if not segment.size_bytes:
            continue
        for batch in segment.batches():
            for record in read_records(segment.file.pread(batch.size, batch.position)):
                if record.value is not None:
                    yield read_value(TransactionLogValue, record.value)

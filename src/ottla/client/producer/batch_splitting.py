"""A batch too large for the broker becomes two, which share its place, numbers and futures."""

from __future__ import annotations

from ottla.wire.records import read_header, read_records

from ..typed_config import ProducerConfig
from .accumulator import Batch


def split(batch: Batch, config: ProducerConfig, incomplete: set[Batch]) -> tuple[Batch, Batch]:
    """Two halves in order; futures of `batch` find their half by themselves."""
    whole = b"".join(batch.encoded)
    records = read_records(whole)
    codec = read_header(whole).compression  # not always the producer's: it may have come finished
    middle = len(records) // 2
    halves = []
    sequence = batch.sequence
    for part in records[:middle], records[middle:]:
        # No memory is counted: the whole's is free from now on, and the halves need no more.
        half = Batch(batch.queue, 0, batch.created_at, batch.deadline)
        for record in part:
            fields = (record.timestamp, record.key, record.value, record.headers)
            while (needed := half.builder.append(*fields)) < 0:
                half.builder.grow(2 * half.builder.byte_capacity - needed)
        half.count = len(part)
        half.codec = codec
        half.attempts = batch.attempts - 1
        half.urgent = True
        half.producer_id, half.epoch, half.sequence = batch.producer_id, batch.epoch, sequence
        if sequence >= 0:
            sequence = (sequence + len(part)) & 0x7FFFFFFF
        halves.append(half)
        incomplete.add(half)
    first, second = halves
    with batch.queue.lock:
        for future, action in batch.callbacks or ():
            half = first if future.index < first.count else second
            half.callbacks = [*(half.callbacks or []), (future, action)]
        batch.callbacks = None
        batch.parts = (first, second)
        batch.encoded = []
    if batch.event is not None:
        batch.event.set()
    return first, second

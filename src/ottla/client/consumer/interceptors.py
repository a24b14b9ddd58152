"""Interceptors of a consumer: see records before the caller does, and commits after they are made.

An interceptor has some of `configure(options)`, `on_consume(records)` (which returns the records
to hand on, by partition), `on_commit(offsets)` and `close()`. One that raises is logged and passed
over.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from ..structs import ConsumerRecord, OffsetAndMetadata, TopicPartition

log = logging.getLogger("ottla.client")

Records = dict[TopicPartition, list[ConsumerRecord]]


class ConsumerInterceptors:
    """A chain, in order."""

    def __init__(self, chain: Sequence[object], config: Mapping[str, object]) -> None:
        self.chain = [each() if isinstance(each, type) else each for each in chain]
        for each in self.chain:
            if hasattr(each, "configure"):
                each.configure(dict(config))

    def on_consume(self, records: Records) -> Records:
        for each in self.chain:
            if hasattr(each, "on_consume"):
                try:
                    records = each.on_consume(records) or {}
                except Exception:
                    log.exception("%r failed in on_consume", each)
        return records

    def each(self, records: Iterator[ConsumerRecord]) -> Iterator[ConsumerRecord]:
        """For an iteration: the interceptors see one record at a time."""
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            yield from self.on_consume({partition: [record]}).get(partition, ())

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for each in self.chain:
            if hasattr(each, "on_commit"):
                try:
                    each.on_commit(dict(offsets))
                except Exception:
                    log.exception("%r failed in on_commit", each)

    def close(self) -> None:
        for each in self.chain:
            if hasattr(each, "close"):
                try:
                    each.close()
                except Exception:
                    log.exception("%r failed in close", each)

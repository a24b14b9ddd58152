"""The pipelines of `ottla pipeline`, by what they say in a topic of the cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from ottla.client.admin import Admin
from ottla.client.errors import KafkaError
from ottla.client.structs import TopicPartition

from ..picture import PipelinePicture
from .known import Known

TOPIC = "__ottla_pipelines"  # see cli/pipeline_publishing.py
READS_MAX = 20  # of one round; what is left comes in the next
READ_BYTES = 1 << 20
TIMEOUT_MS = 3_000
PIPELINES_MAX = 500
SILENT_MS = 30_000  # of one that is said to run: it did not end, and says nothing
KEPT_MS = 7 * 24 * 3_600_000
NAMES_MAX = 100
TEXT_MAX = 2_000


class Pipelines:
    """Reads on from where it was."""

    def __init__(self) -> None:
        self._next: int | None = None
        self._known: dict[str, PipelinePicture] = {}

    def read(self, admin: Admin, known: Known, now_ms: int) -> tuple[PipelinePicture, ...]:
        where = TopicPartition(TOPIC, 0)
        if where not in known.ends:
            self._next = None
            self._known = {}
            return ()
        for _ in range(READS_MAX):
            if self._next is not None and self._next >= known.ends[where]:
                break
            offset = known.starts.get(where, 0) if self._next is None else self._next
            try:
                found = admin.read_batches(
                    {where: offset}, partition_bytes_max=READ_BYTES, timeout_ms=TIMEOUT_MS
                )[where]
            except KafkaError:
                break  # the next round tries again
            if found.error is not None:
                self._next = None if self._next is None else found.log_start_offset
                break
            for batch in found.batches:
                if batch.marker is None:
                    for record in batch.records(offset):
                        self._take(record.key, record.value)
                self._next = batch.next_offset
            if not found.batches:
                self._next = max(offset, found.next_offset)
                break
        return self.now(now_ms)

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        name = (key or b"").decode(errors="replace")[:TEXT_MAX]
        picture = None if value is None else picture_of(name, value)
        if picture is None:
            if value is None:
                self._known.pop(name, None)
        elif name in self._known or len(self._known) < PIPELINES_MAX:
            self._known[name] = picture

    def now(self, now_ms: int) -> tuple[PipelinePicture, ...]:
        return tuple(
            replace(each, state="silent", rows_rate=None)
            if each.state == "running" and now_ms - each.seen_ms > SILENT_MS
            else each
            for _, each in sorted(self._known.items())
            if now_ms - each.seen_ms < KEPT_MS
        )


def picture_of(name: str, value: bytes) -> PipelinePicture | None:
    """Anybody may write into a topic: whatever is not as it should be is left out."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("at_ms"), int):
        return None
    return PipelinePicture(
        name=name,
        state=text(found.get("state")) or "unknown",
        seen_ms=found["at_ms"],
        rows_rate=number(found.get("rows_per_s")),
        lag=whole(found.get("lag")),
        batch_ms=number(found.get("batch_ms")),
        watermark_ms=whole(found.get("watermark_ms")),
        sources=names(found.get("sources")),
        sinks=names(found.get("sinks")),
        bad_records_topic=text(found.get("bad_records")),
        error=text(found.get("error")),
    )


def number(value: Any) -> float | None:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and abs(value) < 1e18 else None


def whole(value: Any) -> int | None:
    found = number(value)
    return None if found is None else int(found)


def text(value: Any) -> str | None:
    return value[:TEXT_MAX] if isinstance(value, str) else None


def names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(each[:TEXT_MAX] for each in value[:NAMES_MAX] if isinstance(each, str))

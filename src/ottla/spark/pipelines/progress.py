"""The progress of a micro-batch as Spark reports it, and as one line of text.

Pure: `reading_of` takes the progress that Spark reports, as JSON; the rest is text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from ..source.offsets import decode, lag

# Names of observed metrics: how many bad records a query found, and (with a table's name) how many
# values of the table are bad; and (with a source's name) which records were parsed.
BAD_ROWS = "bad_rows"
BAD_VALUES = "bad_values:"
SEEN = "seen:"
VALUES_ROW = ("count", "example")


@dataclass(frozen=True, slots=True)
class Reading:
    """One micro-batch of one query. None: the query has no such thing, or Spark reports none."""

    pipeline: str
    query: str
    batch_id: int
    at: str
    rows: int
    rows_per_s: float
    lag: int | None
    batch_ms: int
    watermark: str | None
    state_rows: int | None
    state_bytes: int | None
    late_rows: int
    bad_rows: int | None = None

    @property
    def watermark_at(self) -> datetime | None:
        """The watermark as a moment."""
        return None if self.watermark is None else datetime.fromisoformat(self.watermark)

    def as_object(self) -> dict[str, Any]:
        return asdict(self)


def reading_of(pipeline: str, query: str, progress: Mapping[str, Any]) -> Reading:
    """A reading, from `json.loads(progress.json)`."""
    states: list[Mapping[str, Any]] = list(progress.get("stateOperators") or ())
    durations = progress.get("durationMs") or {}
    batch_ms = int(progress.get("batchDuration") or durations.get("triggerExecution") or 0)
    rows = int(progress.get("numInputRows") or 0)
    return Reading(
        pipeline=pipeline,
        query=query,
        batch_id=int(progress["batchId"]),
        at=str(progress.get("timestamp") or ""),
        rows=rows,
        rows_per_s=rows * 1000 / batch_ms if batch_ms else 0.0,
        lag=lag_of(progress.get("sources") or ()),
        batch_ms=batch_ms,
        watermark=watermark_of(progress.get("eventTime") or {}),
        state_rows=sum(int(each.get("numRowsTotal") or 0) for each in states) if states else None,
        state_bytes=(
            sum(int(each.get("memoryUsedBytes") or 0) for each in states) if states else None
        ),
        late_rows=sum(int(each.get("numRowsDroppedByWatermark") or 0) for each in states),
        bad_rows=observed(progress.get("observedMetrics") or {}),
    )


def observed(metrics: Mapping[str, Any]) -> int | None:
    """The bad records of a batch, where the query looks for them."""
    found = metrics.get(BAD_ROWS)
    if found is None:
        return None
    # Spark gives a row, as a mapping or (in some versions) as its values in order.
    return int(found[BAD_ROWS] if isinstance(found, Mapping) else found[0])


def tables_in(metrics: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The bad values of each table as a micro-batch met them: `count`, and `example` of one."""
    found = {}
    for name, row in metrics.items():
        if name.startswith(BAD_VALUES):
            values = row if isinstance(row, Mapping) else dict(zip(VALUES_ROW, row, strict=True))
            found[name.removeprefix(BAD_VALUES)] = dict(values)
    return found


def bad_values_text(pipeline: str, name: str, found: Mapping[str, Any]) -> str:
    """The warning about a table some of whose values are bad."""
    example = found["example"]
    key, error = (
        (example["key"], example["error"]) if isinstance(example, Mapping) else tuple(example)
    )
    return (
        f"pipeline {pipeline!r}: table {name!r}: {found['count']:,} values do not parse and are "
        f"left out; that of key {key!r}: {error}"
    )


def lag_of(sources: Iterable[Mapping[str, Any]]) -> int | None:
    """How many offsets are still to be read; None where no source is a topic, or Spark has not
    asked for the ends."""
    lags = [found for each in sources if is_topic(each) and (found := lag(each)) is not None]
    return sum(lags) if lags else None


def is_topic(source: Mapping[str, Any]) -> bool:
    """Has this source offsets by topic and partition? Files and others have their own."""
    try:
        return bool(decode(source.get("endOffset")))
    except (ValueError, AttributeError):
        return False


def watermark_of(event_time: Mapping[str, Any]) -> str | None:
    """Spark's watermark; at 1970 it has not begun."""
    found = event_time.get("watermark")
    return None if not found or str(found).startswith("1970-01-01T00:00:00") else str(found)


def line(reading: Reading, name: str, late_total: int, bad_total: int = 0) -> str:
    """One line of text. Rows that came too late are always in it."""
    parts = [
        f"{name}  batch {reading.batch_id}",
        f"{reading.rows_per_s:,.0f} rows/s",
        f"lag {reading.lag:,}" if reading.lag is not None else "",
        f"{reading.batch_ms / 1000:.2f} s a batch",
        f"watermark {clock(reading.watermark)}" if reading.watermark else "",
        state_text(reading) if reading.state_rows is not None else "",
        f"{late_total:,} too late" if late_total else "",
        f"{bad_total:,} bad" if bad_total else "",
    ]
    return "   ".join(part for part in parts if part)


def state_text(reading: Reading) -> str:
    return f"state {reading.state_rows:,} rows, {size(reading.state_bytes or 0)}"


def clock(moment: str) -> str:
    """The time of a moment of ISO 8601; the day is on the person's calendar."""
    return moment.replace("T", " ").removesuffix("Z").removesuffix(".000")


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"

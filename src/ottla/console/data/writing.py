"""Records written by hand, and records of one topic written again to another.

Each request has a producer of its own, closed at its end: such requests are rare, and one that
hangs holds nothing that another needs.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ottla.client.errors import KafkaError
from ottla.client.producer import Producer
from ottla.client.structs import ConsumerRecord, RecordMetadata, TopicPartition

from ..context import Cluster
from .schemas import NO_SCHEMAS, Encoder, Schemas
from .work import Problem, Stop

WRITTEN_MAX = 1_000  # records of one request
WAIT_MS = 30_000
HEADERS_MAX = 100
TEXT, JSON, HEX, BASE64, AVRO, PROTOBUF = "text", "json", "hex", "base64", "avro", "protobuf"
WRITTEN_FORMATS = (TEXT, JSON, HEX, BASE64, AVRO, PROTOBUF)
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
ORIGIN = "ottla.replayed.from"  # a header: topic-partition:offset
KEEP, BY_KEY = "keep", "key"
FIELDS = {"key", "key_format", "value", "value_format", "headers", "partition", "timestamp"}
# A line of a download can be written again: what else it bears is of the record it was.
DOWNLOADED = {"topic", "offset", "timestamp_type", "key_base64", "value_base64"}


@dataclass(frozen=True, slots=True)
class NewRecord:
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """What became of the records, in their order: where each is, or why it is nowhere."""

    places: list[RecordMetadata | None]
    errors: list[str]

    @property
    def count(self) -> int:
        return sum(each is not None for each in self.places)

    def as_json(self) -> dict[str, Any]:
        return {
            "written": self.count,
            "records": [
                None if each is None else {"partition": each.partition, "offset": each.offset}
                for each in self.places
            ],
            "errors": self.errors,
        }


def record_of(
    given: Mapping[str, Any], schemas: Schemas = NO_SCHEMAS, cluster: str = "", topic: str = ""
) -> NewRecord:
    """A record as a form or a line of JSON describes it; Problem where it cannot be."""
    unknown = set(given) - FIELDS - DOWNLOADED
    if unknown:
        raise Problem(f"unknown {', '.join(sorted(unknown))}; one of {', '.join(sorted(FIELDS))}")
    parts = {}
    for part in ("key", "value"):
        encoders = schemas.encoders(cluster, topic, part)
        parts[part] = _part(given, part, encoders)
    return NewRecord(
        parts["key"],
        parts["value"],
        _headers(given.get("headers")),
        _whole(given, "partition", 2**31 - 1),
        _whole(given, "timestamp", 2**63 - 1),
    )


def _part(given: Mapping[str, Any], part: str, encoders: Mapping[str, Encoder]) -> bytes | None:
    if given.get(f"{part}_base64") is not None:
        return _bytes(part, given[f"{part}_base64"], BASE64, encoders)
    return _bytes(part, given.get(part), str(given.get(f"{part}_format") or TEXT), encoders)


def _bytes(part: str, given: Any, how: str, encoders: Mapping[str, Encoder]) -> bytes | None:
    if how not in WRITTEN_FORMATS:
        raise Problem(f"{part}_format: one of {', '.join(WRITTEN_FORMATS)} (got {how[:40]!r})")
    if given is None:
        return None
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    try:
        match how:
            case "hex":
                return bytes.fromhex(text)
            case "base64":
                return base64.b64decode(text, validate=True)
            case "json":
                json.loads(text)
            case "avro" | "protobuf":
                if how not in encoders:
                    raise Problem(f"{part}: no {how} schema is known for this topic")
                return encoders[how](text)
        return text.encode()
    except (ValueError, binascii.Error, RecursionError) as error:
        raise Problem(f"{part}: this is no {how}: {error}") from None


def _headers(given: Any) -> tuple[tuple[str, bytes | None], ...]:
    """Pairs, an object, or lines `name: value` of a form; {"base64": …} stands for bytes."""
    if given in (None, "", [], {}):
        return ()
    if isinstance(given, str):
        pairs: list[Any] = []
        for line in given.splitlines():
            name, colon, value = line.partition(":")
            if not colon or not name.strip():
                raise Problem(f"headers: `name: value` in each line (got {line[:40]!r})")
            pairs.append((name.strip(), value.strip()))
    elif isinstance(given, dict):
        pairs = list(given.items())
    elif isinstance(given, list) and all(isinstance(e, list) and len(e) == 2 for e in given):
        pairs = given
    else:
        raise Problem("headers: a list of [name, value], or an object")
    if len(pairs) > HEADERS_MAX:
        raise Problem(f"headers: at most {HEADERS_MAX} (got {len(pairs)})")
    return tuple((_name(name), _header_value(value)) for name, value in pairs)


def _name(given: Any) -> str:
    if not isinstance(given, str):
        raise Problem(f"headers: a name is a text (got {given!r:.40})")
    return given


def _header_value(given: Any) -> bytes | None:
    if given is None:
        return None
    if isinstance(given, dict) and set(given) == {"base64"}:
        return _bytes("headers", given["base64"], BASE64, {})
    if not isinstance(given, str):
        raise Problem(f"headers: a value is a text, null or {{base64}} (got {given!r:.40})")
    return given.encode()


def _whole(given: Mapping[str, Any], name: str, most: int) -> int | None:
    value = given.get(name)
    if value is None or value == "":
        return None
    try:
        found = int(value)
    except (ValueError, TypeError):
        found = -1
    if not 0 <= found <= most:
        raise Problem(f"{name}: a whole number from 0 to {most} (got {value!r:.40})")
    return found


def again(
    record: ConsumerRecord[bytes | None, bytes | None],
    *,
    partition: str = BY_KEY,
    keep_time: bool = True,
    origin: bool = False,
) -> NewRecord:
    """A record of a topic as a new one, with its key, value and headers."""
    headers = tuple(record.headers)
    if origin:
        place = f"{record.topic}-{record.partition}:{record.offset}"
        headers += ((ORIGIN, place.encode()),)
    return NewRecord(
        record.key,
        record.value,
        headers,
        record.partition if partition == KEEP else None,
        record.timestamp if keep_time and record.timestamp >= 0 else None,
    )


def write(
    cluster: Cluster,
    topic: str,
    records: Iterable[NewRecord],
    *,
    compression: str = "none",
    stop: Stop | None = None,
) -> Written:
    """Send them in their order and wait for all; the topic is not made by it."""
    wanted = list(records)
    if not 0 < len(wanted) <= WRITTEN_MAX:
        raise Problem(f"From 1 to {WRITTEN_MAX} records at once (got {len(wanted)}).")
    if compression not in COMPRESSIONS:
        raise Problem(f"compression: one of {', '.join(COMPRESSIONS)} (got {compression[:40]!r})")
    options = {
        "compression_type": None if compression == "none" else compression,
        "allow_auto_create_topics": False,
        "delivery_timeout_ms": WAIT_MS,
        "request_timeout_ms": WAIT_MS // 2,
        "max_block_ms": WAIT_MS // 2,
        "linger_ms": 5,
    }
    futures: list[Any] = []
    errors: list[str] = []
    with Producer(**{**cluster.client_properties, **options}) as producer:
        known = producer.partitions_for(topic)
        for each in wanted:
            if stop is not None:
                stop.check()
            if each.partition is not None and each.partition not in known:
                futures.append(None)
                errors.append(f"{topic} has no partition {each.partition}")
                continue
            try:
                futures.append(
                    producer.send(
                        topic, each.value, each.key, list(each.headers) or None, each.partition,
                        each.timestamp_ms,
                    )
                )  # fmt: skip
            except (KafkaError, ValueError, TypeError) as error:
                futures.append(None)
                errors.append(str(error).splitlines()[0])
        places: list[RecordMetadata | None] = []
        for future in futures:
            try:
                places.append(None if future is None else future.get(WAIT_MS / 1000))
            except KafkaError as error:
                places.append(None)
                errors.append(str(error).splitlines()[0])
    return Written(places, list(dict.fromkeys(errors)))


def read_selected(
    cluster: Cluster, topic: str, places: Iterable[tuple[int, int]], stop: Stop | None = None
) -> list[ConsumerRecord[bytes | None, bytes | None]]:
    """The records at these partitions and offsets, in this order; Problem if one is gone."""
    wanted = list(dict.fromkeys(places))
    if not 0 < len(wanted) <= WRITTEN_MAX:
        raise Problem(f"Select from 1 to {WRITTEN_MAX} records (got {len(wanted)}).")
    admin = cluster.admin()
    found: dict[tuple[int, int], ConsumerRecord[bytes | None, bytes | None]] = {}
    for partition, offset in sorted(wanted):
        if (partition, offset) in found:
            continue
        if stop is not None:
            stop.check()
        place = TopicPartition(topic, partition)
        read = admin.read_batches({place: offset}, timeout_ms=WAIT_MS)[place]
        if read.error is not None:
            raise read.error
        for batch in read.batches:
            if batch.marker is not None or not any(
                index == partition and batch.header.base_offset <= at < batch.next_offset
                for index, at in wanted
            ):
                continue
            for record in batch.records(offset):
                if (partition, record.offset) in wanted:
                    found[partition, record.offset] = record
        if (partition, offset) not in found:
            raise Problem(f"There is no record {topic}-{partition} at {offset} any more.")
    return [found[each] for each in wanted]

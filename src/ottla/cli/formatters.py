"""Records as bytes for a terminal or a pipe: Kafka's formatters, by their names old and new.

A formatter is a function from a record to the bytes to write. `formatter(name, properties)` finds
and sets one up; an unknown class name is refused, because classes of Java do not run here.
"""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.cli.lines import is_true

if TYPE_CHECKING:
    from ottla.client.codec.coordinator_records import Decoded
    from ottla.client.structs import ConsumerRecord

Format = Callable[["ConsumerRecord"], bytes]
Decode = Callable[[bytes], str]

DEFAULT = "org.apache.kafka.tools.consumer.DefaultMessageFormatter"
TIMES = {0: "CreateTime", 1: "LogAppendTime"}


def formatter(name: str, properties: Mapping[str, str]) -> Format:
    """The formatter of this name; ValueError when there is none."""
    made = FORMATTERS.get(name)
    if made is None:
        known = ", ".join(sorted({each.rpartition(".")[2] for each in FORMATTERS}))
        raise ValueError(f"there is no formatter {name} here; there are {known}")
    return made(properties)


# The default one


def default_formatter(properties: Mapping[str, str]) -> Format:
    """`print.…`, `key.separator` and so on, as Kafka's default formatter has them."""
    shown = {
        name: is_true(properties.get(f"print.{name}", "true" if name == "value" else "false"))
        for name in ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key")
    }
    shown["value"] = is_true(properties.get("print.value", "true"))
    between = properties.get("key.separator", "\t").encode()
    end = properties.get("line.separator", "\n").encode()
    between_headers = properties.get("headers.separator", ",").encode()
    null = properties.get("null.literal", "null").encode()
    decoders = {
        part: deserializer(properties[f"{part}.deserializer"])
        for part in ("key", "value", "headers")
        if properties.get(f"{part}.deserializer")
    }

    def text(part: str, data: bytes | None) -> bytes:
        plain = null if data is None else data
        return decoders[part](plain).encode() if part in decoders else plain

    def headers_of(record: ConsumerRecord) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        return between_headers.join(
            name.encode() + b":" + text("headers", value) for name, value in record.headers
        )

    parts: dict[str, Callable[[ConsumerRecord], bytes]] = {
        "timestamp": time_text,
        "partition": lambda record: b"Partition:%d" % record.partition,
        "offset": lambda record: b"Offset:%d" % record.offset,
        "delivery": delivery_text,
        "epoch": epoch_text,
        "headers": headers_of,
        "key": lambda record: text("key", record.key),
        "value": lambda record: text("value", record.value),
    }
    chosen = [make for name, make in parts.items() if shown[name]]
    return lambda record: between.join(make(record) for make in chosen) + (end if chosen else b"")


def time_text(record: ConsumerRecord) -> bytes:
    if record.timestamp_type not in TIMES:
        return b"NO_TIMESTAMP"
    return f"{TIMES[record.timestamp_type]}:{record.timestamp}".encode()


def delivery_text(record: ConsumerRecord) -> bytes:
    """For which time a member of a share group gets it."""
    count = getattr(record, "delivery_count", None)
    return b"Delivery:NOT_PRESENT" if count is None else b"Delivery:%d" % count


def epoch_text(record: ConsumerRecord) -> bytes:
    epoch = record.leader_epoch
    return b"Epoch:NOT_PRESENT" if epoch is None or epoch < 0 else b"Epoch:%d" % epoch


def deserializer(name: str) -> Decode:
    """One of Kafka's, by its class name or the last part of it."""
    found = DESERIALIZERS.get(name.rpartition(".")[2].removesuffix("Deserializer"))
    if found is None:
        raise ValueError(
            f"there is no deserializer {name} here; there are {', '.join(DESERIALIZERS)}"
        )
    return found


def fixed(code: str, size: int) -> Decode:
    def decode(data: bytes) -> str:
        if len(data) != size:
            raise ValueError(f"Size of data received by the deserializer is not {size}")
        return str(struct.unpack(code, data)[0])

    return decode


DESERIALIZERS: dict[str, Decode] = {
    "String": lambda data: data.decode("utf-8", "replace"),
    "Integer": fixed(">i", 4),
    "Long": fixed(">q", 8),
    "Short": fixed(">h", 2),
    "Float": fixed(">f", 4),
    "Double": fixed(">d", 8),
    "Boolean": lambda data: str(data == b"\x01").lower(),
    "UUID": lambda data: str(uuid.UUID(data.decode())),
    "Bytes": lambda data: "".join(
        chr(each) if 32 <= each < 127 else f"\\x{each:02X}" for each in data
    ),
}


# The internal topics


def offsets_formatter(properties: Mapping[str, str]) -> Format:
    """Committed offsets in `__consumer_offsets`."""
    return coordinator_formatter((0, 1))


def group_metadata_formatter(properties: Mapping[str, str]) -> Format:
    """Groups in `__consumer_offsets`."""
    return coordinator_formatter((2,))


def coordinator_formatter(kinds: tuple[int, ...]) -> Format:
    from ottla.client.codec.coordinator_records import Unreadable, decode_group_record

    def format_record(record: ConsumerRecord) -> bytes:
        try:
            found = decode_group_record(record.key, record.value)
        except Unreadable:
            return b""
        return coordinator_line(found) if found.kind in kinds else b""

    return format_record


def transaction_formatter(properties: Mapping[str, str]) -> Format:
    """Transactions in `__transaction_state`."""
    from ottla.client.codec.coordinator_records import Unreadable, decode_transaction_record

    def format_record(record: ConsumerRecord) -> bytes:
        try:
            return coordinator_line(decode_transaction_record(record.key, record.value))
        except Unreadable:
            return b""

    return format_record


def share_state_formatter(properties: Mapping[str, str]) -> Format:
    """The state of share partitions in `__share_group_state`."""
    from ottla.client.codec.coordinator_records import Unreadable, decode_share_state_record

    def format_record(record: ConsumerRecord) -> bytes:
        try:
            return coordinator_line(decode_share_state_record(record.key, record.value))
        except Unreadable:
            return b""

    return format_record


def coordinator_line(found: Decoded) -> bytes:
    value: Any = None
    if found.value is not None:
        value = {"version": found.version, "data": found.value}
    line = {"key": {"type": found.kind, "data": found.key}, "value": value}
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def nothing(properties: Mapping[str, str]) -> Format:
    return lambda record: b""


def logging_formatter(properties: Mapping[str, str]) -> Format:
    """The default one; Kafka's also writes each record to its log, which nobody sees here."""
    return default_formatter(properties)


NEW = "org.apache.kafka.tools.consumer."
FORMATTERS: dict[str, Callable[[Mapping[str, str]], Format]] = {
    DEFAULT: default_formatter,
    "kafka.tools.DefaultMessageFormatter": default_formatter,
    f"{NEW}LoggingMessageFormatter": logging_formatter,
    "kafka.tools.LoggingMessageFormatter": logging_formatter,
    f"{NEW}NoOpMessageFormatter": nothing,
    "kafka.tools.NoOpMessageFormatter": nothing,
    f"{NEW}OffsetsMessageFormatter": offsets_formatter,
    "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter": offsets_formatter,
    f"{NEW}GroupMetadataMessageFormatter": group_metadata_formatter,
    "kafka.coordinator.group.GroupMetadataManager$GroupMetadataMessageFormatter": (
        group_metadata_formatter
    ),
    f"{NEW}TransactionLogMessageFormatter": transaction_formatter,
    f"{NEW}group.share.ShareGroupStateMessageFormatter": share_state_formatter,
    "kafka.coordinator.transaction.TransactionLog$TransactionLogMessageFormatter": (
        transaction_formatter
    ),
}

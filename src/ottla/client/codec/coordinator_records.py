"""Records of the coordinators' topics as JSON, in the shape of Kafka's tools.

`as_json` turns any declared message into plain values: names in camel case, ids and bytes as
base64, only the fields of that version, tagged ones only when they are set. `decode` gives the key
and the value of a coordinator's record; what is not known comes as `Unreadable`.
"""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

from ottla.wire.consumer_group_records import CONSUMER_GROUP_RECORDS
from ottla.wire.coordinator_records import (
    GROUP_RECORDS,
    TRANSACTION_RECORDS,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    leading,
    read_key,
    read_value,
    whole,
)
from ottla.wire.malformed import Buffer, WireError
from ottla.wire.schema import Field, Fixed, Struct
from ottla.wire.share_group_records import SHARE_GROUP_RECORDS
from ottla.wire.share_state_records import SHARE_STATE_RECORDS

__all__ = [
    "Decoded",
    "Unreadable",
    "as_json",
    "decode_group_record",
    "decode_share_state_record",
    "decode_transaction_record",
    "with_opened_members",
]

OFFSETS_RECORDS = GROUP_RECORDS | CONSUMER_GROUP_RECORDS | SHARE_GROUP_RECORDS


class Unreadable(Exception):
    """The record is not one that can be shown; the text says why."""

    def __init__(self, text: str, kind: int | None = None) -> None:
        super().__init__(text)
        self.kind = kind  # the type in the key, when that is what is unknown


class Decoded(NamedTuple):
    """A record's key and value; a null value is a tombstone."""

    kind: int  # what the key begins with
    key: dict[str, object]
    version: int  # what the value begins with; -1 for a tombstone
    value: dict[str, object] | None
    message: Struct
    value_message: Struct | None


def decode_group_record(key: Buffer | None, value: Buffer | None) -> Decoded:
    """A record of `__consumer_offsets`: classic, of KIP-848, or of share groups."""
    return _decode(OFFSETS_RECORDS, key, value)


def decode_transaction_record(key: Buffer | None, value: Buffer | None) -> Decoded:
    """A record of `__transaction_state`."""
    return _decode(TRANSACTION_RECORDS, key, value)


def decode_share_state_record(key: Buffer | None, value: Buffer | None) -> Decoded:
    """A record of `__share_group_state`."""
    return _decode(SHARE_STATE_RECORDS, key, value)


def _decode(
    records: dict[int, tuple[type[Struct], type[Struct]]], key: Buffer | None, value: Buffer | None
) -> Decoded:
    if key is None:
        raise Unreadable("the record has no key")
    try:
        kind = leading(key, "key")
        # The older of the two keys of a committed offset has the same fields and values.
        found = (
            (whole(LegacyOffsetCommitKey, 0, key), records[1][1])
            if kind == 0 and records is OFFSETS_RECORDS
            else read_key(records, key)
        )
        if found is None:
            raise Unreadable(f"record type {kind} is not known", kind)
        message, value_class = found
        if value is None:
            return Decoded(kind, as_json(message, 0), -1, None, message, None)
        version = leading(value, "value")
        value_message = read_value(value_class, value)
    except WireError as problem:
        raise Unreadable(str(problem)) from None
    return Decoded(
        kind, as_json(message, 0), version, as_json(value_message, version), message, value_message
    )


def as_json(message: Struct, version: int) -> dict[str, Any]:
    """The fields of this version as values that `json.dumps` takes."""
    shown: dict[str, object] = {}
    for field in type(message).__schema__.fields:
        value = getattr(message, field.name)
        if field.live(version) or (field.live_tag(version) and value != field.default):
            shown[camel_case(field.name)] = _plain(field, value, version)
    return shown


def _plain(field: Field, value: Any, version: int) -> Any:
    if field.many and value is not None:
        return [_one(field, each, version) for each in value]
    return _one(field, value, version)


def _one(field: Field, value: Any, version: int) -> Any:
    if isinstance(value, Struct):
        return as_json(value, version)
    if isinstance(field.kind, Fixed) and field.kind.code == "16s":
        return base64.urlsafe_b64encode(value)[:22].decode()
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return value


def camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def with_opened_members(value: GroupMetadataValue, version: int) -> dict[str, Any]:
    """A classic group's value with each consumer's subscription and assignment read as well."""
    from ottla.wire import consumer_protocol as protocol

    shown = as_json(value, version)
    if value.protocol_type != "consumer":
        return shown
    for member, plain in zip(value.members, shown["members"], strict=True):
        for name, cls, data in (
            ("subscription", protocol.ConsumerProtocolSubscription, member.subscription),
            ("assignment", protocol.ConsumerProtocolAssignment, member.assignment),
        ):
            try:
                embedded = min(leading(data, name), protocol.VERSION_MAX)
                plain[name] = as_json(protocol.read_newest(cls, data), embedded)
            except WireError:
                pass  # a client of one's own may keep anything here: its bytes are shown
    return shown

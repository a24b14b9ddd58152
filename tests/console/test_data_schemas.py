"""Avro and Protobuf by a file: what is read and written, bare and behind a registry's prefix."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path

import fastavro
import pytest

from ottla.console.data.schemas import SchemaError, Schemas, schemas_of
from ottla.console.data.showing import shown

SCHEMA = {
    "type": "record", "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": "bytes"},
        {"name": "price",
         "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}  # fmt: skip


@pytest.fixture
def avro(tmp_path: Path) -> Schemas:
    (tmp_path / "order.avsc").write_text(json.dumps(SCHEMA))
    return schemas_of([{"topics": "orders*", "file": "order.avsc"}], tmp_path)


def binary() -> bytes:
    stream = io.BytesIO()
    record = {"id": 7, "note": "<b>", "at": 1_790_000_000_000, "raw": b"\xff", "price": "1.50"}
    fastavro.schemaless_writer(stream, SCHEMA, {**record, "price": Decimal("1.50")})
    return stream.getvalue()


@pytest.mark.parametrize("prefix", [b"", b"\x00\x00\x00\x00\x05", b"\xc3\x01" + b"f" * 8])
def test_avro_is_shown_as_json(avro: Schemas, prefix: bytes) -> None:
    """Bare, behind a registry's prefix and in single-object encoding."""
    decoders = avro.decoders("main", "orders-eu", "value")
    found = shown(prefix + binary(), decoders=decoders)
    assert found.format == "avro"
    record = json.loads(found.text)
    assert (record["id"], record["note"], record["price"]) == (7, "<b>", "1.50")
    assert record["at"].startswith("2026-09-21")
    assert record["raw"] == {"base64": "/w=="}


def test_what_does_not_fit_the_schema_is_shown_as_it_is(avro: Schemas) -> None:
    """With the reason; and topics and parts that no rule names have no schema."""
    found = shown(b"plain text", decoders=avro.decoders("main", "orders", "value"))
    assert (found.format, found.text) == ("text", "plain text")
    assert "not avro" in str(found.problem)
    assert avro.decoders("main", "orders", "key") == avro.decoders("main", "x", "value") == {}


def test_avro_is_written_from_json(tmp_path: Path) -> None:
    """And what does not fit is refused with a sentence, both ways."""
    fields = [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}]
    (tmp_path / "a.avsc").write_text(json.dumps({**SCHEMA, "fields": fields}))
    made = schemas_of([{"topics": "*", "file": "a.avsc"}], tmp_path)
    encode = made.encoders("main", "orders", "value")["avro"]
    decode = made.decoders("main", "orders", "value")["avro"]
    assert encode('{"id": 7, "note": null}') == b"\x0e\x00"
    assert json.loads(decode(b"\x0e\x00")) == {"id": 7, "note": None}
    with pytest.raises(ValueError, match="Error"):
        encode('{"id": "x"}')
    with pytest.raises(ValueError, match="Error"):
        decode(b"\x02")


@pytest.fixture
def protobuf(tmp_path: Path) -> Schemas:
    pb = pytest.importorskip("google.protobuf.descriptor_pb2")
    file = pb.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate((("id", 3), ("note", 9)), 1):
        message.field.add(name=name, number=number, type=kind, label=1)
    (tmp_path / "shop.desc").write_bytes(pb.FileDescriptorSet(file=[file]).SerializeToString())
    rule = {"topics": "*", "part": "key", "file": "shop.desc", "message": "shop.Order"}
    return schemas_of([rule], tmp_path)


@pytest.mark.parametrize(
    "prefix", [b"", b"\x00\x00\x00\x00\x05\x00", b"\x00\x00\x00\x00\x05\x02\x00"]
)
def test_protobuf_is_shown_and_written(protobuf: Schemas, prefix: bytes) -> None:
    """JSON to bytes and back, behind a registry's prefix too."""
    data = protobuf.encoders("main", "t", "key")["protobuf"]('{"id": "12", "note": "<i>"}')
    found = shown(prefix + data, decoders=protobuf.decoders("main", "t", "key"))
    assert found.format == "protobuf"
    assert json.loads(found.text) == {"id": "12", "note": "<i>"}


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"topics": "*", "file": "absent.avsc"}, "No such file"),
        ({"topics": "*", "file": "bad.avsc"}, "bad.avsc"),
        ({"topics": "*"}, "topics and file"),
        ({"topics": "*", "file": "x", "colour": "red"}, "texts named"),
        ({"topics": "*", "file": "bad.avsc", "part": "header"}, "part of key, value"),
    ],
)
def test_a_wrong_rule_is_named(tmp_path: Path, table: dict[str, str], sentence: str) -> None:
    """At the start, with the file."""
    (tmp_path / "bad.avsc").write_text('{"type": "nothing"}')
    with pytest.raises(SchemaError, match=sentence):
        schemas_of([table], tmp_path)

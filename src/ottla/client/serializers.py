"""Objects to bytes and back: bytes, str, int, float, JSON, or any function.

An option takes a function of one argument, an object with `serialize(topic, headers, data)` (as
kafka-python 3 has them) or a name: "bytes", "str", "int", "float", "json". None stays None, so that
tombstones pass. Numbers are as Java's serializers write them: big-endian, 8 bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

__all__ = [
    "BytesSerializer",
    "DefaultSerializer",
    "Deserializer",
    "FloatSerializer",
    "IntSerializer",
    "JsonSerializer",
    "Serializer",
    "StrSerializer",
    "as_deserializer",
    "as_serializer",
]

Headers = list[tuple[str, bytes | None]]
double = struct.Struct(">d")
long = struct.Struct(">q")
short_forms = {1: struct.Struct(">b"), 2: struct.Struct(">h"), 4: struct.Struct(">i"), 8: long}


class Serializer:
    """Both directions of one form; the base leaves bytes as they are."""

    def serialize(self, topic: str, headers: Headers, data: object) -> bytes | None:
        return None if data is None else self.to_bytes(data)

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        return None if data is None else self.from_bytes(data)

    def to_bytes(self, data: object) -> bytes:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"bytes are needed, and this is {type(data).__name__}: {data!r:.60}")
        return bytes(data)

    def from_bytes(self, data: bytes) -> Any:
        return data

    def close(self) -> None:
        """Called when the client closes."""


class BytesSerializer(Serializer):
    """Bytes as they are."""


class StrSerializer(Serializer):
    """Text in UTF-8, or another encoding."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = encoding

    def to_bytes(self, data: object) -> bytes:
        if not isinstance(data, str):
            raise TypeError(f"a string is needed, and this is {type(data).__name__}: {data!r:.60}")
        return data.encode(self.encoding)

    def from_bytes(self, data: bytes) -> str:
        return data.decode(self.encoding)


class DefaultSerializer(StrSerializer):
    """Text in an encoding, and bytes as they are: kafka-python's."""

    def to_bytes(self, data: object) -> bytes:
        if isinstance(data, bytes | bytearray | memoryview):
            return bytes(data)
        return super().to_bytes(data)


Deserializer = Serializer  # kafka-python has a base for each direction


class IntSerializer(Serializer):
    """Whole numbers as Java's LongSerializer; shorter ones can be read too."""

    def to_bytes(self, data: object) -> bytes:
        return long.pack(data)

    def from_bytes(self, data: bytes) -> int:
        form = short_forms.get(len(data))
        if form is None:
            raise ValueError(f"a whole number has 1, 2, 4 or 8 bytes, not {len(data)}")
        return int(form.unpack(data)[0])


class FloatSerializer(Serializer):
    """Numbers as Java's DoubleSerializer; floats of 4 bytes can be read too."""

    def to_bytes(self, data: object) -> bytes:
        return double.pack(data)

    def from_bytes(self, data: bytes) -> float:
        return float((struct.Struct(">f") if len(data) == 4 else double).unpack(data)[0])


class JsonSerializer(Serializer):
    """JSON in UTF-8; `default` is for objects that JSON does not know."""

    def __init__(self, default: Callable[[Any], Any] | None = None) -> None:
        self.encode = json.JSONEncoder(
            default=default, ensure_ascii=False, separators=(",", ":")
        ).encode

    def to_bytes(self, data: object) -> bytes:
        return self.encode(data).encode()

    def from_bytes(self, data: bytes) -> Any:
        return json.loads(data)


BY_NAME: dict[str, type[Serializer]] = {
    "bytes": BytesSerializer,
    "str": StrSerializer,
    "string": StrSerializer,
    "int": IntSerializer,
    "float": FloatSerializer,
    "json": JsonSerializer,
}


def serializer_option(value: object) -> object:
    """What an option of this kind takes; used by the tables of options."""
    if isinstance(value, str):
        name = value.lower()
        if name not in BY_NAME:
            name = value.rsplit(".", 1)[-1].removesuffix("Deserializer").removesuffix("Serializer")
            name = name.lower()
            name = {"bytearray": "bytes", "long": "int", "integer": "int", "double": "float"}.get(
                name, name
            )
        if name in BY_NAME:
            return BY_NAME[name]()
        raise ValueError(f"a function, a Serializer or one of {', '.join(BY_NAME)}")
    if isinstance(value, type) and (hasattr(value, "serialize") or hasattr(value, "deserialize")):
        return value()
    if value is None or callable(value):
        return value
    if hasattr(value, "serialize") or hasattr(value, "deserialize"):
        return value
    raise ValueError(f"a function, a Serializer or one of {', '.join(BY_NAME)}")


def as_serializer(option: Any) -> Callable[[str, Headers, Any], Any] | None:
    """One shape for all that the option takes; None leaves the data alone."""
    if option is None or type(option) in (BytesSerializer, Serializer):
        return None
    if hasattr(option, "serialize"):
        return option.serialize  # type: ignore[no-any-return]
    return lambda topic, headers, data: option(data)


def as_deserializer(option: Any) -> Callable[[str, Headers, bytes | None], Any] | None:
    """The other way round."""
    if option is None or type(option) in (BytesSerializer, Serializer):
        return None
    if hasattr(option, "deserialize"):
        return option.deserialize  # type: ignore[no-any-return]
    return lambda topic, headers, data: option(data)


def as_bytes(what: str, data: object) -> bytes:
    """What goes into a batch when there is no serializer: bytes, or advice."""
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(
        f"the {what} is {type(data).__name__} {data!r:.60}, and there is no {what}_serializer\n"
        f"Try: bytes, or Producer({what}_serializer='str'), 'json', or a function"
    )

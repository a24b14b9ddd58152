"""From bytes to keys and values: a function, or an object with `deserialize(topic, headers, data)`.

Functions run inside the record loop. Objects, which want to see topic and headers, are applied to
the records afterwards. What they raise becomes a `SerializationError` that names the record.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, cast

from ..errors import SerializationError
from ..serializers import Serializer
from ..structs import ConsumerRecord

Function = Callable[[bytes | None], Any]


class Deserializers:
    """Those of keys and values."""

    def __init__(self, key: object, value: object) -> None:
        self.key = key
        self.value = value
        self.key_function = function_of(key)
        self.value_function = function_of(value)
        self.key_method = method_of(key) if self.key_function is None else None
        self.value_method = method_of(value) if self.value_function is None else None
        self.after = self.key_method is not None or self.value_method is not None

    def applied(self, record: ConsumerRecord, *, functions: bool) -> ConsumerRecord:
        """The record with key and value turned; `functions` says whether those have to run too."""
        key, value = record.key, record.value
        what = "key"
        try:
            if self.key_method is not None:
                key = self.key_method(record.topic, record.headers, key)
            elif functions and self.key_function is not None:
                key = self.key_function(key)
            what = "value"
            if self.value_method is not None:
                value = self.value_method(record.topic, record.headers, value)
            elif functions and self.value_function is not None:
                value = self.value_function(value)
        except Exception as problem:
            raise SerializationError(
                f"the {what} of offset {record.offset} of {record.topic}-{record.partition} "
                f"cannot be deserialized: {problem!r}\n"
                f"Try: seek(partition, {record.offset + 1}) to go on behind it, or a "
                f"{what}_deserializer that takes it"
            ) from problem
        return record._replace(key=key, value=value)

    def close(self) -> None:
        for each in (self.key, self.value):
            close = getattr(each, "close", None)
            if callable(close):
                close()


def function_of(thing: object) -> Function | None:
    """What runs inside the loop; our own forms, which need the bytes alone, can do that too."""
    if isinstance(thing, Serializer) and type(thing).deserialize is Serializer.deserialize:
        turn = thing.from_bytes
        return lambda data: None if data is None else turn(data)
    return None if thing is None or hasattr(thing, "deserialize") else cast(Function, thing)


def method_of(thing: object) -> Callable[[str, Any, Any], Any] | None:
    """`deserialize` of an object; older ones take (topic, data) or (data) alone."""
    method: Any = getattr(thing, "deserialize", None)
    if method is None:
        return None
    try:
        count = len(inspect.signature(method).parameters)
    except (TypeError, ValueError):
        count = 3
    if count == 1:
        return lambda topic, headers, data: method(data)
    if count == 2:
        return lambda topic, headers, data: method(topic, data)
    return lambda topic, headers, data: method(topic, headers, data)

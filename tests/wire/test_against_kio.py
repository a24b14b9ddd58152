"""kio, another implementation, reads the same values from our bytes and writes the same bytes.

kio's fields carry other names and richer types (durations, times, enums), but they stand in the
same order; `plain` turns them back into what is on the wire.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import importlib
import io
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from kio.serial import entity_reader, entity_writer

from ottla.wire.apis import API, Api
from ottla.wire.out import Out
from ottla.wire.schema import Struct, writer
from tests.wire.declared import structs, versions

few = settings(
    max_examples=3, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
ONE_MS = datetime.timedelta(milliseconds=1)


def plain(value: Any) -> Any:
    """A value of kio as nested lists of plain ones, without names."""
    if dataclasses.is_dataclass(value):
        return [plain(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, datetime.timedelta):
        return value // ONE_MS
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // ONE_MS
    if isinstance(value, uuid.UUID):
        return value.bytes
    return value.value if isinstance(value, enum.Enum) else value


def ours(value: Any, version: int) -> Any:
    """A value of ours in the same form: the fields of this version, in order."""
    if isinstance(value, Struct):
        fields = value.__schema__.fields
        live = [field for field in fields if field.first <= version <= field.last]
        return [ours(getattr(value, field.name), version) for field in live]
    if isinstance(value, list):
        return [ours(item, version) for item in value]
    # kio has None for the UUID of zeros, and for an absent point in time.
    return value


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if theirs is None and ours in (bytes(16), -1):
        return True
    return bool(ours == theirs)


CASES = [
    (api, part, version)
    for api in API.values()
    for part in ("request", "response")
    for version in versions(getattr(api, part))
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].name}-{case[1]}-v{case[2]}")
def test_kio_agrees(case: tuple[Api, str, int]) -> None:
    """kio sees the same value in every field, and its own bytes for them are ours."""
    api, part, version = case
    cls = getattr(api, part)
    module = importlib.import_module(f"kio.schema.{api.module}.v{version}.{part}")
    theirs = getattr(module, cls.__name__)

    @few
    @given(structs(cls, version, tame=True))
    def check(message: Struct) -> None:
        data = bytes(writer(cls, version)(message, Out()))
        seen, size = entity_reader(theirs)(data, 0)
        assert size == len(data)
        assert same(ours(message, version), plain(seen)), (message, seen)
        out = io.BytesIO()
        entity_writer(theirs)(out, seen)
        assert out.getvalue() == data

    check()

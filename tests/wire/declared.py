"""Everything that is declared, and hypothesis strategies drawn from the declarations themselves."""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

from hypothesis import strategies as st

from ottla.wire import (
    consumer_group_records,
    consumer_protocol,
    control,
    coordinator_records,
    share_group_records,
    share_state_records,
)
from ottla.wire.apis import EVERY_API, OWN_KEYS_FROM
from ottla.wire.schema import Field, Fixed, Struct, Text

Case = tuple[type[Struct], int]


@cache
def messages() -> dict[str, type[Struct]]:
    """Every class that has versions of its own, by name."""
    found = {}
    for api in EVERY_API.values():
        if api.key >= OWN_KEYS_FROM:
            continue
        found |= {cls.__name__: cls for cls in (api.request, api.response)}
    for module in (
        consumer_group_records,
        consumer_protocol,
        control,
        coordinator_records,
        share_group_records,
        share_state_records,
    ):
        for name, value in vars(module).items():
            schema = getattr(value, "__schema__", None)
            if isinstance(value, type) and schema is not None and schema.versions is not None:
                found[name] = value
    return found


def versions(cls: type[Struct]) -> range:
    assert cls.__schema__.versions is not None
    lowest, highest = cls.__schema__.versions
    return range(lowest, highest + 1)


@cache
def own_messages() -> dict[str, type[Struct]]:
    """Those that are not Kafka's."""
    apis = [api for api in EVERY_API.values() if api.key >= OWN_KEYS_FROM]
    return {cls.__name__: cls for api in apis for cls in (api.request, api.response)}


def every_version() -> list[Case]:
    return [(cls, version) for cls in messages().values() for version in versions(cls)]


def named(case: Case) -> str:
    return f"{case[0].__name__}-v{case[1]}"


INTEGERS = {code: 8 * struct.calcsize(">" + code) for code in "bhiqHI"}
# Lengths around 127 and 128 are where a compact length grows by a byte.
TEXTS = st.one_of(
    st.text(max_size=6), st.sampled_from(["", "orders", "ž" * 63, "x" * 126, "x" * 127, "x" * 300])
)
BLOBS = st.one_of(st.binary(max_size=6), st.sampled_from([b"", b"x" * 126, b"x" * 127]))


def values(kind: Any, version: int, tame: bool = False) -> st.SearchStrategy[Any]:
    """Any value that a field of this kind can carry; tame ones mean something in any field."""
    if isinstance(kind, type):
        return structs(kind, version, tame)
    if isinstance(kind, Text):
        return TEXTS
    if not isinstance(kind, Fixed):
        return BLOBS
    if kind.code == "?":
        return st.booleans()
    if kind.code == "16s":
        return st.binary(min_size=16, max_size=16)
    if kind.code == "d":
        return st.floats(allow_nan=False)
    if tame:
        return st.integers(0, 99)
    bits = INTEGERS[kind.code]
    if kind.code.isupper():
        return st.integers(0, 2**bits - 1)
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def field_values(field: Field, version: int, tame: bool) -> st.SearchStrategy[Any]:
    strategy = values(field.kind, version, tame)
    if field.many:
        strategy = st.lists(strategy, min_size=int(tame), max_size=3)
        if isinstance(field.kind, Fixed) and field.kind.code != "16s":
            long = st.just([1] * 63), st.just([1] * 64), st.just([1] * 130)
            strategy = st.one_of(strategy, *long)
    if field.nullable <= version:
        strategy = st.one_of(st.none(), strategy)
    if field.tag is not None:
        strategy = st.one_of(st.just(field.default), strategy)
    return strategy


@cache
def structs(cls: type[Struct], version: int, tame: bool = False) -> st.SearchStrategy[Struct]:
    """Messages with any value in the fields of this version, and the default in all others."""
    fields = {
        field.name: field_values(field, version, tame)
        for field in cls.__schema__.fields
        if field.first <= version <= field.last
    }
    return st.builds(cls, **fields)

"""Every declaration agrees with the published facts, field by field, in every version."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_origin

import pytest

from ottla.wire.apis import API, EVERY_API, Api
from ottla.wire.schema import Blob, Field, Fixed, RequestFor, Struct, Text
from tests.wire import facts
from tests.wire.declared import Case, every_version, messages, named, versions
from tests.wire.facts import FactField

TYPES = {
    "?": "bool", "b": "int8", "h": "int16", "i": "int32", "q": "int64",
    "H": "uint16", "I": "uint32", "d": "float64", "16s": "uuid",
}  # fmt: skip


def declared_fields(cls: type[Struct], version: int) -> tuple[FactField, ...]:
    """Our declaration in one version, in the form of the facts."""
    live = [
        FactField(
            name=field.name,
            type=type_name(field),
            nullable=field.nullable <= version,
            tag=field.tag,
            default=(
                "a struct of defaults" if isinstance(field.default, Struct) else field.default
            ),
            fields=declared_fields(field.kind, version) if isinstance(field.kind, type) else (),
        )
        for field in cls.__schema__.fields
        if field.first <= version <= field.last
    ]
    return tuple(sorted(live, key=lambda field: -1 if field.tag is None else field.tag))


def type_name(field: Field) -> str:
    kind = field.kind
    if isinstance(kind, Fixed):
        name = TYPES[kind.code]
    elif isinstance(kind, Text):
        name = "string"
    elif isinstance(kind, Blob):
        name = "records" if kind.records else "bytes"
    else:
        name = kind.__name__
    return "[]" * field.many + name


@pytest.mark.parametrize("case", every_version(), ids=named)
def test_declaration_agrees_with_the_facts(case: Case) -> None:
    """Names, order, types, nullability, tags and defaults are those of Kafka, in each version."""
    cls, version = case
    assert declared_fields(cls, version) == facts.fields_of(cls.__name__, version)


@pytest.mark.parametrize("name", messages())
def test_versions_agree_with_the_facts(name: str) -> None:
    """A message has all stable versions of Kafka and is flexible from the same one on."""
    schema = messages()[name].__schema__
    assert schema.versions == facts.stable_versions(name)
    assert schema.versions is not None
    assert min(schema.flexible, schema.versions[1] + 1) == min(
        facts.flexible_from(name), schema.versions[1] + 1
    )
    assert schema.key == facts.facts()[name].get("apiKey")


@pytest.mark.parametrize("name", messages())
def test_no_field_is_declared_in_vain(name: str) -> None:
    """Each field exists in at least one version that is served."""
    assert not list(dead_fields(messages()[name], versions(messages()[name])))


def dead_fields(cls: type[Struct], live: range) -> Iterator[str]:
    for field in cls.__schema__.fields:
        here = range(max(live.start, field.first), min(live.stop, field.last + 1))
        if not here:
            yield f"{cls.__name__}.{field.name}"
        elif isinstance(field.kind, type):
            yield from dead_fields(field.kind, here)


@pytest.mark.parametrize("api", EVERY_API.values(), ids=lambda api: api.name)
def test_table_of_apis_agrees_with_the_facts(api: object) -> None:
    """The table, which is all that is imported at start, says the same as the messages."""
    for cls in (api.request, api.response):  # type: ignore[attr-defined]
        schema = cls.__schema__
        assert (schema.key, schema.versions) == (api.key, api.versions)  # type: ignore[attr-defined]
        assert schema.flexible == api.flexible_from  # type: ignore[attr-defined]


def test_produce_is_advertised_from_zero_on() -> None:
    """Older librdkafka switches compression off unless Produce 0 to 2 are advertised."""
    assert API[0].versions == (3, 13)
    assert API[0].advertised == (0, 13)
    assert API[1].advertised == API[1].versions


@pytest.mark.parametrize("api", EVERY_API.values(), ids=lambda api: api.name)
def test_a_request_names_its_response(api: Api) -> None:
    """Type checkers take the type argument of `RequestFor` for the class that a response gets."""
    (base,) = api.request.__orig_bases__
    assert get_origin(base) is RequestFor
    (response,) = get_args(base)
    assert response.__forward_arg__ == api.response.__name__


def test_a_wrong_declaration_would_be_found() -> None:
    """The comparison can fail: each kind of difference shows."""
    right = facts.fields_of("FetchRequest", 12)
    first = right[0]
    for wrong in (
        first._replace(name="other"),
        first._replace(type="int64"),
        first._replace(nullable=True),
        first._replace(default=7),
        first._replace(tag=3),
    ):
        assert (wrong, *right[1:]) != declared_fields(messages()["FetchRequest"], 12)
    assert right == declared_fields(messages()["FetchRequest"], 12)


def test_copy_of_the_facts_is_a_true_one() -> None:
    """Each line of our copy is one of the full list, where that is at hand (KAFKA_FACTS)."""
    path = os.environ.get("KAFKA_FACTS")
    if path is None:
        pytest.skip("KAFKA_FACTS does not name the full list of Kafka's messages")
    full = {fact["name"]: fact for fact in json.loads(Path(path).read_text())}
    for name, fact in facts.facts().items():
        assert fact == full[name]

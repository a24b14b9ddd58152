"""Kafka's own classes read what we write and write the same bytes; its error codes are ours."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from ottla.wire.apis import API
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.out import Out
from ottla.wire.records import Record, write_batch
from ottla.wire.schema import writer
from tests import needs
from tests.apache import java
from tests.wire.declared import Case, every_version, named, structs

# One worker asks Java once for all of them.
pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("reencode")]

PROGRAM = Path(__file__).with_name("Reencode.java")
EXAMPLES = 5
drawn = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


# Enough to need several blocks of snappy and lz4; some compress well, some do not at all.
RECORDS = [
    Record(
        random.Random(number).randbytes(100) * (1 + number % 20) if number % 7 else None,
        key=b"key %d" % number if number % 5 else None,
        headers=[("h", b"1"), ("null", None)] * (number % 3),
        timestamp=1_700_000_000_000 + number * (-1) ** number,
        offset=1000 + 2 * number,
    )
    for number in range(300)
]
BATCHES = {codec: write_batch(RECORDS, compression=codec, leader_epoch=3) for codec in Compression}


def examples(case: Case) -> list[bytes]:
    """Some messages of a class in a version, as bytes; the same in every run."""
    cls, version = case
    found: list[bytes] = []

    @drawn
    @given(structs(cls, version))
    def collect(message: object) -> None:
        found.append(bytes(writer(cls, version)(message, Out())))

    collect()
    return found


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[str]]]:
    """What Kafka's classes made of all messages: one run of Java for the whole file."""
    needs.apache()
    lines = [
        f"{cls.__name__} {version} {data.hex()}"
        for cls, version in every_version()
        for data in examples((cls, version))
    ]
    lines += [f"batch 2 {batch.hex()}" for batch in BATCHES.values()]
    file = tmp_path_factory.mktemp("reencode") / "messages.txt"
    file.write_text("\n".join(lines) + "\n")
    output = java.run_program(PROGRAM, str(file)).splitlines()
    kinds: dict[str, list[list[str]]] = defaultdict(list)
    for line in output:
        kind, _, rest = line.partition(" ")
        kinds[kind].append([rest] if kind == "message" else rest.split(" "))
    messages = [line for line in lines if not line.startswith("batch ")]
    for line, (again,) in zip(messages, kinds["message"], strict=True):
        name, version, data = line.split(" ")
        kinds[f"{name}-v{version}"].append([data, again])
    return kinds


@pytest.mark.parametrize("codec", Compression, ids=lambda codec: codec.name)
def test_kafka_reads_our_batches(codec: Compression, answers: dict[str, list[list[str]]]) -> None:
    """Java decompresses what we compress, in every codec and over several blocks."""
    found, *records = answers["batch"][list(BATCHES).index(codec)]
    assert found == codec.name.lower()
    assert records == [
        f"{record.offset},{record.timestamp},{hexed(record.key)},{hexed(record.value)}"
        + "".join(f",{name}={hexed(value)}" for name, value in record.headers)
        for record in RECORDS
    ]


def hexed(data: bytes | bytearray | memoryview | None) -> str:
    return "null" if data is None else data.hex()


@pytest.mark.parametrize("case", every_version(), ids=named)
def test_kafka_reads_what_we_write(case: Case, answers: dict[str, list[list[str]]]) -> None:
    """Kafka's class reads each message to its last byte and writes the same bytes again."""
    pairs = answers[named(case)]
    assert pairs
    for ours, theirs in pairs:
        assert theirs == ours


def test_error_codes_are_all_of_kafkas(answers: dict[str, list[list[str]]]) -> None:
    """Every code, its name and whether it is retriable are Kafka's, and none is missing."""
    theirs = {(int(code), name, again == "true") for code, name, again in answers["error"]}
    assert theirs == {(int(code), code.name, code.retriable) for code in ErrorCode}


def test_versions_are_those_that_kafka_serves(answers: dict[str, list[list[str]]]) -> None:
    """The advertised versions of each API are the stable ones of Kafka."""
    theirs = {int(key): (int(low), int(high)) for key, _, low, high in answers["api"]}
    for api in API.values():
        assert theirs[api.key] == api.versions, api.name

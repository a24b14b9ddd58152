"""Requests to begin with, and what is done to them before they are sent.

The corpus is what real clients sent (tests/wire/vectors), and for every API and version requests
drawn at random from the declarations. A mutation changes bytes as a bad client, a bad line or a
malicious hand would: bits, lengths and counts, cuts, repetitions, splices.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

from ottla.broker.dispatch import HANDLERS
from ottla.wire.apis import API
from ottla.wire.header import start_request
from ottla.wire.records import Record, write_batch
from ottla.wire.schema import Blob, Fixed, Struct, Text, writer
from tests.wire import vectors

# What the fuzzed requests must not do on purpose: change the broker's own configs.
LEFT_OUT = {33, 44, 57}
TOPICS = ("fuzzed", "first", "", "__consumer_offsets", "x" * 300, "a/b", "é")
BOUNDARIES = (0, 1, -1, 2**31 - 1, -(2**31), 2**15 - 1, 2**15, 255, 65_536)
VARINTS = (b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x80\x80", b"\x00")


def real_requests() -> list[bytes]:
    """Frames without their size that real clients sent."""
    return [
        vector.frame
        for path in sorted(vectors.FOLDER.glob("*.txt"))
        for vector in vectors.load(path)
        if vector.part == "request" and vector.api.key not in LEFT_OUT
    ]


def drawn_request(rng: random.Random) -> bytes:
    """A well-formed request of some API and version with arbitrary values."""
    key = rng.choice([key for key in HANDLERS if key not in LEFT_OUT])
    api = API[key]
    version = rng.randint(*api.versions)
    out = start_request(key, version, rng.getrandbits(31), rng.choice((None, "fuzz", "")))
    writer(api.request, version)(drawn(rng, api.request, version), out)
    return bytes(out)[4:]


def drawn(rng: random.Random, cls: type[Struct], version: int) -> Any:
    fields: dict[str, Any] = {}
    for field in cls.__schema__.fields:
        if not field.first <= version <= field.last:
            continue
        if field.nullable <= version and rng.random() < 0.2:
            fields[field.name] = None
        elif field.many:
            fields[field.name] = [value(rng, field.kind, version) for _ in range(rng.randint(0, 3))]
        else:
            fields[field.name] = value(rng, field.kind, version)
    return cls(**fields)


def value(rng: random.Random, kind: Any, version: int) -> Any:
    if isinstance(kind, type):
        return drawn(rng, kind, version)
    if isinstance(kind, Text):
        return rng.choice(TOPICS)
    if isinstance(kind, Blob):
        return batch(rng) if kind.records else rng.randbytes(rng.randint(0, 20))
    assert isinstance(kind, Fixed)
    if kind.code == "?":
        return rng.random() < 0.5
    if kind.code == "16s":
        return rng.choice((bytes(16), rng.randbytes(16)))
    if kind.code == "d":
        return rng.random()
    bits = 8 * struct.calcsize(f">{kind.code}")
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if kind.code.isupper():
        low, high = 0, 2**bits - 1
    chosen = rng.choice((0, 0, 0, 1, 1, 2, 5, 100, *BOUNDARIES, rng.randint(low, high)))
    return min(max(chosen, low), high)


def batch(rng: random.Random) -> bytes:
    records = [
        Record(rng.randbytes(rng.randint(0, 50)), key=rng.choice((None, b"k")), timestamp=1)
        for _ in range(rng.randint(1, 4))
    ]
    return write_batch(records, compression=rng.randint(0, 4), producer_id=rng.choice((-1, 7)))


# Mutations


def flip_bits(rng: random.Random, frame: bytearray, _: list[bytes]) -> None:
    for _ in range(rng.randint(1, 5)):
        frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)


def set_number(rng: random.Random, frame: bytearray, _: list[bytes]) -> None:
    position = rng.randrange(len(frame))
    number = rng.choice(BOUNDARIES) & 0xFFFFFFFF
    frame[position : position + 4] = struct.pack(">I", number)


def set_varint(rng: random.Random, frame: bytearray, _: list[bytes]) -> None:
    position = rng.randrange(min(8, len(frame)), len(frame) + 1)
    chosen = rng.choice(VARINTS)
    frame[position : position + rng.choice((1, len(chosen)))] = chosen


def cut(rng: random.Random, frame: bytearray, _: list[bytes]) -> None:
    del frame[rng.randrange(len(frame)) :]


def repeat(rng: random.Random, frame: bytearray, _: list[bytes]) -> None:
    start = rng.randrange(len(frame))
    piece = bytes(frame[start : start + rng.randint(1, 200)])
    frame[start:start] = piece * rng.randint(1, 50)


def remove(rng: random.Random, frame: bytearray, _: list[bytes]) -> None:
    start = rng.randrange(len(frame))
    del frame[start : start + rng.randint(1, 20)]


def splice(rng: random.Random, frame: bytearray, corpus: list[bytes]) -> None:
    other = rng.choice(corpus)
    frame[rng.randrange(len(frame)) :] = other[rng.randrange(len(other)) :]


def noise(rng: random.Random, frame: bytearray, _: list[bytes]) -> None:
    frame[:] = rng.randbytes(rng.randint(1, 300))


def noise_after_header(rng: random.Random, frame: bytearray, _: list[bytes]) -> None:
    frame[min(len(frame), 12) :] = rng.randbytes(rng.randint(1, 300))


def another_version(rng: random.Random, frame: bytearray, _: list[bytes]) -> None:
    frame[2:4] = struct.pack(">h", rng.choice((-1, 0, 1, 5, 12, 18, 100, 32767)))


def another_api(rng: random.Random, frame: bytearray, _: list[bytes]) -> None:
    frame[0:2] = struct.pack(">h", rng.choice((-1, *range(92), 10_000)))


Mutation = Callable[[random.Random, bytearray, list[bytes]], None]
MUTATIONS: list[Mutation] = [
    flip_bits, flip_bits, set_number, set_number, set_varint, set_varint, cut, repeat, remove,
    splice, noise, noise_after_header, another_version, another_api,
]  # fmt: skip


def mutated(rng: random.Random, corpus: list[bytes]) -> bytes:
    """Some request, changed a little or much, now and then not at all."""
    frame = bytearray(rng.choice(corpus) if rng.random() < 0.6 else drawn_request(rng))
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        if frame:
            rng.choice(MUTATIONS)(rng, frame, corpus)
    return bytes(frame)


FILLERS = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x00\x00\x00\x00\x7f\xff")


def huge_counts() -> list[bytes]:
    """For every API and version, bodies that announce as much as a field can."""
    frames = []
    for key in HANDLERS:
        api = API[key]
        for version in range(api.versions[0], api.versions[1] + 1):
            head = bytes(start_request(key, version, 1, "c"))[4:]
            for filler in FILLERS:
                frames.append(head + filler * 6)
                frames.append(head + b"\x00\x01" + filler * 6)
    return frames

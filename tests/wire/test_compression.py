"""Compression: every codec both ways, and a limit that a bomb cannot pass."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from collections.abc import Callable

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.wire.compression import Compression, compress, decompress
from ottla.wire.malformed import MalformedMessage

CODECS = [codec for codec in Compression if codec]
MIB = 1024 * 1024
quick = settings(max_examples=40, deadline=None, database=None)


@pytest.mark.parametrize("codec", Compression, ids=lambda codec: codec.name)
@pytest.mark.parametrize("size", [0, 1, 100, 32768, 65536, 65537, 300_000])
def test_what_is_compressed_is_decompressed(codec: Compression, size: int) -> None:
    """Sizes around the blocks of snappy and lz4 come back, from any kind of buffer."""
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    packed = compress(codec, memoryview(data))
    assert decompress(codec, packed) == data
    assert decompress(codec, memoryview(bytearray(packed))) == data


@quick
@given(st.binary(max_size=2000), st.sampled_from(Compression))
def test_any_bytes_come_back(data: bytes, codec: Compression) -> None:
    """Whatever the bytes."""
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Compression.GZIP, (1, 9)), (Compression.LZ4, (1, 17)), (Compression.ZSTD, (-5, 1, 19))],
    ids=["gzip", "lz4", "zstd"],
)
def test_levels(codec: Compression, levels: tuple[int, ...]) -> None:
    """Kafka's levels are taken, from the lowest to the highest."""
    data = b"a quite repetitive text " * 5000
    for level in levels:
        assert decompress(codec, compress(codec, data, level)) == data


def test_snappy_as_one_raw_block() -> None:
    """What librdkafka writes: a raw block without any frame."""
    data = b"raw snappy " * 1000
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data


def test_snappy_as_java_writes_it() -> None:
    """The chunks of the xerial library, behind its magic number; also of other sizes than ours."""
    parts = [b"one " * 100, b"two " * 5000, b""]
    packed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for part in parts:
        block = bytes(cramjam.snappy.compress_raw(part))
        packed += struct.pack(">i", len(block)) + block
    assert decompress(Compression.SNAPPY, packed) == b"".join(parts)
    assert compress(Compression.SNAPPY, b"x").startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01")


def test_lz4_blocks_are_independent() -> None:
    """Java refuses lz4 frames whose blocks refer to each other, so we write none, but read them."""
    assert compress(Compression.LZ4, b"x" * 200_000)[4] & 0x20
    linked = bytes(cramjam.lz4.compress(b"linked " * 50_000))
    assert not linked[4] & 0x20
    assert decompress(Compression.LZ4, linked) == b"linked " * 50_000


def test_gzip_of_several_members() -> None:
    """Members one after the other are one stream, as for Java."""
    assert (
        decompress(Compression.GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"
    )


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_limit_is_exact(codec: Compression) -> None:
    """As many bytes as the limit are allowed, one more is refused."""
    packed = compress(codec, b"x" * 100_000)
    assert len(decompress(codec, packed, 100_000)) == 100_000
    with pytest.raises(MalformedMessage, match="more than 99999 bytes"):
        decompress(codec, packed, 99_999)
    with pytest.raises(MalformedMessage, match="more than 10 bytes"):
        decompress(Compression.NONE, b"x" * 11, 10)


BOMBS: dict[str, tuple[Compression, Callable[[bytes], bytes]]] = {
    "gzip": (Compression.GZIP, lambda data: gzip.compress(data, 1)),
    "gzip in members": (Compression.GZIP, lambda data: gzip.compress(data[: 4 * MIB], 1) * 16),
    "snappy": (Compression.SNAPPY, lambda data: compress(Compression.SNAPPY, data)),
    "snappy raw": (Compression.SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "lz4": (Compression.LZ4, lambda data: compress(Compression.LZ4, data)),
    "zstd": (Compression.ZSTD, lambda data: compress(Compression.ZSTD, data)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_does_not_eat_memory(name: str) -> None:
    """64 MiB of zeros behind a limit of 1 MiB: refused, and no more than a few MiB were held."""
    codec, pack = BOMBS[name]
    bomb = pack(bytes(64 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage, match="more than"):
            decompress(codec, bomb, MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6 * MIB + 2 * len(bomb)


@pytest.mark.parametrize("size", [2**32 - 1, 2**31, 100 * MIB])
def test_snappy_that_lies_about_its_size(size: int) -> None:
    """A raw block of five bytes that says it holds gigabytes gets no buffer."""
    claim = bytearray()
    while size > 127:
        claim.append(size & 127 | 128)
        size >>= 7
    claim.append(size)
    with pytest.raises(MalformedMessage):
        decompress(Compression.SNAPPY, bytes(claim) + b"\x00", 2**40)


@settings(max_examples=200, deadline=None, database=None)
@given(
    st.sampled_from(CODECS),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), min_size=1, max_size=6),
    st.integers(0, 5000),
)
def test_damage_gives_only_the_named_exception(
    codec: Compression, mutations: list[tuple[int, int]], cut: int
) -> None:
    """Bytes changed or cut off: something else comes out, or MalformedMessage."""
    packed = bytearray(compress(codec, b"some text, rather plain, that is packed " * 200))
    for position, value in mutations:
        packed[position % len(packed)] = value
    try:
        assert len(decompress(codec, bytes(packed[: max(cut, 1)]), MIB)) <= MIB
    except MalformedMessage:
        pass


@settings(max_examples=200, deadline=None, database=None)
@given(st.sampled_from(CODECS), st.binary(max_size=100))
def test_random_bytes_give_only_the_named_exception(codec: Compression, data: bytes) -> None:
    """Bytes that were never compressed."""
    for tried in (data, b"\x82SNAPPY\x00" + data):
        try:
            decompress(codec, tried, MIB)
        except MalformedMessage:
            pass


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_do_not_exist(codec: int) -> None:
    """The attributes have three bits for the codec; three of their values are not assigned."""
    with pytest.raises(MalformedMessage, match="no compression codec"):
        decompress(codec, b"")
    with pytest.raises(ValueError, match="no compression codec"):
        compress(codec, b"")

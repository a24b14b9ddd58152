"""The four codecs of a record batch, both ways, with a limit that holds while decompressing.

A few bytes can claim to be gigabytes. So nothing is decompressed into a buffer that grows by
itself: the size is either known and checked before (snappy), asked for in pieces (gzip), or the
buffer is fixed and only made larger step by step up to the limit (lz4, zstd). Whatever is wrong
with the input, the answer is `MalformedMessage`.

gzip, lz4 and zstd are self-describing streams. Snappy comes in two coats: Java writes the chunks
of the xerial library behind a magic number, librdkafka one raw block; both are read, and the
chunks are written, for Java reads nothing else.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import Any

from .malformed import Buffer, MalformedMessage

__all__ = ["DECOMPRESSED_BYTES_MAX", "Compression", "compress", "decompress"]

# Kafka has no such limit. This is above any batch that its default limits let a producer build
# (socket.request.max.bytes is 100 MiB), and a bomb still fits into a small machine's memory.
DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024

GZIP_WINDOW = 31  # zlib's way to say: a gzip stream with the full window
CHUNK_BYTES = 32 * 1024  # xerial's block size, which Java uses
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEAD = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
# Version 1, independent blocks (Java reads no others), 64 KiB each, and the checksum of that.
LZ4_HEAD = bytes.fromhex("04224d18 60 40 82")
LZ4_BLOCK_BYTES = 64 * 1024
LZ4_STORED = 1 << 31
ZSTD_LEVEL = 3  # Kafka's default for compression.zstd.level
LZ4_LEVEL = 9  # Kafka's default for compression.lz4.level, which means the fast compressor

unpack_size = struct.Struct(">i").unpack_from


class Compression(IntEnum):
    """The codecs, by their number in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


@cache
def codecs() -> Any:
    """cramjam: 1.4 MB of memory that a process without compressed batches does not need."""
    return import_module("cramjam")


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` in the way that Java's clients write it; `level` is Kafka's `compression.*.level`."""
    if codec == Compression.NONE:
        return bytes(data)
    if codec == Compression.GZIP:
        return zlib.compress(data, -1 if level is None else level, GZIP_WINDOW)
    if codec == Compression.SNAPPY:
        return compress_snappy(data)
    if codec == Compression.LZ4:
        return compress_lz4(data, LZ4_LEVEL if level is None else level)
    if codec == Compression.ZSTD:
        return bytes(codecs().zstd.compress(data, ZSTD_LEVEL if level is None else level))
    raise ValueError(f"there is no compression codec {codec}")


def decompress(codec: int, data: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """What `data` was before; refused if that is more than `limit` bytes."""
    decompressor = DECOMPRESSORS.get(codec)
    if decompressor is None:
        raise MalformedMessage(f"there is no compression codec {codec}")
    try:
        return decompressor(data, limit)
    except TooLarge:
        name = Compression(codec).name.lower()
        raise MalformedMessage(f"{name}: more than {limit} bytes when decompressed") from None
    except (codecs().DecompressionError, zlib.error) as problem:
        raise MalformedMessage(f"{Compression(codec).name.lower()}: {problem}") from problem


class TooLarge(Exception):
    """More comes out than the limit allows."""


def compress_snappy(data: Buffer) -> bytes:
    out = bytearray(XERIAL_HEAD)
    view = memoryview(data)
    for start in range(0, len(view), CHUNK_BYTES):
        block = bytes(codecs().snappy.compress_raw(view[start : start + CHUNK_BYTES]))
        out += struct.pack(">i", len(block)) + block
    return bytes(out)


def compress_lz4(data: Buffer, level: int) -> bytes:
    out = bytearray(LZ4_HEAD)
    view = memoryview(data)
    for start in range(0, len(view), LZ4_BLOCK_BYTES):
        plain = view[start : start + LZ4_BLOCK_BYTES]
        block = compress_lz4_block(plain, level)
        if len(block) < len(plain):
            out += struct.pack("<I", len(block)) + block
        else:
            out += struct.pack("<I", len(plain) | LZ4_STORED) + plain
    return bytes(out + bytes(4))


def compress_lz4_block(plain: Buffer, level: int) -> bytes:
    compress_block = codecs().lz4.compress_block
    if level == LZ4_LEVEL:
        return bytes(compress_block(plain, store_size=False))
    return bytes(
        compress_block(plain, mode="high_compression", compression=level, store_size=False)
    )


def copy_plain(data: Buffer, limit: int) -> bytes:
    if len(data) > limit:
        raise TooLarge
    return bytes(data)


def decompress_gzip(data: Buffer, limit: int) -> bytes:
    """All members of a gzip stream, one after the other."""
    parts: list[bytes] = []
    rest: Buffer = data
    while True:
        stream = zlib.decompressobj(GZIP_WINDOW)
        # One byte more than is allowed tells a stream that ends at the limit from one that goes on.
        part = stream.decompress(rest, limit + 1)
        limit -= len(part)
        if limit < 0:
            raise TooLarge
        parts.append(part)
        if not stream.eof:
            raise MalformedMessage("gzip: the stream ends too early")
        rest = stream.unused_data
        if not rest:
            return parts[0] if len(parts) == 1 else b"".join(parts)


def decompress_snappy(data: Buffer, limit: int) -> bytes:
    if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return decompress_snappy_block(data, limit)
    parts: list[bytes] = []
    view = memoryview(data)
    pos, left = len(XERIAL_HEAD), limit
    if len(view) < pos:
        raise MalformedMessage("snappy: the stream ends inside its head")
    while pos < len(view):
        if pos + 4 > len(view):
            raise MalformedMessage("snappy: the stream ends inside a chunk's size")
        (size,) = unpack_size(view, pos)
        pos += 4
        if not 0 <= size <= len(view) - pos:
            raise MalformedMessage(f"snappy: chunk of {size} bytes, {len(view) - pos} are left")
        parts.append(decompress_snappy_block(view[pos : pos + size], left))
        left -= len(parts[-1])
        pos += size
    return b"".join(parts)


def decompress_snappy_block(block: Buffer, limit: int) -> bytes:
    """One raw block; it begins with its size, so the limit is checked before there is a buffer."""
    size = codecs().snappy.decompress_raw_len(block)
    if size > limit:
        raise TooLarge
    # An element of three bytes stands for 64 at most, so no honest block grows more than that.
    if size > 32 * len(block) + 64:
        raise MalformedMessage(f"snappy: block of {len(block)} bytes says it holds {size}")
    out = bytearray(size)
    codecs().snappy.decompress_raw_into(block, out)
    return bytes(out)


def decompress_lz4(data: Buffer, limit: int) -> bytes:
    return decompress_growing(codecs().lz4.decompress_into, data, limit)


def decompress_zstd(data: Buffer, limit: int) -> bytes:
    return decompress_growing(codecs().zstd.decompress_into, data, limit)


def decompress_growing(
    decompress_into: Callable[[Buffer, bytearray], int], data: Buffer, limit: int
) -> bytes:
    """Decompress into a buffer of fixed size; if it is too small, begin anew with a larger one."""
    capacity = max(64 * 1024, 4 * len(data))
    while True:
        out = bytearray(min(capacity, limit))
        try:
            size = decompress_into(data, out)
        except codecs().DecompressionError as problem:
            # What Rust's standard library says when a fixed buffer is full.
            if "failed to write whole buffer" not in str(problem):
                raise
            if len(out) == limit:
                raise TooLarge from None
            capacity *= 4
        else:
            del out[size:]
            return bytes(out)


DECOMPRESSORS: dict[int, Callable[[Buffer, int], bytes]] = {
    Compression.NONE: copy_plain,
    Compression.GZIP: decompress_gzip,
    Compression.SNAPPY: decompress_snappy,
    Compression.LZ4: decompress_lz4,
    Compression.ZSTD: decompress_zstd,
}

"""Compressed files: what they decompress to, read forwards.

`logrotate` and log4j compress what they rotated; the offsets of a stream are those of the bytes
before compression, so that a stream goes on in the compressed copy of its file.
"""

from __future__ import annotations

import bz2
import errno
import logging
import lzma
import os
import zlib
from collections.abc import Iterator
from importlib import import_module
from io import FileIO
from typing import Any, Protocol

from .facts import CONFIRM_BYTES

logger = logging.getLogger(__name__)
SUFFIXES = (".gz", ".zst", ".bz2", ".xz")
CHUNK_BYTES = 128 * 1024
KEPT_BYTES = 256 * 1024  # before the offset that was read last
# What a file may make its decompressor keep; `zstd -d` has the same limit, `xz -9` needs 65 MiB.
WINDOW_BYTES_MAX = 128 * 1024 * 1024
# zstandard gives all of what it gets: 4 bytes can become 128 KiB, so these 8 MiB at most.
ZSTD_INPUT_BYTES = 256
BOMB_BYTES_MIN = 1024 * 1024 * 1024  # unpacked
BOMB_RATIO_MIN = 1000  # more than gzip reaches; logs have 5 to 50


def is_compressed(path: str) -> bool:
    return path.endswith(SUFFIXES)


class Decompressor(Protocol):
    """One compressed member; `eof` says that it is complete."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def new_decompressor(path: str) -> Decompressor:
    if path.endswith(".gz"):
        return zlib.decompressobj(wbits=31)
    if path.endswith(".zst"):
        return ZstdDecompressor()
    if path.endswith(".bz2"):
        return bz2.BZ2Decompressor()
    return lzma.LZMADecompressor(memlimit=WINDOW_BYTES_MAX)


class ZstdDecompressor:
    """One frame, a few bytes of it at a time. Raises ZstdError, which is a ValueError."""

    def __init__(self) -> None:
        self._frame = zstandard().ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX)
        self._inner = self._frame.decompressobj()
        self._made = b""
        self._behind = b""
        self.unconsumed_tail: bytes | memoryview = b""

    @property
    def eof(self) -> bool:
        return bool(self._inner.eof) and not self._made

    @property
    def unused_data(self) -> bytes:
        return self._behind

    def decompress(self, data: bytes | memoryview, max_length: int, /) -> bytes:
        rest = memoryview(data)
        if not self._made and rest:
            try:
                self._made = self._inner.decompress(rest[:ZSTD_INPUT_BYTES])
            except zstandard().ZstdError as error:
                raise ValueError(str(error)) from None
            rest = rest[ZSTD_INPUT_BYTES:]
            if self._inner.eof:
                self._behind = self._inner.unused_data + bytes(rest)
                rest = memoryview(b"")
        self.unconsumed_tail = rest
        made, self._made = self._made[:max_length], self._made[max_length:]
        return made


def zstandard() -> Any:
    """The package, which is imported for the first such file. Raises OSError without it."""
    try:
        return import_module("zstandard")
    except ModuleNotFoundError:
        raise OSError(
            errno.ENOPKG, "needs the package zstandard: pip install 'ottla[agent]'"
        ) from None


def unpacked(decompressor: Decompressor, data: bytes) -> Iterator[bytes]:
    """What the data decompress to, in pieces: a few bytes can become gigabytes."""
    while not decompressor.eof:
        piece = decompressor.decompress(data, CHUNK_BYTES)
        data = getattr(decompressor, "unconsumed_tail", b"")  # the others keep it themselves
        if piece:
            yield piece
        if len(piece) < CHUNK_BYTES and not data:
            return


class CompressedContent:
    """The decompressed bytes of a file. Going back begins anew; a few bytes are kept.

    One that is not whole, because it is being written, has fewer bytes, and more when it has grown.
    `complete` says whether the end was reached, once it was read so far.
    """

    def __init__(self, path: str) -> None:
        if path.endswith(".zst"):
            zstandard()
        self._path = path
        self._file = FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
        self._chunks: Iterator[bytes] = iter(())
        self._held = b""
        self._base = 0  # the offset of the first byte held
        self._first = b""  # the first bytes of all
        self._size: int | None = None
        self.complete = False
        self.problem = ""  # why it cannot be read to its end
        self._is_bomb = False
        self._begin()

    def _begin(self) -> None:
        self._file.seek(0)
        self._held = b""
        self._base = 0
        self._chunks = self._members()

    def _members(self) -> Iterator[bytes]:
        """Files of several members are one after the other, as `cat a.gz b.gz` makes them. An
        empty piece is the end, for now."""
        decompressor = new_decompressor(self._path)
        started = False
        while True:
            try:
                while data := self._file.read(CHUNK_BYTES):
                    while data:
                        if decompressor.eof:
                            decompressor = new_decompressor(self._path)
                        started = True
                        yield from unpacked(decompressor, data)
                        data = decompressor.unused_data
            except (zlib.error, lzma.LZMAError, OSError, ValueError) as error:
                self.complete = False
                self.problem = str(error)
                return  # damaged, or it needs too much memory
            self.complete = decompressor.eof or not started
            yield b""

    def pread(self, length: int, offset: int) -> bytes:
        end = offset + length
        if end <= len(self._first):
            return self._first[offset:end]
        if offset < self._base:
            self._begin()
        pieces = [self._held]
        held_to = self._base + len(self._held)
        while held_to < end:
            chunk = next(self._chunks, b"")
            if not chunk:
                self._size = held_to
                break
            if len(self._first) < CONFIRM_BYTES and held_to == len(self._first):
                self._first += chunk[: CONFIRM_BYTES - len(self._first)]
            pieces.append(chunk)
            held_to += len(chunk)
            if held_to >= BOMB_BYTES_MIN and not self._is_bomb:
                self._say_if_a_bomb(held_to)
            if held_to < offset - KEPT_BYTES:
                pieces = []
                self._base = held_to
        self._held = b"".join(pieces)
        found = self._held[offset - self._base : end - self._base] if offset >= self._base else b""
        surplus = offset - self._base - KEPT_BYTES
        if surplus > 0:
            self._held = self._held[surplus:]
            self._base += surplus
        return found

    def _say_if_a_bomb(self, unpacked_bytes: int) -> None:
        packed_bytes = self.stat().st_size
        if unpacked_bytes >= BOMB_RATIO_MIN * packed_bytes:
            self._is_bomb = True
            logger.warning(
                "%s has %d bytes and becomes over %d: nobody's log does that. It is read on, in "
                "pieces, and needs time, not memory. Move it away to end that",
                self._path,
                packed_bytes,
                unpacked_bytes,
            )

    def size(self) -> int:
        while self._size is None:
            self.pread(CHUNK_BYTES, self._base + len(self._held))
        return self._size

    def stat(self) -> os.stat_result:
        return os.fstat(self._file.fileno())

    def close(self) -> None:
        self._file.close()

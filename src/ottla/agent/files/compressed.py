"""Compressed files: what they decompress to, read forwards.

`logrotate` and log4j compress what they rotated; the offsets of a stream are those of the bytes
before compression, so that a stream goes on in the compressed copy of its file.
"""

from __future__ import annotations

import bz2
import lzma
import mmap
import os
import tempfile
import zlib
from collections.abc import Iterator
from io import FileIO
from typing import Protocol

import cramjam

from .facts import CONFIRM_BYTES

SUFFIXES = (".gz", ".zst", ".bz2", ".xz")
CHUNK_BYTES = 128 * 1024
KEPT_BYTES = 256 * 1024  # before the offset that was read last


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
    return bz2.BZ2Decompressor() if path.endswith(".bz2") else lzma.LZMADecompressor()


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
        self._path = path
        self._file = FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
        self._chunks: Iterator[bytes] = iter(())
        self._held = b""
        self._base = 0  # the offset of the first byte held
        self._first = b""  # the first bytes of all
        self._size: int | None = None
        self.complete = False
        self._begin()

    def _begin(self) -> None:
        self._file.seek(0)
        self._held = b""
        self._base = 0
        self._chunks = self._frames() if self._path.endswith(".zst") else self._members()

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
            except (zlib.error, lzma.LZMAError, OSError, ValueError):
                self.complete = False
                return  # damaged
            self.complete = decompressor.eof or not started
            yield b""

    def _frames(self) -> Iterator[bytes]:
        """zstd goes through a temporary file, once more when the file has grown: cramjam wants all
        of the input at once."""
        given, unpacked_bytes = 0, -1
        while True:
            size = os.fstat(self._file.fileno()).st_size
            if size != unpacked_bytes:
                unpacked_bytes = size
                with tempfile.NamedTemporaryFile() as plain:
                    self.complete = size == 0 or self._unpack_into(plain.name)
                    plain.seek(given)
                    while data := plain.read(CHUNK_BYTES):
                        given += len(data)
                        yield data
            yield b""

    def _unpack_into(self, path: str) -> bool:
        """Whether the file is whole; what came out before the damage is there."""
        try:
            with mmap.mmap(self._file.fileno(), 0, prot=mmap.PROT_READ) as packed:
                cramjam.zstd.decompress_into(packed, cramjam.File(path))
        except (cramjam.DecompressionError, OSError, ValueError):
            return False
        return True

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

    def size(self) -> int:
        while self._size is None:
            self.pread(CHUNK_BYTES, self._base + len(self._held))
        return self._size

    def stat(self) -> os.stat_result:
        return os.fstat(self._file.fileno())

    def close(self) -> None:
        self._file.close()

"""Frames out of a stream of bytes: a size of four bytes, then so many bytes.

Small frames come through one buffer. A frame that does not fit into it goes straight into memory of
its own, so that it is received without a copy. There is no I/O here: the caller puts bytes where
`target` says and reports their number.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from .malformed import Buffer, MalformedMessage

__all__ = ["BUFFER_BYTES", "Frame", "FrameReader", "OversizedFrame"]

BUFFER_BYTES = 64 * 1024
SIZE_BYTES = 4

unpack_size = struct.Struct(">i").unpack_from


class OversizedFrame(MalformedMessage):
    """The size of a frame is negative, or more than this side takes."""


class Frame(NamedTuple):
    """One frame without its size; `large` if it has memory of its own, else it is a copy."""

    data: memoryview
    large: bool


def new_memory(size: int) -> memoryview:
    return memoryview(bytearray(size))


class FrameReader:
    """Reads frames of at most `bytes_max`; `lend` returns memory for a large one.

    After an error the stream cannot be read any further: the caller ends the connection.
    """

    __slots__ = ("_buffer", "_lend", "bytes_max", "filled", "large")

    def __init__(self, bytes_max: int, lend: Callable[[int], memoryview] = new_memory) -> None:
        self.bytes_max = bytes_max
        self._lend = lend
        self._buffer = bytearray(BUFFER_BYTES)
        self.large: memoryview | None = None  # the memory of a large frame that is not whole
        self.filled = 0  # bytes in `large`, or in the buffer

    @property
    def between_frames(self) -> bool:
        """Whether no frame has begun."""
        return self.large is None and not self.filled

    def target(self) -> memoryview:
        """Where the next bytes go; never empty."""
        memory = self.large if self.large is not None else memoryview(self._buffer)
        return memory[self.filled :]

    def received(self, size: int) -> list[Frame]:
        """So many bytes were put into `target()`: the frames that are whole now."""
        self.filled += size
        if self.large is None:
            return self._split()
        if self.filled < len(self.large):
            return []
        frame, self.large, self.filled = self.large, None, 0
        return [Frame(frame, large=True)]

    def feed(self, data: Buffer) -> list[Frame]:
        """Bytes that are somewhere else: they are copied to where they belong."""
        frames: list[Frame] = []
        view = memoryview(data)
        while view:
            target = self.target()
            size = min(len(target), len(view))
            target[:size] = view[:size]
            frames += self.received(size)
            view = view[size:]
        return frames

    def adopt(self, memory: memoryview, filled: int) -> list[Frame]:
        """Between two frames: the next `filled` bytes were received into `memory`, size first.

        A large frame that fits stays where it is, and goes on there.
        """
        assert self.between_frames
        size = self._size(memory, 0) if filled >= SIZE_BYTES else 0
        whole = SIZE_BYTES + size
        if not BUFFER_BYTES < whole <= len(memory) or filled > whole:
            return self.feed(memory[:filled])
        self.large, self.filled = memory[SIZE_BYTES:whole], 0
        return self.received(filled - SIZE_BYTES)

    def _size(self, data: bytearray | memoryview, position: int) -> int:
        size: int = unpack_size(data, position)[0]
        if not 0 <= size <= self.bytes_max:
            raise OversizedFrame(f"a frame of {size} bytes, where 0 to {self.bytes_max} are taken")
        return size

    def _split(self) -> list[Frame]:
        """Take the whole frames out of the buffer; what is left moves to its front."""
        frames: list[Frame] = []
        buffer, filled, position = self._buffer, self.filled, 0
        while filled - position >= SIZE_BYTES:
            size = self._size(buffer, position)
            end = position + SIZE_BYTES + size
            if end > filled:
                if SIZE_BYTES + size > BUFFER_BYTES:
                    self._begin_large(size, memoryview(buffer)[position + SIZE_BYTES : filled])
                    return frames
                break
            data = bytes(memoryview(buffer)[position + SIZE_BYTES : end])
            frames.append(Frame(memoryview(data), large=False))
            position = end
        if position:
            buffer[: filled - position] = buffer[position:filled]
        self.filled = filled - position
        return frames

    def _begin_large(self, size: int, data: memoryview) -> None:
        """A large frame of which only `data` has come."""
        self.large = self._lend(size)
        self.filled = len(data)
        self.large[: self.filled] = data

"""Frames: four bytes of size, then that many bytes of request or response.

`FrameBuffer` is told of bytes in whatever pieces they come and gives whole frames as views, without
copying them; a view stays good for as long as it is kept. A size that is negative or above the
limit is refused as soon as its four bytes are there, before room is made for the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from .malformed import Buffer, MalformedMessage

__all__ = ["FRAME_BYTES_MAX", "FrameBuffer", "frame_size"]

FRAME_BYTES_MAX = 100 * 1024 * 1024  # Kafka's socket.request.max.bytes

unpack_size = struct.Struct(">i").unpack_from


def frame_size(buf: Buffer, pos: int, limit: int = FRAME_BYTES_MAX) -> int:
    """The size of the frame whose four size bytes are at `pos`, not counting them."""
    (size,) = unpack_size(buf, pos)
    if size < 0:
        raise MalformedMessage(f"frame of {size} bytes")
    if size > limit:
        raise MalformedMessage(f"frame of {size} bytes (at most {limit})")
    return int(size)


class FrameBuffer:
    """Bytes as they come in; whole frames as they get complete."""

    __slots__ = ("data", "limit")

    def __init__(self, limit: int = FRAME_BYTES_MAX) -> None:
        self.data = bytearray()
        self.limit = limit

    def received(self, piece: Buffer) -> Iterator[memoryview]:
        """Take in `piece`; give every frame that is now whole, then refuse what cannot be one."""
        data, limit = self.data, self.limit
        data += piece
        view, pos = memoryview(data), 0
        try:
            while len(data) - pos >= 4:
                start = pos + 4
                end = start + frame_size(data, pos, limit)
                if end > len(data):
                    break
                pos = end
                yield view[start:end]
        finally:
            # The frames keep the old buffer; only what is left over moves to a new one.
            if pos:
                self.data = bytearray(view[pos:])

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return len(self.data)

"""CRC-32C (Castagnoli) of bytes wherever they are, without copying a large payload.

google_crc32c takes only objects that need no release, so not a memoryview; a ctypes array over
the same memory is one. Whole blocks go that way; what is left, less than a block, is cheaper
copied. Memory that may not be written has no such array: it is copied block by block, so that the
copies stay in the processor's cache.
"""

from __future__ import annotations

import ctypes

from google_crc32c import extend, value

from .malformed import Buffer

__all__ = ["BLOCK_BYTES", "crc32c"]

BLOCK_BYTES = 64 * 1024
_block_at = (ctypes.c_char * BLOCK_BYTES).from_buffer


def crc32c(data: Buffer, position: int = 0) -> int:
    """The checksum of `data` from `position` to its end."""
    if type(data) is bytes and not position:
        return int(value(data))
    left = len(data) - position
    if left < BLOCK_BYTES:
        return int(value(bytes(data[position:])))
    view = memoryview(data)
    crc = 0
    while left >= BLOCK_BYTES:
        if view.readonly:
            crc = extend(crc, bytes(view[position : position + BLOCK_BYTES]))
        else:
            crc = extend(crc, _block_at(view, position))
        position += BLOCK_BYTES
        left -= BLOCK_BYTES
    return int(extend(crc, bytes(view[position:])))

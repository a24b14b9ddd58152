"""CRC-32C over part of a request, without copying a payload.

google_crc32c takes only objects that need no release, so not a memoryview; a ctypes array over
the same memory is one. Whole blocks go that way; what is left, less than a block, is cheaper
copied.
"""

from __future__ import annotations

import ctypes

from google_crc32c import extend

BLOCK_BYTES = 64 * 1024
_block_at = (ctypes.c_char * BLOCK_BYTES).from_buffer


def crc32c(view: memoryview, position: int = 0) -> int:
    """The checksum of `view` from `position` to its end."""
    left = len(view) - position
    if left < BLOCK_BYTES or view.readonly:
        return int(extend(0, bytes(view[position:])))
    crc = 0
    while left >= BLOCK_BYTES:
        crc = extend(crc, _block_at(view, position))
        position += BLOCK_BYTES
        left -= BLOCK_BYTES
    return int(extend(crc, bytes(view[position:])))

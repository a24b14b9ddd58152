"""Memory for large answers, used again as soon as nobody looks at it any more.

New memory for every answer would have to be zeroed (with the interpreter's lock held) and brought
into the processor's caches: that costs as much as the copy from the socket. A view of lent memory
may be kept as long as one likes: Python itself refuses to resize a bytearray while there are views
of it, and what it refuses is not lent again.
"""

from __future__ import annotations

STEP_BYTES = 256 * 1024
KEPT_BYTES_MAX = 16 * 1024 * 1024


class Buffers:
    """Lends memory; belongs to one thread."""

    def __init__(self) -> None:
        self.kept: list[bytearray] = []
        self.kept_bytes = 0

    def lend(self, size: int) -> memoryview:
        """So many writable bytes, with whatever is in them."""
        for buffer in self.kept:
            if size <= len(buffer) <= 2 * size + STEP_BYTES and is_free(buffer):
                return memoryview(buffer)[:size]
        buffer = bytearray(-(-size // STEP_BYTES) * STEP_BYTES)
        self.kept.append(buffer)
        self.kept_bytes += len(buffer)
        while self.kept_bytes > KEPT_BYTES_MAX:
            self.kept_bytes -= len(self.kept.pop(0))
        return memoryview(buffer)[:size]


def is_free(buffer: bytearray) -> bool:
    """Whether there is no view of it."""
    try:
        buffer.pop()
    except BufferError:
        return False
    buffer.append(0)
    return True

"""Memory for large answers, reused as soon as no view of it is left.

New memory for every answer would have to be zeroed (with the interpreter's lock held) and brought
into the processor's caches: that costs as much as the copy from the socket. A view of lent memory
may be kept as long as one likes: Python itself refuses to resize a bytearray while there are views
of it, and what it refuses is not lent again.
"""

from __future__ import annotations

SIZE_MIN = 256 * 1024
DOUBLING_MAX = 8 * 1024 * 1024  # up to here sizes are powers of two, then multiples of half of it
KEPT_BYTES_MAX = 64 * 1024 * 1024
RESTING_BYTES_MAX = 4 * 1024 * 1024


class Buffers:
    """Lends memory; belongs to one thread."""

    def __init__(self) -> None:
        self.kept: list[bytearray] = []  # the oldest first
        self.kept_bytes = 0

    def lend(self, size: int) -> memoryview:
        """So many writable bytes, with whatever is in them."""
        best: bytearray | None = None
        for buffer in self.kept:
            if size <= len(buffer) and (best is None or len(buffer) < len(best)):
                best = buffer if is_free(buffer) else best
        if best is None:
            best = bytearray(rounded(size))
            self.kept.append(best)
            self.kept_bytes += len(best)
            self.shrink(KEPT_BYTES_MAX)
        return memoryview(best)[:size]

    def shrink(self, most: int = RESTING_BYTES_MAX) -> None:
        """Keep no more than so many bytes; what is lent is freed when its views are gone."""
        while self.kept_bytes > most:
            self.kept_bytes -= len(self.kept.pop(0))


class LastBuffer:
    """Lends the memory of the last large answer for the next: never more than one is kept."""

    def __init__(self) -> None:
        self._memory = bytearray()

    def lend(self, size: int) -> memoryview:
        """So many writable bytes, with whatever is in them."""
        if size > len(self._memory) or not is_free(self._memory):
            self._memory = bytearray(-(-size // SIZE_MIN) * SIZE_MIN)
        return memoryview(self._memory)[:size]

    def give_back(self) -> None:
        """Keep nothing; what is lent is freed when its views are gone."""
        if self._memory:
            self._memory = bytearray()


def rounded(size: int) -> int:
    """A size that will do for others too."""
    if size > DOUBLING_MAX:
        step = DOUBLING_MAX // 2
        return -(-size // step) * step
    return max(SIZE_MIN, 1 << (size - 1).bit_length())


def is_free(buffer: bytearray) -> bool:
    """Whether there is no view of it."""
    try:
        buffer.pop()
    except BufferError:
        return False
    buffer.append(0)
    return True

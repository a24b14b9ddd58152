"""The blob decoder: a whole file is an event; one over the limit is several."""

from __future__ import annotations

from .lines import Cut

BLOB_BYTES_MAX = 100_000_000  # Flume's maxBlobLength


class BlobDecoder:
    flush_s: float | None = None
    pending = False

    def __init__(self, position: int = 0, bytes_max: int = BLOB_BYTES_MAX) -> None:
        self.position = position
        self.read_to = position
        self.long_lines = 0  # files that were split
        self._bytes_max = bytes_max
        self._held = bytearray()

    def feed(self, block: bytes) -> Cut:
        self._held += block
        self.read_to += len(block)
        bodies: list[bytes] = []
        ends: list[int] = []
        while len(self._held) > self._bytes_max:
            bodies.append(bytes(self._held[: self._bytes_max]))
            del self._held[: self._bytes_max]
            self.position += self._bytes_max
            ends.append(self.position)
        self.long_lines += bool(bodies)
        return Cut(bodies, ends)

    def flush(self) -> Cut:
        return Cut([], [])

    def finish(self) -> Cut:
        if not self._held:
            return Cut([], [])
        body = bytes(self._held)
        self._held.clear()
        self.position = self.read_to
        return Cut([body], [self.read_to])

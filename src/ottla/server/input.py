"""What one connection has received and not yet handled, and the buffer it lies in.

Without a request under way there is no buffer: the connection receives into the scratch buffer
that all share. The start of a request whose end has not arrived moves into a buffer of its own.
That one grows as bytes arrive, so a peer that announces much and sends little holds little. A
buffer is used again only when no view of it is left (by its reference count), so a request that is
read later never shows the bytes of another (KAFKA-19012).
"""

from ottla.server.limits import OWN_BUFFER_BYTES_MIN, SCRATCH_BYTES, Held, Waiter

SIZE_BYTES = 4  # each request begins with its size


class Scratch:
    """The buffer of the connection that receives now."""

    __slots__ = ("buffer",)

    def __init__(self) -> None:
        self.buffer = bytearray(SCRATCH_BYTES)

    def give_back(self) -> None:
        """The turn is over; a buffer of which a view is left is replaced."""
        if not is_free(self.buffer):
            self.buffer = bytearray(SCRATCH_BYTES)


class Input:
    """Received bytes: those of `buffer` from `start` to `end`; no buffer, nothing received."""

    __slots__ = ("_held", "_owner", "buffer", "end", "start", "starved")

    def __init__(self, owner: Waiter, held: Held) -> None:
        self._owner = owner
        self._held = held
        self.buffer: bytearray | None = None
        self.start = self.end = 0
        self.starved = False  # it may not grow now; `memory_available` of the owner is called

    def keep(self, buffer: bytearray, start: int, end: int, size: int) -> None:
        """Keeps buffer[start:end], where the next request of `size` bytes (-1: unknown) begins.

        `buffer` is the own one, or the scratch buffer if there is none.
        """
        rest = end - start
        own = self.buffer
        if own is None:
            if rest:
                self._move(buffer, start, end, size)
            return
        received = start != self.start
        if not rest:
            self.start = self.end = 0
            # A big buffer stays while big requests come; `rest` takes it when they do not.
            if len(own) <= SCRATCH_BYTES or self._held.crowded or not is_free(own):
                self.drop()
        if received:
            self._held.received(self._owner)
        if not rest:
            return
        self.start, self.end = start, end
        complete = 0 <= size <= rest - SIZE_BYTES
        if not complete and end == len(own):
            self._move(own, start, end, size)

    def rest(self) -> None:
        """Nothing has come for a while: gives back the buffer if nothing is in it."""
        if self.end == 0:
            self.drop()

    def drop(self) -> None:
        if self.buffer is not None:
            self._held.give(len(self.buffer))
            self.buffer = None
        self.start = self.end = 0

    def _move(self, buffer: bytearray, start: int, end: int, size: int) -> None:
        """Moves buffer[start:end] to the front of an own buffer large enough for what follows."""
        own = self.buffer
        rest = end - start
        had = len(own) if own is not None else 0
        needed = SIZE_BYTES + size if size >= 0 else OWN_BUFFER_BYTES_MIN
        capacity = max(rest, min(needed, max(2 * rest, OWN_BUFFER_BYTES_MIN)))
        if capacity > had and not self._held.may_grow(self._owner, capacity - had):
            self.starved = True
            capacity = rest
        capacity = max(capacity, had)
        if own is not None and capacity == had and is_free(own):
            with memoryview(own) as view:
                view[:rest] = view[start:end]
        else:
            self._held.take(capacity - had)
            self.buffer = bytearray(capacity)
            with memoryview(buffer) as view:
                self.buffer[:rest] = view[start:end]
        self.start, self.end = 0, rest


def is_free(buffer: bytearray) -> bool:
    """Whether no view of the buffer is left anywhere: one in view cannot change its size."""
    try:
        last = buffer.pop()
    except BufferError:
        return False
    buffer.append(last)
    return True


def why_not_a_frame(
    size: int, frame_bytes_max: int, option: str = "socket.request.max.bytes"
) -> str:
    """What to say about a size that no request has, with a guess at who might have sent it."""
    start = (size & 0xFFFFFFFF).to_bytes(SIZE_BYTES, "big")
    if start[:2] == b"\x16\x03":
        return "it speaks TLS, and this listener does not"
    if start.strip().isalpha():
        return f"it sent text ({start.decode()!r} …), perhaps HTTP, and no Kafka request"
    if size < 0:
        return f"it announced a request of {size} bytes"
    return f"it announced a request of {size} bytes, and {option} is {frame_bytes_max}"

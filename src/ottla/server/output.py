"""What one connection still has to send: answers in their order, and file ranges between them.

Small answers that wait together go out in one system call. A file range goes from the file to the
socket without passing through Python, in slices, so that one big reader does not hold the loop.
An answer may not be changed once it is queued: it is sent without a copy. One whose range has been
truncated since cannot be sent: other bytes may lie there.
"""

from collections import deque

from ottla.seams.network import Data, FileTooShort, Stream
from ottla.server.limits import (
    BUFFERS_PER_SEND,
    CACHE_ASK_BYTES,
    CACHE_PIECE_BYTES,
    DOUBT_BYTES,
    INLINE_BYTES_MAX,
    PREAD_BYTES_MAX,
    SEND_BYTES_PER_TURN,
)
from ottla.wire.out import FileRange, Out


class Output:
    """A queue of bytes and file ranges, and how far the first of them has gone out."""

    __slots__ = (
        "_asks_cache",
        "_cached_to",
        "_doubt_bytes",
        "_file_sent",
        "cold_at",
        "held",
        "pieces",
    )

    def __init__(self, asks_cache: bool = False) -> None:
        """`asks_cache`: send of a file only what is in the page cache; see `cold_at`."""
        self.pieces: deque[Data | FileRange] = deque()
        self._file_sent = 0
        self._asks_cache = asks_cache
        # In the file of the first piece: up to here it is cached, as was asked or by reading ahead.
        self._cached_to = 0
        self._doubt_bytes = 0  # for so many pages may be on their way that are said to be there
        # Where the first piece, a file, goes on with what the device must be waited for; -1 when
        # it does not. The caller has it read, and says so with `read_ahead`.
        self.cold_at = -1
        self.held = 0  # bytes in memory; a file range holds none

    def put(self, out: Out) -> None:
        """Adds one answer. Raises FileTooShort or OSError when a small range cannot be read."""
        blobs = out.blobs
        if not blobs:
            self.pieces.append(out)
            self.held += len(out)
            return
        if len(blobs) == 1 and blobs[0][1].size <= INLINE_BYTES_MAX:
            # A few records: copying them costs less than sending two or three buffers.
            position, blob = blobs[0]
            out[position:position] = read_whole(blob)
            out.blobs = ()
            self.pieces.append(out)
            self.held += len(out)
            return
        view = memoryview(out)
        start = 0
        for position, blob in blobs:
            self._put_data(view[start:position])
            start = position
            if blob.size > PREAD_BYTES_MAX:
                self.pieces.append(blob)
            elif blob.size:
                # One packet and one wake-up of the reader instead of two.
                self._put_data(read_whole(blob))
        self._put_data(view[start:])

    def send(self, stream: Stream) -> bool:
        """Sends what the socket takes, at most one turn's worth; True when nothing is left."""
        pieces = self.pieces
        budget = SEND_BYTES_PER_TURN
        while pieces:
            piece = pieces[0]
            if isinstance(piece, FileRange):
                sent = self._send_file(stream, piece, budget)
            else:
                sent = self._send_only(stream, piece) if len(pieces) == 1 else self._send(stream)
            if not sent:
                return False
            budget -= sent
            if budget <= 0:
                return not pieces
        return True

    def read_ahead(self, size: int) -> None:
        """So many bytes from `cold_at` on have been read."""
        self._cached_to = self.cold_at + size
        self.cold_at = -1
        self._doubt_bytes = DOUBT_BYTES

    def ask_again(self) -> None:
        """The peer has paused: what was cached then may have left the cache since."""
        self._cached_to = 0

    def clear(self) -> None:
        self.pieces.clear()
        self._file_sent = self._cached_to = self.held = 0
        self.cold_at = -1

    def _put_data(self, data: Data) -> None:
        if data:
            self.pieces.append(data)
            self.held += len(data)

    def _send_file(self, stream: Stream, range_: FileRange, budget: int) -> int:
        if range_.is_void:
            raise FileTooShort
        done = self._file_sent
        position, size = range_.position + done, min(range_.size - done, budget)
        if self._asks_cache:
            cached = self._cached_to - position
            if cached <= 0:
                doubts = self._doubt_bytes > 0
                cached = cached_from(range_, position, in_pieces=doubts)
                if doubts:
                    self._doubt_bytes -= cached
                if not cached:
                    self.cold_at = position
                    return 0
                self._cached_to = position + cached
            size = min(size, cached)
        sent = stream.send_file(range_.file, position, size)
        done += sent
        if done >= range_.size:
            self.pieces.popleft()
            done = self._cached_to = 0
        self._file_sent = done
        return sent

    def _send_only(self, stream: Stream, data: Data) -> int:
        """Sends from the only piece: what most answers are. Its end needs no list of buffers."""
        sent = stream.send((data,))
        if sent == len(data):
            self.pieces.popleft()
        elif sent:
            self.pieces[0] = memoryview(data)[sent:]
        self.held -= sent
        return sent

    def _send(self, stream: Stream) -> int:
        pieces = self.pieces
        buffers: list[Data] = []
        file_follows = False
        for piece in pieces:
            if isinstance(piece, FileRange):
                file_follows = True
                break
            buffers.append(piece)
            if len(buffers) == BUFFERS_PER_SEND:
                break
        sent = left = stream.send(buffers, file_follows)
        for buffer in buffers:
            size = len(buffer)
            if size > left:
                if left:
                    pieces[0] = memoryview(buffer)[left:]
                break
            left -= size
            pieces.popleft()
        self.held -= sent
        return sent


def cached_from(range_: FileRange, position: int, *, in_pieces: bool = False) -> int:
    """How many bytes of a range from `position` on are in the page cache; 0 if the first are not.

    Asked is for more than is sent now: a socket takes it in many small parts. Where any of it is
    missing, what is sent next may still be there. In pieces: for what is sent now, up to the first
    piece that is missing or still on its way from the device.
    """
    size = min(range_.position + range_.size - position, CACHE_ASK_BYTES)
    if in_pieces:
        size = min(size, SEND_BYTES_PER_TURN)
        for done in range(0, size, CACHE_PIECE_BYTES):
            if not range_.file.is_cached(position + done, min(CACHE_PIECE_BYTES, size - done)):
                return done
        return size
    if range_.file.is_cached(position, size):
        return size
    if size > SEND_BYTES_PER_TURN and range_.file.is_cached(position, SEND_BYTES_PER_TURN):
        return SEND_BYTES_PER_TURN
    return 0


def read_whole(range_: FileRange) -> Data:
    """The bytes of a small range. Raises FileTooShort when the file has fewer, or other ones."""
    data: Data = range_.file.pread(range_.size, range_.position)
    if len(data) < range_.size or range_.position + range_.size > range_.lent.void_from:
        raise FileTooShort
    return data

"""One client's connection: bytes in, requests to the dispatcher, answers out in request order.

Requests that came together are handled together, in place (input.py) and at most
REQUESTS_PER_TURN of them, and their answers leave in one send (output.py). An answer that comes
later is parked, with those behind it; requests go on being handled meanwhile, unless the pending
one is exclusive: then its effect has to come first. At a limit (limits.py) the connection stops
reading until the limit allows more. Whatever is wrong with a request closes this connection alone,
with one logged reason.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Callable

from ottla.broker.dispatch import Peer, PeerError, Pending
from ottla.seams.clock import Timer
from ottla.seams.network import EXPECTED_BYTES, FileTooShort, Stream
from ottla.server.input import SIZE_BYTES, Input, why_not_a_frame
from ottla.server.limits import CACHED_S, REQUESTS_PER_TURN, UNSENT_BYTES
from ottla.server.output import Output
from ottla.server.read_ahead import READ_AHEAD_BYTES
from ottla.server.shared import Shared
from ottla.tls.failure import TlsFailure
from ottla.wire.out import FileRange, Out

log = logging.getLogger("ottla.server")

_read_size = struct.Struct(">i").unpack_from


class Slot:
    """An answer's position in the order of the requests."""

    __slots__ = ("connection", "done", "held", "out", "pending")

    def __init__(self, connection: Connection, pending: Pending | None, held: int) -> None:
        self.connection = connection
        self.pending = pending
        self.held = held  # bytes: the request's while it waits, then the answer's
        self.out: Out | None = None
        self.done = False

    def settle(self, out: Out | None) -> None:
        self.out = out
        self.done = True
        self.pending = None
        self.connection.settled(self)


class Connection:
    """Made for each accepted stream; lives until `close`, which calls `on_closed` once."""

    __slots__ = (
        "_continuing",
        "_counted",
        "_dirty",
        "_draining",
        "_exclusive",
        "_expects",
        "_held",
        "_input",
        "_on_closed",
        "_output",
        "_parked",
        "_paused",
        "_shared",
        "_stream",
        "_throttled",
        "_throttled_until",
        "_writing",
        "closed",
        "last_active",
        "peer",
        "peer_host",
    )

    def __init__(
        self,
        shared: Shared,
        stream: Stream,
        listener_name: str,
        on_closed: Callable[[Connection], object],
    ) -> None:
        self._shared = shared
        self._stream = stream
        self._on_closed = on_closed
        self.peer = Peer(listener_name, stream.peer, self.disconnect)
        self.peer.throttle = self.throttle
        self.peer_host = stream.peer_host
        self.last_active = shared.monotonic()
        self.closed = False
        self._input = Input(self, shared.held)
        self._output = Output(asks_cache=shared.read_ahead is not None)
        self._parked: deque[Slot] = deque()
        self._exclusive: Slot | None = None
        self._held = 0  # bytes, by the slots
        self._counted = 0  # how much of `_output.held` the common account knows about
        self._continuing = self._dirty = self._draining = self._expects = False
        self._paused = self._writing = False
        self._throttled_until = 0.0  # monotonic
        self._throttled: Timer | None = None  # until it fires nothing is read
        stream.on_readable(self._readable)

    # Receiving

    def _readable(self) -> None:
        if self._continuing:  # what came earlier has its turn first
            return
        shared, waiting = self._shared, self._input
        buffer, end = waiting.buffer, waiting.end
        if buffer is None:
            buffer = shared.scratch.buffer
        elif end == len(buffer):  # whole requests that had to wait
            self._handle(buffer, waiting.start, end)
            return
        try:
            received = self._stream.recv_into(memoryview(buffer)[end:] if end else buffer)
        except TlsFailure as error:
            self.close(str(error), logging.WARNING)
            return
        except OSError as error:
            self.close(f"reading failed: {error.strerror or error}")
            return
        if received is None:
            return
        if not received:
            refused = None if self.peer.login is None else self.peer.login.refused
            if refused is None:
                self.close("the client ended it")
            else:
                self.close(refused, logging.WARNING)
            return
        self.last_active = self.peer.received_at = shared.monotonic()
        self._handle(buffer, waiting.start, end + received)

    def _handle(self, buffer: bytearray, start: int, end: int) -> None:
        """Handles the whole requests in buffer[start:end] and keeps the rest for later."""
        shared, peer, parked, output = self._shared, self.peer, self._parked, self._output
        handle, frame_bytes_max = shared.handle, shared.limits.frame_bytes_max
        limit = "socket.request.max.bytes"
        if peer.login is not None and peer.login.frame_bytes_max is not None:
            frame_bytes_max = peer.login.frame_bytes_max
            limit = "sasl.server.max.receive.size"
        budget = REQUESTS_PER_TURN
        size = -1
        reason, level = "", logging.WARNING
        shared.in_turn = True
        view = memoryview(buffer)
        try:
            while end - start >= SIZE_BYTES:
                (size,) = _read_size(buffer, start)
                stop = start + SIZE_BYTES + size
                if not 0 <= size <= frame_bytes_max:
                    reason = why_not_a_frame(size, frame_bytes_max, limit)
                    break
                if stop > end or not budget:
                    break
                if (parked or self._writing or output.held > UNSENT_BYTES) and self._is_full():
                    break
                if self._throttled is not None:
                    break
                budget -= 1
                answer = handle(view[start + SIZE_BYTES : stop], peer)
                start = stop
                if self.closed:
                    break
                if answer.__class__ is Out and not parked:
                    output.put(answer)
                elif answer is not None:
                    self._park(answer, size)
                    if self.closed:
                        break
                size = -1
        except PeerError as error:
            reason = str(error)
        except (FileTooShort, OSError) as error:
            reason, level = f"an answer could not be read from its file: {error}", logging.ERROR
        except Exception:
            if shared.may_log(logging.ERROR, self.peer_host, "a request failed"):
                log.exception("a request from %s failed", peer.address)
            reason, level = "the server failed on its request", logging.ERROR
        del view
        if not self.closed:
            if not reason:
                waiting = self._input
                if start != end or waiting.buffer is not None:
                    waiting.keep(buffer, start, end, size)
                    # What is missing of a request comes for certain: nobody sends half of one.
                    missing = start + SIZE_BYTES + size - end if size >= 0 else 0
                    if self._expects or missing >= EXPECTED_BYTES:
                        self._expects = missing >= EXPECTED_BYTES
                        self._stream.expect(max(missing, 1))
                    if waiting.starved:
                        self._pause()
            if output.pieces or self._paused:
                self.flush()
            if reason:
                self.close(reason, level)
            elif not budget:
                self._continue_soon()
        shared.end_turn()

    # Pausing and going on

    def _is_full(self) -> bool:
        """Whether this connection may handle no further request now; it then pauses."""
        limits, held = self._shared.limits, self._held + self._output.held
        full = (
            self._exclusive is not None
            or self._draining
            or len(self._parked) + len(self._output.pieces) >= limits.unanswered_max
            or held >= limits.connection_held_bytes_max
        )
        if not full and held and self._shared.held.full:
            self._shared.held.wait(self)
            full = True
        if full:
            self._pause()
        return full

    def _pause(self) -> None:
        if not self._paused and not self.closed:
            self._paused = True
            self._stream.pause()

    def memory_available(self) -> None:
        """Other connections have given back what this one waited for."""
        self._input.starved = False
        self._go_on()

    def _go_on(self) -> None:
        """Reads again if nothing speaks against it, beginning with what has been received."""
        if not self._paused or self.closed or self._input.starved or self._draining:
            return
        if self._throttled is not None:
            return
        if (self._parked or self._output.pieces) and self._is_full():
            return
        self._paused = False
        self._stream.resume()
        self._continue_soon()

    def _continue_soon(self) -> None:
        if not self._continuing and not self._paused and self._input.end > self._input.start:
            self._continuing = True
            self._shared.soon(self._continue)

    def _continue(self) -> None:
        self._continuing = False
        waiting = self._input
        if not self.closed and not self._paused and waiting.buffer is not None:
            self._handle(waiting.buffer, waiting.start, waiting.end)

    def throttle(self, seconds: float) -> None:
        """Read nothing for so long (KIP-219): the client is over a quota, and its answer says so.

        What it sends meanwhile waits at the client: no more than its sockets take.
        """
        if self.closed:
            return
        end_s = self._shared.monotonic() + seconds
        if self._throttled is not None:
            if end_s <= self._throttled_until:
                return
            self._throttled.cancel()
        self._throttled_until = end_s
        self._throttled = self._shared.clock.call_later(seconds, self._throttle_ends)
        self._pause()

    def _throttle_ends(self) -> None:
        self._throttled = None
        self.last_active = self._shared.monotonic()
        self._go_on()

    # Answering

    def _park(self, answer: Out | Pending, request_bytes: int) -> None:
        """Keeps an answer's place: one that comes later, or one that is here behind such a one."""
        if isinstance(answer, Pending):
            slot = Slot(self, answer, request_bytes)
        else:
            slot = Slot(self, None, len(answer))
            slot.out, slot.done = answer, True
        self._parked.append(slot)
        self._held += slot.held
        self._shared.held.take(slot.held)
        if isinstance(answer, Pending):
            if answer.exclusive:
                self._exclusive = slot
            answer.then(slot.settle)

    def settled(self, slot: Slot) -> None:
        """A parked answer is here: it leaves, unless one before it is still to come."""
        if self.closed:
            return
        if slot is self._exclusive:
            self._exclusive = None
        parked = self._parked
        if slot is not parked[0]:  # one before it is still to come
            self._hold(slot, len(slot.out) if slot.out is not None else 0)
        try:
            while parked and parked[0].done:
                first = parked.popleft()
                self._held -= first.held
                self._shared.held.give(first.held)
                if first.out is not None:
                    self._output.put(first.out)
        except (FileTooShort, OSError) as error:
            self.close(f"an answer could not be read from its file: {error}", logging.ERROR)
            return
        if not self._dirty and (self._output.pieces or self._paused):
            self._dirty = True
            self._shared.flush_soon(self)

    def _hold(self, slot: Slot, size: int) -> None:
        more, slot.held = size - slot.held, size
        self._held += more
        if more > 0:
            self._shared.held.take(more)
        elif more:
            self._shared.held.give(-more)

    def flush(self) -> None:
        """Sends what the socket takes now, and the rest when it is writable."""
        self._dirty = False
        if self.closed:
            return
        output = self._output
        if output.pieces and output.cold_at < 0:
            try:
                done = output.send(self._stream)
            except FileTooShort:
                self.close("a file ended before the range that was promised", logging.ERROR)
                return
            except OSError as error:
                self.close(f"sending failed: {error.strerror or error}")
                return
            if output.cold_at >= 0:
                self._read_ahead()
            elif done == self._writing:
                self._writing = not done
                if done:
                    self._stream.stop_writable()
                else:
                    self._stream.on_writable(self._writable)
        if output.held != self._counted:
            self._count_output()
        if self._paused:
            self._go_on()

    def _read_ahead(self) -> None:
        """Wait for the device in another thread; nothing is sent meanwhile."""
        if self._writing:
            self._stream.stop_writable()
        self._writing = True
        output, read_ahead = self._output, self._shared.read_ahead
        piece = output.pieces[0]
        assert read_ahead is not None
        assert isinstance(piece, FileRange)
        read_ahead.begin(piece.file, output.cold_at, self._have_read_ahead)

    def _have_read_ahead(self) -> None:
        if not self.closed:
            self._output.read_ahead(READ_AHEAD_BYTES)
            self._writing = False
            self._shared.flush_soon(self)

    def _writable(self) -> None:
        now_s = self._shared.monotonic()
        if now_s - self.last_active > CACHED_S:
            self._output.ask_again()
        self.last_active = now_s
        self.flush()

    def _count_output(self) -> None:
        more = self._output.held - self._counted
        self._counted = self._output.held
        if more > 0:
            self._shared.held.take(more)
        else:
            self._shared.held.give(-more)

    # Resting and ending

    @property
    def awaits_answers(self) -> bool:
        """Has answers unsent or still to come, or may send nothing: not idle."""
        return bool(self._output.pieces or self._parked or self._throttled)

    @property
    def unsent(self) -> int:
        """How many pieces of answers the peer has not taken."""
        return len(self._output.pieces)

    @property
    def working(self) -> bool:
        """Has answers unsent, or a request under way whose effect is still to come."""
        return bool(self._output.pieces or self._exclusive)

    @property
    def unknown(self) -> bool:
        """Has to log in and has not."""
        return self.peer.login is not None and not self.peer.login.complete

    @property
    def received(self) -> int:
        """How many bytes have come of requests that are not handled yet."""
        return self._input.end - self._input.start

    def rest(self) -> None:
        """Nothing has come for a while: gives back the buffer if nothing is in it."""
        self._input.rest()

    def drain(self) -> None:
        """The server stops: nothing more is read, what is under way is answered."""
        self._draining = True
        self._pause()

    def disconnect(self, reason: str) -> None:
        """Closes for a fault of the peer's that was found later, after the answers that are there;
        see Peer.disconnect."""
        self.flush()
        self.close(reason, logging.WARNING)

    def close(self, reason: str, level: int = logging.DEBUG) -> None:
        """Ends the connection; the first reason is the one that is logged."""
        if self.closed:
            return
        self.closed = True
        if self._shared.may_log(level, self.peer_host, reason):
            log.log(level, "closed the connection of %s: %s", self.peer.address, reason)
        self._stream.close()
        self._output.clear()
        self._count_output()
        self._input.drop()
        held, self._held = self._held, 0
        self._shared.held.give(held)
        self._shared.held.forget(self)
        parked, self._parked = self._parked, deque()
        self._exclusive = None
        for slot in parked:
            if slot.pending is not None:
                slot.pending.cancel()
        if self._throttled is not None:
            self._throttled.cancel()
        self.peer.disconnect = self.peer.throttle = None
        on_closed, self.peer.on_closed = self.peer.on_closed, None
        if on_closed is not None:
            on_closed()
        self._on_closed(self)

"""One background thread per client that owns its sockets: a loop of readiness, timers and calls.

`call_soon` and `call_later` may be called from any thread; everything else belongs to the loop's
own thread. Callbacks never wait. A fork leaves the child without the thread, so the child's loops
are marked broken and say so; at exit the thread is a daemon and ends with the interpreter.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import selectors
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Protocol

from ..errors import IllegalStateError

log = logging.getLogger("ottla.client")

CALLS_PER_ROUND_MAX = 1000
SETTLE_S_MAX = 0.005
FORKED = (
    "this client was made before a fork, and belongs to the parent process\n"
    "Try: make the producer, consumer or admin inside the child process"
)


class Timer:
    """A call at a time; `cancel` takes it back."""

    __slots__ = ("args", "callback", "cancelled")

    def __init__(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        self.callback = callback
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Receiver(Protocol):
    """Waits in the loop's place and receives meanwhile (bulk_receive.py)."""

    def receive(self, timeout_s: float | None) -> bool:
        """True if nothing else needs to be looked at."""
        ...


class Loop:
    """The thread and what it waits for."""

    def __init__(self, name: str) -> None:
        self.selector = selectors.DefaultSelector()
        self.wake_receiver, self.wake_sender = socket.socketpair()
        self.wake_receiver.setblocking(False)
        self.wake_sender.setblocking(False)
        self.selector.register(self.wake_receiver, selectors.EVENT_READ, self._woken)
        self.calls: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self.timers: list[tuple[float, int, Timer]] = []
        self.order = itertools.count()
        self.sleeping = False
        self.stopping = False
        self.broken: str | None = None
        self.settled = threading.Condition(threading.Lock())
        self.waiters = 0
        self.ending: list[Callable[[], object]] = []
        self.receiver: Receiver | None = None
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        LOOPS.add(self)
        self.thread.start()

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        """Run `callback` in the loop's thread at its next turn."""
        if self.broken is not None:
            if self.inside:
                # An answer that comes while the loop ends asks for a turn that never comes.
                return
            raise IllegalStateError(self.broken)
        self.calls.append((callback, args))
        if self.sleeping:
            self._wake()

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        """Run `callback` in the loop's thread after a while."""
        timer = Timer(callback, args)
        when = time.monotonic() + delay_s
        if self.inside:
            heapq.heappush(self.timers, (when, next(self.order), timer))
        else:
            self.call_soon(self._add_timer, when, timer)
        return timer

    def _add_timer(self, when: float, timer: Timer) -> None:
        heapq.heappush(self.timers, (when, next(self.order), timer))

    @property
    def inside(self) -> bool:
        """Whether the caller is in the loop's own thread."""
        return threading.get_ident() == self.thread.ident

    def is_inside(self) -> bool:
        return self.inside

    def settle(self) -> None:
        """Let the loop do all it can do now (a few milliseconds at most), then go on as it sends.

        Two Python threads share one lock, and a busy one gives it up every 5 ms only. A producer
        that calls this after each full batch releases the lock at the right moment instead.
        """
        if self.inside or self.broken is not None:
            return
        with self.settled:
            self.waiters += 1
            if self.sleeping:
                self._wake()
            self.settled.wait(SETTLE_S_MAX)
            self.waiters -= 1

    def _wake(self) -> None:
        self.sleeping = False
        try:
            self.wake_sender.send(b"\0")
        except OSError:  # full: it is awake anyway; closed: it has ended
            pass

    def _woken(self, mask: int) -> None:
        try:
            self.wake_receiver.recv(4096)
        except OSError:
            pass

    def _run(self) -> None:
        try:
            while not self.stopping:
                self._turn()
        finally:
            self._close()

    def _turn(self) -> None:
        timeout = self._due()
        self._run_calls()
        if self.waiters:  # what is left to do in this turn is to send, and that needs no lock
            with self.settled:
                self.settled.notify_all()
        for action in self.ending:
            self._guarded(action, ())
        self.ending.clear()
        self.sleeping = True
        if self.calls or self.stopping:
            timeout = 0.0
        elif self.timers:
            timeout = max(0.0, self.timers[0][0] - time.monotonic())
        if self.receiver is not None:
            if self._received(timeout):
                return
            timeout = 0.0
        events = self.selector.select(timeout)
        self.sleeping = False
        for key, mask in events:
            self._guarded(key.data, (mask,))

    def _received(self, timeout_s: float | None) -> bool:
        """Let a connection wait and receive; whether that is all there was to do."""
        assert self.receiver is not None
        try:
            return self.receiver.receive(timeout_s)
        except Exception:
            log.exception("receiving in the client's background thread failed")
            self.receiver = None
            return False

    def _due(self) -> float | None:
        """Run the timers whose time has come."""
        if not self.timers:
            return None
        now = time.monotonic()
        while self.timers and self.timers[0][0] <= now:
            timer = heapq.heappop(self.timers)[2]
            if not timer.cancelled:
                self._guarded(timer.callback, timer.args)
        return None

    def _run_calls(self) -> None:
        for _ in range(min(len(self.calls), CALLS_PER_ROUND_MAX)):
            callback, args = self.calls.popleft()
            self._guarded(callback, args)

    def _guarded(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        try:
            callback(*args)
        except Exception:
            log.exception("a callback in the client's background thread failed")

    def at_end_of_turn(self, action: Callable[[], object]) -> None:
        """Run `action` once, before the loop waits again; only from the loop's thread."""
        self.ending.append(action)

    def stop(self, timeout_s: float | None = None) -> None:
        """End the thread after what has been asked of it so far."""
        if self.broken is not None:
            return
        self.broken = "the client is closed"
        self.calls.append((setattr, (self, "stopping", True)))
        self._wake()
        if not self.inside:
            self.thread.join(timeout_s)

    def _close(self) -> None:
        self.broken = self.broken or "the client's background thread has ended"
        LOOPS.discard(self)
        with self.settled:
            self.settled.notify_all()
        for key in list(self.selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self.selector.close()
        self.wake_sender.close()


LOOPS: weakref.WeakSet[Loop] = weakref.WeakSet()


def _forked() -> None:
    """In a child process: the threads are gone, and the sockets are the parent's."""
    for loop in list(LOOPS):
        loop.broken = FORKED
        loop.settled = threading.Condition(threading.Lock())
        for key in list(loop.selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                os.close(key.fileobj.detach())
    LOOPS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

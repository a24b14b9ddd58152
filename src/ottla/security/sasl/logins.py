"""The client's side of SASL on one connection: logins, and when the next is due (KIP-368)."""

from __future__ import annotations

from collections.abc import Callable

from ottla.security.sasl.authenticator import REAUTHENTICATION_S_MIN
from ottla.security.sasl.mechanism import ClientSide

# A login is repeated in this part of its lifetime, as Kafka's clients do (theirs is drawn between
# 0.85 and 0.95).
REPEATED_AFTER = 0.9


class Logins:
    """One per connection."""

    __slots__ = ("_begin", "_due_at", "_monotonic", "mechanism")

    def __init__(
        self, mechanism: str, begin: Callable[[], ClientSide], monotonic: Callable[[], float]
    ) -> None:
        self.mechanism = mechanism
        self._begin = begin
        self._monotonic = monotonic
        self._due_at = float("inf")

    def begin(self) -> ClientSide:
        self._due_at = float("inf")
        return self._begin()

    def complete(self, session_lifetime_ms: int) -> None:
        if session_lifetime_ms > 0:
            # A broker refuses one that comes sooner.
            wait_s = max(session_lifetime_ms / 1000 * REPEATED_AFTER, REAUTHENTICATION_S_MIN)
            self._due_at = self._monotonic() + wait_s

    def due(self) -> bool:
        return self._monotonic() >= self._due_at

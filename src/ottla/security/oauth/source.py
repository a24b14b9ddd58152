"""The token of one client or broker: fetched when it is needed, renewed before it ends.

`token` blocks for the first one, and for the next only if that could not be had in time: from a
part of a token's lifetime on a thread fetches it, as Kafka's login threads do.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from ottla.security.oauth.claims import BadToken, object_of, part, parts_of, seconds_in
from ottla.security.oauth.fetching import FetchFailed
from ottla.security.sasl.mechanism import AuthenticationFailed

log = logging.getLogger(__name__)

RENEWED_AFTER = 0.8  # of the lifetime: Kafka's sasl.login.refresh.window.factor
LIFETIME_UNKNOWN_S = 60.0  # a token that does not say how long it holds
NOT_AGAIN_S = 1.0  # after a renewal that has failed

Fetch = Callable[[], tuple[str, float | None]]  # a token, and how many seconds it holds


class TokenSource:
    def __init__(
        self,
        fetch: Fetch,
        now_s: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._now_s = now_s
        self._monotonic = monotonic
        self._lock = threading.Lock()  # who holds it fetches
        self._token = ""
        self._renew_at = self._ends_at = float("-inf")

    def token(self) -> str:
        """One that holds. Raises AuthenticationFailed."""
        if self._monotonic() < self._ends_at:
            self._renew_if_due()
            return self._token
        with self._lock:
            if self._monotonic() >= self._ends_at:  # nobody has fetched one meanwhile
                try:
                    self._take()
                except FetchFailed as error:
                    raise AuthenticationFailed(f"there is no token: {error}") from None
            return self._token

    def token_there(self) -> str:
        """As `token`, without waiting: if there is none yet, one is fetched for the next login."""
        self._renew_if_due()
        if self._monotonic() < self._ends_at:
            return self._token
        raise AuthenticationFailed("there is no token yet")

    def _renew_if_due(self) -> None:
        if self._monotonic() >= self._renew_at and self._lock.acquire(blocking=False):
            threading.Thread(target=self._renew, name="ottla-token", daemon=True).start()

    def _renew(self) -> None:
        try:
            self._take()
        except FetchFailed as error:
            self._renew_at = self._monotonic() + NOT_AGAIN_S
            log.warning("a token could not be fetched: %s", error)
        finally:
            self._lock.release()

    def _take(self) -> None:
        token, lifetime_s = self._fetch()
        left_s = lifetime_left_s(token, self._now_s())
        if left_s is None:
            left_s = LIFETIME_UNKNOWN_S if lifetime_s is None else lifetime_s
        now = self._monotonic()
        self._token = token
        self._renew_at = now + left_s * RENEWED_AFTER
        self._ends_at = now + left_s


def lifetime_left_s(token: str, now_s: float) -> float | None:
    """By the token itself, which is not checked; None: it does not say."""
    try:
        expires_s = seconds_in(object_of(part(parts_of(token)[1])), "exp")
    except BadToken:
        return None
    return None if expires_s is None else expires_s - now_s

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
# A token that has ended by this machine's clock, which may be wrong, is shown all the same for so
# long: it is for the broker to judge.
ENDED_S = 5.0
# After a fetch that has failed; each time twice as long, up to Kafka's
# sasl.login.retry.backoff.max.ms.
NOT_AGAIN_S = 1.0
NOT_AGAIN_S_MAX = 10.0

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
        self._renew_at = self._ends_at = self._again_at = float("-inf")
        self._expires_s = float("inf")  # by the wall clock, which may be set meanwhile
        self._failed = 0  # times in a row
        self._why = "the first one is being fetched"

    def token(self) -> str:
        """One that holds. Raises AuthenticationFailed."""
        if self._holds():
            self.renew_if_due()
            return self._token
        with self._lock:
            if not self._holds():  # nobody has fetched one meanwhile
                try:
                    self._take()
                except FetchFailed as error:
                    raise AuthenticationFailed(f"there is no token: {error}") from None
            return self._token

    def token_there(self) -> str:
        """As `token`, without waiting: if there is none yet, one is fetched for the next login."""
        self.renew_if_due()
        if self._holds():
            return self._token
        raise AuthenticationFailed(f"there is no token: {self._why}")

    def renew_if_due(self) -> float:
        """Fetch on a thread if it is time; in how many seconds it is to be asked again."""
        due_at = max(self._again_at, self._renew_at if self._holds() else float("-inf"))
        left_s = due_at - self._monotonic()
        if left_s <= 0 and self._lock.acquire(blocking=False):
            threading.Thread(
                target=self._renew_and_release, name="ottla-token", daemon=True
            ).start()
        return left_s if left_s > 0 else NOT_AGAIN_S

    def first(self) -> None:
        """Fetch now; a failure is logged, and it is tried again."""
        with self._lock:
            self._renew()

    def _renew_and_release(self) -> None:
        try:
            self._renew()
        finally:
            self._lock.release()

    def _renew(self) -> None:
        try:
            self._take()
        except FetchFailed as error:
            wait_s = min(NOT_AGAIN_S * 2**self._failed, NOT_AGAIN_S_MAX)
            self._failed = min(self._failed + 1, 30)
            self._again_at = self._monotonic() + wait_s
            self._why = str(error)
            log.warning("a token could not be fetched, again in %g s: %s", wait_s, error)

    def _holds(self) -> bool:
        return self._monotonic() < self._ends_at and self._now_s() < self._expires_s

    def _take(self) -> None:
        token, lifetime_s = self._fetch()
        now_s, now = self._now_s(), self._monotonic()
        left_s = lifetime_left_s(token, now_s)
        self._expires_s = float("inf") if left_s is None else now_s + left_s
        if left_s is None:
            left_s = LIFETIME_UNKNOWN_S if lifetime_s is None else lifetime_s
        if left_s <= 0:
            log.warning(
                "the token that was fetched ended %.0f s ago by the clock of this machine",
                -left_s,
            )
            left_s, self._expires_s = ENDED_S, float("inf")
        if self._failed:
            log.info("a token was fetched, after %d times without", self._failed)
        self._token = token
        self._failed, self._again_at = 0, float("-inf")
        self._renew_at = now + left_s * RENEWED_AFTER
        self._ends_at = now + left_s


def lifetime_left_s(token: str, now_s: float) -> float | None:
    """By the token itself, which is not checked; None: it does not say."""
    try:
        expires_s = seconds_in(object_of(part(parts_of(token)[1])), "exp")
    except BadToken:
        return None
    return None if expires_s is None else expires_s - now_s

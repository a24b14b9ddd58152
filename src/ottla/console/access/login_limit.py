"""How often somebody may try to log in: a sliding window for each user, address, and pair of both.

An attempt is counted before the password is looked at, so that many at once gain nothing, and taken
back when it succeeds. The window of a user over all addresses is wide: whoever fills it keeps that
user out for a while, which must be dearer than one address can pay.
"""

from __future__ import annotations

from collections import OrderedDict, deque

WINDOW_MS = 5 * 60_000
PAIR_MAX = 5  # attempts of one address as one user
ADDRESS_MAX = 20  # of one address in all
USER_MAX = 60  # as one user from all addresses
KEYS_MAX = 10_000  # the one unused for longest is forgotten

Key = tuple[str, str]


class LoginLimit:
    def __init__(self) -> None:
        self._attempts: OrderedDict[Key, deque[int]] = OrderedDict()

    def begin(self, user: str, address: str, now_ms: int) -> int:
        """Count an attempt; 0 if it may go on, else after how many ms to try again."""
        keys = self._keys(user, address)
        waits = [
            attempts[0] + WINDOW_MS - now_ms
            for key, most in keys.items()
            if len(attempts := self._recent(key, now_ms)) >= most
        ]
        if waits:
            return max(1, *waits)
        for key in keys:
            self._attempts.setdefault(key, deque()).append(now_ms)
            self._attempts.move_to_end(key)
        while len(self._attempts) > KEYS_MAX:
            self._attempts.popitem(last=False)
        return 0

    def succeeded(self, user: str, address: str) -> None:
        """Forget what this address tried as this user."""
        pair, *others = self._keys(user, address)
        taken = len(self._attempts.pop(pair, ()))
        for key in others:
            attempts = self._attempts.get(key)
            for _ in range(min(taken, len(attempts or ()))):
                attempts.pop()  # type: ignore[union-attr]  # not None: min() was above 0

    @staticmethod
    def _keys(user: str, address: str) -> dict[Key, int]:
        user = user[:100].lower()
        return {(user, address): PAIR_MAX, ("", address): ADDRESS_MAX, (user, ""): USER_MAX}

    def _recent(self, key: Key, now_ms: int) -> deque[int]:
        attempts = self._attempts.get(key)
        if attempts is None:
            return deque()
        while attempts and attempts[0] <= now_ms - WINDOW_MS:
            attempts.popleft()
        if attempts and attempts[0] > now_ms:
            # The clock went back: by its old time nobody could log in until that comes again.
            count = len(attempts)
            attempts.clear()
            attempts.extend([now_ms] * count)
        return attempts

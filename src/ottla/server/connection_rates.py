"""How fast connections come: at the server, at each listener, and from each address (KIP-612).

Measured as Kafka measures it, in `quota.window.num` samples. Who comes too fast waits in the
kernel, at most for one sample; only a connection of an address that has a rate of its own is
closed, after that time. Pure: the server has the clock.
"""

from __future__ import annotations

from ottla.security.quotas.client_quotas import AddressRates
from ottla.security.quotas.entities import address_of
from ottla.security.quotas.rates import Rate, Windows
from ottla.server.limits import CONNECTIONS_MAX, Limits

# Addresses that are measured; at more, those are forgotten that were quiet lately.
ADDRESSES_MAX = 10_000


class ConnectionRates:
    """All that connected lately, as far as there are limits for it."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._whole = Rate(windows)
        self._listeners: dict[str, Rate] = {}
        self._addresses: dict[str, Rate] = {}
        self.allowed = AddressRates()

    def created(self, limits: Limits, listener: str, protected: bool, now_ms: int) -> int:
        """One has come to a listener: for how many milliseconds no other should.

        A protected listener is not held up by what comes to others.
        """
        own = limits.of_listener(listener).connections_per_second_max
        wait_ms = 0
        if own < CONNECTIONS_MAX:
            rate = self._listeners.setdefault(listener, Rate(self._windows))
            wait_ms = self._record(rate, own, now_ms)
        if limits.connections_per_second_max < CONNECTIONS_MAX and not protected:
            limit = limits.connections_per_second_max
            wait_ms = max(wait_ms, self._record(self._whole, limit, now_ms))
        return wait_ms

    def from_address(self, host: str, now_ms: int) -> int:
        """One has come from there: after how many milliseconds it is to be closed; 0: it stays."""
        if self.allowed.default is None and not self.allowed.own:
            return 0
        address = address_of(host) or host
        limit = self.allowed.of(address)
        if limit is None:
            return 0
        rate = self._addresses.get(address)
        if rate is None:
            if len(self._addresses) >= ADDRESSES_MAX:
                self._forget_quiet(now_ms)
            rate = self._addresses[address] = Rate(self._windows)
        wait_ms = self._record(rate, limit, now_ms)
        if wait_ms:
            rate.record(-1, now_ms)  # it is as if it had not come
        return wait_ms

    def turned_away(self, limits: Limits, listener: str, protected: bool, now_ms: int) -> None:
        """What came last does not count."""
        if listener in self._listeners:
            self._listeners[listener].record(-1, now_ms)
        if limits.connections_per_second_max < CONNECTIONS_MAX and not protected:
            self._whole.record(-1, now_ms)

    def _record(self, rate: Rate, limit: float, now_ms: int) -> int:
        rate.record(1, now_ms)
        return min(rate.throttle_ms(limit, now_ms), self._windows.sample_ms)

    def _forget_quiet(self, now_ms: int) -> None:
        for address, rate in list(self._addresses.items()):
            rate.window_ms(now_ms)  # what is over is left out
            if rate.quiet:
                del self._addresses[address]

"""Which brokers the controller takes for dead: the decision. Pure.

A broker's polls of the feed are the signs that it is alive: without one for the session time-out it
is fenced. Two things are faster. When the connection of its polls is lost, the controller dials the
broker: a refused connection, or another incarnation, proves that the process is dead. When more
than half of the brokers are silent at once, the controller is more likely the one that is cut off:
it waits for as long again. A controller that was stopped itself knows nothing about the time that
passed meanwhile, and begins anew.

Fencing is safe by epochs: a broker that is fenced by mistake comes back with its next poll. These
rules only make mistakes rare, and deaths short.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

# Silent for so many time-outs, a broker is fenced whatever the controller doubts.
TIMEOUTS_IN_DOUBT = 2
# How often the sessions are looked at; a later look means that this process was stopped.
CHECKS_PER_TIMEOUT = 4
# Beyond the moment at which a session ends, it has ended.
AFTER_END_S = 0.001


class Dialled(Enum):
    """What came of dialling a broker."""

    REFUSED = auto()
    OTHER_INCARNATION = auto()
    SAME_INCARNATION = auto()
    SILENT = auto()


class Verdict(Enum):
    """Whether a process may register with the id of another one."""

    REPLACES = auto()
    DUPLICATE = auto()  # the other one is alive
    WAITS = auto()  # for the session of the other one


class Session(NamedTuple):
    """A broker that is alive, as far as is known."""

    epoch: int
    seen_s: float
    lost: bool = False  # the connection of its last poll


class BrokerSessions:
    """The sessions of all brokers that are not fenced, but for the controller's own."""

    def __init__(self, timeout_s: float, now_s: float) -> None:
        self.timeout_s = timeout_s
        self.sessions: dict[int, Session] = {}
        self._checked_s = now_s

    @property
    def check_s(self) -> float:
        """How long after the last `expired` the next one is due.

        Not only now and then: a session that ends in between would be noticed so much later.
        """
        ends_s = (
            known.seen_s + count * self.timeout_s - self._checked_s
            for known in self.sessions.values()
            for count in (1, TIMEOUTS_IN_DOUBT)
        )
        usual_s = self.timeout_s / CHECKS_PER_TIMEOUT
        return min([usual_s, *(each + AFTER_END_S for each in ends_s if each >= 0)])

    def follow(self, brokers: Iterable[tuple[int, int]], now_s: float) -> None:
        """The brokers that are not fenced now, each with its epoch; new ones begin a session."""
        before, self.sessions = self.sessions, {}
        for broker_id, epoch in brokers:
            known = before.get(broker_id)
            if known is None or known.epoch != epoch:
                known = Session(epoch, now_s)
            self.sessions[broker_id] = known

    def polled(self, broker_id: int, epoch: int, now_s: float) -> None:
        """A sign of life."""
        known = self.sessions.get(broker_id)
        if known is not None and known.epoch == epoch:
            self.sessions[broker_id] = Session(epoch, now_s)

    def lost(self, broker_id: int, epoch: int) -> bool:
        """The connection of its polls is lost; whether to dial the broker."""
        known = self.sessions.get(broker_id)
        if known is None or known.epoch != epoch:
            return False
        self.sessions[broker_id] = known._replace(lost=True)
        return True

    def is_lost(self, broker_id: int, epoch: int) -> bool:
        """Whether it has neither polled nor been fenced since its connection was lost."""
        known = self.sessions.get(broker_id)
        return known is not None and known.epoch == epoch and known.lost

    def proven_dead(self, broker_id: int, epoch: int, outcome: Dialled) -> bool:
        """Whether what came of dialling means that the broker is to be fenced."""
        if not self.is_lost(broker_id, epoch):
            return False  # it has polled meanwhile, or is known to be dead already
        return outcome in (Dialled.REFUSED, Dialled.OTHER_INCARNATION)

    def expired(self, now_s: float) -> list[tuple[int, int]]:
        """The brokers to fence for their silence, each with its epoch."""
        if now_s - self._checked_s > self.timeout_s / 2:
            for broker_id, known in self.sessions.items():
                self.sessions[broker_id] = known._replace(seen_s=now_s)
        self._checked_s = now_s
        silent_s = self.timeout_s
        brokers = len(self.sessions) + 1  # the controller's own is alive
        if 2 * len(self._silent(now_s, silent_s)) > brokers:
            silent_s *= TIMEOUTS_IN_DOUBT
        return self._silent(now_s, silent_s)

    def _silent(self, now_s: float, silent_s: float) -> list[tuple[int, int]]:
        return [
            (broker_id, known.epoch)
            for broker_id, known in self.sessions.items()
            if now_s - known.seen_s > silent_s
        ]


def verdict(outcome: Dialled, *, fenced: bool) -> Verdict:
    """What becomes of the second process of an id, when the first was dialled.

    `fenced`: the session of the first is over already.
    """
    if outcome is Dialled.SAME_INCARNATION:
        return Verdict.DUPLICATE
    if outcome is Dialled.SILENT and not fenced:
        return Verdict.WAITS
    return Verdict.REPLACES

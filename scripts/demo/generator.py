"""People in a shop, made up: a stream of visits, clicks, carts and orders, the same for a seed.

Nobody is average here: few pages get most visits and few users make most of them (Zipf), and the
crowd comes in waves. A visit may go on as click, cart and order of the same user and page. Events
are sent in another order than they happened, late by at most LATE_S_MAX seconds of their own time;
a few records are broken. Event time runs SPEED times as fast as the clock, so that windows of a
minute close while one looks.

`People` decides, `Sender` sends; what was sent is kept, so that everything can be counted again.
"""

from __future__ import annotations

import heapq
import json
import math
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

from ottla import Producer

SPEED = 60.0
TICK_S = 0.1
LATE_S_MAX = 20.0
LATE_SHARE = 0.15
BROKEN_SHARE = 0.001
USERS = 10_000
PAGE_SKEW = 1.0
USER_SKEW = 0.6
PAGES = (
    "/", "/search", "/shoes", "/shirts", "/hats", "/sale", "/shoes/red-boots", "/shoes/sandals",
    "/shirts/linen", "/shirts/flannel", "/hats/bowler", "/hats/beret", "/umbrellas", "/gloves",
    "/coats", "/coats/winter", "/beetles", "/castle", "/trial", "/letters-to-ottla",
)  # fmt: skip
# The day of the demo: a minute of the clock is an hour there, from nine o'clock.
DAY_BEGIN_MS = int(datetime(2026, 7, 3, 9, tzinfo=UTC).timestamp() * 1000)
# After a visit: the chance of each step, given the one before it, and how much later it happens.
STEPS = (
    ("click", 0.55, (2.0, 40.0)),
    ("cart", 0.40, (10.0, 120.0)),
    ("order", 0.45, (20.0, 180.0)),
)
EVENTS_PER_VISIT = 1 + 0.55 * (1 + 0.40 * (1 + 0.45))
WAVE_S = 900.0
# The last event of all is so late that every window before it closes.
CLOSING_S = 3600.0


@dataclass(frozen=True, slots=True)
class Event:
    """One thing one user did."""

    id: str
    user: str
    page: str
    action: str
    at_ms: int
    amount: float | None = None

    def value(self) -> bytes:
        fields: dict[str, Any] = {
            "id": self.id,
            "user": self.user,
            "page": self.page,
            "action": self.action,
            "at": text_of(self.at_ms),
        }
        if self.amount is not None:
            fields["amount"] = self.amount
        return json.dumps(fields).encode()


@dataclass(frozen=True, slots=True)
class Broken:
    """A record that no JSON reader of the schema takes."""

    key: str
    data: bytes


Sent = Event | Broken


def text_of(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


class People:
    """All that happens in `seconds` of the clock at about `rate` events a second, in send order."""

    def __init__(self, seed: int, rate: float, seconds: float) -> None:
        self.random = random.Random(seed)
        self.visits_per_s = rate / SPEED / EVENTS_PER_VISIT
        self.end_s = seconds * SPEED
        self.page_weights = zipf(len(PAGES), PAGE_SKEW)
        self.user_weights = zipf(USERS, USER_SKEW)
        # What is still to be sent: (when it is sent, a number for order's sake, what).
        self.queue: list[tuple[float, int, Sent]] = []
        self.count = 0
        self.puts = 0

    def ticks(self) -> Iterator[list[Sent]]:
        """What is sent in each tick of the clock; the last list is the closing event."""
        clock_s, next_visit_s = 0.0, 0.0
        while clock_s < self.end_s:
            clock_s = min(self.end_s, clock_s + TICK_S * SPEED)
            while next_visit_s < clock_s:
                self._visit(next_visit_s)
                next_visit_s += self.random.expovariate(self._visits_per_s(next_visit_s))
            yield self._due(clock_s)
        yield self._due(self.end_s + LATE_S_MAX)
        yield [self._event("nobody", "/closed", "visit", self.end_s + CLOSING_S)]

    def _visits_per_s(self, at_s: float) -> float:
        """The crowd comes in waves around the mean."""
        return self.visits_per_s * (1 + 0.5 * math.sin(2 * math.pi * at_s / WAVE_S))

    def _visit(self, at_s: float) -> None:
        """One user looks at one page, and perhaps goes on; who stays past the end goes home."""
        user = f"user-{self.random.choices(range(USERS), cum_weights=self.user_weights)[0]:04}"
        page = self.random.choices(PAGES, cum_weights=self.page_weights)[0]
        self._send(self._event(user, page, "visit", at_s), at_s)
        for action, chance, (low_s, high_s) in STEPS:
            at_s += self.random.uniform(low_s, high_s)
            if self.random.random() > chance or at_s >= self.end_s:
                return
            self._send(self._event(user, page, action, at_s), at_s)

    def _send(self, event: Event, at_s: float) -> None:
        late_s = 0.0
        if self.random.random() < LATE_SHARE:
            late_s = self.random.uniform(0, LATE_S_MAX)
        self._put(at_s + late_s, event)
        if self.random.random() < BROKEN_SHARE:
            self._put(at_s + late_s, Broken(event.user, self._break(event)))

    def _put(self, sent_s: float, what: Sent) -> None:
        self.puts += 1
        heapq.heappush(self.queue, (sent_s, self.puts, what))

    def _due(self, until_s: float) -> list[Sent]:
        found = []
        while self.queue and self.queue[0][0] < until_s:
            found.append(heapq.heappop(self.queue)[2])
        return found

    def _event(self, user: str, page: str, action: str, at_s: float) -> Event:
        self.count += 1
        amount = round(self.random.uniform(5, 200), 2) if action == "order" else None
        at_ms = DAY_BEGIN_MS + int(at_s * 1000)
        return Event(f"e-{self.count:07}", user, page, action, at_ms, amount)

    def _break(self, event: Event) -> bytes:
        """The record as a bad day makes it; never twice the same bytes."""
        whole = event.value()
        tag = f"broken-{event.id}".encode()
        return self.random.choice(
            (
                whole[: self.random.randrange(20, len(whole) - 2)],
                json.dumps({"id": event.id, "user": 7, "at": f"yesterday {event.id}"}).encode(),
                b"\x00\xff\xfe " + tag,
                b"<event>" + tag + b"</event>",
            )
        )


def zipf(count: int, skew: float) -> list[float]:
    """Cumulated weights: the n-th is drawn n^-skew times as often as the first."""
    return list(accumulate(1 / rank**skew for rank in range(1, count + 1)))


class Sender(threading.Thread):
    """Sends what the people do, at the pace of the clock, and remembers it.

    The first of them come before the door opens: the rest wait for `opened`.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        people: People,
        opened: threading.Event | None = None,
    ) -> None:
        super().__init__(name="generator", daemon=True)
        self.bootstrap_servers = bootstrap_servers
        self.topic = topic
        self.people = people
        self.events: list[Event] = []
        self.broken: list[Broken] = []
        self.failure: BaseException | None = None
        self.opened = opened
        self.stopped = threading.Event()

    def stop(self) -> None:
        self.stopped.set()
        if self.opened is not None:
            self.opened.set()
        if self.is_alive():
            self.join()

    @property
    def sent(self) -> int:
        return len(self.events) + len(self.broken)

    def run(self) -> None:
        try:
            with Producer(bootstrap_servers=self.bootstrap_servers, linger_ms=5) as producer:
                due = time.monotonic()
                for tick in self.people.ticks():
                    if self.stopped.wait(max(0.0, due - time.monotonic())):
                        return
                    self._send(producer, tick)
                    if self.opened is not None:
                        self.opened.wait()
                    due = max(due + TICK_S, time.monotonic() - TICK_S)
        except BaseException as failure:
            self.failure = failure

    def _send(self, producer: Producer[bytes, bytes], tick: list[Sent]) -> None:
        """All of a tick are stored before the next begins.

        So no partition runs ahead of another by more than a tick, and late by the watermark means
        late by what LATE_S_MAX says, however busy the machine is.
        """
        for what in tick:
            if isinstance(what, Event):
                producer.send(self.topic, key=what.user.encode(), value=what.value())
            else:
                producer.send(self.topic, key=what.key.encode(), value=what.data)
        producer.flush(60)
        self.events += [what for what in tick if isinstance(what, Event)]
        self.broken += [what for what in tick if isinstance(what, Broken)]

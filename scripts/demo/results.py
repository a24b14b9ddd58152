"""What the pipelines wrote, and a recount of what they should have written, in plain Python.

Both are the same thing, `Results`: a multiset of rows for each result topic. So a row that is
missing, wrong or there twice shows as a difference, whatever the reason.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from ottla.testing import consume_all

from .generator import Broken, Event
from .story import Check, Story

SOURCE = "user-behaviour"
VIEWS, FUNNEL, TOTALS, BAD = "page-views", "funnel", "running-totals", "user-behaviour.bad"
TOPICS = (VIEWS, FUNNEL, TOTALS, BAD)
CONFIGS = {TOTALS: {"cleanup.policy": "compact"}}
PIPELINES = ("page-views", "funnel", "running-totals")
FILES = tuple(f"examples/pipelines/{name.replace('-', '_')}.py" for name in PIPELINES)
STEPS = ("visit", "click", "cart", "order")
MINUTE_MS = 60_000
# How long a visit may wait for its cart, and a cart for its order, in the funnel.
STEP_MS = 10 * MINUTE_MS
READ_TIMEOUT_S = 60.0


@dataclass
class Results:
    """Rows of each result topic."""

    # (start of the minute, page, views)
    views: Counter[tuple[int, str, int]] = field(default_factory=Counter)
    # (visit, cart or None, order or None): ids of events
    journeys: Counter[tuple[str, str | None, str | None]] = field(default_factory=Counter)
    # (page, action) → (events, amount); the topic is a table, its last record of a key counts
    totals: dict[tuple[str, str], tuple[int, Decimal]] = field(default_factory=dict)
    # (pipeline, record)
    bad: Counter[tuple[str, bytes]] = field(default_factory=Counter)

    # Kept while rows come, for the panel.
    pages: Counter[str] = field(default_factory=Counter)
    steps: dict[str, set[str]] = field(
        default_factory=lambda: {"visit": set(), "cart": set(), "order": set()}
    )

    # Taken so far, of all topics.
    rows: int = 0

    def take(self, record: Any) -> None:
        """One record of a result topic."""
        self.rows += 1
        if record.topic == BAD:
            origin = dict(record.headers)["ottla.pipeline"].decode()
            self.bad[origin, record.value] += 1
            return
        row = json.loads(record.value)
        if record.topic == VIEWS:
            self.add_views(ms_of(row["start"]), row["page"], row["views"])
        elif record.topic == FUNNEL:
            self.add_journey(row["visit"], row["cart"], row["order"])
        else:
            self.totals[row["page"], row["action"]] = (row["events"], money(row["amount"]))

    def add_views(self, start_ms: int, page: str, views: int) -> None:
        self.views[start_ms, page, views] += 1
        self.pages[page] += views

    def add_journey(self, visit: str, cart: str | None, order: str | None) -> None:
        self.journeys[visit, cart, order] += 1
        # A visit may have two carts: each is a step once.
        for step, found in (("visit", visit), ("cart", cart), ("order", order)):
            if found is not None:
                self.steps[step].add(found)

    def complete(self, truth: Results) -> bool:
        """Is as much there as there should be? (Whether it is right is for `compare`.)"""
        return (
            self.views.total() >= truth.views.total()
            and self.journeys.total() >= truth.journeys.total()
            and self.bad.total() >= truth.bad.total()
            and self.totals == truth.totals
        )

    def top_pages(self, count: int) -> list[tuple[str, int]]:
        return self.pages.most_common(count)

    def funnel_so_far(self) -> list[tuple[str, int]]:
        """By the running totals: journeys without a cart are only written when none can come."""
        counts = Counter[str]()
        for (_, action), (events, _) in list(self.totals.items()):
            counts[action] += events
        return [(step, counts[step]) for step in STEPS] if counts else []

    def funnel(self) -> list[tuple[str, int]]:
        """How many visits were made, and how many carts and orders came of one."""
        return [(step, len(ids)) for step, ids in self.steps.items()]


def ms_of(moment: str) -> int:
    return round(datetime.fromisoformat(moment).timestamp() * 1000)


def money(amount: Any) -> Decimal:
    return Decimal(str(amount)).quantize(Decimal("0.01"))


# ---- the recount ---------------------------------------------------------------------------------


def recount(events: Sequence[Event], broken: Sequence[Broken]) -> Results:
    """What the topics should hold; the last event only closes what was before it."""
    truth = Results()
    visits = Counter(
        (event.at_ms // MINUTE_MS * MINUTE_MS, event.page)
        for event in events[:-1]
        if event.action == "visit"
    )
    for (start_ms, page), count in visits.items():
        truth.add_views(start_ms, page, count)
    for journey in journeys(events[:-1]):
        truth.add_journey(*journey)
    sums: dict[tuple[str, str], tuple[int, Decimal]] = defaultdict(lambda: (0, Decimal(0)))
    for event in events:
        count, amount = sums[event.page, event.action]
        sums[event.page, event.action] = (count + 1, amount + money(event.amount or 0))
    truth.totals = dict(sums)
    truth.bad = Counter((name, what.data) for name in PIPELINES for what in broken)
    return truth


def journeys(events: Iterable[Event]) -> list[tuple[str, str | None, str | None]]:
    """Every visit with each cart of its user and page that follows in time, and its orders."""
    by_step: dict[tuple[str, str, str], list[Event]] = defaultdict(list)
    for event in events:
        by_step[event.action, event.user, event.page].append(event)

    def following(event: Event, action: str) -> list[Event]:
        return [
            later
            for later in by_step.get((action, event.user, event.page), ())
            if event.at_ms <= later.at_ms <= event.at_ms + STEP_MS
        ]

    found: list[tuple[str, str | None, str | None]] = []
    for (action, _, _), visits in list(by_step.items()):
        if action != "visit":
            continue
        for visit in visits:
            carts = following(visit, "cart")
            for cart in carts:
                orders = following(cart, "order")
                found += [(visit.id, cart.id, order.id) for order in orders]
                if not orders:
                    found.append((visit.id, cart.id, None))
            if not carts:
                found.append((visit.id, None, None))
    return found


# ---- the comparison ------------------------------------------------------------------------------


def read(bootstrap_servers: str) -> Results:
    """All result topics from their beginnings, as a reader of committed records sees them."""
    found = Results()
    for topic in TOPICS:
        for record in consume_all(
            bootstrap_servers, topic, timeout_s=READ_TIMEOUT_S, isolation_level="read_committed"
        ):
            found.take(record)
    return found


def compare(truth: Results, found: Results) -> list[Check]:
    """One check for each result topic."""
    records = len(truth.bad) // len(PIPELINES)
    return [
        check(
            f"{VIEWS}: every page and minute once, with the right count",
            truth.views,
            found.views,
            f"{len(truth.views):,} windows, {sum(truth.pages.values()):,} views",
        ),
        check(
            f"{FUNNEL}: every visit with what came of it, once",
            truth.journeys,
            found.journeys,
            f"{truth.journeys.total():,} journeys, {len(truth.steps['order']):,} orders",
        ),
        check(
            f"{TOTALS}: the last total of every page and action",
            Counter(truth.totals.items()),
            Counter(found.totals.items()),
            f"{sum(count for count, _ in truth.totals.values()):,} events, "
            f"{sum(amount for _, amount in truth.totals.values()):,} taken",
        ),
        check(
            f"{BAD}: every broken record once from each pipeline",
            truth.bad,
            found.bad,
            f"{records:,} broken records, {len(PIPELINES)} pipelines",
        ),
    ]


def check(claim: str, expected: Counter[Any], found: Counter[Any], told: str) -> Check:
    missing, extra = (expected - found).total(), (found - expected).total()
    if not missing and not extra:
        return Check(claim, told, told, True)
    return Check(claim, told, f"{missing:,} rows missing, {extra:,} wrong or twice", False)


def tell(story: Story, found: Results, sent: int, broken: int) -> None:
    """The report's numbers, from what is in the topics."""
    story.pages = found.top_pages(8)
    story.funnel = found.funnel()
    for (start_ms, page, views), times in found.views.items():
        minute = datetime.fromtimestamp(start_ms / 1000, UTC).strftime("%H:%M")
        story.views[minute, page] = story.views.get((minute, page), 0) + views * times
    story.figures = [(f"{sent:,}", "events sent"), (f"{broken:,}", "of them broken")]
    if story.killed_at_s is not None and story.back_at_s is not None:
        story.figures.append((f"{story.back_at_s - story.killed_at_s:.0f} s", "without Spark"))
    if story.caught_up_at_s is not None and story.back_at_s is not None:
        story.figures.append((f"{story.caught_up_at_s - story.back_at_s:.0f} s", "to catch up"))
    if story.good:
        story.figures.append(("0", "lost or counted twice"))

"""The made-up people: the same for a seed, skewed, a little out of order, now and then broken."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from datetime import datetime

import pytest

from ottla.testing import broker, consume_all
from scripts.demo.generator import (
    CLOSING_S,
    LATE_S_MAX,
    PAGES,
    SPEED,
    TICK_S,
    Broken,
    Event,
    People,
    Sender,
    Sent,
)

RATE, SECONDS = 1000.0, 20.0


@pytest.fixture(scope="module")
def ticks() -> list[list[Sent]]:
    return list(People(7, RATE, SECONDS).ticks())


@pytest.fixture(scope="module")
def events(ticks: list[list[Sent]]) -> list[Event]:
    return [what for tick in ticks for what in tick if isinstance(what, Event)]


def test_a_seed_says_everything(ticks: list[list[Sent]]) -> None:
    """The same seed gives the same records in the same order; another seed gives others."""
    assert list(People(7, RATE, SECONDS).ticks()) == ticks
    assert list(People(8, RATE, SECONDS).ticks()) != ticks


def test_the_rate_is_kept(ticks: list[list[Sent]]) -> None:
    """About `rate` records in each second of the clock, over the whole time."""
    # One tick for those still on their way at the end, and one for the closing event.
    assert len(ticks) == SECONDS / TICK_S + 2
    assert sum(map(len, ticks)) == pytest.approx(RATE * SECONDS, rel=0.15)


def test_few_pages_get_most_visits(events: list[Event]) -> None:
    """The first page has more visits than the last ten together, and all pages have some."""
    visits = Counter(event.page for event in events if event.action == "visit")
    assert set(PAGES) <= set(visits)
    assert visits[PAGES[0]] > sum(visits[page] for page in PAGES[-10:]) * 0.7
    users = Counter(event.user for event in events)
    assert users.most_common(1)[0][1] > 10 * sum(users.values()) / len(users)


def test_events_are_out_of_order_within_bounds(events: list[Event]) -> None:
    """Some events are sent after later ones, none later than LATE_S_MAX seconds."""
    newest_ms, late_ms = 0, []
    for event in events:
        newest_ms = max(newest_ms, event.at_ms)
        late_ms.append(newest_ms - event.at_ms)
    assert sum(late > 1000 for late in late_ms) > len(events) * 0.05
    # Within a tick the order is the sender's; a partition may be read up to a tick ahead.
    assert max(late_ms) <= (LATE_S_MAX + TICK_S * SPEED) * 1000


def test_steps_follow_each_other(events: list[Event]) -> None:
    """Every click has a visit of the same user and page before it, and so on to the order."""
    seen: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for event in sorted(events, key=lambda event: event.at_ms):
        steps = seen[event.user, event.page]
        steps[event.action] += 1
        assert steps["visit"] >= steps["click"] >= steps["cart"] >= steps["order"]
        assert (event.amount is not None) == (event.action == "order")
    actions = Counter(event.action for event in events)
    assert actions["visit"] > actions["click"] > actions["cart"] > actions["order"] > 100


def test_ids_are_single_and_values_are_json(events: list[Event]) -> None:
    """No id twice; the value is JSON with a time that reads as the event's."""
    assert len({event.id for event in events}) == len(events)
    for event in events[::500]:
        fields = json.loads(event.value())
        assert fields["user"] == event.user
        assert datetime.fromisoformat(fields["at"]).timestamp() * 1000 == event.at_ms


def test_broken_records_are_broken_and_single(ticks: list[list[Sent]]) -> None:
    """There are a few of them, all different, and none has a time that can be read."""
    broken = [what for tick in ticks for what in tick if isinstance(what, Broken)]
    assert 5 < len(broken) < RATE * SECONDS * 0.005
    assert len({what.data for what in broken}) == len(broken)
    for what in broken:
        with pytest.raises(ValueError):
            datetime.fromisoformat(json.loads(what.data)["at"])


def test_the_last_event_closes_every_window(ticks: list[list[Sent]], events: list[Event]) -> None:
    """The last tick is one event, an hour after all others."""
    (last,) = ticks[-1]
    assert last is events[-1]
    before_ms = max(event.at_ms for event in events[:-1])
    assert events[-1].at_ms - before_ms >= CLOSING_S * 1000


def test_what_is_remembered_is_what_is_in_the_topic() -> None:
    """The sender's memory and the topic hold the same records, each once."""
    with broker(num_partitions=3) as server:
        sender = Sender(server.bootstrap_servers, "people", People(7, 500, 2))
        sender.run()
        assert sender.failure is None
        stored = Counter(record.value for record in consume_all(server, "people"))
    remembered = [event.value() for event in sender.events] + [b.data for b in sender.broken]
    assert stored == Counter(remembered)
    assert sender.sent == len(remembered) > 500

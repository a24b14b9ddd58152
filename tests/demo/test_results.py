"""The recount is right by hand, and the comparison sees what is missing, wrong or there twice."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from decimal import Decimal

import pytest

from ottla import ConsumerRecord
from scripts.demo import results
from scripts.demo.generator import DAY_BEGIN_MS, Broken, Event, People
from scripts.demo.panel import View, panel, plain
from scripts.demo.results import Results, compare, recount

MINUTE = 60_000


def event(name: str, action: str, minute: float, **more: object) -> Event:
    at_ms = DAY_BEGIN_MS + int(minute * MINUTE)
    return Event(**{"id": name, "user": "a", "page": "/", "action": action, "at_ms": at_ms, **more})  # type: ignore[arg-type]


EVENTS = [
    event("v1", "visit", 0.5),
    event("v2", "visit", 0.9, user="b"),
    event("v3", "visit", 1.0, page="/hats"),
    event("c1", "cart", 2.0),
    event("o1", "order", 3.0, amount=10.5),
    event("o2", "order", 11.9, amount=2.25),
    event("c2", "cart", 10.5),
    event("c3", "cart", 11.1, user="b"),
    event("end", "visit", 100, user="nobody", page="/closed"),
]
BROKEN = [Broken("a", b"not json")]


def test_views_are_counted_by_minute_and_page() -> None:
    """Visits only, by the minute they happened in; the closing event's minute never closes."""
    assert recount(EVENTS, BROKEN).views == Counter(
        [(DAY_BEGIN_MS, "/", 2), (DAY_BEGIN_MS + MINUTE, "/hats", 1)]
    )


def test_journeys_keep_to_user_page_and_time() -> None:
    """A visit meets each cart within ten minutes, bounds included, and that each order so."""
    assert recount(EVENTS, BROKEN).journeys == Counter(
        [
            ("v1", "c1", "o1"),
            ("v1", "c1", "o2"),
            ("v1", "c2", "o2"),
            # b's cart comes more than ten minutes after the visit.
            ("v2", None, None),
            ("v3", None, None),
        ]
    )
    assert recount(EVENTS, BROKEN).funnel() == [("visit", 3), ("cart", 2), ("order", 2)]


def test_totals_hold_everything() -> None:
    """Totals never close: the last event is in them too; money is exact."""
    totals = recount(EVENTS, BROKEN).totals
    assert totals["/", "order"] == (2, Decimal("12.75"))
    assert totals["/closed", "visit"] == (1, Decimal(0))
    assert sum(count for count, _ in totals.values()) == len(EVENTS)


def test_the_funnel_so_far_is_the_totals() -> None:
    """While it runs each step is as many as the totals say; before any, there is nothing."""
    so_far = recount(EVENTS, BROKEN).funnel_so_far()
    assert so_far == [("visit", 4), ("click", 0), ("cart", 3), ("order", 2)]
    assert Results().funnel_so_far() == []


def record(topic: str, value: bytes, **headers: bytes) -> ConsumerRecord:
    fields = dict.fromkeys(ConsumerRecord._fields)
    named = [(name.replace("_", "."), data) for name, data in headers.items()]
    return ConsumerRecord(**{**fields, "topic": topic, "value": value, "headers": named})


def test_records_become_rows() -> None:
    """What the pipelines write is read as the rows of the recount."""
    found = Results()
    start = "2026-07-03T09:00:00.000000Z"
    views = {"page": "/", "start": start, "end": start, "views": 2}
    found.take(record("page-views", json.dumps(views).encode()))
    found.take(record("funnel", b'{"visit": "v1", "cart": "c1", "order": null, "user": "a"}'))
    total = {"page": "/", "action": "order", "events": 2, "amount": 12.75}
    found.take(record("running-totals", json.dumps({**total, "events": 1}).encode()))
    found.take(record("running-totals", json.dumps(total).encode()))
    found.take(record("user-behaviour.bad", b"not json", ottla_pipeline=b"funnel"))
    assert found.views == Counter([(DAY_BEGIN_MS, "/", 2)])
    assert found.journeys == Counter([("v1", "c1", None)])
    assert found.totals == {("/", "order"): (2, Decimal("12.75"))}
    assert found.bad == Counter([("funnel", b"not json")])


def test_equal_results_pass() -> None:
    """A recount compared with itself is complete, and every check holds."""
    truth = recount(EVENTS, BROKEN)
    assert truth.complete(recount(EVENTS, BROKEN))
    assert all(check.good for check in compare(truth, recount(EVENTS, BROKEN)))


@pytest.mark.parametrize(
    ("number", "words", "spoil"),
    [
        (0, "1 rows missing, 0", lambda r: r.views.popitem()),
        (0, "0 rows missing, 1", lambda r: r.views.update([(DAY_BEGIN_MS, "/", 2)])),
        (0, "0 rows missing, 1", lambda r: r.views.update([(DAY_BEGIN_MS, "/", 1)])),
        (1, "0 rows missing, 1", lambda r: r.journeys.update([("v1", "c1", "o1")])),
        (1, "1 rows missing, 0", lambda r: r.journeys.subtract([("v1", "c1", "o1")])),
        (2, "1 rows missing, 1", lambda r: r.totals.update({("/", "visit"): (9, Decimal(0))})),
        (3, "1 rows missing, 0", lambda r: r.bad.popitem()),
        (3, "0 rows missing, 1", lambda r: r.bad.update([("funnel", b"not json")])),
    ],
)
def test_every_fault_is_found(number: int, words: str, spoil: object) -> None:
    """A row missing, twice or wrong fails the check of its topic, and no other."""
    truth = recount(EVENTS, BROKEN)
    found = copy.deepcopy(truth)
    spoil(found)  # type: ignore[operator]
    checks = compare(truth, found)
    assert [index for index, check in enumerate(checks) if not check.good] == [number]
    assert words in checks[number].found


def test_the_report_adds_up() -> None:
    """The views of the charts are the visits that were sent."""
    ticks = list(People(3, 300, 5).ticks())
    events = [what for tick in ticks for what in tick if isinstance(what, Event)]
    truth = recount(events, [])
    story = results.Story()
    results.tell(story, truth, len(events), 0)
    visits = sum(event.action == "visit" for event in events) - 1
    assert sum(story.views.values()) == sum(truth.pages.values()) == visits
    assert story.funnel[0] == ("visit", visits)


@pytest.mark.parametrize("width", [70, 80, 200])
def test_the_panel_fits(width: int) -> None:
    """No line of the panel is wider than the terminal, whatever is in it."""
    view = View(
        elapsed_s=61,
        sent=12_345_678,
        lag=9_999_999,
        rates=[1.0] * 40,
        lags=[0.0, 5.0],
        pages=[("/a/very/long/name/of/a/page", 1_000_000), ("/", 1)],
        funnel=[("visit", 1_000_000), ("cart", 0)],
        pipelines="page-views 1.0 s · " * 20,
        happenings=[(3.0, "word " * 60)],
    )
    bare = [re.sub(r"\033\[[0-9;]*m", "", line) for line in panel(view, width)]
    assert max(map(len, bare)) <= width
    assert any("/a/very/long" in line and "visit" in line for line in bare)


def test_a_pipe_gets_plain_lines() -> None:
    """One line, no escape sequences, the same figures."""
    view = View(elapsed_s=65, sent=1200, lag=30, pages=[("/", 7)], funnel=[("visit", 9)])
    text = plain(view)
    assert "\033" not in text
    assert "\n" not in text
    assert "1:05" in text
    assert "1,200 sent" in text
    assert "lag 30" in text
    assert "/ 7" in text
    assert "9 visit" in text

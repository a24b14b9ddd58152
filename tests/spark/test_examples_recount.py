"""The recounts themselves, on small cases counted by hand; and that the stretch is worth counting.

No Spark here.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from tests.spark import recount, shop
from tests.spark.recount import Sent

DAY = "2026-07-03"


def done(name: str, at: str, action: str = "visit", **fields: Any) -> Sent:
    """An event of the user `u` on the page `/p`, if nothing else is said."""
    whole = {"id": name, "user": "u", "page": "/p", "action": action, "at": f"{DAY}T{at}Z"}
    return Sent(b"u", json.dumps({**whole, **fields}).encode(), 0)


def at(clock: str) -> str:
    return f"{DAY}T{clock}.000000Z"


def test_views_are_counted_by_page_and_minute() -> None:
    """A minute begins with its first moment and ends before the next; only visits count."""
    found = recount.page_views(
        [
            done("1", "10:00:00"),
            done("2", "10:00:59.999"),
            done("3", "10:01:00"),
            done("4", "10:00:30", "click"),
            done("5", "10:00:30", page="/q"),
        ]
    )
    assert [(row["page"], row["start"], row["views"]) for row in found] == [
        ("/p", at("10:00:00"), 2),
        ("/p", at("10:01:00"), 1),
        ("/q", at("10:00:00"), 1),
    ]


def test_a_visit_counts_in_five_windows_of_the_trend() -> None:
    """Windows of five minutes begin every minute; three pages are named, the most visited first."""
    sent = [
        done(str(n), "10:04:10", page=page) for n, page in enumerate(["/b", "/b", "/a", "/d", "/c"])
    ]
    found = recount.trending_pages(sent)
    assert sorted(row["start"] for row in found) == [at(f"10:0{n}:00") for n in range(5)]
    for row in found:
        assert row["pages"] == ["/b", "/a", "/c"]
        assert row["views"] == [2, 1, 1]


def test_a_session_goes_on_for_five_minutes_after_an_event() -> None:
    """Five minutes to the millisecond are one session; one more are two. Disorder is no matter."""
    sent = [
        done("2", "10:05:00", page="/q", amount=1.25),
        done("1", "10:00:00"),
        done("3", "10:10:00.001", amount=2),
    ]
    found = recount.sessions(sent)
    assert [(row["events"], row["pages"], row["spent"]) for row in found] == [
        (2, 2, Decimal("1.25")),
        (1, 1, Decimal(2)),
    ]


def test_a_funnel_has_every_visit() -> None:
    """A visit without a cart, one with a cart alone, one with two carts of which one is ordered."""
    sent = [
        done("v1", "10:00:00", page="/1"),
        done("v2", "10:00:00", page="/2"),
        done("c2", "10:10:00", "cart", page="/2"),
        done("o2", "10:20:00.001", "order", page="/2"),
        done("v3", "10:00:00", page="/3"),
        done("c3", "10:01:00", "cart", page="/3"),
        done("d3", "10:04:00", "cart", page="/3"),
        done("o3", "10:11:00.001", "order", page="/3"),
    ]
    found = [(row["visit"], row["cart"], row["order"]) for row in recount.funnel(sent)]
    assert found == [
        ("v1", None, None),
        ("v2", "c2", None),
        ("v3", "c3", None),
        ("v3", "d3", "o3"),
    ]


def test_an_order_has_the_latest_product() -> None:
    """The last value of a key counts, and a deleted product is none."""
    products = [
        Sent(b"/p", b'{"name": "old", "category": "x"}', 0),
        Sent(b"/q", b'{"name": "gone", "category": "x"}', 0),
        Sent(b"/p", b'{"name": "new", "category": "y"}', 0),
        Sent(b"/q", None, 0),
    ]
    sent = [done("1", "10:00:00", "order"), done("2", "10:00:00", "order", page="/q")]
    found = recount.enriched_orders([*sent, done("3", "10:00:00")], products)
    assert [(row["id"], row["name"], row["category"]) for row in found] == [
        ("1", "new", "y"),
        ("2", None, None),
    ]


def test_totals_are_of_page_and_action() -> None:
    """Events are counted and amounts added up to the cent."""
    sent = [done(str(n), "10:00:00", "order", amount=0.1) for n in range(3)]
    assert recount.running_totals([*sent, done("9", "10:00:00")]) == [
        {"page": "/p", "action": "order", "events": 3, "amount": Decimal("0.30")},
        {"page": "/p", "action": "visit", "events": 1, "amount": Decimal(0)},
    ]


def test_an_event_is_the_same_by_id_and_time() -> None:
    """What was sent twice is there once; the same id at another time is another event."""
    sent = [done("1", "10:00:00"), done("1", "10:00:00"), done("1", "10:00:01")]
    assert len(recount.deduplicate(sent)) == 2


@pytest.mark.parametrize(
    ("value", "good"),
    [
        (b'{"a": "x", "at": "2026-07-03T10:00:00Z", "amount": 1.5}', True),
        (b'{"a": "x", "at": "2026-07-03T10:00:00Z"}', True),
        (b'{"at": "2026-07-03T10:00:00Z"}', False),
        (b'{"a": null, "at": "2026-07-03T10:00:00Z"}', False),
        (b'{"a": "x", "at": "yesterday"}', False),
        (b'{"a": "x", "at": "2026-07-03T10:00:00Z", "amount": "a lot"}', False),
        (b'[{"a": "x", "at": "2026-07-03T10:00:00Z"}]', False),
        (b"{", False),
        (b"", False),
        (b"\xff", False),
        (None, False),
    ],
)
def test_what_is_bad(value: bytes | None, good: bool) -> None:
    """A value must be one object, with every field that is needed and of the type it has."""
    assert (recount.parsed(value, "a! at! amount") is not None) is good


def test_differences_are_reported() -> None:
    """The comparison counts how often a row is there, and says what is missing and too much."""
    assert recount.difference([{"a": [1]}, {"a": [1]}], [{"a": [1]}, {"a": [1]}]) == {}
    assert recount.difference([1, 1, 2], [1, 2, 3]) == {"missing": [3], "too much": [1]}
    assert recount.difference([{"a": Decimal("1.50")}], [{"a": Decimal("1.5")}]) == {}


def test_the_stretch_has_what_makes_counting_hard() -> None:
    """Skew, disorder within the bound, repetitions, two days, and bad records for every example."""
    sent = shop.flat(shop.stretch())
    assert sent == shop.flat(shop.stretch())
    pages = Counter(row["page"] for row in recount.good(sent, "page-views")).most_common()
    assert pages[0][1] > 10 * pages[-1][1]
    assert len(sent) > len(set(sent)) + 10
    assert len(recount.by_day(sent)) == 2
    times = [row["at"] for row in recount.good(sent, "deduplicate")]
    behind = [max(times[: n + 1]) - time for n, time in enumerate(times)]
    assert timedelta(seconds=10) < max(behind) < timedelta(minutes=1)
    for name in recount.FIELDS:
        assert len(recount.bad(sent, name)) >= 10
    funnel = recount.funnel(sent)
    assert {(row["cart"] is None, row["order"] is None) for row in funnel} == {
        (True, True),
        (False, True),
        (False, False),
    }


def test_however_it_is_cut_nothing_is_late() -> None:
    """No tick has an event that is a minute behind an event of the tick before it, or of its own:
    so the watermark of an example, a minute behind what it has seen, drops nothing."""
    seen = datetime.min.replace(tzinfo=shop.BEGIN.tzinfo)
    for tick in shop.stretch():
        times = [row["at"] for row in recount.good(tick, "deduplicate")]
        seen = max([seen, *times])
        assert all(seen - time < timedelta(minutes=1) for time in times)
    (closing,) = recount.good([shop.closing()], "deduplicate")
    assert closing["at"] - seen > timedelta(hours=1)

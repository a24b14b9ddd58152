"""What the example pipelines must answer, counted again in plain Python.

`stretch` makes what happened in a shop within three quarters of an hour, around midnight: a few
pages and users do most (skew), events come out of order, some twice, some broken or with fields
missing. The functions below take the values of the records as they were sent, and give the rows
that each example must write. They are slow and plain on purpose, and know nothing of Spark.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

Row = dict[str, Any]
MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Sent:
    """One record as it went out."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes], ...] = ()


# What each example reads of an event: a field with "!" must be there.
FIELDS = {
    "page-views": "page! action! at!",
    "trending-pages": "page! action! at!",
    "sessions": "user! page! at! amount",
    "funnel": "id! user! page! action! at!",
    "enriched-orders": "id! user! page! action! at! amount",
    "running-totals": "page! action! amount",
    "deduplicate": "id! user page action at! amount",
}


def parsed(value: bytes | None, fields: str) -> Row | None:
    """The fields of one value, or None if the record is bad."""
    try:
        found = json.loads((value or b"").decode(), parse_float=Decimal)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    row: Row = {}
    for field in fields.split():
        name, needed = field.removesuffix("!"), field.endswith("!")
        raw = found.get(name)
        if raw is None and needed:
            return None
        try:
            row[name] = None if raw is None else KINDS.get(name, str)(raw)
        except (ValueError, ArithmeticError):
            return None
    return row


KINDS: Mapping[str, Callable[[Any], Any]] = {
    "at": datetime.fromisoformat,
    "amount": lambda raw: Decimal(raw).quantize(Decimal("0.01")),
}


def good(sent: Iterable[Sent], example: str) -> list[Row]:
    rows = (parsed(each.value, FIELDS[example]) for each in sent)
    return [row for row in rows if row is not None]


def bad(sent: Iterable[Sent], example: str) -> list[Sent]:
    return [each for each in sent if parsed(each.value, FIELDS[example]) is None]


def text(at: datetime | None) -> str | None:
    """A time as a sink writes it."""
    return None if at is None else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def page_views(sent: Iterable[Sent]) -> list[Row]:
    visits = [row for row in good(sent, "page-views") if row["action"] == "visit"]
    views = Counter((row["page"], minute_of(row["at"])) for row in visits)
    return [
        {"page": page, "start": text(start), "end": text(start + MINUTE), "views": count}
        for (page, start), count in views.items()
    ]


def trending_pages(sent: Iterable[Sent]) -> list[Row]:
    views: dict[datetime, Counter[str]] = defaultdict(Counter)
    for row in good(sent, "trending-pages"):
        if row["action"] == "visit":
            for back in range(5):
                views[minute_of(row["at"]) - back * MINUTE][row["page"]] += 1
    rows = []
    for start, pages in views.items():
        top = sorted(pages.items(), key=lambda each: (-each[1], each[0]))[:3]
        rows.append(
            {
                "start": text(start),
                "end": text(start + 5 * MINUTE),
                "pages": [page for page, _ in top],
                "views": [count for _, count in top],
            }
        )
    return rows


def sessions(sent: Iterable[Sent]) -> list[Row]:
    by_user: dict[str, list[list[Row]]] = defaultdict(list)
    for row in sorted(good(sent, "sessions"), key=lambda row: row["at"]):
        mine = by_user[row["user"]]
        # A session is over when nothing has come for five minutes; at exactly five it goes on.
        if mine and row["at"] - mine[-1][-1]["at"] <= 5 * MINUTE:
            mine[-1].append(row)
        else:
            mine.append([row])
    return [
        {
            "user": user,
            "first": text(session[0]["at"]),
            "last": text(session[-1]["at"]),
            "events": len(session),
            "pages": len({row["page"] for row in session}),
            "spent": sum((row["amount"] or Decimal(0) for row in session), Decimal(0)),
        }
        for user, mine in by_user.items()
        for session in mine
    ]


def funnel(sent: Iterable[Sent]) -> list[Row]:
    steps: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in good(sent, "funnel"):
        steps[row["action"], row["user"], row["page"]].append(row)

    def within(action: str, before: Row) -> list[Row]:
        return [
            row
            for row in steps.get((action, before["user"], before["page"]), ())
            if before["at"] <= row["at"] <= before["at"] + 10 * MINUTE
        ]

    rows: list[Row] = []
    for (action, user, page), found in steps.items():
        for visit in found if action == "visit" else ():
            row = {"user": user, "page": page, "visit": visit["id"], "visit_at": text(visit["at"])}
            carts = within("cart", visit)
            if not carts:
                rows.append({**row, "cart": None, "cart_at": None, "order": None})
            for cart in carts:
                for order in within("order", cart) or [{"id": None}]:
                    after = {"cart": cart["id"], "cart_at": text(cart["at"]), "order": order["id"]}
                    rows.append({**row, **after})
    return rows


def enriched_orders(sent: Iterable[Sent], products: Iterable[Sent]) -> list[Row]:
    table: dict[str, Row] = {}
    for each in products:
        page = (each.key or b"").decode()
        if each.value is None:
            table.pop(page, None)
        else:
            table[page] = json.loads(each.value)
    unknown = {"name": None, "category": None}
    return [
        {
            **{name: row[name] for name in ("id", "user", "page", "amount")},
            "at": text(row["at"]),
            **table.get(row["page"], unknown),
        }
        for row in good(sent, "enriched-orders")
        if row["action"] == "order"
    ]


def running_totals(sent: Iterable[Sent]) -> list[Row]:
    events: Counter[tuple[str, str]] = Counter()
    amounts: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for row in good(sent, "running-totals"):
        events[row["page"], row["action"]] += 1
        amounts[row["page"], row["action"]] += row["amount"] or 0
    return [
        {"page": page, "action": action, "events": count, "amount": amounts[page, action]}
        for (page, action), count in events.items()
    ]


def deduplicate(sent: Iterable[Sent]) -> list[Row]:
    kept = {(row["id"], row["at"]): row for row in good(sent, "deduplicate")}
    return [{**row, "at": text(row["at"])} for row in kept.values()]


def by_day(sent: Iterable[Sent]) -> Counter[str]:
    """How many records the archive has of each day."""
    return Counter(
        datetime.fromtimestamp(each.timestamp_ms / 1000, UTC).date().isoformat() for each in sent
    )


def minute_of(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


def canonical(value: Any) -> Any:
    """The same as something that can be counted."""
    if isinstance(value, Mapping):
        return frozenset((name, canonical(each)) for name, each in value.items())
    return tuple(map(canonical, value)) if isinstance(value, list) else value


def counted(rows: Iterable[Any]) -> Counter[Any]:
    return Counter(map(canonical, rows))


def difference(found: Iterable[Any], expected: Iterable[Any]) -> dict[str, list[Any]]:
    """What is missing and what is too much: empty if both have the same rows as often."""
    there, wanted = counted(found), counted(expected)
    sides = {"missing": wanted - there, "too much": there - wanted}
    return {side: list(rows.elements()) for side, rows in sides.items() if rows}

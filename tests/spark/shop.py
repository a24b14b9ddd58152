"""What happens in the shop of the example pipelines' tests: the same for the same seed.

`stretch` gives it in the order it is sent, in ticks of event time: if each tick is stored before
the next is sent, no record is later than the watermark of any example, however a stream is cut into
micro-batches.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby

from tests.spark.recount import Sent

BEGIN = datetime(2026, 7, 3, 23, 38, tzinfo=UTC)
LENGTH_S = 45 * 60
TICK_S = 10
LATE_S_MAX = 20
VISITS = 450
PAGES = [f"/p/{number}" for number in range(12)]
USERS = [f"u-{number:02}" for number in range(40)]
# After a visit: the chance of each step, given the one before, and how many seconds later.
STEPS = (("click", 0.5, 40), ("cart", 0.5, 200), ("order", 0.5, 400))
CLOSING_USER, CLOSING_PAGE = "nobody", "/closed"
# Seconds from the beginning, user, page, action: what the edges of windows and joins are about.
EDGES = (
    (600.0, "edge-1", "/p/1", "visit"),  # on a full minute
    (1200.0, "edge-1", "/p/1", "cart"),  # ten minutes after the visit, to the millisecond
    (1800.0, "edge-1", "/p/1", "order"),
    (600.0, "edge-2", "/p/2", "visit"),
    (1200.001, "edge-2", "/p/2", "cart"),  # too late for the visit
    (1200.0, "edge-3", "/p/3", "visit"),
    (1500.0, "edge-3", "/p/3", "visit"),  # five minutes after the last event
    (1200.0, "edge-4", "/p/3", "visit"),
    (1500.001, "edge-4", "/p/3", "visit"),  # and a session of its own
    (659.999, "edge-5", "/p/4", "visit"),
    (660.0, "edge-5", "/p/4", "cart"),
    (660.0, "edge-5", "/p/4", "cart"),  # two carts of one visit
)


def stretch(seed: int = 1) -> list[list[Sent]]:
    """All records, as ticks."""
    chance = random.Random(seed)
    queue: list[tuple[float, Sent]] = []
    for number, (at_s, user, page, action) in enumerate(happenings(chance)):
        fields = event(f"e-{number:05}", user, page, action, at_s)
        if action == "order":
            fields["amount"] = chance.randrange(500, 20_000) / 100
        sent_s = at_s + (chance.uniform(0, LATE_S_MAX) if chance.random() < 0.3 else 0)
        record = sent(fields, at_s)
        queue.append((sent_s, record))
        if chance.random() < 0.03:  # a producer that sends again
            queue.append((sent_s + chance.uniform(0, LATE_S_MAX), record))
    queue += broken(chance)
    queue.sort(key=lambda each: each[0])
    ticks = groupby(queue, key=lambda each: int(each[0] // TICK_S))
    return [[record for _, record in tick] for _, tick in ticks]


def flat(ticks: Iterable[list[Sent]]) -> list[Sent]:
    return [record for tick in ticks for record in tick]


def closing() -> Sent:
    """The last record: it is so late that every window and join before it closes."""
    at_s = LENGTH_S + 3 * 3600
    return sent(event("e-last", CLOSING_USER, CLOSING_PAGE, "visit", at_s), at_s)


def happenings(chance: random.Random) -> Iterator[tuple[float, str, str, str]]:
    yield from EDGES
    page_weights = [1 / rank for rank in range(1, len(PAGES) + 1)]
    user_weights = [1 / rank**0.8 for rank in range(1, len(USERS) + 1)]
    for _ in range(VISITS):
        at_s = chance.uniform(0, LENGTH_S)
        user = chance.choices(USERS, user_weights)[0]
        page = chance.choices(PAGES, page_weights)[0]
        yield at_s, user, page, "visit"
        for action, share, seconds in STEPS:
            at_s += chance.uniform(1, seconds)
            if chance.random() > share or at_s > LENGTH_S:
                break
            yield at_s, user, page, action


def event(name: str, user: str, page: str, action: str, at_s: float) -> dict[str, object]:
    at = (BEGIN + timedelta(seconds=at_s)).isoformat(timespec="milliseconds")
    return {"id": name, "user": user, "page": page, "action": action,
            "at": at.replace("+00:00", "Z")}  # fmt: skip


def sent(fields: dict[str, object], at_s: float) -> Sent:
    headers = (("sent-by", b"shop"), ("empty", b"")) if time_ms(at_s) % 7 == 0 else ()
    return Sent(str(fields["user"]).encode(), encoded(fields), time_ms(at_s), headers)


def encoded(fields: dict[str, object]) -> bytes:
    return json.dumps(fields).encode()


def time_ms(at_s: float) -> int:
    return int((BEGIN + timedelta(seconds=at_s)).timestamp() * 1000)


def broken(chance: random.Random) -> Iterator[tuple[float, Sent]]:
    """Records that are bad for some examples or for all, each in a way of its own; and when."""
    whole = event("", "u-00", "/p/0", "visit", 0)
    ways: list[Callable[[dict[str, object]], bytes | None]] = [
        lambda fields: encoded(fields)[:-20],
        lambda _: b"\x00\xff\xfe no text at all",
        lambda _: b"<event>visit</event>",
        lambda _: b"",
        lambda _: b"[]",
        lambda _: b'"visit"',
        lambda _: None,
        lambda fields: b"[" + encoded(fields) + b"]",
        lambda fields: encoded(fields) * 2,
        *(lambda fields, name=name: encoded({**fields, name: None}) for name in whole),
        *(lambda fields, name=name: encoded(without(fields, name)) for name in whole),
        lambda fields: encoded({**fields, "at": "yesterday"}),
        lambda fields: encoded({**fields, "amount": "a lot"}),
        lambda fields: encoded({**fields, "unknown": {"a": [1, 2]}}),
    ]
    for number, spoil in enumerate(ways):
        at_s = LENGTH_S * (number + 1) / (len(ways) + 1)
        fields = event(f"e-odd-{number}", "u-00", "/p/0", "visit", at_s)
        key = chance.choice((None, b"u-00"))
        yield at_s, Sent(key, spoil(fields), time_ms(at_s), (("odd", str(number).encode()),))


def without(fields: dict[str, object], name: str) -> dict[str, object]:
    return {each: value for each, value in fields.items() if each != name}


def products() -> list[Sent]:
    """The `products` topic: some pages have one, some had another before, one is deleted."""
    table = [
        Sent(page.encode(), json.dumps({"name": name, "category": "hats"}).encode(), 0)
        for page in PAGES[:8]
        for name in (f"old name of {page}", f"Hat of {page}")
    ]
    return [*table, Sent(PAGES[3].encode(), None, 0)]

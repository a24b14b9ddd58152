"""Conditions in SQL over records that are browsed: what fits is found, what is none is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.client.producer import Producer
from ottla.console.data.filtering import SqlCondition
from ottla.console.data.work import Deadline, Problem, Stop, Stopped
from ottla.testing import Broker

from .live import KEPT, Pages, pages

RECORDS = 3_000
TIME_MS = 1_790_000_000_000
SAMPLE = [b'{"amount": 1, "country": "de", "key": "k", "at": {"city": "x"}, "Amount": 2}']


@pytest.fixture(scope="module")
def browser(ottla_shared_broker: Broker) -> Iterator[Pages]:
    with pages(ottla_shared_broker.bootstrap_servers) as made:
        yield made


@pytest.fixture(scope="module")
def topic(browser: Pages) -> str:
    """JSON values with an amount that counts, in two partitions; the last value is no JSON."""
    name = "console-filter"
    browser.cluster.admin().create_topics({name: {"num_partitions": 2, "configs": KEPT}})
    servers = browser.cluster.client_properties["bootstrap_servers"]
    with Producer(bootstrap_servers=servers, compression_type="lz4") as producer:
        for number in range(RECORDS):
            value = {"amount": number, "country": ("de", "fr", "it")[number % 3]}
            producer.send(
                name,
                json.dumps(value).encode(),
                key=b"k%d" % number,
                partition=number % 2,
                timestamp_ms=TIME_MS + number,
                headers=[("trace", b"%d" % (number % 7))] if number % 5 == 0 else None,
            )
        producer.send(name, b"\xff\x00", partition=1, timestamp_ms=TIME_MS + RECORDS)
    return name


def search(browser: Pages, topic: str, condition: str, **query: Any) -> tuple[list[int], Any]:
    found = browser.lines(
        f"/c/main/topics/{topic}/messages/rows", params={"condition": condition, **query}
    )
    assert "end" in found[-1], found[-1]
    rows = [each["row"] for each in found if "row" in each]
    return [row["timestamp"] - TIME_MS for row in rows], found[-1]["end"]


@pytest.mark.parametrize(
    ("condition", "fits"),
    [
        ("amount >= 2990", lambda n: 2990 <= n < RECORDS),
        ("amount % 1000 = 7 and country = 'fr'", lambda n: n % 1000 == 7 and n % 3 == 1),
        ("key = 'k42'", lambda n: n == 42),
        ("\"offset\" < 3 and partition = 1", lambda n: n in (1, 3, 5)),
        ("value like '%\"amount\": 5,%'", lambda n: n == 5),
        (f"timestamp = make_timestamp_ms({TIME_MS} + 77)", lambda n: n == 77),
        ("headers[1].key = 'trace' and headers[1].value = '3' and amount < 50",
         lambda n: n in (10, 45)),
        ("value_bytes = '\\xFF\\x00'::BLOB", lambda n: n == RECORDS),
        ("amount is null", lambda n: n == RECORDS),
        ("amount = 17 -- a comment", lambda n: n == 17),
        ("false", lambda n: False),
    ],
)  # fmt: skip
def test_a_condition_finds_what_fits_in_both_directions(
    browser: Pages, topic: str, condition: str, fits: Any
) -> None:
    """The same records from the end back and from the beginning on, by any number of pages."""
    expected = [number for number in range(RECORDS + 1) if fits(number)]
    found, end = search(browser, topic, condition)
    assert found == expected[::-1]
    assert end["complete"]
    found, end = search(browser, topic, condition, count=4, **{"from": "earliest"})
    while end["has_newer"]:
        more, end = search(
            browser, topic, condition, count=4, positions=end["newer"], direction="forward"
        )
        found += more
    assert found == expected


def test_the_search_tells_how_far_it_is(browser: Pages, topic: str) -> None:
    """Progress comes before the end: records looked at, and found."""
    found = browser.lines(
        f"/c/main/topics/{topic}/messages/rows", params={"condition": "amount = 0"}
    )
    progress = [each["progress"] for each in found if "progress" in each]
    assert [each["scanned"] for each in progress] == sorted(each["scanned"] for each in progress)
    assert progress[-1] == {"scanned": RECORDS + 1, "found": 1}


@pytest.mark.parametrize(
    "condition",
    [
        "",
        "amount >",
        "amount = 1) UNION SELECT 1 --",
        "true) UNION ALL (SELECT 5 FROM records WHERE (true",
        "true) ORDER BY (1",
        "true) LIMIT (1",
        "amount = 1; DROP TABLE records",
        "exists (SELECT 1 FROM records)",
        "exists (SELECT 1 FROM secret)",
        "exists (FROM read_csv('/etc/passwd'))",
        "exists (FROM duckdb_settings())",
        "exists (FROM arrow_scan(1, 2, 3))",
        "length(repeat(value, 100000000)) > 1",
        "len(range(amount * 100000000)) > 1",
        "list_reduce([value, value], (a, b) -> a || b || a) = ''",
        "exists (FROM query('select 1'))",
        "sleep_ms(100000) is null",
        "current_setting('home_directory') = ''",
        "unknown_column = 1",
        "a" * 5_000,
        "(" * 300 + "true" + ")" * 300 + " and " + "not " * 900 + "true",
        "true\x00",
    ],
)
def test_what_is_no_condition_is_refused(condition: str) -> None:
    """With a sentence, before any record is read."""
    with pytest.raises(Problem, match=r".{10}"):
        SqlCondition(condition, SAMPLE, Stop(), Deadline(30_000)).close()


def test_fields_whose_names_are_taken_have_another() -> None:
    """`key` of a value is `value_key`; of two names that differ in case the first is a column."""
    with SqlCondition("value_key = 'k' and amount = 1", SAMPLE, Stop(), Deadline(30_000)):
        pass
    with pytest.raises(
        Problem, match="fields of the newest values: amount, country, value_key, at"
    ):
        SqlCondition("nothing = 1", SAMPLE, Stop(), Deadline(30_000))


def test_a_condition_that_fails_at_a_record_says_so(browser: Pages, topic: str) -> None:
    """What can only be seen at a value ends the search with DuckDB's sentence."""
    found = browser.lines(
        f"/c/main/topics/{topic}/messages/rows", params={"condition": "amount = 'x' || amount"}
    )
    assert "Could not convert string 'x" in found[-1]["error"]


def test_a_reader_who_cancels_ends_a_condition() -> None:
    """Before it begins, and when the next records come."""
    stop = Stop()
    stop.set()
    with pytest.raises(Stopped):
        SqlCondition("amount = 1", SAMPLE, stop, Deadline(30_000))

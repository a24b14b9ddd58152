"""Browsing a topic's records over a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.client.producer import Producer
from ottla.console.access.permissions import Grant, Principal, Role
from ottla.testing import Broker

from .live import KEPT, Pages, pages
from .pictures import HOSTILE

RECORDS = 120  # of each of three partitions
TIME_MS = 1_790_000_000_000


@pytest.fixture(scope="module")
def browser(ottla_shared_broker: Broker) -> Iterator[Pages]:
    with pages(ottla_shared_broker.bootstrap_servers) as made:
        yield made


@pytest.fixture(scope="module")
def topic(browser: Pages) -> str:
    """Three partitions whose records alternate in time; value `n` is the n-th of all."""
    name = "console-browse"
    browser.cluster.admin().create_topics({name: {"num_partitions": 3, "configs": KEPT}})
    with Producer(bootstrap_servers=bootstrap(browser)) as producer:
        for number in range(RECORDS * 3):
            producer.send(
                name,
                b"%d" % number,
                key=b"k%d" % number,
                partition=number % 3,
                timestamp_ms=TIME_MS + number,
            )
    return name


def bootstrap(browser: Pages) -> str:
    return str(browser.cluster.client_properties["bootstrap_servers"])


def rows_of(
    browser: Pages, topic: str, **query: Any
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    found = browser.lines(f"/c/main/topics/{topic}/messages/rows", params=query)
    assert not [each for each in found if "error" in each], found
    return [each["row"] for each in found if "row" in each], found[-1]["end"]


def values(rows: list[dict[str, Any]]) -> list[int]:
    return [int(row["value"]["text"]) for row in rows]


def test_the_newest_come_first_merged_by_time(browser: Pages, topic: str) -> None:
    """The last records of all partitions together, newest first."""
    rows, end = rows_of(browser, topic, count=20)
    last = RECORDS * 3 - 1
    assert values(rows) == list(range(last, last - 20, -1))
    assert (end["has_newer"], end["has_older"], end["complete"]) == (False, True, True)
    assert {(row["partition"], row["timestamp_kind"]) for row in rows} == {
        (each, "create") for each in range(3)
    }


@pytest.mark.parametrize("count", [7, 50, 500])
def test_paging_back_and_forth_has_each_record_once(browser: Pages, topic: str, count: int) -> None:
    """From the end to the beginning by `older`, then to the end again by `newer`."""
    rows, end = rows_of(browser, topic, count=count)
    seen = values(rows)
    while end["has_older"]:
        rows, end = rows_of(browser, topic, count=count, positions=end["older"], direction="back")
        seen += values(rows)
    assert seen == list(range(RECORDS * 3 - 1, -1, -1))
    assert end["at_end"]
    rows, end = rows_of(browser, topic, count=count, **{"from": "earliest"})
    seen = values(rows)
    while end["has_newer"]:
        rows, end = rows_of(
            browser, topic, count=count, positions=end["newer"], direction="forward"
        )
        seen += values(rows)
    assert seen == list(range(RECORDS * 3))


def test_from_an_offset_and_from_a_time(browser: Pages, topic: str) -> None:
    """An offset holds for each chosen partition; a time for the records of all."""
    rows, _ = rows_of(browser, topic, partitions="1", offset=100, count=3, **{"from": "offset"})
    assert [(row["partition"], row["offset"]) for row in rows] == [(1, 100), (1, 101), (1, 102)]
    rows, _ = rows_of(browser, topic, time=TIME_MS + 200, count=4, **{"from": "time"})
    assert values(rows) == [200, 201, 202, 203]
    rows, end = rows_of(browser, topic, time="2100-01-01T00:00:00Z", **{"from": "time"})
    assert (rows, end["at_end"]) == ([], True)


@pytest.mark.parametrize(
    "query",
    [
        "from=middle",
        "from=time",
        "from=time&time=yesterday",
        "offset=-1",
        "offset=9999999999999999999999",
        "count=501",
        "count=x",
        "positions=0",
        "positions=0:1;drop",
        "direction=up",
        "value_format=xml",
    ],
)
def test_a_wrong_parameter_is_refused_with_a_sentence(
    browser: Pages, topic: str, query: str
) -> None:
    """400, naming the parameter."""
    answer = browser.get(f"/c/main/topics/{topic}/messages/rows?{query}")
    assert answer.status_code == 400
    assert query.split("=")[0].split("&")[0] in answer.text or "time:" in answer.text


def test_partitions_that_are_not_there_are_refused(browser: Pages, topic: str) -> None:
    """In the stream, because the cluster is asked for them."""
    for wanted in ("7", "a", "1-", "0,,1"):
        found = browser.lines(
            f"/c/main/topics/{topic}/messages/rows", params={"partitions": wanted}
        )
        assert list(found[-1]) == ["error"]
    found = browser.lines("/c/main/topics/not-there/messages/rows")
    assert "no topic" in found[-1]["error"]


def test_hostile_contents_come_as_data(browser: Pages) -> None:
    """Markup in keys, values and headers arrives as JSON text that no browser takes for a page."""
    with Producer(bootstrap_servers=bootstrap(browser)) as producer:
        hostile = HOSTILE.encode()
        producer.send("console-hostile", hostile, hostile, [(HOSTILE, hostile)]).get(30)
    answer = browser.get("/c/main/topics/console-hostile/messages/rows")
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.headers["x-content-type-options"] == "nosniff"
    ((row,), _) = rows_of(browser, "console-hostile")
    assert row["key"]["text"] == row["value"]["text"] == HOSTILE
    assert row["headers"] == [[HOSTILE, {"format": "text", "text": HOSTILE, "size": len(HOSTILE)}]]
    page = browser.get("/c/main/topics/console-hostile/messages?offset=" + '"><script>alert(1)')
    assert page.status_code == 200
    assert "<script>alert(1)" not in page.text
    whole = browser.get(
        "/c/main/topics/console-hostile/messages/record?partition=0&offset=0&part=value"
    )
    assert whole.content == hostile
    assert whole.headers["content-type"] == "application/octet-stream"
    assert whole.headers["content-disposition"].startswith("attachment")


def test_a_very_large_value_is_cut_and_downloaded_whole(browser: Pages) -> None:
    """The row has its beginning and its size; the file has every byte."""
    value = b"0123456789" * 90_000
    with Producer(bootstrap_servers=bootstrap(browser), compression_type="gzip") as producer:
        producer.send("console-large", value, headers=[("a", None), ("b", b"\xff")]).get(30)
    ((row,), _) = rows_of(browser, "console-large")
    assert row["value"]["cut"]
    assert row["value"]["size"] == len(value)
    assert (row["compression"], row["key"]["format"]) == ("gzip", "null")
    at = "/c/main/topics/console-large/messages/record?partition=0&offset=0"
    assert browser.get(f"{at}&part=value").content == value
    assert browser.get(f"{at}&part=header&header=1").content == b"\xff"
    for missing in ("part=key", "part=header&header=0", "part=header&header=9", "offset=1"):
        assert browser.get(f"{at}&{missing}").status_code == 404


def test_the_state_of_transactions_is_shown(browser: Pages) -> None:
    """Committed, aborted and open records are named apart; markers come when they are wanted."""
    name = "console-transactions"
    options = {"bootstrap_servers": bootstrap(browser), "transactional_id": "console-t"}
    with Producer(**options) as producer:
        producer.init_transactions()
        for number, end in enumerate(("commit", "abort", "open")):
            producer.begin_transaction()
            producer.send(name, b"%d" % number, partition=0).get(30)
            if end == "commit":
                producer.commit_transaction()
            elif end == "abort":
                producer.abort_transaction()
        rows, _ = rows_of(browser, name, **{"from": "earliest"})
        assert [row["state"] for row in rows] == ["committed", "aborted", "open"]
        rows, _ = rows_of(browser, name, markers=1, **{"from": "earliest"})
        assert [row["marker"] for row in rows] == [None, "commit", None, "abort", None]
        producer.abort_transaction()


def test_who_may_not_read_the_topic_gets_nothing(ottla_shared_broker: Broker, topic: str) -> None:
    """Neither the page, nor its rows, nor a record as a file."""
    other = Principal("vera", (Grant(Role.ADMIN, "main", "other-*"),))
    with pages(ottla_shared_broker.bootstrap_servers, other) as browser:
        for path in ("", "/rows", "/record?partition=0&offset=0"):
            answer = browser.get(f"/c/main/topics/{topic}/messages{path}")
            assert answer.status_code == 403

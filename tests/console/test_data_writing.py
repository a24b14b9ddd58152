"""Produce by hand, replay, download: over a real broker, for those who may."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.client.producer import Producer
from ottla.console.access.permissions import Grant, Principal, Role
from ottla.testing import Broker

from .live import KEPT, Pages, pages
from .pictures import HOSTILE

OPERATOR = Principal("olga", (Grant(Role.OPERATOR, "*", "console-w*"),))
VIEWER = Principal("vera", (Grant(Role.VIEWER),))


@pytest.fixture(scope="module")
def browser(ottla_shared_broker: Broker) -> Iterator[Pages]:
    with pages(ottla_shared_broker.bootstrap_servers) as made:
        topics = ("console-written", "console-w-target", "console-downloaded", "other")
        made.cluster.admin().create_topics(
            {name: {"num_partitions": 3, "configs": KEPT} for name in topics}
        )
        yield made


def produce(browser: Pages, topic: str, **body: Any) -> Any:
    url = f"/c/main/topics/{topic}/messages/produce"
    return browser.post(url, json=body, headers=browser.csrf)


def rows_of(browser: Pages, topic: str, **query: Any) -> list[dict[str, Any]]:
    found = browser.lines(f"/c/main/topics/{topic}/messages/rows", params=query)
    return [each["row"] for each in found if "row" in each]


def test_a_record_by_hand_is_as_it_was_typed(browser: Pages) -> None:
    """Key, value, headers, partition and time, in several formats; the audit log has no content."""
    answer = produce(
        browser,
        "console-written",
        compression="zstd",
        records=[
            {"key": "k", "value": '{"a": 1}', "value_format": "json", "headers": "trace: x: y",
             "partition": 2, "timestamp": 1_790_000_000_000},
            {"key": None, "value": "00ff", "value_format": "hex", "partition": "2"},
            {"key": "", "value": None, "headers": [["b", {"base64": "/w=="}], ["n", None]],
             "partition": 2},
        ],
    )  # fmt: skip
    assert answer.status_code == 200, answer.text
    places = answer.json()["records"]
    assert places == [{"partition": 2, "offset": each} for each in range(3)]
    first, second, third = rows_of(browser, "console-written", partitions=2, **{"from": "earliest"})
    assert (first["key"]["text"], first["timestamp"]) == ("k", 1_790_000_000_000)
    assert (first["value"]["format"], first["compression"]) == ("json", "zstd")
    assert first["headers"] == [["trace", {"format": "text", "text": "x: y", "size": 4}]]
    assert (second["key"]["format"], second["value"]["size"]) == ("null", 2)
    assert (third["key"]["size"], third["value"]["format"]) == (0, "null")
    assert [each[1]["format"] for each in third["headers"]] == ["hex", "null"]
    [entry] = [each for each in browser.access.entries if each.action == "produce"]
    assert (entry.target, entry.result) == ("console-written", "done")
    assert entry.detail == "3 of 3 records"


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ({"value": "xyz", "value_format": "hex"}, "value: this is no hex"),
        ({"value": "{", "value_format": "json"}, "value: this is no json"),
        ({"value": "1", "value_format": "avro"}, "no avro schema is known"),
        ({"value": "1", "value_format": "xml"}, "value_format: one of"),
        ({"value": "1", "partition": -1}, "partition: a whole number"),
        ({"value": "1", "headers": "no colon"}, "headers: "),
        ({"value": "1", "colour": "red"}, "unknown colour"),
    ],
)
def test_what_is_no_record_is_refused(
    browser: Pages, record: dict[str, Any], sentence: str
) -> None:
    """With the field and what is wrong; nothing is written."""
    answer = produce(browser, "console-w-target", records=[record])
    assert answer.status_code == 400
    assert sentence in answer.text
    assert rows_of(browser, "console-w-target") == []


def test_records_that_fail_are_named(browser: Pages) -> None:
    """A partition that is not there: the others are written, the answer says which were not."""
    answer = produce(browser, "other", records=[{"value": "a"}, {"value": "b", "partition": 77}])
    assert answer.status_code == 502
    told = answer.json()
    assert (told["written"], told["records"][1]) == (1, None)
    assert "no partition 77" in told["errors"][0]
    missing = produce(browser, "console-w-missing", records=[{"value": "a"}])
    assert missing.status_code in (502, 504)
    assert "console-w-missing" not in browser.cluster.admin().list_topics()


def test_selected_records_are_replayed_whole(browser: Pages) -> None:
    """Bytes, headers, times and order as they were; with their origin where it is wanted."""
    hostile = HOSTILE.encode()
    with Producer(bootstrap_servers=browser.cluster.client_properties["bootstrap_servers"]) as out:
        for number in range(10):
            out.send(
                "console-w-source", b"\x00%d" % number, hostile, [("h", b"\xff"), ("n", None)],
                0, 1_790_000_000_000 + number,
            ).get(30)  # fmt: skip
    url = "/c/main/topics/console-w-source/messages/replay"
    body = {"records": ["0:7", "0:2"], "to": "console-w-target", "partition": "keep"}
    answer = browser.post(url, json={**body, "origin": True}, headers=browser.csrf)
    assert answer.json()["written"] == 2, answer.text
    rows = rows_of(browser, "console-w-target", partitions=0, **{"from": "earliest"})
    assert [row["timestamp"] - 1_790_000_000_000 for row in rows] == [7, 2]
    assert rows[0]["key"]["text"] == HOSTILE
    assert [name for name, _ in rows[0]["headers"]] == ["h", "n", "ottla.replayed.from"]
    assert rows[0]["headers"][2][1]["text"] == "console-w-source-0:7"
    gone = browser.post(url, json={**body, "records": ["0:99"]}, headers=browser.csrf)
    assert gone.status_code in (400, 502)


def lines_of(browser: Pages, topic: str, **query: Any) -> list[dict[str, Any]]:
    answer = browser.get(f"/c/main/topics/{topic}/messages/download", params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-disposition"].startswith("attachment")
    return [json.loads(line) for line in answer.text.splitlines()]


def test_a_download_has_every_record_and_can_be_written_again(browser: Pages) -> None:
    """More than a page, merged by time, in both directions, and with a condition; its lines are
    what `produce` takes."""
    name = "console-downloaded"
    with Producer(bootstrap_servers=browser.cluster.client_properties["bootstrap_servers"]) as out:
        for number in range(1_700):
            out.send(
                name, b'{"n": %d}' % number, b"k", partition=number % 3,
                timestamp_ms=1_790_000_000_000 + number,
            )  # fmt: skip
        out.send(name, b"\xff", None, [("h", b"v")], 0, 1_790_000_009_999)
    found = lines_of(browser, name, **{"from": "earliest"})
    values = [json.loads(each["value"])["n"] for each in found[:-1]]
    assert values == list(range(1_700))
    assert found[-1]["value_base64"] == "/w=="
    assert "value" not in found[-1]
    newest = lines_of(browser, name, count=601)
    assert [each["timestamp"] for each in newest] == [each["timestamp"] for each in found[:-602:-1]]
    some = lines_of(browser, name, condition="n % 100 = 7", **{"from": "earliest"})
    assert [json.loads(each["value"])["n"] for each in some] == list(range(7, 1_700, 100))
    again = "\n".join(json.dumps(each) for each in found[-2:])
    assert produce(browser, "console-w-target", lines=again).json()["written"] == 2


def test_csv_is_harmless_to_spreadsheets(browser: Pages) -> None:
    """Formulas get an apostrophe in front, numbers do not; `exact` leaves all as it is."""
    values = ["=cmd|' /C calc'!A0", "-5", "-5+cmd", "+1", "@x", 'a "quoted", b\nline', HOSTILE]
    url = "/c/main/topics/console-w-csv/messages/download"
    browser.cluster.admin().create_topics({"console-w-csv": {"num_partitions": 1}})
    told = produce(browser, "console-w-csv", records=[{"value": each} for each in values])
    assert told.json()["written"] == len(values)
    for exact, expected in (
        ("1", values),
        ("", [f"'{values[0]}", "-5", "'-5+cmd", "'+1", "'@x", *values[5:]]),
    ):
        answer = browser.get(url, params={"format": "csv", "exact": exact, "from": "earliest"})
        assert answer.headers["content-type"].startswith("text/csv")
        table = list(csv.DictReader(io.StringIO(answer.text, newline="")))
        assert [row["value"] for row in table] == expected
    picked = browser.post(url, json={"records": ["0:1"], "format": "csv"}, headers=browser.csrf)
    assert [row["value"] for row in csv.DictReader(io.StringIO(picked.text))] == ["-5"]


def test_who_may_not_write_writes_nothing(ottla_shared_broker: Broker, browser: Pages) -> None:
    """A viewer, an operator of other topics, a read-only console; a replay needs both topics."""
    before = len(rows_of(browser, "other"))
    servers = ottla_shared_broker.bootstrap_servers
    for principal in (VIEWER, OPERATOR, Principal("a", (Grant(Role.ADMIN),), read_only=True)):
        with pages(servers, principal) as other:
            assert produce(other, "other", records=[{"value": "x"}]).status_code == 403
            refused = [each.result for each in other.access.entries]
            assert refused == ["refused"]
            for source, target in (("console-w-source", "other"), ("other", "console-w-target")):
                answer = other.post(
                    f"/c/main/topics/{source}/messages/replay",
                    json={"records": ["0:0"], "to": target},
                    headers=other.csrf,
                )
                assert answer.status_code == 403
            unguarded = other.post("/c/main/topics/console-written/messages/produce", json={})
            assert unguarded.status_code == 403
            if principal is OPERATOR:
                for method in ("GET", "POST"):
                    download = other.request(
                        method, "/c/main/topics/other/messages/download", headers=other.csrf,
                        json={"records": ["0:0"]},
                    )  # fmt: skip
                    assert download.status_code == 403
    assert len(rows_of(browser, "other")) == before

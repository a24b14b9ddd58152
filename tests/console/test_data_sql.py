"""SQL over topics: what is answered, how little is read for it, and what may not run."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.client.producer import Producer
from ottla.console.access.permissions import Grant, Principal, Role
from ottla.console.data import duck
from ottla.console.data.pushdown import ALL, LATE_MS, Limits, limits_in
from ottla.console.data.query_process import PROCESSES
from ottla.console.data.querying import Query
from ottla.console.data.statements import parsed
from ottla.console.data.work import Problem, Stop, Stopped
from ottla.testing import Broker
from tests.waiting import eventually

from .live import KEPT, Pages, pages

RECORDS = 3_000
TIME_MS = 1_790_000_000_000
SHOPS, ORDERS = "console.shops", "console-orders"


@pytest.fixture(scope="module")
def browser(ottla_shared_broker: Broker) -> Iterator[Pages]:
    with pages(ottla_shared_broker.bootstrap_servers) as made:
        yield made


@pytest.fixture(scope="module")
def orders(browser: Pages) -> str:
    """Orders in three partitions, and their shops in one."""
    admin = browser.cluster.admin()
    admin.create_topics(
        {
            ORDERS: {"num_partitions": 3, "configs": KEPT},
            SHOPS: {"num_partitions": 1, "configs": KEPT},
        }
    )
    servers = browser.cluster.client_properties["bootstrap_servers"]
    with Producer(bootstrap_servers=servers, compression_type="zstd") as producer:
        for number in range(RECORDS):
            value = {"n": number, "shop": number % 4, "at": {"city": "x"}, "tags": [1, 2]}
            producer.send(
                ORDERS, json.dumps(value).encode(), b"k%d" % number, partition=number % 3,
                timestamp_ms=TIME_MS + number * 1000,
            )  # fmt: skip
        for shop in range(4):
            producer.send(SHOPS, json.dumps({"id": shop, "name": f"shop {shop}"}).encode())
    return ORDERS


def run(browser: Pages, statement: str, **body: Any) -> dict[str, Any]:
    """The columns, rows and end of an answer."""
    answer = browser.post(
        "/c/main/sql/run", json={"statement": statement, **body}, headers=browser.csrf
    )
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = {"rows": []}
    for line in map(json.loads, answer.text.splitlines()):
        if "rows" in line:
            found["rows"] += line["rows"]
        else:
            found |= line
    return found


def test_a_select_over_a_topic_has_columns_of_its_json(browser: Pages, orders: str) -> None:
    """Fields are columns with their types, nested ones too; the record's own stand beside them."""
    found = run(
        browser,
        f'SELECT partition, n, shop, "at".city, tags[2] AS tag, key, "offset" FROM "{orders}" '
        "WHERE n IN (7, 8) ORDER BY n;",
    )
    names = [each["name"] for each in found["columns"]]
    assert names == ["partition", "n", "shop", "city", "tag", "key", "offset"]
    assert found["rows"] == [[1, 7, 3, "x", 2, "k7", 2], [2, 8, 0, "x", 2, "k8", 2]]
    assert found["end"]["read"] == RECORDS
    [described] = found["topics"]
    assert described["columns"] == ["n", "shop", "at", "tags"]


def test_topics_are_joined_and_read_as_often_as_needed(browser: Pages, orders: str) -> None:
    """A join of two, a topic twice, and a CTE that is used twice."""
    found = run(
        browser,
        f'SELECT s.name, count(*) AS orders FROM "{orders}" o JOIN "{SHOPS}" s ON o.shop = s.id '
        "GROUP BY ALL ORDER BY 1",
    )
    assert found["rows"] == [[f"shop {each}", RECORDS // 4] for each in range(4)]
    twice = run(
        browser,
        f'WITH x AS (SELECT n FROM "{orders}") SELECT (SELECT count(*) FROM x), '
        f'(SELECT max(n) FROM x), (SELECT count(*) FROM "{orders}" a JOIN x ON a.n = x.n)',
    )
    assert twice["rows"] == [[RECORDS, RECORDS - 1, RECORDS]]


@pytest.mark.parametrize(
    ("where", "read_most"),
    [
        ("partition = 1", 1000),
        ('"offset" >= 990', 30),
        ('"offset" BETWEEN 10 AND 19 AND partition IN (0, 2)', 20),
        (f"timestamp >= make_timestamp_ms({TIME_MS} + 2990 * 1000)", 10),
        (f"timestamp < make_timestamp_ms({TIME_MS} + 30 * 1000) AND partition = 0", 1000),
        ("partition = 7", 0),
        ("partition = 1 OR n = 5", RECORDS),
    ],
)
def test_bounds_are_pushed_down_and_change_nothing(
    browser: Pages, orders: str, where: str, read_most: int
) -> None:
    """Less is read, and the answer is that of a statement whose bounds cannot be seen."""
    found = run(browser, f'SELECT count(*), sum(n) FROM "{orders}" WHERE {where}')
    hidden = run(
        browser, f'SELECT count(*), sum(n) FROM (FROM "{orders}" LIMIT 9999) WHERE {where}'
    )
    assert found["rows"] == hidden["rows"]
    assert found["end"]["read"] <= read_most
    assert hidden["end"]["read"] == RECORDS


def test_the_form_has_bounds_too(browser: Pages, orders: str) -> None:
    """From one time to before another, of some partitions."""
    found = run(
        browser, f'SELECT min(n), max(n), count(*) FROM "{orders}"',
        **{"from": str(TIME_MS + 300_000), "to": str(TIME_MS + 600_000), "partitions": "0-1"},
    )  # fmt: skip
    assert found["rows"] == [[300, 598, 200]]
    assert found["end"]["read"] == 200


def limits(where: str, tables: str = "t") -> Limits:
    with duck.connect() as connection:
        statement = parsed(connection, f"SELECT 1 FROM {tables} WHERE {where}")
        return limits_in(statement, connection)["t"]


@pytest.mark.parametrize(
    ("where", "tables", "expected"),
    [
        ('"offset" > 4 AND 10 > "offset"', "t", Limits(5, 10)),
        ('"offset" > 4.5', "t", ALL),
        ('a."offset" = 4', "t a", Limits(4, 5)),
        ('t."offset" = 4', "t a", ALL),
        ('"offset" = 4', "t, u", ALL),
        ('t."offset" = 4 AND u."offset" = 9', "t JOIN u ON true", Limits(4, 5)),
        ('t."offset" = 4', "t ASOF JOIN u ON t.key >= u.key", ALL),
        ('t."offset" = 4', "t POSITIONAL JOIN u", ALL),
        ('"offset" = 4', "t TABLESAMPLE 10 ROWS", ALL),
        ('"offset" = 4', "t AS x(a, b)", ALL),
        ('NOT ("offset" = 4)', "t", ALL),
        ('"offset" = 4 OR "offset" = 5', "t", ALL),
        ('"offset" = key', "t", ALL),
        ('"offset" > random() * 100', "t", ALL),
        ("partition IN (1, 2)", "t", Limits(partitions=frozenset({1, 2}))),
        ("timestamp >= TIMESTAMP '2026-01-01'", "t", Limits(from_ms=1_767_225_600_000)),
        ("timestamp < '2026-01-01'", "t", Limits(to_ms=1_767_225_600_001 + LATE_MS)),
        ("timestamp BETWEEN DATE '2026-01-01' AND DATE '2026-01-01'", "t",
         Limits(from_ms=1_767_225_600_000, to_ms=1_767_225_600_001 + LATE_MS)),
    ],
)  # fmt: skip
def test_only_what_surely_holds_is_a_bound(where: str, tables: str, expected: Limits) -> None:
    """Of the topic's own columns, compared with constants, joined by AND."""
    assert limits(where, tables) == expected


def test_several_uses_of_a_topic_have_the_widest_bounds() -> None:
    """And one without bounds has all."""
    with duck.connect() as connection:
        for text, expected in (
            ('SELECT 1 FROM t WHERE "offset" < 5 UNION SELECT 2 FROM t WHERE "offset" = 9',
             Limits(None, 10)),
            ('SELECT 1 FROM t WHERE "offset" < 5 UNION SELECT 2 FROM t', ALL),
            ('WITH x AS (FROM t) SELECT 1 FROM x WHERE "offset" < 5', ALL),
            ('SELECT 1 FROM u WHERE "offset" < 5 AND EXISTS (SELECT 1 FROM t)', ALL),
        ):  # fmt: skip
            assert limits_in(parsed(connection, text), connection)["t"] == expected, text


def test_recent_records_are_asked_for_by_now() -> None:
    """`now() - INTERVAL 1 HOUR` is a bound."""
    found = limits("timestamp > now() - INTERVAL 1 HOUR")
    assert found.from_ms is not None
    assert found.from_ms > TIME_MS / 2


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE x", "CREATE TABLE x AS SELECT 1", "COPY (SELECT 1) TO '/tmp/x'", "ATTACH 'x'",
        "INSTALL httpfs", "LOAD httpfs", "SET threads = 8", "RESET threads", "PRAGMA version",
        "SELECT 1; SELECT 2", "SELECT * FROM read_csv('/etc/passwd')", "FROM '/etc/passwd'",
        "FROM read_text('/etc/passwd')", "FROM glob('*')", "FROM duckdb_settings()",
        "FROM information_schema.tables", "FROM sqlite_master", "FROM duckdb_views",
        "SELECT getenv('HOME')", "SELECT current_setting('threads')", "CALL pragma_version()",
        "EXPLAIN SELECT 1", "SELECT * FROM query('select 1')", "SELECT sleep_ms(1000)",
        "SELECT * FROM arrow_scan(1,2,3)", "SELECT nope FROM nope", "SELECT", "",
        "WITH x AS (INSERT INTO y SELECT 1 RETURNING *) SELECT * FROM x",
    ],
)  # fmt: skip
def test_what_is_no_select_over_topics_is_refused(browser: Pages, statement: str) -> None:
    """No file, no setting, no other statement, no table that is no topic: a sentence says so."""
    answer = browser.post("/c/main/sql/run", json={"statement": statement}, headers=browser.csrf)
    if answer.status_code == 200:
        [line] = map(json.loads, answer.text.splitlines())
        assert len(line["error"]) > 10
    else:
        assert answer.status_code == 400


def test_the_database_is_locked_whatever_gets_through() -> None:
    """Files, extensions and settings are refused by DuckDB itself, too."""
    import duckdb

    with duck.connect() as connection:
        for text in (
            "FROM read_text('/etc/hostname')", "COPY (SELECT 1) TO '/tmp/ottla-x.csv'",
            "ATTACH '/tmp/ottla-x.db'", "INSTALL httpfs", "LOAD httpfs", "SET threads = 9",
            "SET enable_external_access = true", "SET lock_configuration = false",
        ):  # fmt: skip
            with pytest.raises(duckdb.Error):
                connection.execute(text)


def test_rows_are_bounded_and_exact(browser: Pages, orders: str) -> None:
    """No more than asked for, and the answer says that it was cut; large numbers are text."""
    found = run(browser, f'SELECT n FROM "{orders}"', rows=10)
    assert (len(found["rows"]), found["end"]["cut"]) == (10, True)
    kinds = run(
        browser,
        "SELECT 9007199254740993::BIGINT, 1.50::DECIMAL(9,2), 'nan'::DOUBLE, '\\xFF'::BLOB, "
        "TIMESTAMP '2026-01-01', NULL, {'a': [1, NULL]}, true, 'inf'::DOUBLE",
    )
    assert kinds["rows"] == [
        ["9007199254740993", "1.50", "nan", "ff", "2026-01-01 00:00:00.000", None,
         {"a": [1, None]}, True, "inf"]
    ]  # fmt: skip


def test_too_much_memory_is_refused(browser: Pages, orders: str) -> None:
    """A sort of more than the query has ends with DuckDB's sentence, and spills nowhere."""
    found = run(
        browser,
        "SELECT count(*) FROM (SELECT a.range, repeat('x', 1000) AS x FROM range(3000000) a "
        "ORDER BY x, a.range DESC OFFSET 1)",
    )
    assert "memory" in found["error"].lower()


@pytest.mark.parametrize("what", ["repeat('x', 200000000)", "list_resize([n], 5000000)"])
def test_a_statement_that_fills_the_memory_ends_alone(
    browser: Pages, orders: str, what: str
) -> None:
    """What DuckDB's own limit does not count ends the statement's process, not the console; the
    next statement runs."""
    found = run(browser, f'SELECT {what} FROM "{orders}"')
    assert "emory" in found["error"]
    assert run(browser, f'SELECT count(*) FROM "{orders}"')["rows"] == [[3000]]


def test_a_process_that_is_killed_is_an_error_in_words(browser: Pages, orders: str) -> None:
    """By the kernel, say: the reader learns that the statement ended, the next one runs."""
    text = f'SELECT count(*) FROM "{orders}" a, "{orders}" b, "{orders}" c, "{orders}" d'
    found: list[dict[str, Any]] = []
    reader = threading.Thread(target=lambda: found.append(run(browser, text)))
    reader.start()
    eventually(lambda: PROCESSES.running)
    os.kill(next(iter(PROCESSES.running)), signal.SIGKILL)
    reader.join()
    assert "memory" in found[0]["error"]
    assert run(browser, f'SELECT count(*) FROM "{orders}"')["rows"] == [[3000]]


def test_a_reader_who_cancels_ends_the_query(browser: Pages, orders: str) -> None:
    """While DuckDB computes: the thread is free again at once."""
    stop = Stop()
    text = "SELECT count(*) FROM range(100000000000) a WHERE a.range % 7 = 3"
    query = Query(browser.cluster, text, stop)
    timer = threading.Timer(0.3, stop.set)
    timer.start()
    with pytest.raises((Stopped, Problem)):
        query.run(lambda line: None, ())
    assert stop


def test_aborted_records_do_not_count(browser: Pages) -> None:
    """Only what is committed is read, unless it is asked for otherwise."""
    name = "console-sql-transactions"
    options = {
        "bootstrap_servers": browser.cluster.client_properties["bootstrap_servers"],
        "transactional_id": "console-sql",
    }
    with Producer(**options) as producer:
        producer.init_transactions()
        for end in ("commit", "abort"):
            producer.begin_transaction()
            producer.send(name, b"1", partition=0).get(30)
            producer.commit_transaction() if end == "commit" else producer.abort_transaction()
    text = f'SELECT count(*) FROM "{name}"'
    assert run(browser, text)["rows"] == [[1]]
    assert run(browser, text, isolation="read_uncommitted")["rows"] == [[2]]


def test_a_topic_that_may_not_be_read_is_refused_wherever_it_stands(
    ottla_shared_broker: Broker, orders: str
) -> None:
    """In joins, sub-queries and CTEs: 403, whether it exists or not; nothing is read."""
    some = Principal("vera", (Grant(Role.VIEWER, "*", "console.*"),))
    with pages(ottla_shared_broker.bootstrap_servers, some) as browser:
        assert run(browser, f'SELECT count(*) FROM "{SHOPS}"')["rows"] == [[4]]
        for text in (
            'SELECT * FROM "{0}"', 'FROM "{0}"', 'TABLE "{0}"',
            'SELECT * FROM "console.shops" s JOIN "{0}" o ON true',
            'SELECT (SELECT count(*) FROM "{0}")', 'WITH x AS (FROM "{0}") FROM x',
            'SELECT 1 WHERE EXISTS (FROM "{0}")', 'SELECT 1 UNION SELECT n FROM "{0}"',
            'DESCRIBE "{0}"', 'SUMMARIZE "{0}"', 'SELECT * FROM (PIVOT "{0}" ON n USING count(*))',
            'SELECT 1 ORDER BY (SELECT max(n) FROM "{0}")',
            'SELECT 1 LIMIT (SELECT max(n) FROM "{0}")',
        ):  # fmt: skip
            for topic in (orders, "console-not-there", orders.upper()):
                answer = browser.post(
                    "/c/main/sql/run",
                    json={"statement": text.format(topic)},
                    headers=browser.csrf,
                )
                assert answer.status_code in (400, 403), (text, answer.text)
                assert answer.status_code == 403 or "PIVOT" in text or "LIMIT" in text
        assert browser.get("/c/main/sql").status_code == 200

"""Each example pipeline against a plain-Python recount: over the past, and live.

One stretch of events, with skew, disorder, repetitions and broken records, lies in a broker for
`--past`, and flows into another one while all the examples run live in one session. The last record
of the live one closes every window; what it causes itself is left out of the comparison.
"""

from __future__ import annotations

import importlib.util
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Consumer, Producer, TopicPartition
from ottla.client.structs import ConsumerRecord
from ottla.spark.pipelines.progress import line
from ottla.spark.source.offsets import decode
from ottla.testing import Broker, consume_all
from ottla.testing import broker as start_broker
from tests import needs
from tests.spark import recount, shop
from tests.spark.pipelines.tools import make_topic
from tests.spark.recount import Row, Sent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.spark.pipelines.declaring import Pipeline
    from ottla.spark.pipelines.running import Run

# All of it in the one session: some tests ask for their fixtures by name.
pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("spark"), pytest.mark.spark]

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
TICKS = shop.stretch()
SENT = shop.flat(TICKS)
PRODUCTS = shop.products()
EVENTS, BAD = "user-behaviour", "user-behaviour.bad"
CLOSES_AT = "2026-07-04T03:"
PATIENCE_S = 120

# Example → its answer, by the recount. These write JSON to a topic of their own name, but one.
ANSWERS: dict[str, Callable[[], list[Row]]] = {
    "page-views": lambda: recount.page_views(SENT),
    "trending-pages": lambda: recount.trending_pages(SENT),
    "sessions": lambda: recount.sessions(SENT),
    "funnel": lambda: recount.funnel(SENT),
    "enriched-orders": lambda: recount.enriched_orders(SENT, PRODUCTS),
    "running-totals": lambda: recount.running_totals(SENT),
    "deduplicate": lambda: recount.deduplicate(SENT),
}
SINKS = {"deduplicate": "user-behaviour-once"}
# Live the others differ from these only in their functions, which the past tests, and each query
# costs seconds: they are for the long run.
LIVE_ALWAYS = ("page-views", "sessions", "running-totals", "deduplicate")
LIVE = [
    name if name in LIVE_ALWAYS else pytest.param(name, marks=pytest.mark.long) for name in ANSWERS
]
BOTH = [
    *(pytest.param("past", name, id=f"past-{name}") for name in ANSWERS),
    *(
        pytest.param(
            "live", name, id=f"live-{name}", marks=[] if name in LIVE_ALWAYS else pytest.mark.long
        )
        for name in ANSWERS
    ),
]
WATERMARKED = ("page-views", "trending-pages", "sessions", "funnel", "deduplicate")


@dataclass
class Shop:
    """A broker with the events, and a directory for the archive."""

    broker: Broker
    directory: Path

    @property
    def archive(self) -> Path:
        return self.directory / "archive"

    @property
    def servers(self) -> str:
        return self.broker.bootstrap_servers

    def example(self, name: str) -> Pipeline:
        """The pipeline of a file, with the archive here."""
        module = name.replace("-", "_")
        spec = importlib.util.spec_from_file_location(module, EXAMPLES / f"{module}.py")
        assert spec is not None
        assert spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OTTLA_ARCHIVE", str(self.archive))
            spec.loader.exec_module(loaded)
        found: Pipeline = getattr(loaded, module)
        assert found.name == name
        return found

    def start(self, name: str, spark: SparkSession, **how: Any) -> Run:
        checkpoint = self.directory / "checkpoints"
        example = self.example(name)
        return example.start(spark, bootstrap_servers=self.servers, checkpoint=checkpoint, **how)

    def catch_up(self, name: str, spark: SparkSession) -> Run:
        run = self.start(name, spark, catch_up=True)
        assert run.wait(PATIENCE_S)
        assert run.failure() is None, run.failure()
        return run

    def records(self, topic: str) -> list[ConsumerRecord]:
        return consume_all(self.broker, topic, isolation_level="read_committed")

    def send(self, records: list[Sent], topic: str = EVENTS) -> None:
        self.send_ticks([records], topic)

    def send_ticks(self, ticks: list[list[Sent]], topic: str = EVENTS) -> None:
        """All of a tick is stored before the next is sent."""
        with Producer(bootstrap_servers=self.servers) as producer:
            for tick in ticks:
                for each in tick:
                    headers = list(each.headers)
                    producer.send(topic, each.value, each.key, headers, None, each.timestamp_ms)
                producer.flush()


def open_shop(directory: Path) -> Iterator[Shop]:
    with start_broker(num_partitions=3, log_retention_ms=-1) as broker:
        opened = Shop(broker, directory)
        # The events are of one day in July, however long ago that is.
        make_topic(opened.servers, EVENTS, 3, retention_ms="-1")
        make_topic(opened.servers, "products", 2, cleanup_policy="compact")
        opened.send(PRODUCTS, "products")
        yield opened


@pytest.fixture(scope="module")
def past(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """The stretch is stored, and all examples ran over it."""
    for opened in open_shop(tmp_path_factory.mktemp("past")):
        opened.send(SENT)
        for name in (*ANSWERS, "archive", "replay"):
            opened.example(name).past(spark, bootstrap_servers=opened.servers)
        yield opened


@pytest.fixture(scope="module")
def live(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """The stretch came while the examples were running: all of them in a long run."""
    for opened in open_shop(tmp_path_factory.mktemp("live")):
        runs: dict[str, Run] = {}
        try:
            for name in (*(ANSWERS if needs.LONG else LIVE_ALWAYS), "archive"):
                runs[name] = opened.start(name, spark, trigger="1 second")
            half = len(TICKS) // 2
            opened.send_ticks(TICKS[:half])
            # In the middle all are waited for, so that state is carried from batch to batch.
            wait_until_read(runs, opened.servers, closed=False)
            opened.send_ticks([*TICKS[half:], [shop.closing()]])
            wait_until_read(runs, opened.servers, closed=True)
        finally:
            for run in runs.values():
                run.stop()
        opened.catch_up("replay", spark)
        yield opened


def wait_until_read(runs: dict[str, Run], servers: str, *, closed: bool) -> None:
    """All is read, and if it is closed, a batch ran under the watermark of the last record."""
    ends = end_offsets(servers)
    waiting = {(name, query) for name, run in runs.items() for query in run.queries}
    deadline = time.monotonic() + PATIENCE_S
    while waiting:
        assert time.monotonic() < deadline, f"after {PATIENCE_S} s not at the end: {waiting}"
        for name, query in list(waiting):
            assert runs[name].failure() is None, runs[name].failure()
            watermark = closed and name in WATERMARKED and query != "bad-records"
            if at_the_end(runs[name].queries[query].lastProgress, ends, watermark):
                waiting.discard((name, query))
        time.sleep(0.05)


def at_the_end(progress: Any, ends: dict[TopicPartition, int], watermark: bool) -> bool:
    if progress is None or any(decode(each.endOffset) != ends for each in progress.sources):
        return False
    return not watermark or progress.eventTime.get("watermark", "") > CLOSES_AT


def end_offsets(servers: str) -> dict[TopicPartition, int]:
    with Consumer(bootstrap_servers=servers) as consumer:
        return dict(consumer.end_offsets([TopicPartition(EVENTS, number) for number in range(3)]))


def rows_of(records: Iterable[ConsumerRecord]) -> list[Row]:
    """JSON values, without what the last record of all is about."""
    rows = [json.loads(each.value or b"null", parse_float=Decimal) for each in records]
    return [row for row in rows if not is_closing(json.dumps(row, default=str))]


def is_closing(text: str) -> bool:
    return shop.CLOSING_USER in text or shop.CLOSING_PAGE in text


@pytest.mark.parametrize("name", ANSWERS)
def test_the_past_is_counted_right(name: str, past: Shop) -> None:
    """Over a stored stretch each example writes what the recount says, row by row."""
    found = rows_of(past.records(SINKS.get(name, name)))
    assert recount.difference(found, ANSWERS[name]()) == {}


@pytest.mark.parametrize("name", LIVE)
def test_live_comes_to_the_same_answer(name: str, live: Shop) -> None:
    """Live over the same stretch, the final answer of each example is the same."""
    records = live.records(SINKS.get(name, name))
    if name == "running-totals":  # Each total replaces the one before.
        records = list({each.key: each for each in records}.values())
    assert recount.difference(rows_of(records), ANSWERS[name]()) == {}


@pytest.mark.parametrize(("how", "name"), BOTH)
def test_bad_records_are_kept_with_reason_and_origin(
    how: str, name: str, request: pytest.FixtureRequest
) -> None:
    """Every record that does not parse is in the bad-records topic once, as it was, with the reason
    and with where it came from."""
    here: Shop = request.getfixturevalue(how)
    found = [each for each in here.records(BAD) if header(each, "ottla.pipeline") == name]
    as_sent = [(each.key, each.value, each.headers[0]) for each in found]
    expected = [(each.key, each.value, each.headers[0]) for each in recount.bad(SENT, name)]
    assert recount.difference(as_sent, expected) == {}
    stored = {(each.partition, each.offset): each for each in here.records(EVENTS)}
    for each in found:
        place = int(header(each, "ottla.partition")), int(header(each, "ottla.offset"))
        assert header(each, "ottla.topic") == EVENTS
        assert stored[place].value == each.value
        assert header(each, "ottla.timestamp") == str(stored[place].timestamp)
        assert header(each, "ottla.error")


def header(record: ConsumerRecord, name: str) -> str:
    return dict(record.headers)[name].decode()


@pytest.mark.parametrize("how", ["past", "live"])
def test_the_archive_has_every_record_by_day(
    how: str, spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    """Each record of the topic is in one file of its day, broken ones too, byte for byte."""
    here: Shop = request.getfixturevalue(how)
    rows = [row for row in spark.read.parquet(str(here.archive)).collect()
            if row.key != shop.CLOSING_USER.encode()]  # fmt: skip
    found = [(bytes_of(row.key), bytes_of(row.value), headers_of(row)) for row in rows]
    assert recount.difference(found, [(e.key, e.value, e.headers) for e in SENT]) == {}
    assert recount.counted(row.day.isoformat() for row in rows) == recount.by_day(SENT)
    places = {(row.partition, row.offset) for row in rows}
    assert len(places) == len(SENT)
    for day, count in recount.by_day(SENT).items():
        assert spark.read.parquet(str(here.archive / f"day={day}")).count() >= count


def bytes_of(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def headers_of(row: Any) -> tuple[tuple[str, bytes], ...]:
    return tuple((each.key, bytes(each.value)) for each in row.headers or ())


@pytest.mark.parametrize("how", ["past", "live"])
def test_the_replay_sends_every_record_again(how: str, request: pytest.FixtureRequest) -> None:
    """The replayed topic has each record of the archive once: key, value and headers."""
    here: Shop = request.getfixturevalue(how)
    found = [
        (each.key, each.value, tuple(each.headers))
        for each in here.records("user-behaviour-replayed")
        if each.key != shop.CLOSING_USER.encode()
    ]
    assert recount.difference(found, [(e.key, e.value, e.headers) for e in SENT]) == {}


def test_a_replay_of_the_past_keeps_the_order_of_keys(past: Shop) -> None:
    """What a user did comes again in the order it was stored."""

    def by_user(topic: str) -> dict[bytes, list[bytes | None]]:
        found: dict[bytes, list[bytes | None]] = defaultdict(list)
        for each in past.records(topic):
            if each.key is not None:
                found[each.key].append(each.value)
        return found

    assert by_user("user-behaviour-replayed") == by_user(EVENTS)


def test_a_late_event_is_reported(live: Shop, spark: SparkSession) -> None:
    """An event of a minute that is closed changes no count, and the reading says that it came."""
    before = live.records("page-views")
    fields = shop.event("e-late", "u-00", "/p/0", "visit", at_s=60)
    live.send([shop.sent(fields, at_s=60)])
    readings = live.catch_up("page-views", spark).readings()
    late = [each for each in readings if each.late_rows]
    assert [(each.query, each.late_rows) for each in late] == [("page-views", 1)]
    assert "1 too late" in line(late[0], "page-views", late_total=1)
    assert live.records("page-views") == before


def test_the_readme_names_every_example() -> None:
    """The list of examples has each file, and each file says how it is run."""
    listed = (EXAMPLES / "README.md").read_text()
    names = [file.name for file in EXAMPLES.glob("*.py")]
    assert len(names) == len(ANSWERS) + 2
    for name in names:
        assert f"({name})" in listed
        assert f"ottla pipeline run examples/pipelines/{name} --" in (EXAMPLES / name).read_text()


def test_nothing_is_wrong_with_the_examples(spark: SparkSession) -> None:
    """`ottla pipeline check` over all nine files finds no mistake in their plans."""
    from ottla.spark.pipelines.checking import check
    from ottla.spark.pipelines.loading import load_all

    pipelines = load_all(tuple(str(path) for path in sorted(EXAMPLES.glob("*.py"))))
    assert len(pipelines) == 9
    assert check(pipelines, spark, None).problems == []

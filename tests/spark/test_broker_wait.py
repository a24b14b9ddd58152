"""A broker that goes away under a task or a commit, without a session."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark.sql.datasource")

from pyspark.sql.types import StringType, StructField, StructType

from ottla.client.consumer.range_reader import RangeReader
from ottla.client.errors import KafkaTimeoutError, NoBrokersAvailable, error_for
from ottla.client.producer.column_batches import ColumnBatches
from ottla.client.structs import TopicPartition
from ottla.spark import broker_wait
from ottla.spark.broker_wait import BrokerAway, broker_away_named, repeated, unanswered
from ottla.spark.sink.committing import Order, RetryLimits, commit, forget
from ottla.spark.sink.connections import plain_producer, send_all, settled
from ottla.spark.sink.options import read_options as read_sink_options
from ottla.spark.sink.rows import Piece
from ottla.spark.sink.writers import Sink
from ottla.spark.source import reading
from ottla.spark.source.options import SourceOptions, read_options
from ottla.spark.source.reading import ReadRange, Stall, read_range
from ottla.testing import Broker, consume_all
from ottla.testing import broker as start_broker
from tests.spark.sink.test_committing import rows as parcels_of
from tests.spark.source.helpers import make_topic, produce
from tests.spark.warned import warnings_of_spark

pa = pytest.importorskip("pyarrow")
TOPIC = "orders"
COUNT = 200
VALUES = [b"%06d" % number for number in range(COUNT)]
# A fetch brings a record batch or two, so that most of the topic is read after the broker is back.
SMALL = {"kafka.max.partition.fetch.bytes": "1", "kafka.request.timeout.ms": "1000"}


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """A broker that may be killed; it is taken for away soon, and warned of often."""
    monkeypatch.setattr(broker_wait, "AWAY_AFTER_S", 0.1)
    monkeypatch.setattr(broker_wait, "WARN_EVERY_S", 0.1)
    monkeypatch.setattr(broker_wait, "REPEAT_PAUSE_S", 0.1)
    with start_broker(num_partitions=4) as started:
        make_topic(started, TOPIC, 1)
        produce(started, TOPIC, VALUES, batch_size=300)
        yield started


def options(broker: Broker, **given: str) -> SourceOptions:
    base = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": TOPIC}
    return read_options({**base, **SMALL, **given}, "stream")


def finished(work: Callable[[], Any], meanwhile: Callable[[], None]) -> Any:
    """The result of `work`, in a thread of its own while this one does something else."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    meanwhile()
    thread.join(60)
    return found[0]


def test_a_task_goes_on_when_the_broker_is_back(
    own: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is killed under a task, for longer than any wait: every record comes once."""
    monkeypatch.setattr(reading, "ROWS_MIN", 1)
    pieces = read_range(options(own), ReadRange(TOPIC, 0, 0, COUNT))
    found = next(pieces).column("value").to_pylist()
    own.kill()

    def rest() -> list[bytes]:
        return [value for piece in pieces for value in piece.column("value").to_pylist()]

    with warnings_of_spark() as warned:

        def meanwhile() -> None:
            warned.wait_for(3)
            own.start()

        found += finished(rest, meanwhile)
    assert found == VALUES
    assert any(f"no broker answers at {own.bootstrap_servers} (" in each for each in warned.texts)


@pytest.mark.parametrize("begun", [True, False])
def test_a_task_ends_with_its_cause(
    own: Broker, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    """After brokerTimeout the error of a task names the broker, why it is not reached, and the
    option, whether the task had a connection or not."""
    monkeypatch.setattr(reading, "ROWS_MIN", 1)
    pieces = read_range(options(own, brokerTimeout="300ms"), ReadRange(TOPIC, 0, 0, COUNT))
    if begun:
        next(pieces)
    else:
        reading.idle_readers.idle.clear()
    own.kill()
    with pytest.raises(BrokerAway, match=rf"{own.bootstrap_servers} \(.*refused.*brokerTimeout"):
        list(pieces)


class FakeWait:
    """Stands for BrokerWait: tells whether the broker was away, as the test says."""

    was_away = False

    def __init__(self, client: object, timeout_ms: float) -> None:
        self.topics: dict[str, Any] = {}

    def cluster(self) -> FakeWait:
        return self


def test_time_without_a_broker_is_not_time_without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only while a broker answers do the milliseconds of pollTimeoutMs pass."""
    now = [1000.0]
    monkeypatch.setattr(reading.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(reading, "BrokerWait", FakeWait)
    given = read_options({"kafka.bootstrap.servers": "h:1", "subscribe": TOPIC}, "stream")
    reader = RangeReader.__new__(RangeReader)
    monkeypatch.setattr(RangeReader, "client", None)
    stall = Stall(reader, given, TopicPartition(TOPIC, 0), COUNT)
    problem = KafkaTimeoutError("nothing came")
    now[0] += 119
    stall.wait(problem)
    FakeWait.was_away = True
    now[0] += 500
    stall.wait(problem)
    FakeWait.was_away = False
    now[0] += 119
    stall.wait(problem)
    now[0] += 1
    with pytest.raises(reading.TopicGone):  # the fake knows of no topic
        stall.wait(problem)


def order_of(own: Broker, **more: Any) -> Order:
    properties = {
        "bootstrap.servers": own.bootstrap_servers,
        "bootstrap.timeout.ms": 200, "max.block.ms": 200, "request.timeout.ms": 200,
        "delivery.timeout.ms": 200,
    }  # fmt: skip
    return Order("sink-away", properties, 0, run="one", topic="sink-away-t", **more)


def test_a_commit_goes_on_when_the_broker_is_back(own: Broker) -> None:
    """A commit that got no answer, however often, is done when the broker is back; once."""
    order = order_of(own, retry_s=30.0, broker_timeout_s=120.0)
    with warnings_of_spark() as warned:

        def meanwhile() -> None:
            warned.wait_for(3)
            own.start()

        parcels = parcels_of(order, "a", "b", "c")
        own.kill()
        assert finished(lambda: commit(order, parcels), meanwhile)
    assert not commit(order, parcels)
    forget(order)
    found = consume_all(own, f"{order.name}-t", isolation_level="read_committed")
    assert sorted(each.value for each in found) == [b"a", b"b", b"c"]


def test_a_commit_ends_with_its_cause(own: Broker) -> None:
    """After brokerTimeout the error of a commit names the broker and the option."""
    order = order_of(own, retry_s=0.1, broker_timeout_s=0.3)
    parcels = parcels_of(order, "a")
    own.kill()
    with (
        pytest.raises(BrokerAway, match=rf"{own.bootstrap_servers} \(.*refused.*brokerTimeout"),
        broker_away_named(order.properties),
    ):
        commit(order, parcels)


def test_what_a_broker_refuses_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal after a long outage is what the outage left behind: its time begins there."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    limits = RetryLimits(Order("x", {}, retry_s=120.0, broker_timeout_s=900.0))
    silence, refusal = KafkaTimeoutError("late"), error_for(47, "fenced")
    assert not limits.passed(silence, 899)
    assert limits.passed(silence, 901)
    now[0] = 800
    assert not limits.passed(refusal, 801)
    assert not limits.passed(refusal, 919)
    assert limits.passed(refusal, 921)


def test_a_task_of_the_sink_goes_on_when_the_broker_is_back(own: Broker) -> None:
    """Batches that a task sends are acknowledged when the broker is back."""
    given = {"kafka.bootstrap.servers": own.bootstrap_servers, "topic": TOPIC}
    producer = plain_producer(read_sink_options(given).patient)
    producer.partitions_for(TOPIC)
    batches = ColumnBatches(1)
    batches.add(pa.array(["a", "b", "c"]))
    pieces = [Piece(TOPIC, 0, each.data, each.records) for each in batches.take(rest=True)]
    own.kill()
    with warnings_of_spark() as warned:

        def meanwhile() -> None:
            warned.wait_for(2)
            own.start()

        places = finished(lambda: settled(producer, send_all(producer, pieces)), meanwhile)
    assert places == [[(COUNT, 3)]]
    assert "not all records were acknowledged" in warned.texts[0]


def test_what_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """What got no answer; not what a broker refused, nor what it refused behind a time-out."""
    monkeypatch.setattr(broker_wait, "REPEAT_PAUSE_S", 0.01)
    timeout = KafkaTimeoutError("late")
    assert unanswered(timeout)
    assert not unanswered(error_for(47, "fenced"))
    timeout.__cause__ = error_for(47, "fenced")
    assert not unanswered(timeout)
    tries = iter([KafkaTimeoutError("late"), None])

    def attempt() -> str:
        problem = next(tries)
        if problem is not None:
            raise problem
        return "done"

    assert repeated(attempt, 60) == "done"


def test_only_a_later_batch_waits_for_its_first_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write whose address is wrong fails after bootstrap.timeout.ms; a later batch of a query
    waits as long as brokerTimeout says."""
    monkeypatch.setattr(broker_wait, "AWAY_AFTER_S", 0.1)
    given = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.bootstrap.timeout.ms": "50",
        "topic": TOPIC,
        "brokerTimeout": "200ms",
    }
    schema = StructType([StructField("value", StringType())])
    for batch in (None, 0):
        options = read_sink_options(given | ({} if batch is None else {"ottla.batch": str(batch)}))
        with pytest.raises(NoBrokersAvailable):
            Sink(options, schema).prepare()
    with pytest.raises(BrokerAway, match="brokerTimeout"):
        Sink(read_sink_options({**given, "ottla.batch": "1"}), schema).prepare()

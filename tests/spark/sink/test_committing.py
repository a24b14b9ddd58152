"""The driver's commit by itself, without Spark: parcels in, one transaction and its ledger out."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark.sql.datasource")

from ottla.client import errors
from ottla.client.admin import Admin, NewTopic
from ottla.client.producer.column_batches import ColumnBatches
from ottla.spark.sink import committing, connections, staging, staging_topic
from ottla.spark.sink.committing import Order, OutcomeUnknown, commit
from ottla.spark.sink.ledger import LedgerRefused
from ottla.spark.sink.parcels import Origin, Parcel, ParcelLost, ParcelWriter, discard
from ottla.spark.sink.rows import Piece, SinkError
from ottla.testing import Broker, consume_all
from ottla.testing import broker as start_broker
from tests.waiting import ends

pa = pytest.importorskip("pyarrow")
NAMES = itertools.count()


@pytest.fixture(scope="module")
def own() -> Iterator[Broker]:
    """A broker for this file: it gets faults, and restarts."""
    with start_broker(num_partitions=4) as started:
        yield started


@pytest.fixture
def orders(own: Broker) -> Iterator[Callable[..., Order]]:
    """Orders under a name that nobody else uses."""
    name = f"sink-{next(NAMES)}"
    own.clear_faults()

    def order(
        batch: int | None = 0, *, properties: dict[str, Any] | None = None, **more: Any
    ) -> Order:
        given = {"bootstrap.servers": own.bootstrap_servers, **(properties or {})}
        return Order(name, given, batch, **{"run": "one", "topic": f"{name}-t", **more})

    yield order
    own.clear_faults()
    new_process()


def new_process() -> None:
    """Forget what this process knows, as another one would not know it; the old one lives on."""
    committing._sessions.clear()


def rows(
    order: Order, *values: str, tasks: int = 2, carrier: str = "inline", **how: Any
) -> list[Parcel]:
    """The parcels of tasks that wrote these values."""
    parcels = []
    for task in range(tasks):
        origin = Origin(order.name, order.run, order.batch or 0, task, task)
        here = how.get("staging", staging.Staging("", ""))
        writer = ParcelWriter(origin, carrier, here, order.properties)
        batches = ColumnBatches(4, spread_from=task)
        chosen = [value for number, value in enumerate(values) if number % 2 == task]
        if chosen:
            batches.add(pa.array(chosen))
        for made in batches.take(rest=True):
            topic = how.get("topic", f"{order.name}-t")
            writer.add(Piece(topic, made.partition, made.data, made.records))
        parcels.append(writer.finish())
    return parcels


def out(own: Broker, order: Order, topic: str | None = None) -> list[str]:
    """What readers of committed records see."""
    name = topic or f"{order.name}-t"
    found = consume_all(own, name, isolation_level="read_committed")
    return sorted(record.value.decode() for record in found)


def test_a_batch_is_written_once(own: Broker, orders: Callable[..., Order]) -> None:
    """A batch asked for again, here or by another process, is seen to be out."""
    first, second = orders(0), orders(1)
    assert commit(first, rows(first, "a", "b", "c"))
    assert commit(second, rows(second, "d"))
    assert not commit(second, rows(second, "d"))
    new_process()
    assert not commit(second, rows(second, "other rows"))
    assert out(own, first) == ["a", "b", "c", "d"]


def test_another_process_may_have_committed_meanwhile(
    own: Broker, orders: Callable[..., Order]
) -> None:
    """A producer that turns out to be fenced is replaced, and the ledger asked again."""
    sessions = committing._sessions
    assert commit(orders(0), rows(orders(0), "a"))
    old = dict(sessions)
    new_process()
    assert commit(orders(1), rows(orders(1), "b"))
    sessions.clear()
    sessions.update(old)
    assert commit(orders(2), rows(orders(2), "c"))
    assert out(own, orders()) == ["a", "b", "c"]


def test_a_zombie_driver_writes_nothing(own: Broker, orders: Callable[..., Order]) -> None:
    """A driver that another has replaced is refused; what it had in hand is not written."""
    sessions = committing._sessions
    assert commit(orders(0), rows(orders(0), "a"))
    zombie = dict(sessions)
    new_process()
    for batch in (1, 2):
        assert commit(orders(batch, run="two"), rows(orders(batch), f"new {batch}"))
    sessions.clear()
    sessions.update(zombie)
    with pytest.raises(LedgerRefused, match="another driver"):
        commit(orders(1, follows=True), rows(orders(1), "zombie"))
    assert out(own, orders()) == ["a", "new 1", "new 2"]


SHORT = {"max.block.ms": 1000, "request.timeout.ms": 1000, "delivery.timeout.ms": 20_000}


@pytest.mark.parametrize("batch", [0, None])
def test_an_end_without_an_answer(
    own: Broker, orders: Callable[..., Order], batch: int | None
) -> None:
    """If nobody says how a transaction ended the ledger does; a write without one says so."""
    order = orders(batch, properties=SHORT)
    parcels = rows(order, "a", "b")
    own.delay("EndTxn", 3000, times=1)
    if batch is None:
        with pytest.raises(OutcomeUnknown, match=r"ottla\.spark\.write"):
            commit(order, parcels)
    else:
        assert not commit(order, parcels)  # it was out by then
    assert out(own, order) == ["a", "b"]


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("EndTxn", "INVALID_TXN_STATE"),
        ("EndTxn", "PRODUCER_FENCED"),
        ("TxnOffsetCommit", "INVALID_PRODUCER_EPOCH"),
        ("Produce", "INVALID_PRODUCER_EPOCH"),
        ("Produce", "OUT_OF_ORDER_SEQUENCE_NUMBER"),
        ("InitProducerId", "CONCURRENT_TRANSACTIONS"),
    ],
)
def test_errors_after_which_all_is_begun_again(
    own: Broker, orders: Callable[..., Order], api: str, error: str
) -> None:
    """A transaction that is lost half-way is aborted and done again, whole."""
    order = orders(0)
    own.fail(api, error)
    assert commit(order, rows(order, "a", "b", "c"))
    assert out(own, order) == ["a", "b", "c"]


def test_an_error_that_will_not_pass_is_raised(own: Broker, orders: Callable[..., Order]) -> None:
    """A record that the topic does not take fails the commit at once, and nothing is visible."""
    order = orders(0)
    with Admin(bootstrap_servers=own.bootstrap_servers) as admin:
        limits = {"max.message.bytes": "1000"}
        admin.create_topics([NewTopic(f"{order.name}-t", 4, 1, topic_configs=limits)])
    too_large = rows(order, "small", "large" * 1000)
    with pytest.raises(errors.KafkaError, match="MESSAGE_TOO_LARGE"):
        ends(lambda: commit(order, too_large))  # long before the delivery time-out
    assert out(own, order) == []
    assert commit(order, rows(order, "small"))


@pytest.mark.parametrize("point", ["commit.sent", "commit.before-end"])
def test_a_broker_that_comes_back(
    own: Broker, orders: Callable[..., Order], monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """A broker killed in the middle of a commit and started again: the commit goes through."""
    order = orders(0)
    assert commit(order, rows(order, "a"))
    restarts = iter([point])

    def reach(name: str) -> None:
        if name == point and next(restarts, None):
            own.restart(kill=True)

    monkeypatch.setattr(committing, "reach", reach)
    again = orders(1)
    assert commit(again, rows(again, "b", "c"))
    assert next(restarts, None) is None
    assert out(own, order) == ["a", "b", "c"]


def test_a_broker_that_is_away_when_the_commit_begins(
    own: Broker, orders: Callable[..., Order]
) -> None:
    """A commit waits for a broker that is being restarted, also without a connection to it yet."""
    order = orders(0)
    parcels = rows(order, "a", "b")
    own.kill()
    other = threading.Timer(3, own.start)
    other.start()
    assert commit(order, parcels)
    other.join()
    assert out(own, order) == ["a", "b"]


def test_a_missing_ledger_is_refused_or_accepted(own: Broker, orders: Callable[..., Order]) -> None:
    """Without a ledger a first batch that may be a replay is refused, unless an option says so."""
    with pytest.raises(LedgerRefused, match="ledger"):
        commit(orders(3), rows(orders(3), "a"))
    assert commit(orders(3, accept=True), rows(orders(3), "a"))
    new_process()
    assert not commit(orders(3), rows(orders(3), "a"))
    assert commit(orders(4), rows(orders(4), "b"))
    assert out(own, orders()) == ["a", "b"]


@pytest.mark.parametrize("known", [True, False])
def test_empty_batches_begin_the_ledger(
    own: Broker, orders: Callable[..., Order], known: bool
) -> None:
    """A query whose first batches were empty is not taken for one that lost its ledger."""
    more = {} if known else {"topic": None}
    for batch in range(3):
        assert commit(orders(batch, **more), rows(orders(batch)))
    new_process()
    order = orders(3, run="two", **more)
    assert commit(order, rows(order, "a"))
    new_process()
    assert not commit(order, rows(order, "a"))
    assert out(own, order) == ["a"]


def test_empty_batches_keep_the_ledger_fresh(
    own: Broker, orders: Callable[..., Order], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger that gets old is written again by a batch without rows; a fresh one is not."""
    assert commit(orders(0), rows(orders(0), "a"))
    assert commit(orders(1), rows(orders(1)))
    assert next(iter(committing._sessions.values())).ledger.batch == 0
    monkeypatch.setattr(committing, "REFRESH_AGE_MS", -1)
    assert commit(orders(2), rows(orders(2)))
    new_process()
    assert commit(orders(3), rows(orders(3)))
    assert next(iter(committing._sessions.values())).ledger.batch == 3
    assert out(own, orders()) == ["a"]


def test_the_ledger_outlives_a_topic(own: Broker, orders: Callable[..., Order]) -> None:
    """It stands under every topic of the batch, so deleting one of them loses nothing."""
    order = orders(0, topic=None)
    names = [f"{order.name}-x", f"{order.name}-y"]
    parcels = [parcel for name in names for parcel in rows(order, "a", topic=name)]
    assert commit(order, parcels)
    new_process()
    with Admin(bootstrap_servers=own.bootstrap_servers) as admin:
        admin.delete_topics(names[:1])
    assert not commit(order, parcels)
    assert out(own, order, names[1]) == ["a"]


@pytest.mark.parametrize("carrier", ["inline", "directory", "topic"])
def test_each_carrier(
    own: Broker, orders: Callable[..., Order], tmp_path: Path, carrier: str
) -> None:
    """Parcels in the message, in a file and in the staging topic all arrive, in order."""
    order = orders(0)
    here = staging.prepare(str(tmp_path))
    values = [f"{number:05}" * 20 for number in range(3000)]
    parcels = rows(order, *values, carrier=carrier, staging=here)
    assert [bool(parcel.data) for parcel in parcels] == [carrier == "inline"] * 2
    assert [parcel.path is not None for parcel in parcels] == [carrier == "directory"] * 2
    assert [bool(parcel.places) for parcel in parcels] == [carrier == "topic"] * 2
    assert commit(order, parcels)
    assert out(own, order) == values
    if carrier == "topic":
        staging_topic.empty(order.properties, parcels)
        name = staging_topic.topic_name(order.name)
        assert consume_all(own, name) == []


def test_a_staged_batch_that_is_split(own: Broker, orders: Callable[..., Order]) -> None:
    """Where the staging topic takes only smaller batches, a parcel names all that its batches
    became, and every row arrives in order; emptying the topic leaves none of them."""
    order = orders(0)
    name = staging_topic.topic_name(order.name)
    with Admin(bootstrap_servers=own.bootstrap_servers) as admin:
        small = {"max.message.bytes": "4000"}
        admin.create_topics([NewTopic(name, staging_topic.PARTITIONS, 1, None, small)])
        admin.create_topics([NewTopic(f"{order.name}-t", 4, 1)])
    values = [f"{number:05}" * 20 for number in range(600)]
    parcels = rows(order, *values, carrier="topic")
    assert all(len(parcel.places) == len(parcel.slices) > 4 for parcel in parcels)
    assert sum(parcel.rows for parcel in parcels) == len(values)
    assert commit(order, parcels)
    assert out(own, order) == values
    staging_topic.empty(order.properties, parcels)
    assert consume_all(own, name) == []


def test_no_part_of_a_split_batch_is_forgotten(own: Broker, orders: Callable[..., Order]) -> None:
    """A part of a split batch that the broker does not take fails the whole delivery: here the
    last row, which is larger than the topic allows by itself."""
    name = f"{orders().name}-t"
    with Admin(bootstrap_servers=own.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, 1, 1, None, {"max.message.bytes": "2000"})])
    batches = ColumnBatches(1)
    batches.add(pa.array(["small"] * 10 + ["large" * 1000]))
    pieces = [
        Piece(name, made.partition, made.data, made.records) for made in batches.take(rest=True)
    ]
    producer = connections.plain_producer({"bootstrap.servers": own.bootstrap_servers})
    futures = connections.send_all(producer, pieces)
    with pytest.raises(errors.MessageSizeTooLargeError):
        connections.settled(producer, futures)


def test_a_parcel_leaves_memory_when_it_grows(
    own: Broker, orders: Callable[..., Order], tmp_path: Path
) -> None:
    """Small rows travel in the message, more of them in a file, or in a topic without one."""
    order = orders(0)
    large = [f"{number:05}" * 60 for number in range(2000)]
    here = staging.prepare(str(tmp_path))
    elsewhere = staging.Staging(here.directory, "another driver's token")
    assert rows(order, "few", carrier="auto", staging=here)[0].data
    assert rows(order, *large, carrier="auto", staging=here)[0].path is not None
    assert rows(order, *large, carrier="auto", staging=elsewhere)[0].places
    with pytest.raises(SinkError, match="does not see the driver's directory"):
        rows(order, *large, carrier="directory", staging=elsewhere)


@pytest.mark.parametrize("loss", ["gone", "short"])
def test_a_lost_parcel_loses_no_batch(
    own: Broker, orders: Callable[..., Order], tmp_path: Path, loss: str
) -> None:
    """A staged file that is gone or cut fails the commit before it ends; a repeat succeeds."""
    order = orders(0)
    here = staging.prepare(str(tmp_path))
    parcels = rows(order, "a", "b", carrier="directory", staging=here)
    assert parcels[1].path is not None
    if loss == "gone":
        discard(parcels[1])
    else:
        path = Path(parcels[1].path)
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ParcelLost, match="task 1"):
        commit(order, parcels)
    assert out(own, order) == []
    assert commit(order, rows(order, "a", "b", carrier="directory", staging=here))
    assert out(own, order) == ["a", "b"]

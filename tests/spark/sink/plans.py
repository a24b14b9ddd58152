"""Plans whose output is known: what goes in, what Spark makes of it, and what must come out.

An event is `id,second` under a key. Plans: `stateless` copies events, `windows` counts them in
windows of ten seconds, `joined` pairs a click with the order of the same id, `outer` also gives the
clicks without an order. Each output value is unique, so that a value seen twice is a row written
twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla import Producer
from ottla.client.codec.records import murmur2
from ottla.testing import Broker, consume_all
from ottla.testing.history import History, check

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PARTITIONS = 4
KEYS = 7
WINDOW_S = 10
DELAY_S = 40  # micro-batches mix the partitions' events by less
BEGIN_S = 1000
ALL = 1_000_000  # the limit of the last run: nothing may come in a batch after the closing event
END_S = 1_000_000  # the closing event: every window and every wait ends before it


class Event(NamedTuple):
    id: int
    second: int

    @property
    def key(self) -> str:
        return f"k{self.id % KEYS}"

    @property
    def text(self) -> str:
        return f"{self.id},{self.second}"


CLOSING = Event(-1, END_S)


def events(first: int, count: int) -> list[Event]:
    """One a second, some of them out of order."""
    numbers = range(first, first + count)
    return [Event(n, BEGIN_S + n - (5 if n % 10 == 7 else 0)) for n in numbers]


def send(broker: Broker, topic: str, given: Iterable[Event]) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for event in given:
            producer.send(topic, event.text.encode(), key=event.key.encode())


def close(broker: Broker, topic: str) -> None:
    """Send the event that moves the watermark past all others."""
    send(broker, topic, [CLOSING])


def parsed(spark: SparkSession, servers: str, topic: str, limit: int) -> DataFrame:
    rows = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", limit)
        .load()
    )
    return rows.selectExpr(
        "cast(key as string) key",
        "cast(value as string) value",
        "cast(split_part(cast(value as string), ',', 1) as long) id",
        "timestamp_seconds(cast(split_part(cast(value as string), ',', 2) as long)) at",
    )


def plan(spark: SparkSession, servers: str, name: str, topic: str, limit: int = 60) -> DataFrame:
    """The columns `key` and `value` of a plan over `topic` (and `topic-orders` for joins)."""
    clicks = parsed(spark, servers, topic, limit)
    if name == "stateless":
        return clicks.where("id >= 0").select("key", "value")
    from pyspark.sql import functions as F

    delay = f"{DELAY_S} seconds"
    clicks = clicks.withWatermark("at", delay)
    if name == "windows":
        counted = clicks.groupBy(F.window("at", f"{WINDOW_S} seconds"), "key").count()
        return counted.selectExpr(
            "key", "concat_ws(',', unix_seconds(window.start), key, count) value"
        )
    orders = parsed(spark, servers, f"{topic}-orders", limit).withWatermark("at", delay)
    left = clicks.selectExpr("key", "id", "at")
    right = orders.selectExpr("id order_id", "at order_at")
    paired = left.join(
        right,
        F.expr("id = order_id AND order_at >= at AND order_at <= at + INTERVAL 10 SECONDS"),
        "left_outer" if name == "outer" else "inner",
    )
    order = "coalesce(cast(order_id as string), 'none')"
    return paired.selectExpr("key", f"concat_ws(',', id, {order}) value")


def is_ordered(event: Event) -> bool:
    """Whether a click has an order (two seconds later)."""
    return event.id % 3 != 0


def orders_of(given: Iterable[Event]) -> list[Event]:
    return [Event(event.id, event.second + 2) for event in given if is_ordered(event)]


def expected(name: str, given: list[Event]) -> dict[str, str]:
    """What must come out: each value, and the key it has."""
    if name == "stateless":
        return {event.text: event.key for event in given}
    if name == "windows":
        counts = Counter((event.second // WINDOW_S * WINDOW_S, event.key) for event in given)
        return {f"{start},{key},{n}": key for (start, key), n in counts.items()}
    return {
        f"{event.id},{event.id if is_ordered(event) else 'none'}": event.key
        for event in [*given, CLOSING]  # both closing events, which meet
        if name == "outer" or is_ordered(event)
    }


def start(
    rows: DataFrame, servers: str, topic: str, checkpoint: str, **options: Any
) -> StreamingQuery:
    """A query into `topic`: all that is there, in micro-batches."""
    mode = options.pop("mode", "append")
    writer = rows.writeStream.outputMode(mode).format("ottla")
    writer = writer.option("kafka.bootstrap.servers", servers)
    writer = writer.option("topic", topic).option("checkpointLocation", checkpoint)
    return writer.options(**options).trigger(availableNow=True).start()


def assert_exactly_once(broker: Broker | str, topic: str, wanted: dict[str, str]) -> None:
    """Readers of committed records see every value once, where its key belongs, and no other."""
    history = History()
    for value, key in wanted.items():
        history.sent("spark", murmur2(key.encode()) % PARTITIONS, value)
    for record in consume_all(broker, topic, isolation_level="read_committed"):
        value = record.value.decode()
        history.polled("reader", record.partition, [(record.offset, value)])
    report = check(history)
    assert report, str(report)
    seen = report.sent - report.unseen
    assert (report.read, seen) == (len(wanted), len(wanted)), f"missing rows: {report}"


def assert_ordered(broker: Broker, topic: str) -> None:
    """Events of a key come out in the order in which they went in."""
    last: dict[bytes, int] = {}
    for record in consume_all(broker, topic, isolation_level="read_committed"):
        number = int(record.value.split(b",")[0])
        assert number > last.get(record.key, -1), f"{record.key!r}: {number} after {last}"
        last[record.key] = number

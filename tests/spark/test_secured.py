"""Source, sink and pipelines over SASL_SSL, with the options of Spark's own connector.

Passwords and keys come nowhere that a reader of plans, logs or progress looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ottla import Admin, Consumer, Producer
from ottla.admin import NewTopic
from ottla.spark import pipeline, register
from ottla.spark import topic as topic_of
from tests.compat.secured import PASSWORD, EveryListener, Way
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(400)
VALUES = [b"%d" % number for number in range(300)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EveryListener]:
    with EveryListener(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture
def way(secured: EveryListener) -> Way:
    return secured.way("SASL_SSL", "PLAIN")


def options(way: Way) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in way.properties().items()}


def produce(way: Way, topic: str, values: list[bytes]) -> None:
    with Admin(way.properties()) as admin:
        admin.create_topics([NewTopic(topic, 2, 1)], wait_for_metadata=True)
    with Producer(way.properties()) as producer:
        for each in values:
            producer.send(topic, each)


def read(way: Way, topic: str, count: int) -> list[bytes]:
    with Consumer(
        topic, way.properties(), auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        return sorted(next(consumer).value or b"" for _ in range(count))


class EventLog:
    """What Spark writes into its event log, while this is open."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        jvm, context = spark._jvm, spark.sparkContext._jsc.sc()
        conf = context.conf().clone().set("spark.eventLog.compress", "false")
        conf = conf.set("spark.eventLog.rolling.enabled", "false")
        self._context = context
        self._directory = directory
        none = jvm.scala.Option.apply(None)
        uri = jvm.java.net.URI(directory.as_uri())
        self._listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
            "secured", none, uri, conf, context.hadoopConfiguration()
        )
        self._listener.start()
        context.addSparkListener(self._listener)

    def text(self) -> str:
        """All of it; the log ends."""
        self._context.listenerBus().waitUntilEmpty()
        self._context.removeSparkListener(self._listener)
        self._listener.stop()
        return "".join(each.read_text() for each in self._directory.rglob("*") if each.is_file())


def test_batches_and_streams(
    spark: SparkSession, way: Way, topic: str, tmp_path: Path, secured: EveryListener
) -> None:
    """Records are read as a batch and as a stream and written, exactly once, by the options that
    Spark's connector takes; the group shows that all is read. No plan, progress or event log has
    the password or the key."""
    register(spark, way.properties())
    (tmp_path / "events").mkdir()
    events = EventLog(spark, tmp_path / "events")
    shown: list[str] = []
    store = Path(str(secured.way("CERTIFIED").certificate)).read_text()
    key, begin, chain = store.partition("-----BEGIN CERTIFICATE")
    given = options(way) | {"kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.key": key}
    given["kafka.ssl.keystore.certificate.chain"] = begin + chain
    produce(way, topic, VALUES)
    rows = spark.read.format("ottla").options(**given).option("subscribe", topic).load()
    assert sorted(bytes(row.value) for row in rows.select("value").collect()) == sorted(VALUES)
    shown.append(plan_of(rows))
    to = {**given, "topic": f"{topic}-batch"}
    rows.select("value").write.format("ottla").options(**to).mode("append").save()
    assert read(way, f"{topic}-batch", len(VALUES)) == sorted(VALUES)
    stream = spark.readStream.format("ottla").options(**given)
    frame = stream.option("subscribe", topic).option("commitGroup", f"{topic}-group")
    frame = frame.option("startingOffsets", "earliest").load()
    writer = frame.select("key", "value").writeStream.format("ottla").options(**given)
    writer = writer.option("topic", f"{topic}-stream").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    assert query.awaitTermination(200)
    assert query.exception() is None
    assert read(way, f"{topic}-stream", len(VALUES)) == sorted(VALUES)
    shown += [each.json for each in query.recentProgress] + [plan_of(frame)]
    shown.append(query._jsq.explainInternal(True))
    shown.append(events.text())
    shown += [each.read_text() for each in (tmp_path / "checkpoint").rglob("*") if is_text(each)]
    private = key.splitlines()[1]
    assert any("kafka.ssl.keystore.key=*********(redacted)" in text for text in shown)
    for text in shown:
        assert PASSWORD not in text
        assert private not in text
    eventually(lambda: committed(way, f"{topic}-group") == len(VALUES), "the group has the end")


def committed(way: Way, group: str) -> int:
    with Admin(way.properties()) as admin:
        return sum(each.offset for each in admin.list_group_offsets(group)[group].values())


def test_pipelines(spark: SparkSession, way: Way, topic: str, tmp_path: Path) -> None:
    """What is stored and what comes is counted, with `client` for all topics of the pipeline, and
    its group has the end."""
    from ottla.spark.pipelines.running import Run

    @pipeline(
        source=topic_of(topic, schema="user string"),
        sink=topic_of(f"{topic}.known", key="user"),
        bad_records=topic_of(f"{topic}.bad"),
        name=topic,
    )
    def known(events: DataFrame) -> DataFrame:
        return events.where("user <> 'nobody'")

    values = [b'{"user":"%s"}' % each for each in (b"alice", b"nobody", b"bob")]
    produce(way, topic, [*values, b"broken"])
    client = way.properties()
    servers = client["bootstrap.servers"]
    assert known.past(spark, bootstrap_servers=servers, client=client)[f"{topic}.known"] == 2
    run: Run = known.start(
        spark, bootstrap_servers=servers, checkpoint=tmp_path, catch_up=True, client=client
    )
    assert run.wait(200)
    assert run.failure() is None
    assert read(way, f"{topic}.known", 4) == sorted([values[0], values[2]] * 2)
    assert read(way, f"{topic}.bad", 2) == [b"broken"] * 2
    assert committed(way, topic) == 4


def test_a_wrong_password_is_said(spark: SparkSession, secured: EveryListener) -> None:
    """As the broker's sentence, without the password."""
    wrong = secured.wrong_ways()["wrong password"]
    rows = spark.read.format("ottla").options(**options(wrong)).option("subscribe", "t").load()
    with pytest.raises(PySparkException, match="Invalid username or password") as raised:
        rows.collect()
    assert wrong.password not in str(raised.value)


def is_text(path: Path) -> bool:
    return path.is_file() and not path.name.endswith(".crc")


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().toString())

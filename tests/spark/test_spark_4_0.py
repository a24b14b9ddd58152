"""A real Spark 4.0.0: our source beside Spark's own connector, our sinks, a pipeline.

The stock connector is whole in the registries at this version only, so one process serves both
claims: this package works on 4.0, and it reads what the stock connector reads.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, Producer, TopicPartition
from ottla.testing import Broker, consume_all
from tests import needs
from tests.spark import older_spark

from .source.helpers import make_topic

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]
T0 = 1_700_000_000_000
RECORDS = 90
MIXED, OTHER, TRANSACTIONS, TRIMMED = "both-mixed", "both-other", "both-txn", "both-trimmed"
ALL = {"subscribe": MIXED}


def places(**partitions: int) -> str:
    return json.dumps({MIXED: {name.removeprefix("p"): at for name, at in partitions.items()}})


BATCH: dict[str, dict[str, str]] = {
    "subscribe": ALL,
    "several topics": {"subscribe": f"{MIXED},{OTHER}"},
    "subscribePattern": {"subscribePattern": "both-(mixed|other)"},
    "assign": {"assign": json.dumps({MIXED: [0, 2], OTHER: [0]})},
    "includeHeaders": {**ALL, "includeHeaders": "true"},
    "startingOffsets": {**ALL, "startingOffsets": places(p0=5, p1=-2, p2=17)},
    "endingOffsets": {**ALL, "endingOffsets": places(p0=5, p1=-1, p2=17)},
    "both offsets": {
        **ALL,
        "startingOffsets": places(p0=3, p1=4, p2=5),
        "endingOffsets": places(p0=3, p1=9, p2=-1),
    },
    "startingTimestamp": {**ALL, "startingTimestamp": str(T0 + 40_000)},
    "endingTimestamp": {**ALL, "endingTimestamp": str(T0 + 40_000)},
    "startingOffsetsByTimestamp": {
        **ALL,
        "startingOffsetsByTimestamp": places(p0=T0, p1=T0 + 20_500, p2=T0 + 60_000),
    },
    "endingOffsetsByTimestamp": {
        **ALL,
        "endingOffsetsByTimestamp": places(p0=T0 + 1, p1=T0 + 20_500, p2=T0 + 10**9),
    },
    "a time too late, latest": {
        **ALL,
        "startingTimestamp": str(T0 + 10**9),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "a time too late, error": {**ALL, "startingTimestamp": str(T0 + 10**9)},
    "minPartitions": {**ALL, "minPartitions": "7"},
    "maxRecordsPerPartition": {**ALL, "maxRecordsPerPartition": "11"},
    "read_uncommitted": {"subscribe": TRANSACTIONS},
    "read_committed": {"subscribe": TRANSACTIONS, "kafka.isolation.level": "read_committed"},
    "small fetches": {**ALL, "kafka.max.partition.fetch.bytes": "200"},
    "a trimmed topic": {"subscribe": TRIMMED},
    "a start that is gone, accepted": {
        "subscribe": TRIMMED,
        "startingOffsets": json.dumps({TRIMMED: {"0": 3}}),
        "failOnDataLoss": "false",
    },
    "latest as a batch's start": {**ALL, "startingOffsets": "latest"},
    "earliest as a batch's end": {**ALL, "endingOffsets": "earliest"},
    "a partition left out": {**ALL, "startingOffsets": places(p0=1, p1=1)},
    "two subscriptions": {**ALL, "assign": json.dumps({MIXED: [0]})},
    "a deserializer": {**ALL, "kafka.value.deserializer": "some.Class"},
    "a reset": {**ALL, "kafka.auto.offset.reset": "earliest"},
}
REFUSED = {
    "a time too late, error", "latest as a batch's start", "earliest as a batch's end",
    "a partition left out", "two subscriptions", "a deserializer", "a reset",
}  # fmt: skip
EARLIEST = {**ALL, "startingOffsets": "earliest"}
STREAM: dict[str, dict[str, str]] = {
    "earliest": EARLIEST,
    "latest": ALL,
    "offsets": {**ALL, "startingOffsets": places(p0=5, p1=-2, p2=-1), "includeHeaders": "true"},
    "a time": {**ALL, "startingTimestamp": str(T0 + 40_000)},
    "limits": {**EARLIEST, "maxOffsetsPerTrigger": "25", "minPartitions": "5"},
    "committed": {
        "subscribe": TRANSACTIONS,
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
    },
}


def fill(broker: Broker) -> None:
    """Topics with all that a record can be: nulls, headers, times, compression, transactions."""
    servers = broker.bootstrap_servers
    for name, partitions in ((MIXED, 3), (OTHER, 1), (TRANSACTIONS, 1), (TRIMMED, 1)):
        make_topic(broker, name, partitions)
    for name in ("both-written-kafka", "both-written-ottla", "both-json", "both-copied"):
        make_topic(broker, name, 3)
    for codec in (None, "gzip", "zstd"):
        start = {None: 0, "gzip": 1, "zstd": 2}[codec]
        with Producer(bootstrap_servers=servers, compression_type=codec) as producer:
            for number in range(start, RECORDS, 3):
                producer.send(
                    MIXED,
                    None if number % 11 == 0 else b"value %d" % number,
                    key=None if number % 4 == 0 else b"key %d" % (number % 8),
                    partition=number % 3,
                    timestamp_ms=T0 + 1000 * number,
                    headers=[("n", b"%d" % number), ("none", None)] if number % 5 == 0 else [],
                )
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(20):
            producer.send(OTHER, b"%d" % number)
            producer.send(TRIMMED, b"%d" % number)
            producer.send("both-json", b'{"page": "p%d", "seconds": %d}' % (number % 3, number))
        producer.send("both-json", b"not JSON")
    with Admin(bootstrap_servers=servers) as admin:
        admin.delete_records({TopicPartition(TRIMMED, 0): 8})
    with Producer(bootstrap_servers=servers, transactional_id="both") as producer:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            producer.send(TRANSACTIONS, b"%d" % number)
            producer.flush()
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()


@pytest.fixture(scope="module")
def found(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the program found in its one session."""
    needs.long()
    needs.java()
    try:
        environment = older_spark.environment(older_spark.CONNECTOR_VERSION)
        jars = [str(each) for each in older_spark.connector()]
    except older_spark.NotInstalled as missing:
        needs.missing(str(missing))
    fill(broker)
    home = tmp_path_factory.mktemp("spark-4.0")
    work = {
        "servers": broker.bootstrap_servers,
        "home": str(home),
        "jars": jars,
        "batch": BATCH,
        "stream": STREAM,
    }
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "both_connectors.py"), json.dumps(work)],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    lines = [each for each in done.stdout.splitlines() if each.startswith("RESULT ")]
    assert lines, done.stdout[-2000:] + done.stderr[-6000:]
    return json.loads(lines[0].removeprefix("RESULT "))


def test_it_is_that_version(found: dict[str, Any]) -> None:
    """The session is of 4.0.0, and `register` where Spark has found the source is no error."""
    assert found["version"] == older_spark.CONNECTOR_VERSION


@pytest.mark.parametrize("case", BATCH)
def test_a_batch_is_equal(found: dict[str, Any], case: str) -> None:
    """Schema and rows of a batch read are those of Spark's own connector, or both refuse."""
    assert found["batch"][case]["equal"], found["batch"][case]
    assert found["batch"][case]["refused"] == (case in REFUSED)


@pytest.mark.parametrize("case", STREAM)
def test_a_stream_is_equal(found: dict[str, Any], case: str) -> None:
    """What an AvailableNow stream reads is what Spark's own connector reads."""
    assert found["stream"][case]["equal"], found["stream"][case]


def test_the_comparison_has_rows(found: dict[str, Any]) -> None:
    """Equal is not equally empty."""
    assert found["batch"]["subscribe"]["rows"] == found["stream"]["earliest"]["rows"] == RECORDS
    assert 0 < found["batch"]["read_committed"]["rows"] < found["batch"]["read_uncommitted"]["rows"]


def test_both_sinks_write_the_same(found: dict[str, Any], broker: Broker) -> None:
    """Keys, values, headers and partitions of rows written through either are the same."""
    written = [
        sorted(
            (each.partition, each.key or b"", each.value or b"", tuple(each.headers))
            for each in consume_all(broker, f"both-written-{kind}")
        )
        for kind in ("kafka", "ottla")
    ]
    assert len(written[0]) == 60
    assert written[0] == written[1]


def test_a_stream_of_ours_goes_on(found: dict[str, Any], broker: Broker) -> None:
    """From topic to topic, over a restart: each record once, Arrow both ways."""
    assert found["restarted"] == [RECORDS, 0]
    assert len(consume_all(broker, "both-copied", isolation_level="read_committed")) == RECORDS


def test_a_pipeline_runs(found: dict[str, Any], broker: Broker) -> None:
    """Parsing, an update sink and bad records work; the second run has nothing to do."""
    first, second = found["pipeline"]
    assert (first["failure"], first["bad"]) == (None, 1)
    assert second == {"failure": None, "rows": 0, "bad": 0}
    totals = {each.key: json.loads(each.value) for each in consume_all(broker, "both-totals")}
    assert totals[b"p1"]["seconds"] == sum(range(1, 20, 3))
    assert [each.value for each in consume_all(broker, "both-bad")] == [b"not JSON"]

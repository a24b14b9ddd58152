"""`python -m benchmarks.console_sql`: SQL of the console beside our Arrow read of the same records.

Both read every record of one topic from a broker on this machine, in turn; medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any, cast

from ottla.client.admin import Admin
from ottla.client.consumer.range_reader import RangeReader
from ottla.client.producer import Producer
from ottla.client.structs import TopicPartition
from ottla.console.data.querying import PIECE_BYTES, PIECE_ROWS, Query
from ottla.console.data.work import Stop
from ottla.console.picture import ClusterPicture
from ottla.testing import Broker

TOPIC = "orders"
PARTITIONS = 3
STATEMENTS = {
    "count": f"SELECT count(*) FROM {TOPIC}",
    "offsets and times": f'SELECT partition, max("offset"), max(timestamp) FROM {TOPIC} GROUP BY 1',
    "bytes of values": f"SELECT sum(octet_length(value_bytes)) FROM {TOPIC}",
    "keys": f"SELECT count(DISTINCT key) FROM {TOPIC}",
    "text search": f'SELECT count(*) FROM {TOPIC} WHERE value LIKE \'%"country": "fr"%\'',
    "one field of the JSON": f"SELECT sum(amount) FROM {TOPIC}",
    "grouped by a field": f"SELECT country, count(*), avg(amount) FROM {TOPIC} GROUP BY 1",
}


class Cluster:
    """What a query needs of one."""

    def __init__(self, servers: str) -> None:
        self.client_properties = {"bootstrap_servers": servers}
        self.name, self.picture = "main", ClusterPicture("main")
        self._admin = Admin(bootstrap_servers=servers)

    def admin(self) -> Admin:
        return self._admin


def fill(servers: str, records: int) -> None:
    with Producer(bootstrap_servers=servers, compression_type="lz4", linger_ms=20) as producer:
        for number in range(records):
            value = {
                "id": number,
                "amount": number % 997,
                "country": ("de", "fr", "it", "es")[number % 4],
                "note": "x" * 60,
            }
            key = b"k%d" % (number % 50_000)
            producer.send(TOPIC, json.dumps(value).encode(), key, partition=number % PARTITIONS)


def arrow_read(servers: str, ends: dict[int, int]) -> int:
    """All columns of all records, as Arrow batches."""
    reader = RangeReader(
        {
            "bootstrap_servers": servers,
            "isolation_level": "read_committed",
            "max_partition_fetch_bytes": PIECE_BYTES // 2,
            "fetch_max_bytes": PIECE_BYTES,
        }
    )
    rows = 0
    try:
        for index, end in ends.items():
            for piece in reader.read(
                TopicPartition(TOPIC, index), 0, end, rows=PIECE_ROWS, value_bytes=PIECE_BYTES,
                timeout_ms=30_000,
            ):  # fmt: skip
                rows += piece.to_arrow().num_rows
    finally:
        reader.close()
    return rows


def timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.console_sql", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with Broker() as broker:
        servers = broker.bootstrap_servers
        cluster = Cluster(servers)
        cluster.admin().create_topics({TOPIC: {"num_partitions": PARTITIONS}})
        fill(servers, options.records)
        read = cluster.admin().read_batches(
            {TopicPartition(TOPIC, p): 0 for p in range(PARTITIONS)}
        )
        ends = {each.partition: found.high_watermark for each, found in read.items()}
        assert arrow_read(servers, ends) == options.records

        def ask(text: str) -> None:
            query = Query(cast(Any, cluster), text, Stop())
            query.run(lambda line: None, (TOPIC,))
            assert query.counted.records == options.records

        times: dict[str, list[float]] = {"": []} | {name: [] for name in STATEMENTS}
        for _ in range(options.rounds):
            times[""].append(timed(lambda: arrow_read(servers, ends)))
            for name, text in STATEMENTS.items():
                times[name].append(timed(lambda text=text: ask(text)))  # type: ignore[misc]
    base = statistics.median(times.pop(""))
    print(f"| {options.records:,} records | s | × the Arrow read |\n|---|---|---|")
    print(f"| Arrow read, all columns | {base:.2f} | 1 |")
    for name, each in times.items():
        middle = statistics.median(each)
        print(f"| SQL: {name} | {middle:.2f} | {middle / base:.2f} |")


if __name__ == "__main__":
    main()

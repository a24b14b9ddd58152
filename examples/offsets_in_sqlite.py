"""Count words, each exactly once: results and offsets in one SQLite transaction.

Kafka's own commits and a database cannot be changed in one step, so a crash between the two counts
a record twice or never. Here the offset lies in the database beside the result, and the group is
used only to share the partitions: when partitions come, the consumer seeks to what the database
says; before they go, nothing is left to do, because every batch was saved whole or not at all.

    python examples/offsets_in_sqlite.py words counts.db --bootstrap-servers localhost:9092

Kill it whenever you like and start it again, or start a second one: the counts stay right.
"""

from __future__ import annotations

import argparse
import sqlite3

from ottla import Consumer, ConsumerRebalanceListener, TopicPartition

TABLES = """
CREATE TABLE IF NOT EXISTS counts (word TEXT PRIMARY KEY, count INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS offsets (
    topic TEXT, partition INTEGER, next_offset INTEGER NOT NULL, PRIMARY KEY (topic, partition)
);
"""


class Store:
    """The database: results, and how far each partition has been counted."""

    def __init__(self, path: str) -> None:
        self.database = sqlite3.connect(path, isolation_level=None, timeout=30)
        self.database.executescript(TABLES)

    def next_offset(self, partition: TopicPartition) -> int:
        row = self.database.execute(
            "SELECT next_offset FROM offsets WHERE topic = ? AND partition = ?", partition
        ).fetchone()
        return 0 if row is None else int(row[0])

    def add(self, partition: TopicPartition, words: list[str], first: int, end: int) -> None:
        """Count the words and move the offset, both or neither."""
        self.database.execute("BEGIN IMMEDIATE")
        try:
            # A member that was thrown out of the group without knowing must not count again what
            # its successor has counted.
            if self.next_offset(partition) > first:
                raise LostRace(partition)
            self.database.executemany(
                "INSERT INTO counts VALUES (?, 1)"
                " ON CONFLICT (word) DO UPDATE SET count = count + 1",
                [(word,) for word in words],
            )
            self.database.execute(
                "INSERT OR REPLACE INTO offsets VALUES (?, ?, ?)", (*partition, end)
            )
        except BaseException:
            self.database.execute("ROLLBACK")
            raise
        self.database.execute("COMMIT")


class LostRace(Exception):
    """Another member has counted this partition meanwhile."""


class FromTheStore(ConsumerRebalanceListener):
    """Begin where the database says, not where the group does."""

    def __init__(self, consumer: Consumer, store: Store) -> None:
        self.consumer = consumer
        self.store = store

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        for partition in assigned:
            self.consumer.seek(partition, self.store.next_offset(partition))

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        pass  # what was polled is saved already


def count_words(consumer: Consumer, store: Store, timeout_ms: float) -> int:
    """Count what one poll returns; how many records that was."""
    records_by_partition = consumer.poll(timeout_ms)
    for partition, records in records_by_partition.items():
        words = [word for record in records for word in (record.value or "").split()]
        try:
            store.add(partition, words, records[0].offset, records[-1].offset + 1)
        except LostRace:
            consumer.seek(partition, store.next_offset(partition))
    return sum(len(records) for records in records_by_partition.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("topic")
    parser.add_argument("database")
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--group", default="word-count")
    parser.add_argument("--session-timeout-ms", type=int, default=10_000)
    parser.add_argument("--stop-after-idle-ms", type=int, help="end when nothing comes so long")
    options = parser.parse_args()
    store = Store(options.database)
    with Consumer(
        bootstrap_servers=options.bootstrap_servers,
        group_id=options.group,
        enable_auto_commit=False,
        value_deserializer="str",
        session_timeout_ms=options.session_timeout_ms,
        heartbeat_interval_ms=options.session_timeout_ms // 4,
    ) as consumer:
        consumer.subscribe([options.topic], listener=FromTheStore(consumer, store))
        idle_ms = 0
        while options.stop_after_idle_ms is None or idle_ms < options.stop_after_idle_ms:
            done = count_words(consumer, store, timeout_ms=200)
            idle_ms = 0 if done or not consumer.assignment() else idle_ms + 200


if __name__ == "__main__":
    main()

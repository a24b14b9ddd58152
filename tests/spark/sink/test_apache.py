"""The sink's commit on Apache Kafka: the same transactions, the same ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark.sql.datasource")

from ottla.client.admin import Admin, NewTopic
from ottla.spark.sink import committing, staging, staging_topic
from ottla.spark.sink.committing import Order, commit
from ottla.testing import consume_all
from tests.apache.kafka import ApacheKafka
from tests.spark.sink.test_committing import new_process, rows


def test_batches_are_out_once_on_apache_kafka(apache_kafka: ApacheKafka, tmp_path: Path) -> None:
    """Empty batches, each carrier, a replay, a fenced process and a deleted topic, as on Ottla."""
    servers = apache_kafka.bootstrap
    here = staging.prepare(str(tmp_path))
    topics = ["sink-on-apache-a", "sink-on-apache-b"]

    def order(batch: int) -> Order:
        return Order("sink-on-apache", {"bootstrap.servers": servers}, batch, run="one")

    def out(topic: str) -> list[str]:
        found = consume_all(servers, topic, isolation_level="read_committed")
        return sorted(record.value.decode() for record in found)

    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(name, 4, 1) for name in topics])
        assert commit(order(0), rows(order(0)))  # no rows, no topic: the ledger begins all the same
        for batch, carrier in enumerate(["inline", "directory", "topic"], 1):
            new_process()
            how = {"carrier": carrier, "staging": here}
            values = [f"{batch} x", f"{batch} y"]
            made = [rows(order(batch), *values, topic=topic, **how) for topic in topics]
            parcels = [parcel for each in made for parcel in each]
            assert commit(order(batch), parcels)
            fenced = dict(committing._sessions)
            new_process()
            assert not commit(order(batch), parcels)
            committing._sessions.clear()
            committing._sessions.update(fenced)
            staging_topic.empty(order(batch).properties, parcels)
        last = order(4)
        assert commit(last, rows(last, "4", topic=topics[0]) + rows(last, "4", topic=topics[1]))
        assert out(topics[0]) == ["1 x", "1 y", "2 x", "2 y", "3 x", "3 y", "4"]
        assert consume_all(servers, staging_topic.topic_name(last.name)) == []
        admin.delete_topics(topics[:1])
    new_process()
    assert not commit(last, rows(last, "4", topic=topics[1]))
    assert out(topics[1]) == ["1 x", "1 y", "2 x", "2 y", "3 x", "3 y", "4"]
    new_process()

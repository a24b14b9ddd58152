"""Batches as the admin reads them: headers, states of transactions, markers, errors."""

from __future__ import annotations

import threading

from ottla import Admin, Producer, TopicPartition
from ottla.client.admin import BatchState, PartitionRead
from tests.client.reading import make_topic
from tests.waiting import eventually


def all_of(admin: Admin, partition: TopicPartition) -> list[tuple[bytes | None, str]]:
    """Every record with the state of its transaction, or the marker's name."""
    found: list[tuple[bytes | None, str]] = []
    offset = 0
    while True:
        read = admin.read_batches({partition: offset})[partition]
        assert read.error is None
        if not read.batches:
            return found
        for batch in read.batches:
            for record in batch.records(offset):
                value = None if batch.marker else record.value
                found.append((value, batch.marker or str(batch.state)))
        offset = read.next_offset


def test_states_of_transactions(any_bootstrap: str, topic: str) -> None:
    """Committed, aborted and open records and the markers between them are distinguished, also
    above the last stable offset where a later marker decides."""
    make_topic(any_bootstrap, topic)
    partition = TopicPartition(topic, 0)

    def transactional(name: str) -> Producer:
        made = Producer(bootstrap_servers=any_bootstrap, transactional_id=f"{topic}-{name}")
        made.init_transactions()
        return made

    with (
        transactional("a") as first,
        transactional("b") as second,
        Producer(bootstrap_servers=any_bootstrap) as plain,
        Admin(bootstrap_servers=any_bootstrap) as admin,
    ):

        def wait_for(count: int) -> None:
            """Markers may come after the answer to the transaction's end."""
            eventually(lambda: len(all_of(admin, partition)) == count)

        for value, commit in (b"kept", True), (b"dropped", False):
            first.begin_transaction()
            first.send(topic, value).get(30)
            (first.commit_transaction if commit else first.abort_transaction)()
            wait_for(2 if commit else 4)
        plain.send(topic, b"plain").get(30)
        first.begin_transaction()
        first.send(topic, b"open").get(30)
        for value, commit in (b"late kept", True), (b"late dropped", False):
            second.begin_transaction()
            second.send(topic, value).get(30)
            (second.commit_transaction if commit else second.abort_transaction)()
            wait_for(8 if commit else 10)
        assert all_of(admin, partition) == [
            (b"kept", "committed"),
            (None, "commit"),
            (b"dropped", "aborted"),
            (None, "abort"),
            (b"plain", "none"),
            (b"open", "open"),
            (b"late kept", "committed"),
            (None, "commit"),
            (b"late dropped", "aborted"),
            (None, "abort"),
        ]
        read = admin.read_batches({partition: 5})[partition]
        assert (read.last_stable_offset, read.high_watermark) == (5, 10)
        first.abort_transaction()
        eventually(lambda: all_of(admin, partition)[5] == (b"open", "aborted"))


def test_what_a_header_says(any_bootstrap: str, topic: str) -> None:
    """Codec, producer, epoch and offsets come from the header; records from an offset on."""
    make_topic(any_bootstrap, topic)
    partition = TopicPartition(topic, 0)
    with (
        Producer(
            bootstrap_servers=any_bootstrap, compression_type="zstd", linger_ms=200
        ) as producer,
        Admin(bootstrap_servers=any_bootstrap) as admin,
    ):
        for number in range(3):
            producer.send(topic, b"v%d" % number, key=b"k", headers=[("h", b"x")])
        producer.flush()
        read = admin.read_batches({partition: 1})[partition]
        (batch,) = read.batches
        assert (batch.compression, batch.state, batch.marker) == ("zstd", BatchState.NONE, None)
        assert batch.header.producer_id >= 0
        assert batch.header.producer_epoch >= 0
        assert [r.value for r in batch.records(1)] == [b"v1", b"v2"]
        assert batch.records(2)[0].headers == [("h", b"x")]
        assert (read.next_offset, read.log_start_offset, read.high_watermark) == (3, 0, 3)


def test_errors_are_of_their_partition(any_bootstrap: str, topic: str) -> None:
    """An offset that is not there is the error of its partition; others are read."""
    make_topic(any_bootstrap, topic, partitions=2)
    good, bad = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with (
        Producer(bootstrap_servers=any_bootstrap) as producer,
        Admin(bootstrap_servers=any_bootstrap) as admin,
    ):
        producer.send(topic, b"v", partition=0).get(30)
        found = admin.read_batches({good: 0, bad: 50})
        assert len(found[good].batches) == 1
        assert type(found[bad].error).__name__ == "OffsetOutOfRangeError"


def test_a_read_may_wait_for_records(bootstrap: str, topic: str) -> None:
    """With `max_wait_ms` an answer comes when a record does."""
    make_topic(bootstrap, topic)
    partition = TopicPartition(topic, 0)
    with (
        Producer(bootstrap_servers=bootstrap) as producer,
        Admin(bootstrap_servers=bootstrap) as admin,
    ):
        found: list[PartitionRead] = []
        reader = threading.Thread(
            target=lambda: found.append(
                admin.read_batches({partition: 0}, max_wait_ms=20_000)[partition]
            )
        )
        reader.start()
        producer.send(topic, b"v").get(30)
        reader.join(60)
        assert [r.value for r in found[0].batches[0].records()] == [b"v"]

"""Transactions of the producer, on Ottla and on Apache Kafka."""

from __future__ import annotations

import pytest

from ottla import Producer
from ottla.client import errors
from ottla.client.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from tests.client.reading import make_topic, read_all

WAIT_S = 60


@pytest.fixture
def name(topic: str) -> str:
    """A transactional id of the test's own."""
    return f"id-{topic}"


def values(bootstrap: str, topic: str, *, committed: bool = True) -> list[bytes | None]:
    return [record.value for record in read_all(bootstrap, topic, committed=committed)]


def test_committed_is_seen_aborted_is_not(any_bootstrap: str, topic: str, name: str) -> None:
    """Several transactions over two partitions: readers of committed data see the right ones."""
    make_topic(any_bootstrap, topic, partitions=2)
    with Producer(bootstrap_servers=any_bootstrap, transactional_id=name) as producer:
        producer.init_transactions()
        for number, commit in enumerate([True, False, True, False]):
            producer.begin_transaction()
            for partition in 0, 1:
                producer.send(topic, b"%d-%d" % (number, partition), partition=partition)
            if commit:
                producer.commit_transaction()
            else:
                producer.flush()
                producer.abort_transaction()
    assert values(any_bootstrap, topic) == [b"0-0", b"2-0", b"0-1", b"2-1"]
    assert len(values(any_bootstrap, topic, committed=False)) == 8


def test_the_context_manager_commits_or_aborts(any_bootstrap: str, topic: str, name: str) -> None:
    """The end of the block commits, an exception aborts and goes on its way."""
    make_topic(any_bootstrap, topic)
    with Producer(bootstrap_servers=any_bootstrap, transactional_id=name) as producer:
        with producer.transaction():
            producer.send(topic, b"one")
        with pytest.raises(ZeroDivisionError), producer.transaction():
            print(producer.send(topic, b"two").get(WAIT_S).offset / 0)
        with producer.transaction():
            pass
        with producer.transaction():
            future = producer.send(topic, b"three")
        assert future.succeeded()
    assert values(any_bootstrap, topic) == [b"one", b"three"]


def test_an_abort_drops_what_was_not_sent(bootstrap: str, topic: str, name: str) -> None:
    """Records still waiting when the transaction aborts fail, and are never written."""
    make_topic(bootstrap, topic)
    with Producer(bootstrap_servers=bootstrap, transactional_id=name, linger_ms=20_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        future = producer.send(topic, b"dropped")
        producer.abort_transaction()
        with pytest.raises(errors.TransactionAbortedError):
            future.get(WAIT_S)
        with producer.transaction():
            producer.send(topic, b"kept")
    assert values(bootstrap, topic, committed=False) == [b"kept"]


def test_a_second_producer_fences_the_first(any_bootstrap: str, topic: str, name: str) -> None:
    """The newest producer of an id wins; the older one is fenced and can do nothing more."""
    make_topic(any_bootstrap, topic)
    old = Producer(bootstrap_servers=any_bootstrap, transactional_id=name)
    old.init_transactions()
    old.begin_transaction()
    old.send(topic, b"old").get(WAIT_S)
    with Producer(bootstrap_servers=any_bootstrap, transactional_id=name) as new:
        new.init_transactions()
        with pytest.raises(errors.KafkaError) as caught:
            old.commit_transaction()
        assert not caught.value.retriable
        with pytest.raises(errors.KafkaError):
            old.begin_transaction()
        with new.transaction():
            new.send(topic, b"new")
    old.close(0)
    assert values(any_bootstrap, topic) == [b"new"]


def test_offsets_are_committed_with_the_transaction(
    any_bootstrap: str, topic: str, name: str
) -> None:
    """A group's offsets move when the transaction commits, and not when it aborts (trap 33)."""
    import confluent_kafka as ck

    make_topic(any_bootstrap, topic)
    group = f"group-{topic}"
    place = TopicPartition(topic, 0)

    def committed() -> int:
        consumer = ck.Consumer({"bootstrap.servers": any_bootstrap, "group.id": group})
        try:
            found = consumer.committed([ck.TopicPartition(topic, 0)], timeout=WAIT_S)
            return int(found[0].offset)
        finally:
            consumer.close()

    with Producer(bootstrap_servers=any_bootstrap, transactional_id=name) as producer:
        with producer.transaction():
            producer.send(topic, b"x")
            producer.send_offsets_to_transaction(
                {place: OffsetAndMetadata(5, "five")}, ConsumerGroupMetadata(group)
            )
        assert committed() == 5
        producer.begin_transaction()
        producer.send_offsets_to_transaction({place: OffsetAndMetadata(9)}, group)
        producer.abort_transaction()
        assert committed() == 5


def test_the_first_generation_of_the_protocol_works_too(
    any_bootstrap: str, topic: str, name: str
) -> None:
    """With partitions added one by one and no epoch in EndTxn, as before KIP-890."""
    make_topic(any_bootstrap, topic, partitions=2)
    with Producer(bootstrap_servers=any_bootstrap, transactional_id=name) as producer:
        producer.init_transactions()
        assert producer._identity is not None
        producer._identity.single_phase = False
        for number in range(3):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number, partition=0)
            producer.send(topic, b"%d" % number, partition=1)
            if number == 1:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    assert values(any_bootstrap, topic) == [b"0", b"2", b"0", b"2"]


def test_what_fits_no_state_says_so(bootstrap: str, topic: str, name: str) -> None:
    """Calls out of turn name the state and what to do."""
    plain = Producer[bytes, bytes](bootstrap_servers=bootstrap)
    with plain, pytest.raises(errors.IllegalStateError, match="no transactional_id"):
        plain.begin_transaction()
    with Producer(bootstrap_servers=bootstrap, transactional_id=name) as producer:
        with pytest.raises(errors.IllegalStateError, match="init_transactions"):
            producer.begin_transaction()
        producer.init_transactions()
        with pytest.raises(errors.IllegalStateError, match="begin_transaction"):
            producer.send(topic, b"")
        with pytest.raises(errors.IllegalStateError, match="commit_transaction"):
            producer.commit_transaction()
        with pytest.raises(errors.IllegalStateError, match="init_transactions"):
            producer.init_transactions()


def test_a_failed_record_makes_the_transaction_abortable(
    any_bootstrap: str, topic: str, name: str
) -> None:
    """After a record was refused the commit is too; an abort makes the producer whole again."""
    make_topic(any_bootstrap, topic, max_message_bytes=1000)
    with Producer(bootstrap_servers=any_bootstrap, transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        refused = producer.send(topic, b"x" * 5000)
        with pytest.raises(errors.KafkaError, match="can only be aborted"):
            producer.commit_transaction()
        assert refused.failed()
        with pytest.raises(errors.KafkaError, match="can only be aborted"):
            producer.send(topic, b"no")
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"fine")
    assert values(any_bootstrap, topic) == [b"fine"]


def test_a_record_too_large_to_send_is_not_left_out_of_a_commit(
    bootstrap: str, topic: str, name: str
) -> None:
    """Nobody looked at its future, and still the transaction can only be aborted."""
    with Producer(
        bootstrap_servers=bootstrap, transactional_id=name, max_request_size=1000
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"small")
        producer.send(topic, b"x" * 2000)
        with pytest.raises(errors.KafkaError, match=r"can only be aborted.*max_request_size"):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"again")
    assert [record.value for record in read_all(bootstrap, topic)] == [b"again"]

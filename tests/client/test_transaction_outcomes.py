"""The end of a transaction without an answer: repeated, never turned into its opposite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla import Producer
from ottla.client import errors
from ottla.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.wire.api.end_txn import EndTxnResponse
from ottla.wire.api.find_coordinator import Coordinator, FindCoordinatorResponse
from ottla.wire.api.init_producer_id import InitProducerIdResponse
from ottla.wire.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.api.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.wire.errors import ErrorCode
from ottla.wire.header import RequestHeader
from tests.client.fake import FakeBroker

TOPIC, TOPIC_ID = "t", bytes(15) + b"\x03"
PRODUCE, METADATA, FIND_COORDINATOR, INIT, ADD_PARTITIONS, END_TXN = 0, 3, 10, 22, 24, 26


class ScriptedCoordinator(FakeBroker):
    """A coordinator whose answers to EndTxn a test lists; while `silent` it cuts the connection."""

    def __init__(self) -> None:
        self.ends: list[bool] = []
        self.end_answers: list[ErrorCode] = []
        self.silent = False
        super().__init__(
            {
                PRODUCE: self.produce,
                METADATA: self.metadata,
                FIND_COORDINATOR: self.find_coordinator,
                INIT: lambda *_: InitProducerIdResponse(producer_id=7, producer_epoch=0),
                ADD_PARTITIONS: self.add_partitions,
                END_TXN: self.end_txn,
            }
        )

    def metadata(self, header: RequestHeader, request: Any, broker: FakeBroker) -> Any:
        partition = MetadataResponsePartition(leader_id=1, leader_epoch=0)
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)],
            controller_id=1,
            topics=[MetadataResponseTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=[partition])],
        )

    def find_coordinator(self, header: RequestHeader, request: Any, broker: FakeBroker) -> Any:
        found = Coordinator(key="id", node_id=1, host="127.0.0.1", port=self.port)
        return FindCoordinatorResponse(coordinators=[found])

    def add_partitions(self, header: RequestHeader, request: Any, broker: FakeBroker) -> Any:
        added = AddPartitionsToTxnPartitionResult(partition_index=0)
        topic = AddPartitionsToTxnTopicResult(name=TOPIC, results_by_partition=[added])
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])

    def produce(self, header: RequestHeader, request: Any, broker: FakeBroker) -> Any:
        done = PartitionProduceResponse(index=0, base_offset=0)
        topic = TopicProduceResponse(name=TOPIC, topic_id=TOPIC_ID, partition_responses=[done])
        return ProduceResponse(responses=[topic])

    def end_txn(self, header: RequestHeader, request: Any, broker: FakeBroker) -> Any:
        self.ends.append(request.committed)
        if self.silent:
            raise ConnectionError("cut before the answer")
        answer = self.end_answers.pop(0) if self.end_answers else ErrorCode.NONE
        return EndTxnResponse(error_code=int(answer))


@pytest.fixture
def broker() -> Iterator[ScriptedCoordinator]:
    with ScriptedCoordinator() as made:
        yield made


@pytest.fixture
def producer(broker: ScriptedCoordinator) -> Iterator[Producer]:
    with Producer(
        bootstrap_servers=broker.bootstrap, transactional_id="id", retry_backoff_ms=5
    ) as made:
        made.init_transactions()
        yield made


def begun(producer: Producer) -> None:
    producer.begin_transaction()
    producer.send(TOPIC, b"one")
    producer.flush()


def send_then_wait_little(producer: Producer) -> None:
    """One record; what comes after it waits for a moment only."""
    producer.send(TOPIC, b"one").get(60)
    producer.config["max_block_ms"] = 50


def test_a_commit_without_an_answer_is_not_aborted_and_can_be_repeated(
    broker: ScriptedCoordinator, producer: Producer
) -> None:
    """It may be committed: an abort, a send or a new transaction is refused, a commit repeats."""
    broker.silent = True
    begun(producer)
    with pytest.raises(errors.KafkaTimeoutError, match="not known"):
        producer.commit_transaction(timeout=0.05)
    broker.silent = False
    for refused in (
        producer.abort_transaction,
        producer.begin_transaction,
        lambda: producer.send(TOPIC, b"two"),
        lambda: producer.send_offsets_to_transaction({}, "g"),
    ):
        with pytest.raises(errors.IllegalStateError, match="committing a transaction"):
            refused()
    producer.commit_transaction()
    with producer.transaction():
        producer.send(TOPIC, b"three")
    assert len(broker.ends) >= 3
    assert all(broker.ends)


def test_the_context_manager_does_not_abort_what_it_asked_to_commit(
    broker: ScriptedCoordinator, producer: Producer
) -> None:
    """The block ends with the error of the commit; the coordinator never sees an abort."""
    broker.silent = True
    with pytest.raises(errors.KafkaTimeoutError, match="not known"), producer.transaction():
        send_then_wait_little(producer)
    broker.silent = False
    producer.config["max_block_ms"] = 20_000
    producer.commit_transaction()
    assert all(broker.ends)


def test_an_interrupted_commit_is_not_aborted(
    broker: ScriptedCoordinator, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A KeyboardInterrupt while the answer is awaited leaves the outcome open too."""
    transactions = producer._transactions
    assert transactions is not None
    begun(producer)

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(transactions, "_ask", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.commit_transaction()
    with pytest.raises(errors.IllegalStateError, match="committing"):
        producer.abort_transaction()
    producer.commit_transaction()
    assert broker.ends == [True]


def test_an_abort_without_an_answer_can_only_be_repeated(
    broker: ScriptedCoordinator, producer: Producer
) -> None:
    """It may be aborted: a commit is refused."""
    broker.silent = True
    begun(producer)
    with pytest.raises(errors.KafkaTimeoutError, match="abort_transaction"):
        producer.abort_transaction(timeout=0.05)
    broker.silent = False
    with pytest.raises(errors.IllegalStateError, match="aborting a transaction"):
        producer.commit_transaction()
    producer.abort_transaction()
    assert not any(broker.ends)


def test_the_coordinator_may_ask_for_an_abort(
    broker: ScriptedCoordinator, producer: Producer
) -> None:
    """TRANSACTION_ABORTABLE says that nothing was committed: the block aborts."""
    broker.end_answers = [ErrorCode.TRANSACTION_ABORTABLE]
    with pytest.raises(errors.TransactionAbortableError), producer.transaction():
        producer.send(TOPIC, b"one")
    assert broker.ends == [True, False]


@pytest.mark.parametrize("code", [ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED])
def test_any_other_refusal_of_a_commit_is_the_end(
    broker: ScriptedCoordinator, producer: Producer, code: ErrorCode
) -> None:
    """As with Kafka's producer: no abort follows, and the producer can only be closed."""
    broker.end_answers = [code]
    with pytest.raises(errors.error_class(code)), producer.transaction():
        producer.send(TOPIC, b"one")
    assert broker.ends == [True]
    with pytest.raises(errors.error_class(code)):
        producer.begin_transaction()

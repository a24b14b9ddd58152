"""Transactions: what the producer may do in which state, and the requests to the coordinator.

Runs in the caller's thread and waits; the sender only reads `identity`. Two generations of the
protocol (KIP-890): with `transaction.version` 2 a Produce adds its partition by itself and every
EndTxn brings the next epoch; before that each partition is added first, and the epoch goes up only
after an error. An error of a batch makes the transaction abortable; being fenced is the end.

Once EndTxn was sent, a commit that got no answer may have happened or not. As with Kafka's own
producer it can then only be repeated: an abort is refused until the outcome is known.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from ottla.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.exchange import VERSION_MAX
from ottla.wire.schema import RequestFor, Struct

from ..errors import (
    NO_LONGER_MEMBER,
    BrokerResponseError,
    CommitFailedError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    TransactionAbortedError,
    raise_for,
)
from ..network.cluster_client import ProducerClient
from ..network.coordinators import COORDINATOR_GONE
from ..structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from .accumulator import PartitionQueue
from .idempotence import FATAL, Identity
from .sender import Sender

if TYPE_CHECKING:
    from .producer import Producer

S = TypeVar("S", bound=Struct)

ADD_PARTITIONS_VERSION_MAX = 3  # later versions are for brokers
FIRST_GENERATION_VERSION_MAX = 4  # of EndTxn and TxnOffsetCommit
AGAIN = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


class State(Enum):
    NEW = "not initialized"
    READY = "ready"
    OPEN = "in a transaction"
    COMMITTING = "committing a transaction, which got no answer yet"
    ABORTING = "aborting a transaction, which got no answer yet"
    BROKEN = "failed for good"


HINTS = {
    State.NEW: "call init_transactions() first",
    State.COMMITTING: "commit_transaction() again: it may have been committed, or not",
    State.ABORTING: "abort_transaction() again",
}


class Transactions:
    """One transactional id's life."""

    def __init__(self, client: ProducerClient, identity: Identity, sender: Sender) -> None:
        self.client = client
        self.identity = identity
        self.sender = sender
        assert client.config["transactional_id"] is not None
        self.name: str = client.config["transactional_id"]
        self.state = State.NEW
        self.lock = threading.RLock()
        self.added: set[tuple[str, int]] = set()
        self.started = False  # the coordinator knows of this transaction

    def initialize(self, timeout_s: float | None) -> None:
        """Get id and epoch; what an older producer left open is ended by the coordinator."""
        with self.lock:
            if self.state is not State.NEW:
                raise IllegalStateError(f"init_transactions: the producer is {self.state.value}")
            self._init(timeout_s)
            self.state = State.READY

    def _init(self, timeout_s: float | None, *, bump: bool = False) -> None:
        identity = self.identity
        message = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=self.client.config["transaction_timeout_ms"],
            producer_id=identity.producer_id if bump else -1,
            producer_epoch=identity.epoch if bump else -1,
        )
        answer = self._ask(message, timeout_s, codes=lambda got: [got.error_code])
        self.client.wait(self.client.refresh())
        identity.single_phase = self.client.features.get("transaction.version", 0) >= 2
        identity.set(answer.producer_id, answer.producer_epoch)

    def begin(self) -> None:
        with self.lock:
            self._check_alive()
            if self.state is not State.READY:
                raise self._wrong_state("begin_transaction")
            self.added.clear()
            self.started = False
            self.identity.abortable = None
            self.state = State.OPEN

    def about_to_send(self, queue: PartitionQueue) -> None:
        """A record is on its way: is there a transaction, and does it know the partition?"""
        if self.state is not State.OPEN:
            self._check_alive()
            raise IllegalStateError(
                f"send: the producer is {self.state.value}, and has a transactional_id\n"
                "Try: begin_transaction() first, or `with producer.transaction():`"
            )
        if self.identity.abortable is not None or self.identity.fatal is not None:
            self._check_sound()
        self.started = True
        place = (queue.topic, queue.partition)
        if self.identity.single_phase or place in self.added:
            return
        with self.lock:
            self._add_partition(*place)
            self.added.add(place)

    def _add_partition(self, topic: str, partition: int) -> None:
        message = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )
        self._ask(
            message,
            self.client.config["max_block_ms"] / 1000,
            version_max=ADD_PARTITIONS_VERSION_MAX,
            codes=lambda answer: [
                each.partition_error_code
                for found in answer.results_by_topic_v3_and_below
                for each in found.results_by_partition
            ],
        )

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_metadata: ConsumerGroupMetadata | str,
    ) -> None:
        with self.lock:
            if self.state is not State.OPEN:
                self._check_alive()
                raise self._wrong_state("send_offsets_to_transaction")
            self._check_sound()
            if not offsets:
                return
            group = (
                ConsumerGroupMetadata(group_metadata)
                if isinstance(group_metadata, str)
                else group_metadata
            )
            self.started = True
            if not self.identity.single_phase:
                self._ask(
                    AddOffsetsToTxnRequest(
                        transactional_id=self.name,
                        producer_id=self.identity.producer_id,
                        producer_epoch=self.identity.epoch,
                        group_id=group.group_id,
                    ),
                    codes=lambda got: [got.error_code],
                )
            self._commit_offsets(offsets, group)

    def _commit_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for (topic, partition), offset in offsets.items():
            found = topics.setdefault(topic, TxnOffsetCommitRequestTopic(name=topic))
            found.partitions.append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    committed_metadata=offset.metadata or "",
                )
            )
        message = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group.group_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=list(topics.values()),
        )
        self._ask(
            message,
            version_max=VERSION_MAX if self.identity.single_phase else FIRST_GENERATION_VERSION_MAX,
            place=(group.group_id, "group"),
            codes=lambda answer: [
                each.error_code for found in answer.topics for each in found.partitions
            ],
        )

    def end(self, producer: Producer, commit: bool, timeout_s: float | None) -> None:
        """Commit or abort; an abort drops what has not been sent. After an end without an answer
        the same may be called again, and asks the coordinator again."""
        with self.lock:
            self._check_alive()
            ending = State.COMMITTING if commit else State.ABORTING
            if self.state is State.OPEN:
                self._finish_sending(producer, commit, timeout_s)
                self.state = ending
            elif self.state is not ending:
                raise self._wrong_state("commit_transaction" if commit else "abort_transaction")
            self._end(commit, timeout_s)
            self.state = State.READY

    def _finish_sending(self, producer: Producer, commit: bool, timeout_s: float | None) -> None:
        """Wait for what was sent: all records before a commit, those in flight before an abort."""
        if commit:
            producer.flush(timeout_s)
            self._check_sound()
            return
        self.sender.discard(
            TransactionAbortedError("the transaction was aborted before it was sent")
        )
        producer.flush(timeout_s)
        self._check_alive()

    def _end(self, commit: bool, timeout_s: float | None) -> None:
        identity = self.identity
        if not self.started:
            return
        message = EndTxnRequest(
            transactional_id=self.name,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=commit,
        )
        version_max = VERSION_MAX if identity.single_phase else FIRST_GENERATION_VERSION_MAX
        try:
            answer = self._ask(
                message, timeout_s, version_max=version_max, codes=lambda got: [got.error_code]
            )
        except KafkaError as problem:
            raise self._not_ended(problem, commit) from problem
        if answer.producer_id >= 0:  # the next epoch comes with the answer (KIP-890)
            identity.set(answer.producer_id, answer.producer_epoch)
        elif identity.abortable is not None:
            self._init(timeout_s, bump=True)
        identity.abortable = None

    def _not_ended(self, problem: KafkaError, commit: bool) -> KafkaError:
        """What an EndTxn that failed means for the transaction, and the error to raise."""
        code = problem.errno if isinstance(problem, BrokerResponseError) else None
        if self.state is State.BROKEN:
            return problem
        if code == ErrorCode.TRANSACTION_ABORTABLE and commit:
            self.state = State.OPEN
            self.identity.abortable = problem
            return problem
        if problem.retriable or code in COORDINATOR_GONE or code in AGAIN:
            name = "commit" if commit else "abort"
            return KafkaTimeoutError(
                f"the {name} of the transaction got no answer in time, so whether it is done is "
                f"not known: {problem}\nTry: {name}_transaction() again"
            )
        if code is not None:  # as Kafka's producer: any other answer to EndTxn is the end
            self.identity.fatal = problem
            self.state = State.BROKEN
        return problem

    # Requests to a coordinator

    def _ask(
        self,
        message: RequestFor[S],
        timeout_s: float | None = None,
        *,
        version_max: int = VERSION_MAX,
        place: tuple[str, str] | None = None,
        codes: Callable[[S], list[int]],
    ) -> S:
        """Ask the coordinator, finding it anew and waiting for it where that helps."""
        key, kind = place or (self.name, "transaction")
        seconds = self.client.config["max_block_ms"] / 1000 if timeout_s is None else timeout_s
        deadline = time.monotonic() + seconds
        tries = 0
        while True:
            left_ms = max(1.0, (deadline - time.monotonic()) * 1000)
            try:
                node = self.client.wait(self.client.coordinator(key, kind), left_ms)
                answer = self.client.wait(
                    self.client.submit(node, message, version_max=version_max), left_ms
                )
                for code in codes(answer):
                    raise_for(code)
                return answer
            except KafkaError as problem:
                self._judge(problem, key, kind)
                pause_s = self.client.backoff_s(min(tries, 3))
                if time.monotonic() + pause_s >= deadline:
                    raise
                time.sleep(pause_s)
                tries += 1

    def _judge(self, problem: KafkaError, key: str, kind: str) -> None:
        """Return if asking again may help; else raise, and remember what it means."""
        code = problem.errno if isinstance(problem, BrokerResponseError) else None
        if code is None or code in COORDINATOR_GONE:
            if problem.retriable:
                self.client.coordinators.forget(key, kind)
                return
        elif code in AGAIN or problem.retriable:
            return
        if code in FATAL or (code == ErrorCode.INVALID_PRODUCER_EPOCH and kind == "transaction"):
            self.identity.fatal = problem
            self.state = State.BROKEN
        elif self.state is State.OPEN and self.identity.abortable is None:
            self.identity.abortable = problem
        if code in NO_LONGER_MEMBER:
            raise CommitFailedError(
                f"the group has moved on, its offsets are not committed: {problem}\n"
                "Try: abort_transaction(), then poll again"
            ) from problem
        raise problem

    def _wrong_state(self, name: str) -> IllegalStateError:
        hint = HINTS.get(self.state)
        return IllegalStateError(
            f"{name}: the producer is {self.state.value}" + (f"\nTry: {hint}" if hint else "")
        )

    def _check_alive(self) -> None:
        if self.identity.fatal is not None:
            self.state = State.BROKEN
            raise self.identity.fatal

    def _check_sound(self) -> None:
        self._check_alive()
        if self.identity.abortable is not None:
            raise KafkaError(
                f"the transaction has failed and can only be aborted: {self.identity.abortable}"
            ) from self.identity.abortable


@contextmanager
def scope(producer: Producer) -> Iterator[Producer]:
    """One transaction: commit at the end, abort on an exception; the first one initializes.

    A commit that was asked for is never followed by an abort: the state is no longer OPEN then.
    """
    transactions = producer._transactional()
    if transactions.state is State.NEW:
        producer.init_transactions()
    producer.begin_transaction()
    try:
        yield producer
        producer.commit_transaction()
    except BaseException:
        if transactions.state is State.OPEN and transactions.identity.fatal is None:
            producer.abort_transaction()
        raise

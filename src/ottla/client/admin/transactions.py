"""Producers and transactions: list, describe, end those that hang (KIP-664)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..argument_checks import check_names
from ..errors import raise_for
from ..structs import TopicPartition
from .base import AdminBase, by_topic, raise_first
from .types import (
    AbortTransactionSpec,
    HangingTransaction,
    PartitionProducerState,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)

if TYPE_CHECKING:
    from ottla.wire.api.describe_producers import DescribeProducersResponse
    from ottla.wire.api.write_txn_markers import WriteTxnMarkersResponse

HANGING_SLACK_MS = 5 * 60 * 1000  # as Kafka's tool: clocks differ
ENDED = {
    TransactionState.EMPTY,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
    TransactionState.DEAD,
}


class Transactions(AdminBase):
    """The part of the admin that knows producers and transactions."""

    def list_transactions(
        self,
        broker_ids: Iterable[int] | None = None,
        producer_id_filters: Iterable[int] | None = None,
        state_filters: Iterable[str] | None = None,
        duration_filter_ms: int | None = None,
        transactional_id_pattern: str | None = None,
    ) -> dict[int, list[TransactionListing]]:
        """The transactions that each broker coordinates."""
        from ottla.wire.api.list_transactions import ListTransactionsRequest

        request = ListTransactionsRequest(
            state_filters=[str(getattr(each, "value", each)) for each in state_filters or ()],
            producer_id_filters=list(producer_id_filters or ()),
            duration_filter=-1 if duration_filter_ms is None else duration_filter_ms,
            transactional_id_pattern=transactional_id_pattern,
        )
        found = {}
        for broker_id in self._broker_ids() if broker_ids is None else broker_ids:
            answer = self._ask(request, broker_id, check=lambda got: raise_for(got.error_code))
            found[broker_id] = [
                TransactionListing(
                    each.transactional_id,
                    each.producer_id,
                    TransactionState(each.transaction_state),
                )
                for each in answer.transaction_states
            ]
        return found

    def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription]:
        """What the coordinators know of these transactional ids."""
        from ottla.wire.api.describe_transactions import DescribeTransactionsRequest

        check_names(transactional_ids, "describe_transactions")
        found = {}
        for transactional_id in transactional_ids:
            answer = self._ask_coordinator(
                transactional_id,
                DescribeTransactionsRequest(transactional_ids=[transactional_id]),
                lambda got: raise_first(got.transaction_states),
                kind="transaction",
            )
            coordinator = self._client.wait(
                self._client.coordinator(transactional_id, "transaction")
            )
            for each in answer.transaction_states:
                found[each.transactional_id] = TransactionDescription(
                    coordinator,
                    TransactionState(each.transaction_state),
                    each.producer_id,
                    each.producer_epoch,
                    each.transaction_timeout_ms,
                    each.transaction_start_time_ms,
                    {
                        TopicPartition(topic.topic, index)
                        for topic in each.topics
                        for index in topic.partitions
                    },
                )
        return found

    def describe_producers(
        self, partitions: Iterable[TopicPartition], broker_id: int | None = None
    ) -> dict[TopicPartition, PartitionProducerState]:
        """The producers that the leaders (or one broker) of these partitions know."""
        from ottla.wire.api.describe_producers import DescribeProducersRequest, TopicRequest

        wanted = [TopicPartition(*each) for each in partitions]

        def make(theirs: list[TopicPartition]) -> DescribeProducersRequest:
            return DescribeProducersRequest(
                topics=[
                    TopicRequest(name=name, partition_indexes=indexes)
                    for name, indexes in by_topic(theirs).items()
                ]
            )

        if broker_id is not None:
            self._broker_ids()
            return producers_in(self._ask(make(wanted), broker_id))
        return self._ask_leaders(wanted, make, producers_in)

    def abort_transaction(self, spec: AbortTransactionSpec) -> None:
        """End an open transaction on one partition, whatever its coordinator thinks of it."""
        from ottla.wire.api.write_txn_markers import (
            WritableTxnMarker,
            WritableTxnMarkerTopic,
            WriteTxnMarkersRequest,
        )

        partition = TopicPartition(*spec.topic_partition)
        marker = WritableTxnMarker(
            producer_id=spec.producer_id,
            producer_epoch=spec.producer_epoch,
            transaction_result=False,
            coordinator_epoch=spec.coordinator_epoch,
            topics=[
                WritableTxnMarkerTopic(
                    name=partition.topic, partition_indexes=[partition.partition]
                )
            ],
        )

        def take(answer: WriteTxnMarkersResponse) -> dict[TopicPartition, None]:
            for result in answer.markers:
                for topic in result.topics:
                    for each in topic.partitions:
                        raise_for(each.error_code, f"{topic.name}-{each.partition_index}")
            return {partition: None}

        self._ask_leaders([partition], lambda _: WriteTxnMarkersRequest(markers=[marker]), take)

    def force_terminate_transaction(self, transactional_id: str) -> None:
        """End what a transactional id has open, and fence its producer, as a new one would."""
        from ottla.wire.api.init_producer_id import InitProducerIdRequest

        self._ask_coordinator(
            transactional_id,
            InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=int(self.config["request_timeout_ms"]),
                producer_id=-1,
                producer_epoch=-1,
            ),
            lambda got: raise_for(got.error_code),
            kind="transaction",
        )

    def find_hanging_transactions(
        self,
        broker_ids: Iterable[int] | None = None,
        max_transaction_timeout_ms: int = 900_000,
    ) -> list[HangingTransaction]:
        """Transactions that have been open for longer than any may be."""
        listed = self.list_transactions(broker_ids)
        names = sorted({each.transactional_id for found in listed.values() for each in found})
        now_ms = time.time() * 1000
        hanging: list[HangingTransaction] = []
        for name, found in self.describe_transactions(names).items():
            age_ms = int(now_ms - found.transaction_start_time_ms)
            if found.state in ENDED or found.transaction_start_time_ms < 0:
                continue
            if age_ms >= max_transaction_timeout_ms + HANGING_SLACK_MS:
                hanging.append(
                    {
                        "transactional_id": name,
                        "producer_id": found.producer_id,
                        "producer_epoch": found.producer_epoch,
                        "state": found.state.value,
                        "age_ms": age_ms,
                        "coordinator_id": found.coordinator_id,
                        "topic_partitions": sorted(found.topic_partitions),
                    }
                )
        return hanging


def producers_in(answer: DescribeProducersResponse) -> dict[TopicPartition, PartitionProducerState]:
    found = {}
    for topic in answer.topics:
        for each in topic.partitions:
            raise_for(each.error_code, each.error_message)
            found[TopicPartition(topic.name, each.partition_index)] = PartitionProducerState(
                [
                    ProducerState(
                        producer.producer_id,
                        producer.producer_epoch,
                        producer.last_sequence,
                        producer.last_timestamp,
                        producer.coordinator_epoch,
                        producer.current_txn_start_offset,
                    )
                    for producer in each.active_producers
                ]
            )
    return found

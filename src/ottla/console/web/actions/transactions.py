"""End a transaction, whoever began it: by its id, or on one partition where it hangs (KIP-664)."""

from __future__ import annotations

from ottla.client.admin import AbortTransactionSpec, ProducerState
from ottla.client.structs import TopicPartition

from ...access.permissions import Permission
from ...picture import TransactionPicture
from ..acting import Action, Asking, Outcome, Preview
from ..formats import count, duration, now_ms
from ..forms import FormError


class EndTransaction(Action):
    name = "end-transaction"

    def authorize(self, asking: Asking) -> None:
        """It may hold partitions of any topic by the time it ends."""
        asking.require(Permission.CHANGE)

    def target(self, asking: Asking) -> str:
        return asking.fields.one("id")

    def back(self, asking: Asking) -> str:
        return f"{asking.base}/transactions"

    def word(self, asking: Asking) -> str:
        return self.target(asking)

    def found(self, asking: Asking) -> TransactionPicture:
        for each in asking.picture.transactions:
            if each.transactional_id == self.target(asking):
                return each
        raise FormError(f"id: no transaction of {self.target(asking)!r} is open now")

    def plan(self, asking: Asking) -> Preview:
        found = self.found(asking)
        age = None if found.started_ms is None else now_ms() - found.started_ms
        return Preview(
            f"End the transaction of {found.transactional_id}",
            "End transaction",
            [
                "What it wrote is aborted: readers of committed records will not see it.",
                "Its producer is fenced, as by another one of the same id: its next call fails.",
            ],
            [],
            ("Of the transaction", "Value"),
            [
                ("state", found.state),
                ("producer id", found.producer_id),
                ("open for", duration(age)),
                *((f"{topic}-{partition}", "") for topic, partition in found.partitions),
            ],
            {"id": found.transactional_id},
            self.word(asking),
        )

    def do(self, asking: Asking) -> Outcome:
        name = self.found(asking).transactional_id
        asking.admin.force_terminate_transaction(name)
        return Outcome(f"The transaction of {name} was ended.")


class AbortTransaction(Action):
    """Writes the marker of an abort into one partition."""

    name = "abort-transaction"

    def authorize(self, asking: Asking) -> None:
        asking.require(Permission.CHANGE, asking.fields.one("topic"))

    def target(self, asking: Asking) -> str:
        return f"{asking.fields.one('topic')}-{asking.fields.one('partition')}"

    def back(self, asking: Asking) -> str:
        return f"{asking.base}/transactions"

    def word(self, asking: Asking) -> str:
        return self.target(asking)

    def found(self, asking: Asking) -> tuple[TopicPartition, ProducerState]:
        partition, producer = asking.fields.number("partition"), asking.fields.number("producer")
        if partition is None or producer is None:
            raise FormError("partition, producer: both must be given")
        at = TopicPartition(asking.fields.one("topic"), partition)
        for each in asking.admin.describe_producers([at])[at].active_producers:
            if each.producer_id == producer and each.current_transaction_start_offset >= 0:
                return at, each
        raise FormError(f"producer: {producer} has no transaction open in {at.topic}-{partition}")

    def plan(self, asking: Asking) -> Preview:
        at, producer = self.found(asking)
        known = [
            each.transactional_id
            for each in asking.cluster.picture.transactions
            if each.producer_id == producer.producer_id
        ]
        return Preview(
            f"Abort the transaction of producer {producer.producer_id} in {self.target(asking)}",
            "Abort",
            ["What it wrote there is aborted, and readers of committed records go on."],
            [f"{known[0]} has it open: end that, or it may be committed elsewhere, aborted here."]
            if known
            else [],
            ("Of the transaction", "Value"),
            [
                ("partition", self.target(asking)),
                ("producer id", producer.producer_id),
                ("producer epoch", producer.producer_epoch),
                ("open since offset", count(producer.current_transaction_start_offset)),
            ],
            {"topic": at.topic, "partition": at.partition, "producer": producer.producer_id},
            self.word(asking),
        )

    def do(self, asking: Asking) -> Outcome:
        at, producer = self.found(asking)
        asking.admin.abort_transaction(
            AbortTransactionSpec(
                at, producer.producer_id, producer.producer_epoch, producer.coordinator_epoch
            )
        )
        return Outcome(
            f"The transaction in {self.target(asking)} was aborted.",
            detail=f"producer {producer.producer_id}, epoch {producer.producer_epoch}",
        )


ACTIONS: tuple[Action, ...] = (EndTransaction(), AbortTransaction())

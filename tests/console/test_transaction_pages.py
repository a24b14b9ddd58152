"""Transactions: open ones, those that hang, and their end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ottla.client.admin import AbortTransactionSpec, PartitionProducerState, ProducerState
from ottla.client.structs import TopicPartition
from ottla.console.access.permissions import Grant, Principal, Role
from ottla.console.web.pages.transactions import SLACK_MS, overdue

from .pictures import HOSTILE, TAKEN_MS, browser, hostile_picture, picture
from .recording import RecordingAdmin

OPERATOR = Principal("olga", (Grant(Role.OPERATOR),))


def producers(asked: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionProducerState]:
    """Of partition 1: one that is open and known (1000), one that hangs (7), one that rests."""
    found = {
        1: [
            ProducerState(1000, 3, 9, TAKEN_MS, 0, 500),
            ProducerState(7, 2, 4, TAKEN_MS, 5, 123),
            ProducerState(8, 0, 1, TAKEN_MS, 0, -1),
        ]
    }
    return {each: PartitionProducerState(found.get(each.partition, [])) for each in asked}


def test_open_transactions_are_listed() -> None:
    """With state, age, producer and partitions; one that is open for too long is marked."""
    answer = browser(picture()).get("/c/main/transactions")
    assert answer.status_code == 200
    for text in ("payments-1", "Ongoing", "1000", "topic-0000", "1 open, 1 for too long"):
        assert text in answer.text
    [transaction] = picture().transactions
    assert transaction.started_ms is not None
    end = transaction.started_ms + (transaction.timeout_ms or 0) + SLACK_MS
    assert not overdue(transaction, end)
    assert overdue(transaction, end + 1)
    assert not overdue(replace(transaction, started_ms=None), end + 1)


def test_hanging_ones_are_found_in_partitions() -> None:
    """Open in a partition and known to no coordinator: only that one is said to hang."""
    admin = RecordingAdmin(describe_producers=producers)
    shown = picture(topics=1)
    text = browser(shown, admin).get("/c/main/transactions?find=1").text
    assert 'producer=7"' in text
    assert 'producer=1000"' not in text
    assert 'producer=8"' not in text


def test_a_transaction_is_ended_by_its_id() -> None:
    """After a preview, by its id typed; its producer is fenced."""
    admin = RecordingAdmin(force_terminate_transaction=None)
    pages = browser(picture(), admin)
    preview = pages.get("/c/main/end-transaction?id=payments-1")
    assert "is aborted" in preview.text
    assert not admin.changes()
    fields = {"id": "payments-1", "step": "do"}
    assert pages.submit("/c/main/end-transaction", fields).status_code == 422
    done = pages.submit("/c/main/end-transaction", {**fields, "confirm": "payments-1"})
    assert "was ended" in done.text
    assert admin.changes() == [("force_terminate_transaction", ("payments-1",), {})]


def test_a_hanging_transaction_is_aborted_on_its_partition() -> None:
    """With the epochs that the leader knows; one that a coordinator knows is warned about."""
    admin = RecordingAdmin(describe_producers=producers, abort_transaction=None)
    pages = browser(picture(), admin)
    address = "/c/main/abort-transaction"
    fields = {"topic": "topic-0000", "partition": "1", "producer": "7"}
    assert "has it open: end that" not in pages.get(address, params=fields).text
    assert "has it open: end that" in pages.get(address, params={**fields, "producer": "1000"}).text
    assert "no transaction open" in pages.get(address, params={**fields, "producer": "8"}).text
    done = pages.submit(address, {**fields, "step": "do", "confirm": "topic-0000-1"})
    assert "was aborted" in done.text
    spec = AbortTransactionSpec(TopicPartition("topic-0000", 1), 7, 2, 5)
    assert ("abort_transaction", (spec,), {}) in admin.calls


def test_an_operator_may_not_end_transactions() -> None:
    """Records would be lost: that needs an admin of the topics."""
    pages = browser(picture(), RecordingAdmin(), principal=OPERATOR)
    assert pages.get("/c/main/end-transaction?id=payments-1").status_code == 403
    asked = "/c/main/abort-transaction?topic=topic-0000&partition=1&producer=7"
    assert pages.get(asked).status_code == 403
    assert "end-transaction" not in pages.get("/c/main/transactions").text


def test_hostile_names_stay_text() -> None:
    """A transactional id is no markup."""
    assert HOSTILE not in browser(hostile_picture()).get("/c/main/transactions").text

"""Errors found in the background: raised by the next poll, unless the caller has answered them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla import Consumer, TopicPartition
from ottla.client import errors
from ottla.client.consumer import pending_errors
from ottla.client.consumer.pending_errors import PendingErrors
from ottla.client.consumer.subscription import Subscription
from tests.client.reading import read_values
from tests.client.scripted_log import TOPIC, ScriptedLog

FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
WAIT_S = 60
FOUND = errors.NoOffsetForPartitionError("no position")


@pytest.fixture
def broker() -> Iterator[ScriptedLog]:
    with ScriptedLog([(1, b"a"), (1, b"b")], leader_epoch=1) as made:
        yield made


@pytest.fixture
def failed(broker: ScriptedLog) -> Iterator[Consumer]:
    """A consumer whose background thread has found that its partition has no position."""
    with Consumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="none", enable_auto_commit=False
    ) as consumer:
        seen = consumer._signal.count
        consumer.assign([FIRST])
        while not len(consumer._errors):
            consumer._signal.wait(seen, WAIT_S)
            seen = consumer._signal.count
        yield consumer


def test_a_seek_before_the_first_poll_answers_a_missing_position(failed: Consumer) -> None:
    """The position was missing before the caller said where to begin: that is not raised."""
    failed.seek_to_beginning()
    assert read_values(failed, 2, wait_s=WAIT_S) == [b"a", b"b"]
    failed.seek(FIRST, 1)
    assert read_values(failed, 1, wait_s=WAIT_S) == [b"b"]


def test_a_missing_position_is_raised_by_every_poll_until_a_seek(failed: Consumer) -> None:
    """As Kafka's consumer does; a caller that polls on never waits for nothing."""
    for _ in range(3):
        with pytest.raises(errors.NoOffsetForPartitionError):
            failed.poll(WAIT_S * 1000)


def test_a_paused_partition_raises_when_it_is_resumed(failed: Consumer) -> None:
    """Nothing of it is wanted while it is paused, its errors neither."""
    failed.pause(FIRST)
    assert failed.poll(0) == {}
    failed.resume(FIRST)
    with pytest.raises(errors.NoOffsetForPartitionError):
        failed.poll(WAIT_S * 1000)


@pytest.mark.parametrize("group", [None, "g"])
@pytest.mark.parametrize("policy", ["none", "latest"])
@pytest.mark.parametrize("place", [1, "beginning"])
def test_a_seek_while_the_background_looks_for_positions_stays(
    broker: ScriptedLog, policy: str, group: str | None, place: int | str
) -> None:
    """A seek between the look at a partition and the question about it is neither overwritten by
    the answer nor followed by an error."""
    with Consumer(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset=policy,
        group_id=group,
        enable_auto_commit=False,
    ) as consumer:
        metadata = consumer._client.metadata
        awaited = metadata.awaited
        sought: list[object] = []

        def seek_first(topic: str) -> bool:
            if not sought and not awaited(topic):
                sought.append(place)
                if isinstance(place, int):
                    consumer.seek(FIRST, place)
                else:
                    consumer.seek_to_beginning(FIRST)
                return False
            return awaited(topic)

        metadata.awaited = seek_first  # type: ignore[method-assign]
        consumer.assign([FIRST])
        expected = [b"b"] if place == 1 else [b"a", b"b"]
        assert read_values(consumer, len(expected), wait_s=WAIT_S) == expected
        assert sought


def errors_of(*partitions: TopicPartition) -> tuple[Subscription, PendingErrors]:
    subscription = Subscription()
    subscription.assign_by_user(partitions)
    return subscription, PendingErrors(subscription)


def test_an_assignment_without_the_partition_answers_its_error() -> None:
    """Also if the partition comes back later: its state is another then."""
    subscription, pending = errors_of(FIRST, SECOND)
    pending.add(FOUND, [subscription.states[FIRST]])
    subscription.assign_by_user([SECOND])
    subscription.assign_by_user([FIRST, SECOND])
    assert pending.take() is None
    assert len(pending) == 0


def test_an_error_about_several_partitions_holds_while_one_of_them_is_unchanged() -> None:
    """The other one was sought elsewhere, which does not help the first."""
    subscription, pending = errors_of(FIRST, SECOND)
    pending.add(FOUND, subscription.states.values())
    subscription.states[FIRST].move(3)
    assert pending.take() is FOUND
    pending.add(FOUND, subscription.states.values())
    for state in subscription.states.values():
        state.move(5)
    assert pending.take() is None


def test_an_error_about_no_partition_is_always_raised() -> None:
    """It is about the client: nothing the caller does with partitions answers it."""
    subscription, pending = errors_of(FIRST)
    pending.add(FOUND)
    subscription.forget()
    assert pending.take() is FOUND
    assert pending.take() is None


def test_the_same_error_again_replaces_the_one_before() -> None:
    """A partition that fails every second holds one error, however long nobody polls."""
    subscription, pending = errors_of(FIRST)
    for _ in range(50):
        latest = errors.NoOffsetForPartitionError("again")
        pending.add(latest, subscription.states.values())
    assert len(pending) == 1
    assert pending.take() is latest


def test_answered_errors_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that assigns for ever without a poll does not fill the memory."""
    monkeypatch.setattr(pending_errors, "PENDING_BEFORE_CLEANUP", 10)
    subscription, pending = errors_of(FIRST)
    for number in range(100):
        partition = TopicPartition(TOPIC, number)
        subscription.assign_by_user([partition])
        pending.add(FOUND, subscription.states.values())
    assert len(pending) <= 10

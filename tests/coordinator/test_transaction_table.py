"""What every event does in every state of a transaction, written out: Kafka 4.3's answers."""

from __future__ import annotations

import pytest

from ottla.coordinator.effects import Producer
from ottla.coordinator.transaction import EPOCH_MAX, Transaction, TransactionState
from ottla.coordinator.transaction_shard import TransactionRules, TransactionShard
from ottla.coordinator.transaction_steps import NEEDS_PRODUCER_ID, complete, end, fence
from ottla.wire.errors import ErrorCode
from tests.coordinator.transaction_harness import NAME, NONE, PARTITIONS, TransactionHarness

MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
FENCED = ErrorCode.PRODUCER_FENCED
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
STATE = ErrorCode.INVALID_TXN_STATE
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE

A, B, C = PARTITIONS
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


def world_in(state: str, version: int) -> tuple[TransactionHarness, Producer]:
    """A harness whose transaction is in this state, and the producer's id and epoch as it knows
    them: the epoch before the bump while an end is under way, the one after it later.
    """
    harness = TransactionHarness()
    harness.begin()
    producer = harness.begin()
    if state == "Empty":
        return harness, producer
    assert harness.now(harness.add(producer, A, version=version)) is NONE
    if state == "Ongoing":
        return harness, producer
    commit = state.endswith("Commit")
    granted = harness.now(harness.end(producer, commit, version))
    assert granted.error_code is NONE
    assert harness.state.state.text == ("PrepareCommit" if commit else "PrepareAbort")
    if state.startswith("Complete"):
        harness.settle()
        producer = Producer(granted.producer_id, granted.producer_epoch)
    assert harness.state.state.text == state
    return harness, producer


def outcome(harness: TransactionHarness, answer: object) -> tuple[object, str]:
    """An answer's error, and the state it led to."""
    return getattr(answer, "error_code", answer), harness.state.state.text


# state -> (commit, abort) by a classic client with the right id and epoch
CLASSIC_ENDS = {
    "Empty": ((STATE, "Empty"), (STATE, "Empty")),
    "Ongoing": ((NONE, "PrepareCommit"), (NONE, "PrepareAbort")),
    "PrepareCommit": ((BUSY, "PrepareCommit"), (BUSY, "PrepareCommit")),
    "PrepareAbort": ((BUSY, "PrepareAbort"), (BUSY, "PrepareAbort")),
    "CompleteCommit": ((NONE, "CompleteCommit"), (STATE, "CompleteCommit")),
    "CompleteAbort": ((STATE, "CompleteAbort"), (NONE, "CompleteAbort")),
}
# The same by a client whose epoch is bumped: with the present epoch, and with the one before.
BUMPING_ENDS = {
    "Empty": ((STATE, "Empty"), (NONE, "PrepareAbort"), (FENCED, "Empty"), (FENCED, "Empty")),
    "Ongoing": (
        (NONE, "PrepareCommit"),
        (NONE, "PrepareAbort"),
        (FENCED, "Ongoing"),
        (FENCED, "Ongoing"),
    ),
    "PrepareCommit": ((BUSY, "PrepareCommit"),) * 4,
    "PrepareAbort": ((BUSY, "PrepareAbort"),) * 4,
    "CompleteCommit": (
        (STATE, "CompleteCommit"),
        (NONE, "PrepareAbort"),
        (NONE, "CompleteCommit"),
        (STATE, "CompleteCommit"),
    ),
    "CompleteAbort": (
        (STATE, "CompleteAbort"),
        (NONE, "PrepareAbort"),
        (STATE, "CompleteAbort"),
        (NONE, "CompleteAbort"),
    ),
}


@pytest.mark.parametrize("state", STATES)
def test_ends_of_a_classic_client(state: str) -> None:
    """EndTxn below version 5."""
    for number, commit in enumerate((True, False)):
        harness, producer = world_in(state, 0)
        answer = harness.now(harness.end(producer, commit, 0))
        assert outcome(harness, answer) == CLASSIC_ENDS[state][number], commit
        assert harness.state.producer == producer


@pytest.mark.parametrize("state", STATES)
def test_ends_of_a_client_whose_epoch_is_bumped(state: str) -> None:
    """EndTxn version 5 (KIP-890)."""
    for number, (back, commit) in enumerate([(0, True), (0, False), (1, True), (1, False)]):
        harness, producer = world_in(state, 2)
        epoch = harness.state.producer_epoch
        asking = Producer(producer.producer_id, producer.producer_epoch - back)
        granted = harness.now(harness.end(asking, commit, 2))
        assert outcome(harness, granted) == BUMPING_ENDS[state][number], (back, commit)
        if granted.error_code is NONE:
            # The response to an end, or to its retry, has the next epoch.
            assert granted.producer_epoch == harness.state.producer_epoch
            assert harness.state.producer_epoch == epoch + (back == 0)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("version", [0, 2])
def test_ends_by_others(state: str, version: int) -> None:
    """Another id, a future epoch, an unknown transactional id."""
    harness, _ = world_in(state, version)
    known = harness.state.producer
    busy = state.startswith("Prepare") and version == 2
    other = Producer(known.producer_id + 5000, known.producer_epoch)
    assert harness.now(harness.end(other, True, version)).error_code == (BUSY if busy else MAPPING)
    future = Producer(known.producer_id, known.producer_epoch + 1)
    assert harness.now(harness.end(future, True, version)).error_code == (BUSY if busy else FENCED)
    unknown = harness.now(harness.ask("end", "unknown", known, True, version))
    assert unknown.error_code is MAPPING
    assert harness.state.state.text == state


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("version", [0, 2])
def test_partitions_are_added(state: str, version: int) -> None:
    """A transaction begins with its first partition; while one ends nothing can begin."""
    harness, _ = world_in(state, version)
    before = harness.state
    answer = harness.now(harness.add(before.producer, B, version=version))
    if state.startswith("Prepare"):
        assert (answer, harness.state) == (BUSY, before)
        other = Producer(before.producer_id + 5000, 0)
        assert harness.now(harness.add(other, B)) is BUSY
        return
    assert answer is NONE
    assert harness.state.state is TransactionState.ONGOING
    assert harness.state.partitions == ({A, B} if state == "Ongoing" else {B})
    assert harness.state.client_version == version
    other = Producer(before.producer_id + 5000, before.producer_epoch)
    assert harness.now(harness.add(other, C)) is MAPPING
    for epoch in (before.producer_epoch - 1, before.producer_epoch + 1):
        assert harness.now(harness.add(Producer(before.producer_id, epoch), C)) is FENCED
    assert C not in harness.state.partitions


@pytest.mark.parametrize("state", STATES)
def test_partitions_are_verified(state: str) -> None:
    """KIP-890, part 1: is it part of the transaction that is open now?"""
    harness, _ = world_in(state, 0)
    known = harness.state.producer
    expected = {A: ABORTABLE, B: ABORTABLE}
    if state == "Ongoing":
        expected = {A: NONE, B: ABORTABLE}
    elif state.startswith("Prepare"):
        expected = {A: BUSY, B: BUSY}
    asked = frozenset({A, B})
    assert harness.shard.verify_partitions(NAME, known, asked) == expected
    other = Producer(known.producer_id + 5000, known.producer_epoch)
    assert set(harness.shard.verify_partitions(NAME, other, asked).values()) == {MAPPING}
    old = Producer(known.producer_id, known.producer_epoch - 1)
    assert set(harness.shard.verify_partitions(NAME, old, asked).values()) == {FENCED}
    assert set(harness.shard.verify_partitions("unknown", known, asked).values()) == {MAPPING}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("server_version", [0, 1, 2])
def test_a_new_producer_takes_over(state: str, server_version: int) -> None:
    """An open transaction is aborted under an epoch of its own; the producer gets the next."""
    harness, _ = world_in(state, 0)
    harness.shard.version = server_version
    before = harness.state
    granted = harness.now(harness.init())
    if state.startswith("Prepare"):
        assert (granted.error_code, harness.state) == (BUSY, before)
        return
    if state == "Ongoing":
        assert granted.error_code is BUSY
        assert harness.state.state is TransactionState.PREPARE_ABORT
        assert harness.state.producer_epoch == before.producer_epoch + 1
        harness.settle()
        granted = harness.now(harness.init())
        before = harness.state if granted.error_code else before
        assert granted.producer_epoch == before.producer_epoch + 2
    else:
        assert granted.producer_epoch == before.producer_epoch + 1
    assert granted.error_code is NONE
    assert granted.producer_id == before.producer_id
    assert harness.state.state is TransactionState.EMPTY
    assert not harness.state.partitions
    assert harness.state.start_timestamp_ms == -1


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_only_who_still_has_it_may_go_on(state: str) -> None:
    """KIP-360: a retry is answered as before, every other producer is fenced."""
    harness, producer = world_in(state, 0)
    granted = harness.now(harness.init(producer))
    assert granted == (NONE, producer.producer_id, producer.producer_epoch + 1)
    assert harness.now(harness.init(producer)) == granted, "a lost answer, asked for again"
    behind = Producer(producer.producer_id, producer.producer_epoch - 1)
    ahead = Producer(producer.producer_id, producer.producer_epoch + 5)
    other = Producer(producer.producer_id + 5000, producer.producer_epoch)
    for each in (behind, ahead, other):
        assert harness.now(harness.init(each)).error_code is FENCED
    harness.begin()
    assert harness.now(harness.init(producer)).error_code is FENCED, "another producer came between"


def test_a_forgotten_name_begins_anew() -> None:
    """A producer whose name has expired gets a new id, whatever it says it was."""
    harness = TransactionHarness()
    granted = harness.now(harness.init(Producer(77, 5)))
    assert granted.error_code is NONE
    assert granted.producer_id != 77
    assert granted.producer_epoch == 0


def exhausted(harness: TransactionHarness, epoch: int = EPOCH_MAX - 1) -> Producer:
    """Bring the name to its last epoch, as many transactions would."""
    producer = Producer(harness.begin().producer_id, epoch)
    stored = harness.shard.transactions[NAME]
    changed = Transaction(
        **{f: getattr(stored, f) for f in stored.__slots__} | {"producer_epoch": epoch}
    )
    harness.log.append(changed.record())
    harness.fail_over()
    return producer


def test_the_last_epoch_is_never_handed_out() -> None:
    """InitProducerId goes on with a new id and epoch 0; a retry gets the same (KIP-360)."""
    harness = TransactionHarness()
    producer = exhausted(harness)
    granted = harness.now(harness.init(producer))
    assert granted.error_code is NONE
    assert granted.producer_id != producer.producer_id
    assert granted.producer_epoch == 0
    assert harness.now(harness.init(producer)) == granted
    again = harness.now(harness.init(Producer(granted.producer_id, 0)))
    assert again == (NONE, granted.producer_id, 1)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_at_the_last_epoch_changes_the_id(commit: bool) -> None:
    """KIP-890: markers bear the very last epoch; the producer goes on with a new id at 0."""
    harness = TransactionHarness()
    producer = exhausted(harness)
    assert harness.now(harness.add(producer, A, version=2)) is NONE
    granted = harness.now(harness.end(producer, commit, 2))
    assert granted.error_code is NONE
    assert (granted.producer_id != producer.producer_id, granted.producer_epoch) == (True, 0)
    [(markers, _)] = harness.marker_queue
    assert markers.producer == (producer.producer_id, EPOCH_MAX)
    harness.settle()
    assert harness.state.producer == (granted.producer_id, 0)
    assert harness.now(harness.end(producer, commit, 2)) == granted, "a retry"
    assert harness.now(harness.end(producer, not commit, 2)).error_code is STATE
    next_one = Producer(granted.producer_id, 0)
    assert harness.now(harness.add(next_one, B, version=2)) is NONE
    assert harness.now(harness.end(producer, commit, 2)).error_code is MAPPING


def test_taking_over_at_the_last_epoch() -> None:
    """The fencing epoch is the very last one, and the new producer has a new id."""
    for version in (0, 2):
        harness = TransactionHarness(version)
        producer = exhausted(harness)
        assert harness.now(harness.add(producer, A)) is NONE
        fresh = harness.begin()
        assert fresh.producer_id != producer.producer_id
        assert harness.now(harness.add(producer, A)) is MAPPING


def test_without_a_producer_id_nothing_is_decided() -> None:
    """The result says that an id is needed; the caller gets some and calls again."""
    harness = TransactionHarness()
    shard = TransactionShard(TransactionRules(), harness.queue, lambda: None)
    harness.shard = shard
    assert harness.now(harness.init()) is NEEDS_PRODUCER_ID
    assert not harness.log
    assert not shard.transactions


def test_an_end_without_a_producer_id_changes_nothing() -> None:
    """An exhausted epoch needs a new id for the end: without one the transaction stays open."""
    harness = TransactionHarness()
    producer = exhausted(harness)
    assert harness.now(harness.add(producer, A, version=2)) is NONE
    ids, harness.ids = harness.ids, iter(())
    harness.shard._take_producer_id = lambda: next(harness.ids, None)
    written = len(harness.log)
    assert harness.now(harness.end(producer, True, version=2)) is NEEDS_PRODUCER_ID
    assert harness.state.state.text == "Ongoing"
    assert len(harness.log) == written
    harness.ids = ids
    assert harness.now(harness.end(producer, True, version=2)).error_code is NONE


def test_open_for_too_long_is_aborted() -> None:
    """After transaction.timeout.ms the producer is fenced and what it wrote is dropped."""
    harness = TransactionHarness()
    producer = harness.begin()
    assert harness.produce(producer, A, 1, 2) is NONE
    harness.tick(60_000)
    assert harness.state.state.text == "Ongoing"
    harness.tick(2)
    assert harness.state.state.text == "PrepareAbort"
    assert harness.now(harness.end(producer, True, 0)).error_code is FENCED
    harness.settle()
    assert [write.committed for write in harness.partitions[A].writes] == [False]
    assert harness.produce(producer, A, 1, 2) is FENCED or harness.partitions[A].open == {}
    # A client of KIP-890 that was only slow may recover with what it had.
    assert harness.now(harness.init(producer)).error_code is NONE


def test_unused_names_expire() -> None:
    """transactional.id.expiration.ms after its last use, unless something is open."""
    harness = TransactionHarness(rules=TransactionRules(expiration_ms=1000))
    producer = harness.begin()
    harness.tick(999)
    assert NAME in harness.shard.transactions
    assert harness.now(harness.add(producer, A)) is NONE
    harness.tick(5000)
    assert NAME in harness.shard.transactions
    assert harness.now(harness.end(producer, True, 0)).error_code is NONE
    harness.settle()
    harness.tick(1000)
    assert NAME not in harness.shard.transactions
    assert harness.log[-1].value is None
    assert harness.now(harness.end(producer, True, 0)).error_code is MAPPING


def test_many_expire_in_several_turns() -> None:
    """One turn of the timer writes a bounded amount."""
    harness = TransactionHarness(rules=TransactionRules(expiration_ms=1000))
    for number in range(6000):
        harness.ask("init_producer", f"name-{number}" + "x" * 50, 60_000, None)
    harness.commit()
    harness.tick(1000)
    left = len(harness.shard.transactions)
    assert 0 < left < 6000
    while harness.shard.transactions:
        harness.tick(1)
        assert len(harness.shard.transactions) < left
        left = len(harness.shard.transactions)


def test_a_step_leaves_the_transaction_as_it_was() -> None:
    """Replaying its record is the only way a transaction changes."""
    open_one = Transaction("id", 1, 3, state=TransactionState.ONGOING, partitions=frozenset({A}))
    prepared = fence(open_one, 2, 7, 5)
    assert open_one.producer_epoch == 3
    assert prepared.producer_epoch == 4
    done = complete(prepared, 6)
    assert (prepared.state.text, done.state.text) == ("PrepareAbort", "CompleteAbort")
    assert end(done, Producer(1, 3), False, 2, 7, 7) is NONE

"""What every event does in every state of a transaction, written out: Kafka 4.3's answers."""

from __future__ import annotations

import pytest

from ottla.coordinator.effects import Producer
from ottla.coordinator.transaction import EPOCH_MAX, Transaction, TransactionState
from ottla.coordinator.transaction_steps import NeedsProducerId, complete, end, fence
from ottla.coordinator.transactions import TransactionRules, TransactionShard
from ottla.wire.errors import ErrorCode
from tests.coordinator.transaction_world import NAME, NONE, PARTITIONS, World

MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
FENCED = ErrorCode.PRODUCER_FENCED
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
STATE = ErrorCode.INVALID_TXN_STATE
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE

A, B, C = PARTITIONS
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


def world_in(state: str, version: int) -> tuple[World, Producer]:
    """A world whose transaction is in this state, and the producer's id and epoch as it knows
    them: the epoch before the bump while an end is under way, the one after it later.
    """
    world = World()
    world.begin()
    producer = world.begin()
    if state == "Empty":
        return world, producer
    assert world.now(world.add(producer, A, version=version)) is NONE
    if state == "Ongoing":
        return world, producer
    commit = state.endswith("Commit")
    granted = world.now(world.end(producer, commit, version))
    assert granted.error_code is NONE
    assert world.state.state.text == ("PrepareCommit" if commit else "PrepareAbort")
    if state.startswith("Complete"):
        world.settle()
        producer = Producer(granted.producer_id, granted.producer_epoch)
    assert world.state.state.text == state
    return world, producer


def outcome(world: World, answer: object) -> tuple[object, str]:
    """An answer's error, and the state it led to."""
    return getattr(answer, "error_code", answer), world.state.state.text


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
        world, producer = world_in(state, 0)
        answer = world.now(world.end(producer, commit, 0))
        assert outcome(world, answer) == CLASSIC_ENDS[state][number], commit
        assert world.state.producer == producer


@pytest.mark.parametrize("state", STATES)
def test_ends_of_a_client_whose_epoch_is_bumped(state: str) -> None:
    """EndTxn version 5 (KIP-890)."""
    for number, (back, commit) in enumerate([(0, True), (0, False), (1, True), (1, False)]):
        world, producer = world_in(state, 2)
        epoch = world.state.producer_epoch
        asking = Producer(producer.producer_id, producer.producer_epoch - back)
        granted = world.now(world.end(asking, commit, 2))
        assert outcome(world, granted) == BUMPING_ENDS[state][number], (back, commit)
        if granted.error_code is NONE:
            # Whoever ends, or asks again, is told how to go on.
            assert granted.producer_epoch == world.state.producer_epoch
            assert world.state.producer_epoch == epoch + (back == 0)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("version", [0, 2])
def test_ends_by_others(state: str, version: int) -> None:
    """Another id, a future epoch, a name nobody knows."""
    world, _ = world_in(state, version)
    known = world.state.producer
    busy = state.startswith("Prepare") and version == 2
    other = Producer(known.producer_id + 5000, known.producer_epoch)
    assert world.now(world.end(other, True, version)).error_code == (BUSY if busy else MAPPING)
    future = Producer(known.producer_id, known.producer_epoch + 1)
    assert world.now(world.end(future, True, version)).error_code == (BUSY if busy else FENCED)
    nobody = world.now(world.ask("end", "nobody", known, True, version))
    assert nobody.error_code is MAPPING
    assert world.state.state.text == state


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("version", [0, 2])
def test_partitions_are_added(state: str, version: int) -> None:
    """A transaction begins with its first partition; while one ends nothing can begin."""
    world, _ = world_in(state, version)
    before = world.state
    answer = world.now(world.add(before.producer, B, version=version))
    if state.startswith("Prepare"):
        assert (answer, world.state) == (BUSY, before)
        other = Producer(before.producer_id + 5000, 0)
        assert world.now(world.add(other, B)) is BUSY
        return
    assert answer is NONE
    assert world.state.state is TransactionState.ONGOING
    assert world.state.partitions == ({A, B} if state == "Ongoing" else {B})
    assert world.state.client_version == version
    other = Producer(before.producer_id + 5000, before.producer_epoch)
    assert world.now(world.add(other, C)) is MAPPING
    for epoch in (before.producer_epoch - 1, before.producer_epoch + 1):
        assert world.now(world.add(Producer(before.producer_id, epoch), C)) is FENCED
    assert C not in world.state.partitions


@pytest.mark.parametrize("state", STATES)
def test_partitions_are_verified(state: str) -> None:
    """KIP-890, part 1: is it part of the transaction that is open now?"""
    world, _ = world_in(state, 0)
    known = world.state.producer
    expected = {A: ABORTABLE, B: ABORTABLE}
    if state == "Ongoing":
        expected = {A: NONE, B: ABORTABLE}
    elif state.startswith("Prepare"):
        expected = {A: BUSY, B: BUSY}
    asked = frozenset({A, B})
    assert world.shard.verify_partitions(NAME, known, asked) == expected
    other = Producer(known.producer_id + 5000, known.producer_epoch)
    assert set(world.shard.verify_partitions(NAME, other, asked).values()) == {MAPPING}
    old = Producer(known.producer_id, known.producer_epoch - 1)
    assert set(world.shard.verify_partitions(NAME, old, asked).values()) == {FENCED}
    assert set(world.shard.verify_partitions("nobody", known, asked).values()) == {MAPPING}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("server_version", [0, 1, 2])
def test_a_new_producer_takes_over(state: str, server_version: int) -> None:
    """An open transaction is aborted under an epoch nobody has; the next one is handed out."""
    world, _ = world_in(state, 0)
    world.shard.version = server_version
    before = world.state
    granted = world.now(world.init())
    if state.startswith("Prepare"):
        assert (granted.error_code, world.state) == (BUSY, before)
        return
    if state == "Ongoing":
        assert granted.error_code is BUSY
        assert world.state.state is TransactionState.PREPARE_ABORT
        assert world.state.producer_epoch == before.producer_epoch + 1
        world.settle()
        granted = world.now(world.init())
        before = world.state if granted.error_code else before
        assert granted.producer_epoch == before.producer_epoch + 2
    else:
        assert granted.producer_epoch == before.producer_epoch + 1
    assert granted.error_code is NONE
    assert granted.producer_id == before.producer_id
    assert world.state.state is TransactionState.EMPTY
    assert not world.state.partitions
    assert world.state.start_timestamp_ms == -1


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_only_who_still_has_it_may_go_on(state: str) -> None:
    """KIP-360: a retry is answered as before, everybody else is fenced."""
    world, producer = world_in(state, 0)
    granted = world.now(world.init(producer))
    assert granted == (NONE, producer.producer_id, producer.producer_epoch + 1)
    assert world.now(world.init(producer)) == granted, "a lost answer, asked for again"
    behind = Producer(producer.producer_id, producer.producer_epoch - 1)
    ahead = Producer(producer.producer_id, producer.producer_epoch + 5)
    other = Producer(producer.producer_id + 5000, producer.producer_epoch)
    for each in (behind, ahead, other):
        assert world.now(world.init(each)).error_code is FENCED
    world.begin()
    assert world.now(world.init(producer)).error_code is FENCED, "somebody else came between"


def test_a_forgotten_name_begins_anew() -> None:
    """A producer whose name has expired gets a new id, whatever it says it was."""
    world = World()
    granted = world.now(world.init(Producer(77, 5)))
    assert granted.error_code is NONE
    assert granted.producer_id != 77
    assert granted.producer_epoch == 0


def exhausted(world: World, epoch: int = EPOCH_MAX - 1) -> Producer:
    """Bring the name to its last epoch, as many transactions would."""
    producer = Producer(world.begin().producer_id, epoch)
    stored = world.shard.transactions[NAME]
    changed = Transaction(
        **{f: getattr(stored, f) for f in stored.__slots__} | {"producer_epoch": epoch}
    )
    world.log.append(changed.record())
    world.fail_over()
    return producer


def test_the_last_epoch_is_never_handed_out() -> None:
    """InitProducerId goes on with a new id and epoch 0; a retry gets the same (KIP-360)."""
    world = World()
    producer = exhausted(world)
    granted = world.now(world.init(producer))
    assert granted.error_code is NONE
    assert granted.producer_id != producer.producer_id
    assert granted.producer_epoch == 0
    assert world.now(world.init(producer)) == granted
    again = world.now(world.init(Producer(granted.producer_id, 0)))
    assert again == (NONE, granted.producer_id, 1)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_at_the_last_epoch_changes_the_id(commit: bool) -> None:
    """KIP-890: markers bear the very last epoch; the producer goes on with a new id at 0."""
    world = World()
    producer = exhausted(world)
    assert world.now(world.add(producer, A, version=2)) is NONE
    granted = world.now(world.end(producer, commit, 2))
    assert granted.error_code is NONE
    assert (granted.producer_id != producer.producer_id, granted.producer_epoch) == (True, 0)
    [(markers, _)] = world.outbox
    assert markers.producer == (producer.producer_id, EPOCH_MAX)
    world.settle()
    assert world.state.producer == (granted.producer_id, 0)
    assert world.now(world.end(producer, commit, 2)) == granted, "a retry"
    assert world.now(world.end(producer, not commit, 2)).error_code is STATE
    next_one = Producer(granted.producer_id, 0)
    assert world.now(world.add(next_one, B, version=2)) is NONE
    assert world.now(world.end(producer, commit, 2)).error_code is MAPPING


def test_taking_over_at_the_last_epoch() -> None:
    """The fencing epoch is the very last one, and the new producer has a new id."""
    for version in (0, 2):
        world = World(version)
        producer = exhausted(world)
        assert world.now(world.add(producer, A)) is NONE
        fresh = world.begin()
        assert fresh.producer_id != producer.producer_id
        assert world.now(world.add(producer, A)) is MAPPING


def test_without_a_producer_id_at_hand_nothing_is_done() -> None:
    """The coordinator asks for more ids and is asked again."""

    def none() -> int:
        raise NeedsProducerId

    shard = TransactionShard(TransactionRules(), World(), none)
    world = World()
    world.shard = shard
    with pytest.raises(NeedsProducerId):
        world.init()
    assert not world.log
    assert not shard.transactions


def test_open_for_too_long_is_aborted() -> None:
    """After transaction.timeout.ms the producer is fenced and what it wrote is dropped."""
    world = World()
    producer = world.begin()
    assert world.produce(producer, A, 1, 2) is NONE
    world.tick(60_000)
    assert world.state.state.text == "Ongoing"
    world.tick(2)
    assert world.state.state.text == "PrepareAbort"
    assert world.now(world.end(producer, True, 0)).error_code is FENCED
    world.settle()
    assert [write.committed for write in world.partitions[A].writes] == [False]
    assert world.produce(producer, A, 1, 2) is FENCED or world.partitions[A].open == {}
    # A client of KIP-890 that was only slow may recover with what it had.
    assert world.now(world.init(producer)).error_code is NONE


def test_unused_names_expire() -> None:
    """transactional.id.expiration.ms after its last use, unless something is open."""
    world = World(rules=TransactionRules(expiration_ms=1000))
    producer = world.begin()
    world.tick(999)
    assert NAME in world.shard.transactions
    assert world.now(world.add(producer, A)) is NONE
    world.tick(5000)
    assert NAME in world.shard.transactions
    assert world.now(world.end(producer, True, 0)).error_code is NONE
    world.settle()
    world.tick(1000)
    assert NAME not in world.shard.transactions
    assert world.log[-1].value is None
    assert world.now(world.end(producer, True, 0)).error_code is MAPPING


def test_many_expire_in_several_turns() -> None:
    """One turn of the timer writes a bounded amount."""
    world = World(rules=TransactionRules(expiration_ms=1000))
    for number in range(6000):
        world.ask("init_producer", f"name-{number}" + "x" * 50, 60_000, None)
    world.commit()
    world.tick(1000)
    left = len(world.shard.transactions)
    assert 0 < left < 6000
    while world.shard.transactions:
        world.tick(1)
        assert len(world.shard.transactions) < left
        left = len(world.shard.transactions)


def test_a_step_leaves_the_transaction_as_it_was() -> None:
    """Replaying its record is the only way a transaction changes."""
    open_one = Transaction("id", 1, 3, state=TransactionState.ONGOING, partitions=frozenset({A}))
    prepared = fence(open_one, 2, lambda: 7, 5)
    assert open_one.producer_epoch == 3
    assert prepared.producer_epoch == 4
    done = complete(prepared, 6)
    assert (prepared.state.text, done.state.text) == ("PrepareAbort", "CompleteAbort")
    assert end(done, Producer(1, 3), False, 2, lambda: 7, 7) is NONE

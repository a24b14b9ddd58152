"""Transactions driven through thousands of orders of events, against what must hold in every one.

Several clients share one transactional id, so all but the latest are zombies. Answers get lost and
are asked for again, markers come late, in any order and twice, the coordinator crashes or changes
hands, transactions time out. Each client numbers its transactions and stamps its writes with the
number, so a write that ends up in another transaction, or with another outcome, shows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.coordinator.effects import Producer
from ottla.coordinator.transaction import COMPLETE, EMPTY, ONGOING, PREPARED
from ottla.wire.errors import ErrorCode
from tests import needs
from tests.coordinator.transaction_harness import NONE, PARTITIONS, Place, TransactionHarness

EXAMPLES = needs.rounds(150, 3000)
STEPS = 50
GENERATIONS = st.sampled_from([0, 2])
PLACES = st.sampled_from(PARTITIONS)
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS


@dataclass
class Client:
    """One producer, and what it believes."""

    name: int
    producer: Producer
    version: int
    transaction: int = 0
    # The outcome that it received for each of its transactions: True for committed.
    outcomes: dict[int, bool] = field(default_factory=dict)
    # An EndTxn without a response: (transaction, commit).
    unheard: tuple[int, bool] | None = None
    wrote: bool = False
    dead: bool = False


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.harness = TransactionHarness()
        self.clients: list[Client] = []
        self.epochs: dict[int, int] = {}
        self.replayed = 0

    # ---- events ----------------------------------------------------------------------------------

    @rule(version=GENERATIONS)
    def a_client_begins(self, version: int) -> None:
        """It gets an id and epoch that no producer had, or must retry."""
        granted = self.harness.now(self.harness.init())
        if granted.error_code is BUSY:
            if self.clients:
                self.clients[-1].dead = True  # whatever it had open is being aborted
            return
        assert granted.error_code is NONE
        producer = Producer(granted.producer_id, granted.producer_epoch)
        assert all(client.producer != producer for client in self.clients)
        self.clients.append(Client(len(self.clients), producer, version))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def a_client_goes_on(self, data: st.DataObject) -> None:
        """KIP-360: with what it had. A zombie is refused, and its successor is left alone."""
        client, harness = self.pick(data), self.harness
        harness.commit()
        before = harness.state
        granted = harness.now(harness.init(client.producer))
        if client is not self.clients[-1]:
            assert granted.error_code is not NONE
            assert harness.state == before
        elif granted.error_code is NONE:
            client.producer = Producer(granted.producer_id, granted.producer_epoch)
            client.transaction += 1
            client.unheard, client.wrote, client.dead = None, False, False
        elif harness.state != before or granted.error_code is not BUSY:
            client.dead = True  # what it had open is being aborted, or it is fenced itself

    def pick(self, data: st.DataObject) -> Client:
        return data.draw(st.sampled_from(self.clients[-4:]))

    def is_current(self, client: Client) -> bool:
        return client is self.clients[-1] and not client.dead

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), place=PLACES)
    def write(self, data: st.DataObject, place: Place) -> None:
        """A record, after what a client of its generation does first."""
        client, harness = self.pick(data), self.harness
        if client.unheard is not None:
            return
        if client.version == 0:
            added = harness.now(harness.add(client.producer, place))
            self.check_zombie(client, added)
            if added is not NONE:
                client.dead = client.dead or added is not BUSY
                return
        stamp = (client.name, client.transaction)
        answer = harness.produce(client.producer, place, stamp, client.version)
        self.check_zombie(client, answer)
        if answer is NONE:
            client.wrote = True
        elif answer is not BUSY:
            client.dead = True

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), place=PLACES)
    def a_late_write_arrives(self, data: st.DataObject, place: Place) -> None:
        """A write of the transaction before, that was under way when it ended (KIP-890)."""
        client = self.pick(data)
        if client.version < 2 or not client.transaction:
            return
        old = client.producer._replace(producer_epoch=client.producer.producer_epoch - 1)
        stamp = (client.name, client.transaction - 1)
        # Before the marker has come here, it still is a write of that transaction.
        in_time = self.harness.partitions[place].has_begun(old)
        assert self.harness.produce(old, place, stamp, 2) is not NONE or in_time

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), commit=st.booleans(), lost=st.booleans())
    def end(self, data: st.DataObject, commit: bool, lost: bool) -> None:
        """EndTxn, whose answer may be lost; then it is the same question again."""
        client, harness = self.pick(data), self.harness
        transaction = client.transaction
        if client.unheard is not None:
            transaction, commit = client.unheard
        asked = harness.end(client.producer, commit, client.version)
        if lost:
            client.unheard = (transaction, commit)
            if data.draw(st.booleans(), label="crash before it is committed"):
                harness.crash()
            return
        granted = harness.now(asked)
        self.check_zombie(client, granted.error_code)
        if granted.error_code is BUSY:
            client.unheard = (transaction, commit)
            return
        retried, client.unheard = client.unheard is not None, None
        if granted.error_code is not NONE:
            # Ending what never wrote is refused; a current producer is refused for nothing else.
            if self.is_current(client):
                assert granted.error_code is ErrorCode.INVALID_TXN_STATE, granted
                assert not client.wrote or retried
            client.dead = client.dead or client.wrote
            return
        client.outcomes[transaction] = commit
        client.transaction = transaction + 1
        client.wrote = False
        if client.version >= 2:
            client.producer = Producer(granted.producer_id, granted.producer_epoch)

    @precondition(lambda self: self.clients and self.clients[-1].wrote)
    @rule(commit=st.booleans(), fails_over=st.booleans())
    def end_and_ask_again(self, commit: bool, fails_over: bool) -> None:
        """An answer that was lost is given again, also by the coordinator that comes after."""
        client, harness = self.clients[-1], self.harness
        if client.dead or client.unheard is not None:
            return
        first = harness.now(harness.end(client.producer, commit, client.version))
        if fails_over:
            harness.fail_over()
        assert first.error_code is NONE, (client, first)
        assert harness.now(harness.end(client.producer, commit, client.version)).error_code is BUSY
        harness.settle()
        if fails_over:
            harness.fail_over()
        again = harness.now(harness.end(client.producer, commit, client.version))
        assert again == first
        other = harness.now(harness.end(client.producer, not commit, client.version))
        assert other.error_code is ErrorCode.INVALID_TXN_STATE
        client.outcomes[client.transaction] = commit
        client.transaction += 1
        client.wrote = False
        client.producer = Producer(again.producer_id, again.producer_epoch)

    def check_zombie(self, client: Client, answer: object) -> None:
        """A producer that is not the latest is fenced."""
        if client is not self.clients[-1]:
            assert answer is not NONE, f"{client} is a zombie"

    @precondition(lambda self: self.harness.marker_queue)
    @rule(data=st.data(), twice=st.booleans())
    def a_marker_arrives(self, data: st.DataObject, twice: bool) -> None:
        number = data.draw(st.integers(0, len(self.harness.marker_queue) - 1))
        left = sorted(self.harness.marker_queue[number][1])
        place = data.draw(st.sampled_from(left)) if left else None
        self.harness.deliver(number, place, twice=twice)

    @rule()
    def markers_arrive(self) -> None:
        self.harness.settle()

    @rule()
    def the_coordinator_crashes(self) -> None:
        self.harness.crash()

    @rule()
    def another_takes_over(self) -> None:
        self.harness.fail_over()

    @rule()
    def time_passes(self) -> None:
        """What is open is aborted under its producer's hands."""
        was_open = self.clients and self.harness.state.state is ONGOING
        self.harness.tick(60_001)
        self.harness.commit()
        if was_open:
            assert self.harness.state.state in PREPARED
            self.clients[-1].dead = True

    # ---- what must hold --------------------------------------------------------------------------

    @invariant()
    def no_epoch_goes_back(self) -> None:
        """Of one producer id; and an id, once left behind, does not come back."""
        if not self.clients:
            return
        state = self.harness.state
        known = self.epochs.get(state.producer_id, -1)
        if self.harness.committed == len(self.harness.log):
            assert state.producer_epoch >= known
            assert state.producer_id >= max(self.epochs, default=-1)
            self.epochs[state.producer_id] = state.producer_epoch

    @invariant()
    def outcomes_are_what_was_answered(self) -> None:
        """A write has the outcome of the transaction it was made in, and no other."""
        for partition in self.harness.partitions.values():
            by_transaction: dict[object, set[bool]] = {}
            for write in partition.writes:
                if write.committed is None:
                    continue
                by_transaction.setdefault(write.transaction, set()).add(write.committed)
                stamp: Any = write.transaction
                answered = self.clients[stamp[0]].outcomes.get(stamp[1])
                assert answered in (None, write.committed), write
            assert all(len(seen) == 1 for seen in by_transaction.values())

    @invariant()
    def what_is_open_is_known(self) -> None:
        """No partition holds an open transaction that the coordinator would never end."""
        if not self.clients or self.harness.committed < len(self.harness.log):
            return
        state = self.harness.state
        for place, partition in self.harness.partitions.items():
            for producer_id, writes in partition.open.items():
                if not writes:
                    continue
                assert producer_id == state.producer_id
                assert place in state.partitions
                assert state.state is ONGOING or state.state in PREPARED

    @invariant()
    def what_is_prepared_is_on_its_way(self) -> None:
        """Or will be, once it is committed."""
        if self.clients and self.harness.state.state in PREPARED:
            sent = [markers.producer for markers, _ in self.harness.marker_queue]
            waiting = any(reply is None for reply, _ in self.harness.waiting)
            assert self.harness.state.producer in sent or waiting

    def teardown(self) -> None:
        """When everything has arrived, everything is decided, and a new producer can begin."""
        self.harness.settle()
        if self.clients:
            state = self.harness.state.state
            assert state is ONGOING or state is EMPTY or state in COMPLETE
        self.harness.begin()
        self.harness.settle()
        for partition in self.harness.partitions.values():
            assert not any(partition.open.values())
            assert all(write.committed is not None for write in partition.writes)


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None
)

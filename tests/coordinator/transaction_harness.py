"""A transaction coordinator without any I/O, and the partitions its producers write to.

`TransactionHarness` does what the runtime, the marker sender and the partition leaders do, on plain
lists: records are appended and replayed at once, committed when the test says so, and replies leave
only then. Markers are queued until they are delivered, lost (retried later) or delivered twice. A
crash loses everything but the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from ottla.coordinator.effects import Effects, Producer, Record
from ottla.coordinator.transaction import Transaction
from ottla.coordinator.transaction_shard import Granted, Markers, TransactionRules, TransactionShard
from ottla.wire.errors import ErrorCode

NAME = "id"
NONE = ErrorCode.NONE
PARTITIONS = (("t", 0), ("t", 1), ("u", 0))
Place = tuple[str, int]


@dataclass
class Write:
    """One record of a producer in a partition's log; `outcome` once a marker has come."""

    producer: Producer
    transaction: object
    committed: bool | None = None


@dataclass
class Partition:
    """A partition's log as far as transactions go: as `log.producers` keeps it."""

    writes: list[Write] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)
    open: dict[int, list[Write]] = field(default_factory=dict)
    coordinator_epoch: int = 0

    def write(self, producer: Producer, transaction: object, verified: bool) -> ErrorCode:
        epoch = self.epochs.get(producer.producer_id, -1)
        if producer.producer_epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        known = self.open.get(producer.producer_id)
        if not known and not verified:
            return ErrorCode.INVALID_TXN_STATE
        self.epochs[producer.producer_id] = producer.producer_epoch
        write = Write(producer, transaction)
        self.writes.append(write)
        self.open.setdefault(producer.producer_id, []).append(write)
        return NONE

    def has_begun(self, producer: Producer) -> bool:
        return bool(self.open.get(producer.producer_id)) and (
            self.epochs[producer.producer_id] == producer.producer_epoch
        )

    def mark(self, markers: Markers) -> None:
        producer = markers.producer
        epoch = self.epochs.get(producer.producer_id, -1)
        if producer.producer_epoch < epoch:
            return
        if markers.client_version >= 2 and self.has_begun(producer):
            return  # late: for the transaction before
        self.epochs[producer.producer_id] = producer.producer_epoch
        for write in self.open.pop(producer.producer_id, []):
            assert write.committed is None
            write.committed = markers.committed


class Asked:
    """A reply that records its response."""

    def __init__(self) -> None:
        self.answer: Any = None

    def resolve(self, response: Any) -> None:
        assert self.answer is None, "answered twice"
        self.answer = response

    fail = resolve


class TransactionHarness:
    """One shard with its log, its producers' partitions and its marker queue."""

    def __init__(self, version: int = 2, rules: TransactionRules | None = None) -> None:
        self.version = version
        self.rules = rules or TransactionRules(expiration_ms=10_000_000)
        self.now_ms = 1_000_000
        self.log: list[Record] = []
        self.committed = 0
        self.ids = count(1000)
        self.partitions = {place: Partition() for place in PARTITIONS}
        self.marker_queue: list[tuple[Markers, set[Place]]] = []
        self.waiting: list[tuple[Any, Any]] = []
        self.shard = self._load()

    # ---- the runtime -----------------------------------------------------------------------------

    def _load(self) -> TransactionShard:
        self.marker_queue = []
        self.waiting = []
        shard = TransactionShard(self.rules, self.queue, lambda: next(self.ids), self.version)
        for offset, record in enumerate(self.log):
            shard.replay(record, None, offset)
        self.shard = shard
        effects = Effects()
        shard.loaded(effects, self.now_ms)
        self.execute(effects)
        return shard

    def execute(self, effects: Effects) -> None:
        for record in effects.records:
            self.shard.replay(record, None, len(self.log))
            self.log.append(record)
        self.waiting += effects.due

    def commit(self) -> None:
        """Everything appended is committed: send the replies, run the actions."""
        self.committed = len(self.log)
        due, self.waiting = self.waiting, []
        for reply, given in due:
            if reply is None:
                given()
            else:
                reply.resolve(given)

    def crash(self) -> None:
        """Lose everything that was not committed, and load the log again."""
        del self.log[self.committed :]
        self._load()

    def fail_over(self) -> None:
        """Another coordinator loads everything that was appended."""
        self.committed = len(self.log)
        self._load()

    # ---- the marker sender -----------------------------------------------------------------------

    def queue(self, markers: Markers) -> None:
        self.marker_queue.append((markers, set(markers.partitions)))

    def deliver(self, number: int, place: Place | None = None, *, twice: bool = False) -> None:
        """Write one marker (or all of its transaction); after the last one it is complete."""
        markers, left = self.marker_queue[number]
        for each in [place] if place else sorted(left):
            if each in left:
                self.partitions[each].mark(markers)
                if twice:
                    self.partitions[each].mark(markers)
                left.discard(each)
        if not left:
            del self.marker_queue[number]
            effects = Effects()
            self.shard.markers_written(markers, effects, self.now_ms)
            self.execute(effects)

    def deliver_all(self) -> None:
        while self.marker_queue:
            self.deliver(0)

    def settle(self) -> None:
        """Deliver every marker."""
        self.commit()
        while self.marker_queue:
            self.deliver_all()
            self.commit()

    # ---- requests --------------------------------------------------------------------------------

    @property
    def state(self) -> Transaction:
        return self.shard.transactions[NAME]

    def ask(self, method: str, *arguments: Any) -> Asked:
        asked = Asked()
        effects = Effects()
        answer = getattr(self.shard, method)(*arguments, effects, self.now_ms)
        effects.reply(asked, answer)
        self.execute(effects)
        return asked

    def init(self, expected: Producer | None = None, timeout_ms: int = 60_000) -> Asked:
        return self.ask("init_producer", NAME, timeout_ms, expected)

    def add(self, producer: Producer, *places: Place, version: int = 0) -> Asked:
        return self.ask("add_partitions", NAME, producer, frozenset(places), version)

    def end(self, producer: Producer, commit: bool, version: int = 0) -> Asked:
        return self.ask("end", NAME, producer, commit, version)

    def produce(self, producer: Producer, place: Place, transaction: object, version: int) -> Any:
        """As a partition's leader does it: ask the coordinator before the first write."""
        partition = self.partitions[place]
        if partition.has_begun(producer):
            return partition.write(producer, transaction, verified=False)
        if version >= 2:
            asked = self.add(producer, place, version=2)
            self.commit()
            error = asked.answer
        else:
            error = self.shard.verify_partitions(NAME, producer, frozenset({place}))[place]
        return error or partition.write(producer, transaction, verified=True)

    def now(self, asked: Asked) -> Any:
        """The answer, everything being committed."""
        self.commit()
        return asked.answer

    def begin(self, expected: Producer | None = None) -> Producer:
        """A producer that may go on."""
        while True:
            granted: Granted = self.now(self.init(expected))
            if granted.error_code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                assert granted.error_code is NONE, granted
                return Producer(granted.producer_id, granted.producer_epoch)
            self.settle()

    def tick(self, ms: int) -> None:
        """Time passes, and the timers look."""
        self.now_ms += ms
        for key in (("timeouts",), ("expiry",)):
            effects = Effects()
            self.shard.due(key, effects, self.now_ms)
            self.execute(effects)

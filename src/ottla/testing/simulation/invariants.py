"""What must hold in a simulated cluster at every moment, judged whenever a replica changes.

- An epoch of a partition has one leader.
- What one replica's high watermark covers is the same in all replicas whose watermark covers it,
  and in the log of every later leader from the moment it leads.
- The high watermark of a replica does not go back while its broker lives.
- Two logs that have a batch of the same offset and epoch are the same up to there.

Before the greatest start of the replicas' logs anything may lie: its records were deleted. A leader
cannot say there where another log parts from its own, and who follows it begins there too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from operator import attrgetter

from ottla.log.failures import CorruptSegment
from ottla.replica.partition import Partition
from ottla.testing.simulation.clients import Place
from ottla.testing.simulation.replica_log import BatchId, ReplicaLog

base_offset = attrgetter("base_offset")


class Replica:
    """What was last seen of one replica in one life of its broker."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.log = ReplicaLog(partition)
        self.leads = -1  # the epoch that it was seen to lead last
        self.high_watermark = 0


class PartitionRecord:
    """What is known of one partition, whoever knew it."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}  # broker by leader epoch
        self.committed: list[BatchId] = []
        self.replicas: dict[int, Replica] = {}  # by broker

    @property
    def newest_epoch(self) -> int:
        return max(self.leaders, default=-1)

    @property
    def log_start_offset(self) -> int:
        """Where all replicas' logs begin, once they have heard of it."""
        return max((each.partition.log_start_offset for each in self.replicas.values()), default=0)


class Invariants:
    """Watches all replicas of a cluster. `problem` is called with each thing that must not be."""

    def __init__(self, problem: Callable[[str], object]) -> None:
        self._problem = problem
        self._records: dict[tuple[bytes, int], PartitionRecord] = {}
        self.checks = 0

    def changed(self, broker_id: int, partition: Partition) -> None:
        """A replica has another leader, or its high watermark has moved."""
        if partition.offline is not None:
            return
        self.checks += 1
        record = self._record(partition)
        replica = record.replicas.get(broker_id)
        if replica is None or replica.partition is not partition:
            replica = record.replicas[broker_id] = Replica(partition)
        if partition.is_leader and partition.leader_epoch != replica.leads:
            replica.leads = partition.leader_epoch
            self._leads(broker_id, record, replica)
        if partition.high_watermark > replica.high_watermark:
            self._covers(broker_id, record, replica)
        elif partition.high_watermark < replica.high_watermark:
            self._problem(
                f"the high watermark of {self._name(partition)} on {broker_id} went back from "
                f"{replica.high_watermark} to {partition.high_watermark}"
            )
        replica.high_watermark = partition.high_watermark

    def crashed(self, broker_id: int) -> None:
        """The broker's replicas are gone until it starts again."""
        for record in self._records.values():
            record.replicas.pop(broker_id, None)

    def compare(self) -> None:
        """Compare the logs of all replicas with each other and with what is committed."""
        for record in self._records.values():
            logs = {
                broker_id: self._read(broker_id, replica)
                for broker_id, replica in sorted(record.replicas.items())
                if replica.partition.offline is None
            }
            for broker_id, replica in record.replicas.items():
                partition = replica.partition
                leads = partition.is_leader and partition.leader_epoch == record.newest_epoch
                if leads and broker_id in logs:
                    self._has_committed(broker_id, record, replica)
            start = record.log_start_offset
            self._check_matching({each: from_offset(log, start) for each, log in logs.items()})

    def committed(self, topic_id: bytes, index: int) -> list[BatchId]:
        """What is known to be committed of a partition."""
        record = self._records.get((topic_id, index))
        return record.committed if record is not None else []

    def _read(self, broker_id: int, replica: Replica) -> list[BatchId]:
        """The batches of a replica; if one of them is not whole, those before it."""
        try:
            return replica.log.read()
        except CorruptSegment as error:
            name = self._name(replica.partition)
            self._problem(f"the log of {name} on {broker_id} cannot be read: {error}")
            return replica.log.batches

    def _record(self, partition: Partition) -> PartitionRecord:
        key = (partition.topic_id, partition.index)
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = PartitionRecord()
        return record

    def _name(self, partition: Partition) -> str:
        return str(Place(partition.topic, partition.index))

    def _leads(self, broker_id: int, record: PartitionRecord, replica: Replica) -> None:
        epoch = replica.leads
        other = record.leaders.setdefault(epoch, broker_id)
        if other != broker_id:
            name = self._name(replica.partition)
            self._problem(f"{other} and {broker_id} lead epoch {epoch} of {name}")
        if epoch == record.newest_epoch:
            self._has_committed(broker_id, record, replica)

    def _has_committed(self, broker_id: int, record: PartitionRecord, replica: Replica) -> None:
        log, committed = self._read(broker_id, replica), record.committed
        start = replica.partition.log_start_offset
        missing = [each for each in _missing(log, committed) if each.last_offset >= start]
        if missing:
            at = bisect_left(log, missing[0].base_offset, key=base_offset)
            found = f"it has {log[at]}" if at < len(log) else "its log ends before"
            self._problem(
                f"leader {broker_id} of epoch {replica.leads} of {self._name(replica.partition)} "
                f"lacks {missing[0]}, which was committed; {found}"
            )

    def _covers(self, broker_id: int, record: PartitionRecord, replica: Replica) -> None:
        """What the high watermark covers now and did not before is committed."""
        log, committed = self._read(broker_id, replica), record.committed
        partition = replica.partition
        begin = bisect_left(log, replica.high_watermark, key=base_offset)
        for batch in log[begin:]:
            if batch.last_offset >= partition.high_watermark:
                break
            at = bisect_left(committed, batch.base_offset, key=base_offset)
            if at == len(committed):
                committed.append(batch)
            elif committed[at] != batch and batch.base_offset >= record.log_start_offset:
                self._problem(
                    f"{broker_id} has committed {batch} of {self._name(partition)} (leader "
                    f"{partition.leader_id}, epoch {partition.leader_epoch}), but committed was "
                    f"{committed[at]}"
                )
                return

    def _check_matching(self, logs: dict[int, list[BatchId]]) -> None:
        """Two logs that have a batch of one epoch at one offset are the same up to there."""
        for one, first in logs.items():
            for other, second in logs.items():
                if one < other:
                    self._match(one, first, other, second)

    def _match(self, one: int, first: list[BatchId], other: int, second: list[BatchId]) -> None:
        places = {(each.base_offset, each.leader_epoch): n for n, each in enumerate(first)}
        for n in range(len(second) - 1, -1, -1):
            each = second[n]
            at = places.get((each.base_offset, each.leader_epoch))
            if at is not None:
                common = min(at, n) + 1
                if first[at + 1 - common : at + 1] != second[n + 1 - common : n + 1]:
                    self._problem(f"the logs of {one} and {other} differ below {each}")
                return


def from_offset(log: list[BatchId], offset: int) -> list[BatchId]:
    """The batches that begin at an offset or after it."""
    return log[bisect_left(log, offset, key=base_offset) :] if offset else log


def _missing(log: list[BatchId], committed: list[BatchId]) -> Iterable[BatchId]:
    """The committed batches that a log does not have."""
    if log[: len(committed)] == committed:
        return ()
    there = set(log)
    return [each for each in committed if each not in there]

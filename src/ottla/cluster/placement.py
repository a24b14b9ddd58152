"""Where the replicas of new partitions go: round robin over brokers, and over racks first. Pure.

As Kafka's striped placer does it: the first replicas of successive partitions go round the racks
and, inside each rack, round its brokers; the further replicas of a partition go to the racks
after its own, so that they share a rack only when there are fewer racks than replicas. A fenced
broker may hold a replica but not the first. After each full round the order is shuffled, so that
followers of one leader are not always the same.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ottla.seams.chance import Chance


class UsableBroker(NamedTuple):
    """A broker that may get replicas."""

    id: int
    rack: str | None = None
    fenced: bool = False


class CannotPlace(Exception):
    """There are not enough brokers for the replication factor; with Kafka's message."""


def place(
    brokers: Iterable[UsableBroker], partition_count: int, replication_factor: int, chance: Chance
) -> list[tuple[int, ...]]:
    """The replicas of each partition, the preferred leader first."""
    usable = sorted(brokers)
    check(usable, replication_factor)
    if len(usable) == 1:
        return [(usable[0].id,)] * partition_count
    racks = RackList(usable, chance)
    return [racks.place(replication_factor) for _ in range(partition_count)]


def check(brokers: Sequence[UsableBroker], replication_factor: int) -> None:
    """Raise CannotPlace when there are not brokers enough."""
    if replication_factor <= 0:
        raise CannotPlace(
            f"Invalid replication factor {replication_factor}: "
            "the replication factor must be positive."
        )
    if all(broker.fenced for broker in brokers):
        raise CannotPlace(
            "All brokers are currently fenced, or have all their log directories cordoned."
        )
    if replication_factor > len(brokers):
        raise CannotPlace(
            f"The target replication factor of {replication_factor} cannot be reached because "
            f"only {len(brokers)} broker(s) are registered or some brokers have all their log "
            "directories cordoned."
        )


class Ring:
    """Some brokers of a rack, handed out in turn, each at most once per partition."""

    __slots__ = ("ids", "offset", "partition", "used")

    def __init__(self, ids: list[int], chance: Chance) -> None:
        self.ids = ids
        self.offset = 0
        self.partition = -1
        self.used = 0
        shuffle(ids, chance)

    def next(self, partition: int) -> int | None:
        """The next broker for this partition; None when it has them all."""
        if not self.ids:
            return None
        if self.partition != partition:
            self.partition = partition
            self.used = 0
            self.offset = (self.offset + 1) % len(self.ids)
        if self.used >= len(self.ids):
            return None
        broker_id = self.ids[(self.offset + self.used) % len(self.ids)]
        self.used += 1
        return broker_id


class Rack:
    """The brokers of one rack: those that may lead before those that are fenced."""

    __slots__ = ("fenced", "unfenced")

    def __init__(self, brokers: Sequence[UsableBroker], chance: Chance) -> None:
        self.unfenced = Ring([broker.id for broker in brokers if not broker.fenced], chance)
        self.fenced = Ring([broker.id for broker in brokers if broker.fenced], chance)

    def next(self, partition: int) -> int | None:
        """The next broker of the rack for this partition; None when it has them all."""
        broker_id = self.unfenced.next(partition)
        return broker_id if broker_id is not None else self.fenced.next(partition)


class RackList:
    """All racks, in the order in which partitions begin with them."""

    def __init__(self, brokers: Sequence[UsableBroker], chance: Chance) -> None:
        by_rack: dict[str | None, list[UsableBroker]] = {}
        for broker in brokers:
            by_rack.setdefault(broker.rack, []).append(broker)
        self.racks = [Rack(members, chance) for members in by_rack.values()]
        self.unfenced_count = sum(not broker.fenced for broker in brokers)
        self._chance = chance
        self._offset = 0
        self._partition = 0
        self._in_round = 0
        shuffle(self.racks, chance)

    def place(self, replication_factor: int) -> tuple[int, ...]:
        """The replicas of the next partition."""
        if self._in_round == self.unfenced_count > 1:
            self._shuffle()
            self._in_round = 0
        count = len(self.racks)
        partition = self._partition
        start = self._offset % count
        first = start
        while (leader := self.racks[first].unfenced.next(partition)) is None:
            first = (first + 1) % count
        replicas = [leader]
        # The leader's rack is passed over once, for it has given a replica already.
        passed_over = False
        rack_index = start
        while len(replicas) < replication_factor:
            if rack_index == first and not passed_over:
                passed_over = True
            elif (replica := self.racks[rack_index].next(partition)) is not None:
                replicas.append(replica)
            rack_index = (rack_index + 1) % count
        self._partition += 1
        self._in_round += 1
        self._offset = (self._offset + 1) % count
        return tuple(replicas)

    def _shuffle(self) -> None:
        shuffle(self.racks, self._chance)
        for rack in self.racks:
            shuffle(rack.unfenced.ids, self._chance)
            shuffle(rack.fenced.ids, self._chance)


def shuffle(items: list[Any], chance: Chance) -> None:
    """Put the items into a random order."""
    for i in range(len(items) - 1, 0, -1):
        j = chance.integer(0, i)
        items[i], items[j] = items[j], items[i]

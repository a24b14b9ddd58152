"""Where replicas of a topic would lie: evenly on brokers, with as few moves as that takes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ..picture import PartitionPicture

Plan = dict[int, tuple[int, ...]]  # of each partition its replicas, the preferred leader first


def spread(
    partitions: Sequence[PartitionPicture],
    brokers: Sequence[int],
    factor: int,
    racks: Mapping[int, str | None],
) -> Plan:
    """`factor` replicas of each partition on these brokers; those that lie well stay."""
    held: Counter[int] = Counter()
    kept: dict[int, list[int]] = {}
    for each in partitions:
        stay = [replica for replica in each.replicas if replica in brokers][:factor]
        kept[each.partition] = stay
        held.update(stay)

    def best(chosen: Sequence[int]) -> int:
        """The next broker for a partition: of another rack, and with the fewest replicas."""
        used = {racks.get(each) for each in chosen} - {None}
        left = [each for each in brokers if each not in chosen]
        return min(left, key=lambda each: (racks.get(each) in used, held[each], each))

    for chosen in kept.values():
        while len(chosen) < factor:
            chosen.append(best(chosen))
            held[chosen[-1]] += 1
    for chosen in kept.values():
        for replica in list(chosen):
            others = [each for each in chosen if each != replica]
            other = best(others) if len(brokers) > factor else replica
            if held[replica] - held[other] > 1:
                chosen[chosen.index(replica)] = other
                held[replica] -= 1
                held[other] += 1
    led: Counter[int] = Counter()
    plan: Plan = {}
    fair = -(-len(partitions) // len(brokers))
    for each in partitions:
        chosen = kept[each.partition]
        # The one that leads stays first, unless it would lead more than its part.
        leader = min(chosen, key=lambda at: (led[at] >= fair, at != each.leader, led[at]))
        led[leader] += 1
        plan[each.partition] = (leader, *(at for at in chosen if at != leader))
    return plan

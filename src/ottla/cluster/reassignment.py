"""Which replicas a partition has while it is reassigned (KIP-455): decisions over images. Pure.

A reassignment goes through these stages, as in Kafka's controller:

1. `begun`: the replicas are those it is to have, then those that it loses. New ones copy the log.
2. All that are new are in the ISR; where it is to have fewer replicas, all that stay.
3. `completed`: the replicas that it loses are gone, from its ISR too. `elections.altered` does so
   with whatever change of the ISR brings stage 2; stage 3 is at once where nothing has to be
   copied.

Another target while one is under way begins again from the replicas that there are by then;
`reverted` gives up those that were added. What a partition is on its way to is in its own fields,
and so in the tree: a controller that takes over goes on with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.cluster.image import ClusterImage, PartitionImage
from ottla.cluster.requests import Refusal
from ottla.wire.errors import ErrorCode

# Without words, as Kafka's: they would be those of the code.
NOT_IN_PROGRESS = Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)


class Wanted(NamedTuple):
    """A partition with the replicas that it is to have next, and the ISR before any election."""

    partition: PartitionImage
    isr: tuple[int, ...]


def is_in_progress(partition: PartitionImage) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def unknown(image: ClusterImage, topic: str, index: int) -> Refusal | None:
    """Why there is no such partition; the topic comes first."""
    if topic not in image.topics:
        message = f"Unable to find a topic named {topic}."
    elif image.partition(topic, index) is None:
        message = f"Unable to find partition {topic}:{index}."
    else:
        return None
    return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)


def factor_error(partition: PartitionImage, target: Sequence[int]) -> Refusal | None:
    """Refuse another number of replicas than the partition has, or is to have (KIP-860)."""
    kept = {*partition.replicas, *partition.adding_replicas} - {*partition.removing_replicas}
    if len(kept) == len(target):
        return None
    message = f"The replication factor is changed from {len(kept)} to {len(target)}"
    return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, message)


def begun(old: PartitionImage, target: Sequence[int]) -> Wanted:
    """The partition on its way to these replicas.

    Where nothing is added, or nothing removed, those of a reassignment under way stay so: Kafka
    leaves them, and a cancellation then knows what was added before.
    """
    removing = tuple(sorted({*old.replicas} - {*target}))
    adding = tuple(sorted({*target} - {*old.replicas}))
    partition = old._replace(
        replicas=(*target, *removing),
        adding_replicas=adding or old.adding_replicas,
        removing_replicas=removing or old.removing_replicas,
    )
    return Wanted(partition, old.isr)


def completed(partition: PartitionImage, isr: Sequence[int], min_isr: int = 1) -> Wanted:
    """The partition without the replicas that it loses, if this ISR allows it.

    As Kafka 4.3 does it, but for one thing: so many stay in the ISR as must have what is committed.
    Kafka gives up the others even where one new replica is left alone with it.
    """
    given = Wanted(partition, tuple(isr))
    if not is_in_progress(partition):
        return given
    adding, removing = partition.adding_replicas, partition.removing_replicas
    replicas = tuple(each for each in partition.replicas if each not in removing)
    left = tuple(each for each in isr if each not in removing)
    needed = {*adding, *replicas} if len(adding) < len(removing) else {*adding}
    enough = len(left) >= min(min_isr, len(replicas))
    if not replicas or not left or not enough or not needed - {*removing} <= {*left}:
        return given
    done = partition._replace(replicas=replicas, adding_replicas=(), removing_replicas=())
    return Wanted(done, left)


def reverted(old: PartitionImage, topic: str, unclean: bool, min_isr: int = 1) -> Wanted | Refusal:
    """The partition without the replicas that it was to get.

    Where none of the others is in the ISR, the first of them takes it over, which may lose records:
    only if the topic allows unclean elections. As when a reassignment is completed, and unlike
    Kafka, none leaves the ISR that is needed there: its copy is deleted, and the only other one may
    be of a broker that has just lost its disk.
    """
    if not is_in_progress(old):
        return NOT_IN_PROGRESS
    adding = old.adding_replicas
    replicas = tuple(each for each in old.replicas if each not in adding)
    isr = tuple(each for each in old.isr if each not in adding)
    if not replicas:
        message = "Invalid replica assignment: addingReplicas contains all replicas."
        return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    if not isr and not unclean:
        message = (
            f"Unable to revert partition assignment for {topic}:{old.index} because it would "
            "require an unclean leader election."
        )
        return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    enough = min(min_isr, len(replicas))
    if len(isr) < min(enough, len(old.isr)) and not unclean:
        message = (
            f"Unable to revert partition assignment for {topic}:{old.index} because it would leave "
            f"{len(isr)} in-sync replicas, and min.insync.replicas asks for {enough}."
        )
        return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    partition = old._replace(replicas=replicas, adding_replicas=(), removing_replicas=())
    return Wanted(partition, isr)

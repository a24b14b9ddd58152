"""Who leads a partition, who is in its ISR and its ELR: decisions over images. Pure.

As Kafka's controller decides: a leader comes from the ISR in the order of the replicas; from the
ELR (replicas that left the ISR while it was below min.insync.replicas, KIP-966) when the ISR is
empty; any other replica leads only by an unclean election. A broker that is fenced or shuts down
leads nothing and is in no ISR (KIP-841).

When both are empty, all that had what was committed may have lost a part of it. Where
min.insync.replicas is 1 the last known leader returns all the same, as in Kafka: a single replica
has no other to wait for. Where it is more, Kafka's controller elects that one too; here it leads
only by an unclean election, because its log may be shorter than another.

The leader epoch rises when the leader changes, the partition epoch with every change.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

from ottla.cluster import reassignment
from ottla.cluster.image import NO_LEADER, BrokerInfo, PartitionImage
from ottla.cluster.requests import ElectionType, IsrProposal, Refusal
from ottla.wire.errors import ErrorCode

IsActive: TypeAlias = Callable[[int], bool]
NONE: frozenset[int] = frozenset()
# Kafka's words, which an admin client shows.
NOT_NEEDED = Refusal(
    ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
)
PREFERRED_UNAVAILABLE = Refusal(
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."
)
NONE_ELIGIBLE = Refusal(
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."
)


class Election(Enum):
    """How a leader is looked for."""

    ONLINE = "from the ISR or the ELR, or the last known leader if min.insync.replicas is 1"
    PREFERRED = "as ONLINE, but the first replica before the present leader"
    UNCLEAN = "as ONLINE, else any replica that is active"


class Rules(NamedTuple):
    """What the configs of a topic say about its elections."""

    min_isr: int = 1  # min.insync.replicas; counts as `of` has it
    unclean: bool = False  # unclean.leader.election.enable
    elr: bool = True  # whether there are eligible leader replicas: a feature of the cluster

    def of(self, replicas: Sequence[int]) -> "Rules":
        """The same for one partition, whose leader commits with all replicas if they are fewer.

        Kafka's controller takes the number of replicas of the topic's first partition for all: if
        that is smaller, it elects a leader that may lack what was committed.
        """
        return self._replace(min_isr=len(replicas)) if self.min_isr > len(replicas) else self

    @property
    def election(self) -> Election:
        """The election after a change that the controller itself makes."""
        return Election.UNCLEAN if self.unclean else Election.ONLINE


class Stopped(NamedTuple):
    """Fenced brokers whose last stop took something from them."""

    unclean: frozenset[int] = NONE  # records that were not synced may be gone
    wiped: frozenset[int] = NONE  # a data directory is gone; they are in `unclean` too


NOBODY = Stopped()


def altered(
    old: PartitionImage,
    isr: Sequence[int],
    is_active: IsActive,
    rules: Rules,
    election: Election = Election.ONLINE,
    *,
    stopped: Stopped = NOBODY,
    recovering: bool | None = None,
    wanted: PartitionImage | None = None,
    fences: bool = False,
) -> PartitionImage | None:
    """The partition with another ISR, and the ELR and leader that follow; None if all is the same.

    `recovering` is what a leader says of itself; None leaves it. `wanted` has other replicas, on
    their way or in place; a reassignment that this ISR completes is completed. `fences`: the leader
    epoch rises in any case, so that no fetch that was sent before counts.
    """
    wanted, isr = reassignment.completed(wanted or old, isr, rules.min_isr)
    rules = rules.of(wanted.replicas)
    elr = next_elr(old, isr, rules, stopped.unclean)
    last_known = old.last_known_leader
    if wanted.replicas != old.replicas:
        elr = tuple(each for each in elr if each in wanted.replicas)
    if last_known in stopped.wiped or last_known not in wanted.replicas:
        last_known = NO_LEADER
    wiped = {*old.wiped, *stopped.wiped}
    leader, clean = elect(wanted, isr, elr, last_known, wiped, is_active, rules, election)
    recovering = old.recovering if recovering is None else recovering
    if leader != NO_LEADER:
        if not clean:
            elr = ()
            recovering = len(wanted.replicas) > 1  # one replica has no other to lack records of
        if leader not in isr:
            isr = (leader,)
        # After the election: an ISR that commits on its own makes the others ineligible.
        elr = () if len(isr) >= rules.min_isr else tuple(b for b in elr if b != leader)
        last_known = NO_LEADER
    elif not rules.elr:
        # Without an ELR the last members stay, and may lead again if they have what they had.
        lost = stopped.unclean if rules.min_isr > 1 else stopped.wiped
        isr = isr or tuple(each for each in old.isr if each in wanted.replicas and each not in lost)
    elif not isr and old.isr:
        # One that was alone in the ISR led last, also where the ELR came after that.
        last_known = old.isr[0] if len(old.isr) == 1 else old.leader
        if last_known in stopped.wiped or last_known not in wanted.replicas:
            last_known = NO_LEADER
    new = wanted._replace(
        leader=leader,
        isr=isr,
        elr=elr,
        last_known_leader=last_known,
        recovering=recovering,
        wiped=tuple(each for each in wanted.replicas if each in wiped and each not in isr),
    )
    if new == old:
        return None
    # A replica that is no more must not be taken for a follower: as in Kafka, another epoch.
    fences = fences or leader != old.leader or not {*old.replicas} <= {*new.replicas}
    return new._replace(
        leader_epoch=old.leader_epoch + fences,
        partition_epoch=old.partition_epoch + 1,
    )


def next_elr(
    old: PartitionImage, isr: Sequence[int], rules: Rules, unclean: Collection[int]
) -> tuple[int, ...]:
    """The replicas that have all that is committed, beside the ISR.

    Nothing is committed while the ISR is below min.insync.replicas: who leaves it then, or makes it
    so small by leaving, lacks nothing, unless its machine lost what it had.
    """
    if not rules.elr or len(isr) >= rules.min_isr:
        return ()
    candidates = (*old.elr, *(member for member in old.isr if member not in old.elr))
    return tuple(each for each in candidates if each not in isr and each not in unclean)


def elect(
    old: PartitionImage,
    isr: Sequence[int],
    elr: Sequence[int],
    last_known: int,
    wiped: Collection[int],
    is_active: IsActive,
    rules: Rules,
    election: Election,
) -> tuple[int, bool]:
    """The leader, or NO_LEADER; and whether it has all that was committed."""
    eligible = isr or elr
    order = (old.leader, *old.replicas)
    if election == Election.PREFERRED:
        order = (*old.replicas[:1], *order)
    for replica in order:
        if replica in eligible and is_active(replica):
            return replica, True
    may_lack = rules.min_isr == 1 or election == Election.UNCLEAN
    returns = rules.elr and not eligible and last_known != NO_LEADER
    if may_lack and returns and is_active(last_known):
        return last_known, False
    if election == Election.UNCLEAN:
        # Those with an empty disk last, and before them those that have not been in any ISR yet.
        for replica in sorted(
            old.replicas, key=lambda each: (each in wiped, each in old.adding_replicas)
        ):
            if is_active(replica):
                return replica, False
    return NO_LEADER, True


def without_elr(old: PartitionImage) -> PartitionImage | None:
    """The partition when another min.insync.replicas is about to count; None if all is the same.

    With a lower one its leader commits what the ELR lacks. Without a leader nothing is committed:
    then the ELR says who may lead, and stays.
    """
    if not old.elr or old.leader == NO_LEADER:
        return None
    return old._replace(elr=(), partition_epoch=old.partition_epoch + 1)


def isr_in_place_of_elr(old: PartitionImage) -> PartitionImage | None:
    """The partition in a cluster that has no ELR any more; None if all is the same.

    Where the ISR is empty, those who may lead are its members: without an ELR the last ones stay.
    """
    last = () if old.last_known_leader == NO_LEADER else (old.last_known_leader,)
    new = old._replace(isr=old.isr or old.elr or last, elr=(), last_known_leader=NO_LEADER)
    return new._replace(partition_epoch=old.partition_epoch + 1) if new != old else None


def settled(
    old: PartitionImage,
    brokers: Mapping[int, BrokerInfo],
    rules: Rules,
    stopped: Stopped = NOBODY,
    election: Election | None = None,
) -> PartitionImage | None:
    """The partition as these brokers can hold it; None if it is so already.

    Members that are registered but not active leave the ISR. Of one that is not registered nothing
    is known: it stays, and leads nothing new.
    """
    # Without another election a leader that nothing is known of stays.
    kept = old.leader if old.leader not in brokers and election is None else NO_LEADER

    def is_active(broker_id: int) -> bool:
        broker = brokers.get(broker_id)
        return broker.active if broker is not None else broker_id == kept

    isr = [each for each in old.isr if each not in brokers or brokers[each].active]
    return altered(old, isr, is_active, rules, election or rules.election, stopped=stopped)


def restarted(
    old: PartitionImage, broker: BrokerInfo, rules: Rules, stopped: Stopped
) -> PartitionImage | None:
    """The partition after its only registered broker has restarted, in one change.

    A leader that has restarted may lack what it had not yet written to disk: followers and
    consumers must ask again where its log now ends (KIP-101).
    """
    if old.replicas == old.isr == (old.leader,) == (broker.id,):
        # What follows would come to the same, for thousands of partitions of a single broker.
        return old._replace(
            leader_epoch=old.leader_epoch + 1, partition_epoch=old.partition_epoch + 1
        )
    down = settled(old, {broker.id: broker._replace(fenced=True)}, rules, stopped) or old
    up = settled(down, {broker.id: broker}, rules, stopped) or down
    if up == old:
        return None
    return up._replace(
        leader_epoch=old.leader_epoch + (up.leader_epoch > old.leader_epoch),
        partition_epoch=old.partition_epoch + 1,
    )


def withdraws(partition: PartitionImage, broker_id: int, proposal: IsrProposal) -> bool:
    """Whether a replica takes itself out of an ISR with others in it: its log is damaged.

    Not in Kafka, whose ISRs only leaders propose, with themselves in them. Such a proposal says
    nothing of the other members: it has no broker epochs, where a leader's has its own at least.
    """
    members = {member for member, _ in proposal.isr}
    others = {*partition.isr} - {broker_id}
    unsaid = all(epoch == -1 for _, epoch in proposal.isr)
    return unsaid and bool(members) and members == others != {*partition.isr}


def proposal_error(
    partition: PartitionImage | None,
    broker_id: int,
    proposal: IsrProposal,
    brokers: Mapping[int, BrokerInfo],
) -> ErrorCode:
    """Why a leader may not have the ISR that it proposes; NONE if it may.

    Kafka's checks in Kafka's order. Newer epochs than are known here mean that this controller has
    been replaced and does not know it yet.
    """
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if proposal.leader_epoch > partition.leader_epoch:
        return ErrorCode.NOT_CONTROLLER
    if proposal.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    leaves = withdraws(partition, broker_id, proposal)
    if broker_id != partition.leader and not leaves:
        return ErrorCode.INVALID_REQUEST
    if proposal.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = [member for member, _ in proposal.isr]
    if len(set(members)) < len(members) or not set(members) <= set(partition.replicas):
        return ErrorCode.INVALID_REQUEST
    if partition.leader not in members and not leaves:
        return ErrorCode.INVALID_REQUEST
    if proposal.recovering and (len(members) > 1 or not partition.recovering):
        return ErrorCode.INVALID_REQUEST
    for member, epoch in proposal.isr:
        broker = brokers.get(member)
        if broker is None or not broker.active or epoch not in (-1, broker.epoch):
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def rebalanced(
    old: PartitionImage, brokers: Mapping[int, BrokerInfo], rules: Rules
) -> PartitionImage | None:
    """The partition led by its preferred leader, if that may lead; None if it does, or may not."""
    preferred = old.replicas[0]
    if old.leader in (preferred, NO_LEADER) or preferred not in old.isr:
        return None
    new = settled(old, brokers, rules, election=Election.PREFERRED)
    return new if new is not None and new.leader == preferred else None


def elected(
    old: PartitionImage, brokers: Mapping[int, BrokerInfo], rules: Rules, kind: ElectionType
) -> PartitionImage | Refusal:
    """The partition after an election that a user has asked for (KIP-460)."""
    if kind == ElectionType.PREFERRED:
        election, needed = Election.PREFERRED, old.leader != old.replicas[0]
        unavailable = PREFERRED_UNAVAILABLE
    else:
        election, needed = Election.UNCLEAN, old.leader == NO_LEADER
        unavailable = NONE_ELIGIBLE
    if not needed:
        return NOT_NEEDED
    new = settled(old, brokers, rules, election=election)
    return new if new is not None else unavailable

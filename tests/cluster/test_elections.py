"""Leaders, ISR and ELR: Kafka's decisions, case by case."""

from collections.abc import Mapping

import pytest

from ottla.cluster import elections
from ottla.cluster.elections import Election, Rules, Stopped
from ottla.cluster.image import NO_LEADER, BrokerInfo, PartitionImage
from ottla.cluster.requests import ElectionType, IsrProposal, Refusal
from ottla.wire.errors import ErrorCode

RULES = Rules(min_isr=2)
UNCLEAN = RULES._replace(unclean=True)
NO_ELR = RULES._replace(elr=False)
ONE = RULES._replace(min_isr=1)


def part(leader: int, isr: str, elr: str = "", last: int = NO_LEADER) -> PartitionImage:
    """A partition of brokers 1, 2 and 3 at leader epoch 5 and partition epoch 7."""
    members = tuple(map(int, isr))
    return PartitionImage(
        0, leader, 5, 7, (1, 2, 3), members, elr=tuple(map(int, elr)), last_known_leader=last
    )


def brokers(active: str, fenced: str = "") -> Mapping[int, BrokerInfo]:
    return {
        int(each): BrokerInfo(int(each), {}, epoch=int(each) * 10, fenced=each in fenced)
        for each in active + fenced
    }


def shown(partition: PartitionImage | None) -> tuple[object, ...] | None:
    """Leader, ISR, ELR, last known leader; the epochs as their rise."""
    if partition is None:
        return None
    leader, isr, elr = partition.leader, partition.isr, partition.elr
    rises = partition.leader_epoch - 5, partition.partition_epoch - 7
    members = "".join(map(str, isr)), "".join(map(str, elr))
    return leader, *members, partition.last_known_leader, *rises


SETTLED = [
    # rules, before, active, fenced, unclean -> leader, ISR, ELR, last known leader, rises
    (RULES, part(1, "123"), "123", "", "", None),
    (RULES, part(1, "123"), "23", "1", "", (2, "23", "", -1, 1, 1)),
    (RULES, part(1, "123"), "12", "3", "", (1, "12", "", -1, 0, 1)),
    (RULES, part(2, "23"), "13", "2", "", (3, "3", "2", -1, 1, 1)),
    (RULES, part(3, "3", "2"), "12", "3", "", (2, "2", "3", -1, 1, 1)),
    (RULES, part(3, "3", "2"), "1", "23", "", (-1, "", "23", 3, 1, 1)),
    (RULES, part(3, "3", "2"), "1", "23", "3", (-1, "", "2", 3, 1, 1)),
    (RULES, part(-1, "", "23", 3), "1", "23", "2", (-1, "", "3", 3, 0, 1)),
    (RULES, part(-1, "", "23", 3), "12", "3", "", (2, "2", "3", -1, 1, 1)),
    (RULES, part(-1, "", "3", 2), "12", "3", "", None),
    (RULES, part(-1, "", "", 3), "12", "3", "", None),
    # All that had what was committed may have lost it: only where one replica was enough.
    (RULES, part(-1, "", "", 3), "3", "12", "", None),
    (RULES, part(-1, "", "", 3), "123", "", "", None),
    (ONE, part(-1, "", "", 3), "3", "12", "", (3, "3", "", -1, 1, 1)),
    (UNCLEAN, part(-1, "", "3", 3), "12", "3", "", (1, "1", "", -1, 1, 1)),
    (UNCLEAN, part(-1, "", "3", 3), "23", "1", "", (3, "3", "", -1, 1, 1)),
    (NO_ELR, part(2, "23"), "13", "2", "", (3, "3", "", -1, 1, 1)),
    (NO_ELR, part(3, "3"), "12", "3", "", (-1, "3", "", -1, 1, 1)),
    (NO_ELR, part(-1, "3"), "123", "", "", (3, "3", "", -1, 1, 1)),
    (NO_ELR, part(3, "3"), "12", "3", "3", (-1, "", "", -1, 1, 1)),
    # Nothing is known of 1 and 2: neither is moved, neither is elected.
    (RULES, part(1, "12"), "", "", "", None),
    (RULES, part(3, "123"), "", "3", "", (-1, "12", "", -1, 1, 1)),
]


@pytest.mark.parametrize(("rules", "old", "active", "fenced", "unclean", "expected"), SETTLED)
def test_brokers_come_and_go(
    rules: Rules, old: PartitionImage, active: str, fenced: str, unclean: str, expected: object
) -> None:
    """ISR first, then ELR; the last known leader where min.insync.replicas is 1; the rest only by
    an unclean election."""
    stopped = Stopped(frozenset(map(int, unclean)))
    new = elections.settled(old, brokers(active, fenced), rules, stopped)
    assert shown(new) == expected
    if new is not None:
        assert elections.settled(new, brokers(active, fenced), rules, stopped) is None


def test_a_wiped_leader_does_not_return_by_itself() -> None:
    """The last known leader with an empty disk leads only when asked for."""
    stopped = Stopped(frozenset((3,)), frozenset((3,)))
    down = elections.settled(part(3, "3"), brokers("1", "3"), ONE, stopped)
    assert shown(down) == (-1, "", "", -1, 1, 1)
    assert down is not None
    assert elections.settled(down, brokers("13"), ONE) is None
    known = part(-1, "", "", 3)
    assert shown(elections.settled(known, brokers("1", "3"), ONE, stopped)) == (
        *(-1, "", "", -1, 0),
        1,
    )
    forced = elections.elected(down, brokers("3"), ONE, ElectionType.UNCLEAN)
    assert isinstance(forced, PartitionImage)
    assert (forced.leader, forced.isr, forced.recovering) == (3, (3,), True)


def test_a_wiped_replica_leads_after_all_others() -> None:
    """Also by an unclean election, and long after it has registered: until it was in the ISR."""
    stopped = Stopped(frozenset((1,)), frozenset((1,)))
    down = elections.settled(part(-1, "", "2"), brokers("3", "12"), RULES, stopped)
    assert down is not None
    assert (down.wiped, down.partition_epoch) == ((1,), 8)
    # Its registration is long over, and it comes first among the replicas.
    for rules, expected in ((UNCLEAN, 3), (RULES, NO_LEADER)):
        new = elections.settled(down, brokers("13", "2"), rules)
        assert (new.leader if new is not None else NO_LEADER) == expected
    asked = elections.elected(down, brokers("13", "2"), RULES, ElectionType.UNCLEAN)
    assert isinstance(asked, PartitionImage)
    assert (asked.leader, asked.isr, asked.wiped) == (3, (3,), (1,))
    joined = elections.altered(asked, (3, 1), lambda _: True, RULES)
    assert joined is not None
    assert joined.wiped == ()
    nobody_else = elections.elected(down, brokers("1", "23"), RULES, ElectionType.UNCLEAN)
    assert isinstance(nobody_else, PartitionImage)
    assert (nobody_else.leader, nobody_else.wiped) == (1, ())


def test_a_replica_that_is_being_added_leads_after_those_that_were_there() -> None:
    """It may have copied nothing yet."""
    old = part(-1, "", "3")._replace(adding_replicas=(1,))
    new = elections.elected(old, brokers("12", "3"), RULES, ElectionType.UNCLEAN)
    assert isinstance(new, PartitionImage)
    assert new.leader == 2


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("rules", [RULES, NO_ELR])
def test_the_only_broker_returns(clean: bool, rules: Rules) -> None:
    """With one rise of each epoch; whoever it is that has the log leads."""
    broker = BrokerInfo(1, {}, epoch=2)
    stopped = Stopped(frozenset(() if clean else (1,)))
    old = PartitionImage(0, 1, 5, 7, (1,), (1,))
    for before in (old, old._replace(leader=-1), old._replace(leader=-1, isr=(), elr=(1,))):
        new = elections.restarted(before, broker, rules._replace(min_isr=1), stopped)
        if before.elr and not rules.elr:
            continue
        if not before.isr and not clean:
            assert new is not None
            assert new.leader == NO_LEADER  # there was no last known leader
            continue
        assert shown(new) == (1, "1", "", -1, 1, 1)
        assert new is not None
        assert not new.recovering


def test_an_isr_that_commits_alone_leaves_no_elr() -> None:
    """Whatever min.insync.replicas was before: a leader that is enough makes others ineligible."""
    new = elections.settled(part(-1, "", "23", 3), brokers("2", "13"), RULES._replace(min_isr=1))
    assert shown(new) == (2, "2", "", -1, 1, 1)


PROPOSALS = [
    # leader, epochs, ISR with broker epochs, recovering -> error
    (1, 5, 7, [(1, 10), (2, 20)], False, ErrorCode.NONE),
    (1, 5, 7, [(1, -1), (2, -1), (3, -1)], False, ErrorCode.INELIGIBLE_REPLICA),
    (1, 5, 7, [(1, 10), (2, 19)], False, ErrorCode.INELIGIBLE_REPLICA),
    (1, 6, 7, [(1, 10)], False, ErrorCode.NOT_CONTROLLER),
    (1, 5, 8, [(1, 10)], False, ErrorCode.NOT_CONTROLLER),
    (1, 4, 7, [(1, 10)], False, ErrorCode.FENCED_LEADER_EPOCH),
    (2, 5, 7, [(2, 20)], False, ErrorCode.INVALID_REQUEST),
    (1, 5, 6, [(1, 10)], False, ErrorCode.INVALID_UPDATE_VERSION),
    (1, 5, 7, [(1, 10), (1, 10)], False, ErrorCode.INVALID_REQUEST),
    (1, 5, 7, [(1, 10), (4, 40)], False, ErrorCode.INVALID_REQUEST),
    (1, 5, 7, [(2, 20)], False, ErrorCode.INVALID_REQUEST),
    (1, 5, 7, [(1, 10)], True, ErrorCode.INVALID_REQUEST),
]


@pytest.mark.parametrize(
    ("leader", "leader_epoch", "partition_epoch", "isr", "recovering", "error"), PROPOSALS
)
def test_what_a_leader_may_propose(
    leader: int,
    leader_epoch: int,
    partition_epoch: int,
    isr: list[tuple[int, int]],
    recovering: bool,
    error: ErrorCode,
) -> None:
    """The error codes of Kafka's controller, in its order."""
    proposal = IsrProposal(b"", 0, leader_epoch, partition_epoch, isr, recovering)
    known = brokers("12", "3")
    assert elections.proposal_error(part(1, "12"), leader, proposal, known) == error
    assert elections.proposal_error(None, leader, proposal, known) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


WITHDRAWALS = [
    # ISR, who leaves, what is proposed -> accepted
    ("123", 3, "12", True),
    ("12", 1, "2", True),  # the leader
    ("123", 3, "1", False),  # nobody else may be taken out
    ("12", 3, "12", False),  # it is in no ISR
    ("1", 1, "", False),  # it is the last
]


@pytest.mark.parametrize(("isr", "broker_id", "proposed", "accepted"), WITHDRAWALS)
def test_a_replica_may_take_itself_out_of_the_isr(
    isr: str, broker_id: int, proposed: str, accepted: bool
) -> None:
    """Without broker epochs, and as long as others are in it."""
    proposal = IsrProposal(b"", 0, 5, 7, [(int(each), -1) for each in proposed])
    old = part(1, isr)
    assert elections.withdraws(old, broker_id, proposal) == accepted
    error = elections.proposal_error(old, broker_id, proposal, brokers("123"))
    assert (error == ErrorCode.NONE) == accepted


def test_who_took_itself_out_is_not_eligible() -> None:
    """Also where the ISR is too small without it; and the leader epoch rises."""
    gone = Stopped(unclean=frozenset({2}))
    new = elections.altered(part(1, "12"), (1,), lambda _: True, RULES, stopped=gone, fences=True)
    assert shown(new) == (1, "1", "", -1, 1, 1)


def test_a_recovering_leader_has_no_others_beside_it() -> None:
    """It may say that it recovers while it is alone, and joins nobody meanwhile."""
    old = part(1, "1")._replace(recovering=True)
    known = brokers("123")
    alone, both = (IsrProposal(b"", 0, 5, 7, isr, True) for isr in ([(1, 10)], [(1, 10), (2, 20)]))
    assert elections.proposal_error(old, 1, alone, known) == ErrorCode.NONE
    assert elections.proposal_error(old, 1, both, known) == ErrorCode.INVALID_REQUEST
    new = elections.altered(old, (1, 2), lambda _: True, RULES, recovering=False)
    assert new is not None
    assert not new.recovering


ALTERED = [
    ("123", "", "12", "12", ""),
    ("12", "", "1", "1", "2"),
    ("1", "2", "12", "12", ""),
    ("1", "2", "13", "13", ""),
]


@pytest.mark.parametrize(("isr", "elr", "proposed", "new_isr", "new_elr"), ALTERED)
def test_the_elr_follows_the_isr(
    isr: str, elr: str, proposed: str, new_isr: str, new_elr: str
) -> None:
    """Who leaves an ISR that gets too small is eligible, until it is large enough again."""
    new = elections.altered(part(1, isr, elr), tuple(map(int, proposed)), lambda _: True, RULES)
    assert shown(new) == (1, new_isr, new_elr, -1, 0, 1)


def test_elections_that_are_asked_for() -> None:
    """PREFERRED and UNCLEAN, with Kafka's errors where nothing is to be done or nobody is there."""

    def ask(old: PartitionImage, active: str, kind: ElectionType) -> object:
        fenced = "".join(each for each in "123" if each not in active)
        new = elections.elected(old, brokers(active, fenced), RULES, kind)
        return new.error_code if isinstance(new, Refusal) else shown(new)

    preferred, unclean = ElectionType
    not_needed = ErrorCode.ELECTION_NOT_NEEDED
    assert ask(part(2, "12"), "12", preferred) == (1, "12", "", -1, 1, 1)
    assert ask(part(1, "12"), "12", preferred) == not_needed
    assert ask(part(2, "23"), "123", preferred) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert ask(part(2, "2"), "123", unclean) == not_needed
    assert ask(part(-1, "", "2"), "3", unclean) == (3, "3", "", -1, 1, 1)
    assert ask(part(-1, "", "2"), "", unclean) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_the_preferred_leader_comes_before_the_present_one() -> None:
    """Only in an election that asks for it."""
    assert elections.altered(part(2, "12"), (1, 2), lambda _: True, RULES) is None
    new = elections.altered(part(2, "12"), (1, 2), lambda _: True, RULES, Election.PREFERRED)
    assert shown(new) == (1, "12", "", -1, 1, 1)

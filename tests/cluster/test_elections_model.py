"""Elections against a model of what the replicas hold: no clean leader lacks what was committed.

The model has three replicas with logs of numbered records. A leader appends, followers copy its
log, and a record is committed when all of an ISR that is large enough have it. Brokers are fenced,
cut off, stopped in order and crash, which costs them any part of the end of their log.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import pytest

from ottla.cluster import elections
from ottla.cluster.elections import NOBODY, Election, Rules, Stopped
from ottla.cluster.image import NO_LEADER, BrokerInfo, PartitionImage
from ottla.cluster.requests import ElectionType, IsrProposal, Refusal
from ottla.wire.errors import ErrorCode
from tests import needs

REPLICAS = (1, 2, 3)
CLEAN, LAST_KNOWN, UNCLEAN = "clean", "the last known leader", "unclean"


class Model:
    """One partition, its replicas and the brokers, as the controller and as the disks have them."""

    def __init__(self, min_isr: int, unclean: bool) -> None:
        self.rules = Rules(min_isr, unclean)
        self.brokers = {each: BrokerInfo(each, {}, epoch=each) for each in REPLICAS}
        self.partition = PartitionImage(0, 1, 0, 0, REPLICAS, REPLICAS)
        self.logs: dict[int, list[int]] = {each: [] for each in REPLICAS}
        self.committed: list[int] = []
        self.stopped: Stopped = NOBODY
        self.wiped: set[int] = set()  # and not in the ISR since
        self.next_record = 0
        self.next_epoch = 10
        self.asked = False  # for an unclean election
        self.elections: Counter[str] = Counter()

    # What the controller decides

    def change(self, new: PartitionImage | None) -> None:
        """Check a decision against what was, and against the logs."""
        old = self.partition
        if new is None:
            return
        assert new.partition_epoch == old.partition_epoch + 1
        assert new.leader_epoch == old.leader_epoch + (new.leader != old.leader)
        assert not set(new.isr) & set(new.elr)
        assert len(set(new.isr)) == len(new.isr) <= len(REPLICAS)
        assert set(new.isr) | set(new.elr) <= set(REPLICAS)
        assert all(self.brokers[each].active for each in new.isr)
        assert not new.elr or len(new.isr) < self.rules.min_isr
        if new.leader == NO_LEADER:
            assert new.isr == ()
        else:
            assert new.leader in new.isr
            assert self.brokers[new.leader].active
            assert new.last_known_leader == NO_LEADER
        if new.leader not in (old.leader, NO_LEADER):
            self.elected(old, new)
        self.wiped -= set(new.isr)
        self.partition = new
        assert elections.settled(new, self.brokers, self.rules, self.stopped) is None

    def elected(self, old: PartitionImage, new: PartitionImage) -> None:
        log = self.logs[new.leader]
        if new.leader in (*old.isr, *old.elr):
            self.elections[CLEAN] += 1
            assert log[: len(self.committed)] == self.committed
        elif new.leader == old.last_known_leader and set(old.elr) <= self.stopped.unclean:
            self.elections[LAST_KNOWN] += 1
            assert self.rules.min_isr == 1 or self.rules.unclean or self.asked
            self.committed = self.committed[: common(self.committed, log)]
        else:
            self.elections[UNCLEAN] += 1
            assert self.rules.unclean or self.asked
            assert new.recovering
            active = {each for each in REPLICAS if self.brokers[each].active}
            assert new.leader not in self.wiped or active <= self.wiped
            self.committed = self.committed[: common(self.committed, log)]

    def settle(self) -> None:
        self.asked = False
        self.change(elections.settled(self.partition, self.brokers, self.rules, self.stopped))

    # What happens

    def append(self, _: int, amount: int) -> None:
        leader = self.partition.leader
        if leader != NO_LEADER:
            for _ in range(amount + 1):
                self.next_record += 1
                self.logs[leader].append(self.next_record)

    def copy(self, broker: int, amount: int) -> None:
        """A follower cuts what differs from the leader's log, and copies a part of the rest."""
        leader = self.partition.leader
        if leader not in (NO_LEADER, broker) and self.reaches_controller(broker):
            own, log = self.logs[broker], self.logs[leader]
            same = common(own, log)
            self.logs[broker] = log[: max(same, len(log) - amount)]

    def commit(self, broker: int, amount: int) -> None:
        isr = self.partition.isr
        if self.partition.leader != NO_LEADER and len(isr) >= self.rules.min_isr:
            log = self.logs[self.partition.leader]
            upto = min(common(self.logs[each], log) for each in isr)
            if upto > len(self.committed):
                assert log[: len(self.committed)] == self.committed
                self.committed = log[:upto]

    def reaches_controller(self, broker: int) -> bool:
        return not self.brokers[broker].fenced

    def join(self, broker: int, amount: int) -> None:
        """The leader proposes a follower that has all that is committed."""
        leader = self.partition.leader
        log = self.logs[broker]
        if (
            leader != NO_LEADER
            and broker not in self.partition.isr
            and log[: len(self.committed)] == self.committed
            and common(log, self.logs[leader]) == len(log)
        ):
            self.propose((*self.partition.isr, broker))

    def leave(self, broker: int, amount: int) -> None:
        """The leader proposes to go on without a follower."""
        if broker in self.partition.isr and broker != self.partition.leader:
            self.propose([each for each in self.partition.isr if each != broker])

    def propose(self, isr: Sequence[int]) -> None:
        now = self.partition
        members = [(each, self.brokers[each].epoch) for each in isr]
        proposal = IsrProposal(b"", 0, now.leader_epoch, now.partition_epoch, members)
        error = elections.proposal_error(now, now.leader, proposal, self.brokers)
        allowed = all(self.brokers[each].active for each in isr)
        assert error == (ErrorCode.NONE if allowed else ErrorCode.INELIGIBLE_REPLICA)
        if allowed:
            self.change(elections.altered(now, isr, lambda b: self.brokers[b].active, self.rules))

    def set_broker(self, broker: int, **changes: object) -> None:
        self.brokers[broker] = self.brokers[broker]._replace(**changes)  # type: ignore[arg-type]

    def fence(self, broker: int, amount: int) -> None:
        self.set_broker(broker, fenced=True)
        self.settle()

    def unfence(self, broker: int, amount: int) -> None:
        self.stopped = Stopped(self.stopped.unclean - {broker}, self.stopped.wiped - {broker})
        self.set_broker(broker, fenced=False)
        self.settle()

    def shut_down(self, broker: int, amount: int) -> None:
        self.set_broker(broker, in_controlled_shutdown=True)
        self.settle()

    def register(self, broker: int, stopped: Stopped) -> None:
        self.next_epoch += 1
        self.set_broker(broker, fenced=True, in_controlled_shutdown=False, epoch=self.next_epoch)
        unclean = self.stopped.unclean - {broker} | stopped.unclean
        self.stopped = Stopped(unclean, self.stopped.wiped - {broker} | stopped.wiped)
        self.settle()
        assert broker not in self.partition.isr
        assert broker not in stopped.unclean or broker not in self.partition.elr

    def restart(self, broker: int, amount: int) -> None:
        """A clean one: the log is whole."""
        self.register(broker, NOBODY)

    def crash(self, broker: int, amount: int) -> None:
        log = self.logs[broker]
        self.logs[broker] = log[: max(0, len(log) - amount)]
        self.register(broker, Stopped(frozenset((broker,))))

    def wipe(self, broker: int, amount: int) -> None:
        self.logs[broker] = []
        self.wiped.add(broker)
        one = frozenset((broker,))
        self.register(broker, Stopped(one, one))
        assert self.partition.last_known_leader != broker

    def elect(self, broker: int, amount: int) -> None:
        """A user asks for it."""
        kind = ElectionType.UNCLEAN if amount > 2 else ElectionType.PREFERRED
        self.asked = kind == ElectionType.UNCLEAN
        new = elections.elected(self.partition, self.brokers, self.rules, kind)
        if not isinstance(new, Refusal):
            self.change(new)

    def configure(self, broker: int, amount: int) -> None:
        """Another min.insync.replicas."""
        self.change_without_checks(elections.without_elr(self.partition))
        self.rules = self.rules._replace(min_isr=1 + amount % 3)

    def change_without_checks(self, new: PartitionImage | None) -> None:
        self.partition = new or self.partition


def common(one: list[int], other: list[int]) -> int:
    """How many records both begin with."""
    count = 0
    for mine, others in zip(one, other, strict=False):
        if mine != others:
            break
        count += 1
    return count


OFTEN = ("append", "copy", "copy", "commit", "commit", "join", "join", "leave")
FAULTS = ("fence", "unfence", "unfence", "unfence", "crash", "restart", "shut_down")
RARE = ("wipe", "elect", "configure")
ACTIONS = (*OFTEN * 2, *FAULTS, *RARE)
STEPS = 150
SEEDS = needs.rounds(400, 20_000)


def run(seed: int) -> Counter[str]:
    """One history; how often each kind of election was held in it."""
    rng = random.Random(seed)
    model = Model(rng.choice((1, 2, 2, 2, 3)), rng.random() < 0.2)
    done: list[str] = []
    for _ in range(STEPS):
        action, broker, amount = rng.choice(ACTIONS), rng.choice(REPLICAS), rng.randrange(4)
        done.append(f"{action} {broker} {amount}")
        try:
            getattr(model, action)(broker, amount)
        except AssertionError as error:
            last = "\n  ".join(done[-30:])
            raise AssertionError(f"seed {seed}: {error}\n{model.partition}\n  {last}") from error
    return model.elections


def test_no_clean_leader_lacks_what_was_committed() -> None:
    """Leaders are active members of the ISR, epochs rise, ISR and ELR are apart; and this."""
    held = run_all(SEEDS)
    assert set(held) == {CLEAN, LAST_KNOWN, UNCLEAN}
    assert min(held.values()) > SEEDS / 10, held


def run_all(seeds: int) -> Counter[str]:
    """All elections of so many histories."""
    held: Counter[str] = Counter()
    for seed in range(seeds):
        held += run(seed)
    return held


def unclean_is_eligible() -> Any:
    """A broker that crashed stays in the ELR."""
    decide = elections.next_elr
    return patch.object(
        elections, "next_elr", lambda old, isr, rules, unclean: decide(old, isr, rules, ())
    )


def elr_without_limit() -> Any:
    """Who leaves an ISR that commits without it is eligible."""
    decide = elections.altered

    def changed(old: Any, isr: Any, is_active: Any, rules: Rules, *rest: Any, **named: Any) -> Any:
        return decide(old, isr, is_active, rules._replace(min_isr=9), *rest, **named)

    return patch.object(elections, "altered", changed)


def elr_of_another_config() -> Any:
    """The ELR outlives min.insync.replicas."""
    return patch.object(elections, "without_elr", lambda old: None)


def any_replica() -> Any:
    """Every election is an unclean one."""
    return patch.object(Rules, "election", Election.UNCLEAN)


def wiped_leader() -> Any:
    """The last known leader returns with an empty disk."""
    decide = elections.altered

    def changed(*arguments: Any, stopped: Stopped = NOBODY, **named: Any) -> Any:
        return decide(*arguments, stopped=stopped._replace(wiped=frozenset()), **named)

    return patch.object(elections, "altered", changed)


def shortened_leader() -> Any:
    """The last known leader returns although all have lost something."""
    decide = elections.elect

    def changed(*arguments: Any) -> Any:
        *others, rules, election = arguments
        return decide(*others, rules._replace(min_isr=1), election)

    return patch.object(elections, "elect", changed)


@pytest.mark.parametrize(
    "mistake",
    [
        unclean_is_eligible,
        elr_without_limit,
        elr_of_another_config,
        any_replica,
        wiped_leader,
        shortened_leader,
    ],
)
def test_the_model_finds_mistakes(mistake: Callable[[], Any]) -> None:
    """Each of these known ways to lose records is found within the usual seeds."""
    with mistake(), pytest.raises(AssertionError, match=r"^seed \d+: "):
        run_all(400)

"""Decisions about replicas that move: what is added, when it is done, what a cancellation does."""

import random

from ottla.cluster import elections, reassignment
from ottla.cluster.elections import Election, Rules
from ottla.cluster.image import BrokerInfo, ClusterImage, PartitionImage, TopicImage
from ottla.cluster.reassignment import Wanted
from ottla.cluster.requests import Refusal
from ottla.wire.errors import ErrorCode

THREE = PartitionImage(0, 1, 5, 9, (1, 2, 3), (1, 2, 3))
RULES = Rules(min_isr=2)


def moved(old: PartitionImage, target: tuple[int, ...]) -> PartitionImage:
    """The partition after the request, all brokers being alive."""
    wanted = reassignment.begun(old, target)
    new = elections.altered(old, wanted.isr, lambda each: True, RULES, wanted=wanted.partition)
    return new or old


def with_isr(old: PartitionImage, *isr: int) -> PartitionImage:
    return elections.altered(old, isr, lambda each: True, RULES) or old


def assigned(partition: PartitionImage) -> tuple[tuple[int, ...], ...]:
    return partition.replicas, partition.adding_replicas, partition.removing_replicas


class TestStages:
    def test_new_replicas_come_first_and_old_ones_stay(self) -> None:
        """Until the new ones are in the ISR nobody leaves, and the leader keeps its epoch."""
        new = moved(THREE, (4, 2, 5))
        assert assigned(new) == ((4, 2, 5, 1, 3), (4, 5), (1, 3))
        assert (new.leader, new.isr) == (1, (1, 2, 3))
        assert (new.leader_epoch, new.partition_epoch) == (5, 10)
        half = with_isr(new, 1, 2, 3, 4)
        assert assigned(half) == assigned(new)
        assert half.leader_epoch == 5

    def test_it_is_done_when_all_are_in_sync(self) -> None:
        """The replicas that it loses are gone, another leads, in another epoch."""
        done = with_isr(moved(THREE, (4, 2, 5)), 1, 2, 3, 4, 5)
        assert assigned(done) == ((4, 2, 5), (), ())
        assert (done.leader, set(done.isr)) == (4, {2, 4, 5})
        assert done.leader_epoch == 6
        assert done.elr == ()

    def test_a_kept_replica_may_be_out_of_sync(self) -> None:
        """What is new must be there, unless there are to be fewer: then all that stay must be."""
        old = THREE._replace(isr=(1, 3))
        begun = moved(old, (4, 2, 1))
        assert assigned(begun) == ((4, 2, 1, 3), (4,), (3,))
        assert assigned(with_isr(begun, 1, 3, 4)) == ((4, 2, 1), (), ())
        fewer = moved(old, (1, 2))
        assert assigned(fewer) == ((1, 2, 3), (), (3,))
        assert assigned(with_isr(fewer, 1, 2, 3)) == ((1, 2), (), ())

    def test_no_new_replica_is_left_alone_with_what_is_committed(self) -> None:
        """While fewer than min.insync.replicas would stay in the ISR, nobody leaves."""
        begun = moved(THREE._replace(isr=(1,)), (4, 2, 3))
        assert assigned(with_isr(begun, 1, 4)) == ((4, 2, 3, 1), (4,), (1,))
        assert assigned(with_isr(begun, 1, 2, 4)) == ((4, 2, 3), (), ())
        one = moved(THREE, (4,))
        assert assigned(with_isr(one, 1, 2, 3, 4)) == ((4,), (), ())

    def test_the_leader_stays_if_it_is_kept(self) -> None:
        """But its epoch rises, so that a replica that is gone is no follower any more."""
        done = with_isr(moved(THREE, (4, 2, 1)), 1, 2, 3, 4)
        assert (done.leader, done.leader_epoch) == (1, 6)

    def test_another_order_and_fewer_replicas_are_done_at_once(self) -> None:
        """Nothing has to be copied; the epoch rises only where a replica is gone."""
        order = moved(THREE, (3, 1, 2))
        assert assigned(order) == ((3, 1, 2), (), ())
        assert (order.leader, order.leader_epoch, order.partition_epoch) == (1, 5, 10)
        fewer = moved(THREE, (2,))
        assert assigned(fewer) == ((2,), (), ())
        assert (fewer.leader, fewer.isr, fewer.elr, fewer.leader_epoch) == (2, (2,), (), 6)
        assert elections.altered(THREE, THREE.isr, lambda each: True, RULES) is None

    def test_another_target_while_one_is_under_way(self) -> None:
        """It begins from the replicas that there are: what was being added may go again."""
        first = moved(THREE, (4, 2, 3))
        second = moved(first, (5, 2, 3))
        assert assigned(second) == ((5, 2, 3, 1, 4), (5,), (1, 4))
        back = moved(first, (1, 2, 3))
        assert assigned(back) == ((1, 2, 3), (), ())
        assert back.leader_epoch == 6

    def test_a_replica_that_is_gone_is_in_no_elr(self) -> None:
        """Though it left the ISR while that became smaller than min.insync.replicas."""
        old = PartitionImage(0, 1, 0, 0, (1, 2, 3), (1, 2))
        done = moved(moved(old, (1,)), (1,))
        assert (done.isr, done.elr) == ((1,), ())


class TestCancellation:
    def test_it_gives_up_what_was_added(self) -> None:
        """Also from the ISR; whom it was to lose stays."""
        begun = with_isr(moved(THREE, (4, 2, 5)), 1, 2, 3, 4)
        decided = reassignment.reverted(begun, "t", unclean=False)
        assert isinstance(decided, Wanted)
        assert assigned(decided.partition) == ((2, 1, 3), (), ())
        assert decided.isr == (1, 2, 3)

    def test_without_one_under_way(self) -> None:
        """NO_REASSIGNMENT_IN_PROGRESS, without words as in Kafka."""
        refusal = Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        assert reassignment.reverted(THREE, "t", unclean=True) == refusal

    def test_a_new_replica_that_the_isr_needs_is_kept(self) -> None:
        """The only other member may have lost its disk already; whoever is no member may go."""
        begun = moved(THREE._replace(leader=1, isr=(1,)), (4, 2))
        both = with_isr(begun, 1, 4)
        refused = reassignment.reverted(both, "t", unclean=False, min_isr=2)
        assert isinstance(refused, Refusal)
        assert refused.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert "leave 1 in-sync replicas, and min.insync.replicas asks for 2" in str(refused)
        for old, unclean, min_isr in ((both, True, 2), (both, False, 1), (begun, False, 2)):
            decided = reassignment.reverted(old, "t", unclean, min_isr)
            assert isinstance(decided, Wanted)
            assert decided.isr == (1,)

    def test_only_new_replicas_are_in_sync(self) -> None:
        """It would take an unclean election, which the topic must allow."""
        begun = moved(THREE, (4, 2, 3))._replace(leader=4, isr=(4,))
        refused = reassignment.reverted(begun, "t", unclean=False)
        assert isinstance(refused, Refusal)
        assert refused.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert "unclean leader election" in str(refused.error_message)
        decided = reassignment.reverted(begun, "t", unclean=True)
        assert isinstance(decided, Wanted)
        rules = Rules(2, unclean=True)
        new = elections.altered(
            begun,
            decided.isr,
            lambda each: each != 2,
            rules,
            Election.UNCLEAN,
            wanted=decided.partition,
        )
        assert new is not None
        assert (new.leader, new.isr, new.recovering) == (3, (3,), True)


class TestRefusals:
    def test_another_replication_factor(self) -> None:
        """Compared with what the partition is to have when it is being reassigned."""
        assert reassignment.factor_error(THREE, (4, 5, 6)) is None
        refusal = reassignment.factor_error(THREE, (4, 5))
        code = ErrorCode.INVALID_REPLICATION_FACTOR
        assert refusal == Refusal(code, "The replication factor is changed from 3 to 2")
        begun = moved(THREE, (4, 5))
        assert len(begun.replicas) == 5
        assert reassignment.factor_error(begun, (1, 2)) is None
        assert reassignment.factor_error(begun, (1, 2, 3)) is not None

    def test_the_topic_is_looked_at_before_the_partition(self) -> None:
        """Each has its own words; the code is the same."""
        topic = TopicImage("t", bytes(16), (THREE,))
        image = ClusterImage(topics={"t": topic})
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        none = Refusal(code, "Unable to find a topic named u.")
        assert reassignment.unknown(image, "u", 7) == none
        none = Refusal(code, "Unable to find partition t:7.")
        assert reassignment.unknown(image, "t", 7) == none
        assert reassignment.unknown(image, "t", 0) is None


def test_whatever_happens_the_leader_is_a_replica_in_sync() -> None:
    """From a seed: targets, cancellations, brokers that die and return, ISRs that leaders propose.

    Nobody who is in no list of replicas leads, is in the ISR or the ELR; what is added is among
    the replicas; a reassignment ends when its brokers are there.
    """
    for seed in range(300):
        chance = random.Random(seed)
        brokers = {each: BrokerInfo(each, {}, epoch=1) for each in range(1, 6)}
        now = PartitionImage(0, 1, 0, 0, (1, 2, 3), (1, 2, 3))
        for _ in range(40):
            new = step(chance, now, brokers)
            if new is None:
                continue
            assert new.partition_epoch == now.partition_epoch + 1
            gone = set(now.replicas) - set(new.replicas)
            assert (new.leader_epoch > now.leader_epoch) == (
                bool(gone) or new.leader != now.leader
            ), seed
            held = set(new.replicas)
            assert {*new.isr, *new.elr, *new.adding_replicas, *new.removing_replicas} <= held, seed
            assert new.leader in (-1, *new.isr), seed
            assert new.last_known_leader in (-1, *new.replicas), seed
            assert len(held) == len(new.replicas)
            now = new
        for each in brokers:
            brokers[each] = brokers[each]._replace(fenced=False)
        now = elections.settled(now, brokers, RULES, election=Election.UNCLEAN) or now
        now = elections.altered(now, sorted(now.replicas), alive(brokers), RULES) or now
        assert not reassignment.is_in_progress(now), seed


def alive(brokers: dict[int, BrokerInfo]) -> elections.IsActive:
    return lambda each: brokers[each].active


def step(
    chance: random.Random, now: PartitionImage, brokers: dict[int, BrokerInfo]
) -> PartitionImage | None:
    """One thing that happens, and the partition after it."""
    match chance.randrange(4):
        case 0:
            target = chance.sample(sorted(brokers), chance.randint(1, 4))
            wanted = reassignment.begun(now, target)
        case 1:
            decided = reassignment.reverted(now, "t", unclean=False)
            if isinstance(decided, Refusal):
                return None
            wanted = decided
        case 2:
            broker_id = chance.choice(sorted(brokers))
            broker = brokers[broker_id]
            brokers[broker_id] = broker._replace(fenced=not broker.fenced)
            return elections.settled(now, brokers, RULES)
        case _:
            if now.leader < 0:
                return None
            others = [each for each in now.replicas if brokers[each].active and each != now.leader]
            isr = sorted({now.leader, *chance.sample(others, chance.randint(0, len(others)))})
            wanted = Wanted(now, tuple(isr))
    return elections.altered(now, wanted.isr, alive(brokers), RULES, wanted=wanted.partition)

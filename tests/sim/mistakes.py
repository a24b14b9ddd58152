"""Mistakes planted into a simulated cluster, each a known way to lose or double records.

A mistake replaces one decision of the real code while a test runs; nothing of it is in the code
itself. The simulation must find each, or it proves nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from ottla.broker import broker as broker_module
from ottla.broker import metadata_applier, remote_controller
from ottla.broker.handlers import list_offsets, produce
from ottla.broker.metadata_applier import MetadataApplier
from ottla.broker.repairs import Repairs
from ottla.cluster import elections, reassignment, registration
from ottla.cluster.feed import Snapshot, follow_batches
from ottla.cluster.feed_messages import FeedMessages, ImagePieces
from ottla.cluster.image import BrokerInfo, ClusterImage, PartitionImage
from ottla.cluster.reassignment import Wanted
from ottla.cluster.state import State
from ottla.log import recovery
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.metadata_store.tree import ANY_VERSION, Operation, Set
from ottla.replica.follower import Fetcher
from ottla.replica.leader import LeaderState
from ottla.replica.partition import Partition
from ottla.testing.simulation.plan import TARGETS, Fault, Plan, draw_plan
from ottla.testing.simulation.run import ClusterRun, Outcome
from ottla.wire.api.follow_feed import FollowFeedResponse
from ottla.wire.errors import ErrorCode

append = Partition.append
assign = Partition.assign
completed = reassignment.completed
fetch_partition = Fetcher._fetch_partition
find_offset = list_offsets._find
growth = LeaderState.growth
register_broker = registration.register_broker
AMONG_ROT = ("kill", "pause", "cut", "controller", "move", "power", "stop", "slow", "step")


def _without_epochs(*names: str) -> Any:
    def changed(self: Fetcher, *arguments: Any) -> Any:
        asked = fetch_partition(self, *arguments)
        for name in names:
            setattr(asked, name, -1)
        return asked

    return patch.object(Fetcher, "_fetch_partition", changed)


@contextmanager
def truncate_by_watermark() -> Iterator[None]:
    """Before KIP-101: a new follower cuts its log to its own high watermark, not by epochs."""

    def changed(self: Partition, *arguments: Any) -> None:
        before = self.leader_epoch
        assign(self, *arguments)
        if self.leader_epoch > before >= 0 and not self.is_leader:
            self.truncate_to(self.high_watermark, now_ms=0)

    with _without_epochs("last_fetched_epoch"), patch.object(Partition, "assign", changed):
        yield


def no_epochs_in_the_fetch() -> AbstractContextManager[Any]:
    """Neither the leader's epoch nor the last record's: logs that part are not noticed."""
    return _without_epochs("current_leader_epoch", "last_fetched_epoch")


def answer_before_the_watermark() -> AbstractContextManager[Any]:
    """acks=all is answered once the leader has written."""
    return patch.object(produce, "_park", lambda response, *_: response)


def duplicate_acknowledged_early() -> AbstractContextManager[Any]:
    """A batch that is there already is acknowledged before the watermark has passed it."""

    def changed(self: Partition, *arguments: Any, **options: Any) -> Any:
        result = append(self, *arguments, **options)
        if result.duplicate:
            result.last_offset = -1
        return result

    return patch.object(Partition, "append", changed)


def watermark_of_the_leader_alone() -> AbstractContextManager[Any]:
    """What the leader has counts as committed, whoever is in the ISR."""
    return patch.object(LeaderState, "end_offsets", lambda self: [])


def watermark_moves_below_min_isr() -> AbstractContextManager[Any]:
    """The high watermark follows an ISR that is smaller than min.insync.replicas."""
    enough = property(lambda self: True)
    return patch.object(Partition, "has_min_isr", enough)


def growth_without_the_start_of_the_epoch() -> AbstractContextManager[Any]:
    """A follower joins the ISR when it has reached the high watermark of a new leader."""

    def changed(self: LeaderState, *arguments: Any) -> Any:
        start, self.start_offset = self.start_offset, 0
        try:
            return growth(self, *arguments)
        finally:
            self.start_offset = start

    return patch.object(LeaderState, "growth", changed)


def latest_offset_of_a_new_leader_too_early() -> AbstractContextManager[Any]:
    """Before KIP-207: ListOffsets is answered before the high watermark is known again."""

    def changed(partition: Partition, timestamp: int, end_offset: int) -> Any:
        partition.epoch_start_offset = 0
        return find_offset(partition, timestamp, end_offset)

    return patch.object(list_offsets, "_find", changed)


def stale_isr_change_accepted() -> AbstractContextManager[Any]:
    """The controller takes an ISR from whoever believes to lead, in whatever epoch."""
    return patch.object(elections, "proposal_error", lambda *_: ErrorCode.NONE)


def unclean_member_of_the_elr_elected() -> AbstractContextManager[Any]:
    """A broker that lost what it had not synced is eligible (ELR) when it returns."""

    async def changed(state: Any, broker: BrokerInfo, previous_epoch: int) -> BrokerInfo:
        known = state.image.brokers.get(broker.id)
        if known is not None and known.directories == broker.directories:
            previous_epoch = known.epoch
        return await register_broker(state, broker, previous_epoch)

    return patch.object(registration, "register_broker", changed)


def wiped_disk_elected() -> AbstractContextManager[Any]:
    """A broker that returns with an empty disk is as eligible as before."""

    async def changed(state: Any, broker: BrokerInfo, previous_epoch: int) -> BrokerInfo:
        known = state.image.brokers.get(broker.id)
        if known is not None and known.directories != broker.directories:
            broker = broker._replace(directories=known.directories)
            previous_epoch = known.epoch
        return await register_broker(state, broker, previous_epoch)

    return patch.object(registration, "register_broker", changed)


def deposed_controller_writes() -> AbstractContextManager[Any]:
    """A controller goes on to write after another one was elected."""

    async def changed(self: State, operations: Sequence[Operation], changes: Any) -> None:
        if operations:
            unchecked = [
                each._replace(version=ANY_VERSION) if isinstance(each, Set) else each
                for each in operations
            ]
            await self.tree.multi(unchecked)
        if changes:
            self.decisions.collisions.observe(changes)
            self.feed.publish(changes)

    return patch.object(State, "_flush", changed)


@contextmanager
def older_image_applied() -> Iterator[None]:
    """The controller gives an image that was made for another broker, and one that starts applies
    it although it is from before its registration."""

    def first_piece(self: FeedMessages, image: ClusterImage) -> FollowFeedResponse:
        for pieces in self._images.values():
            if self._can_follow(pieces.image):
                return pieces.answer(0)
        pieces = ImagePieces(image)
        self._images[image.controller_epoch, image.number] = pieces
        return pieces.answer(0)

    async def first_image(broker: Any, controller: Any) -> Snapshot:
        update = await controller.poll(broker.node_id, 0, 0)
        if isinstance(update, Snapshot):
            return update
        return Snapshot(follow_batches(ClusterImage(), update))

    with (
        patch.object(FeedMessages, "_first_piece", first_piece),
        patch.object(remote_controller, "CATCH_UPS_MAX", 0),
        patch.object(metadata_applier, "first_image", first_image),
    ):
        yield


def reassignment_completed_before_its_replicas_have_caught_up() -> AbstractContextManager[Any]:
    """The replicas that a partition loses are given up while the new ones copy its log."""

    def changed(partition: PartitionImage, isr: Sequence[int], min_isr: int = 1) -> Wanted:
        removing = partition.removing_replicas
        replicas = tuple(each for each in partition.replicas if each not in removing)
        if not (removing and replicas):
            return completed(partition, isr, min_isr)
        done = partition._replace(replicas=replicas, adding_replicas=(), removing_replicas=())
        return Wanted(done, replicas)

    return patch.object(reassignment, "completed", changed)


@contextmanager
def deleted_topic_adopted() -> Iterator[None]:
    """What a broker that was away has of a deleted topic becomes part of the next of its name."""

    async def confirm(broker: Any, image: ClusterImage) -> None:
        if image.deletions:
            await broker.controller.confirm_deletions(broker.node_id, list(image.deletions))

    async def nothing(*_: Any) -> None:
        pass

    def set_topic_id(self: LogManager, log: Log, topic_id: bytes) -> None:
        log.topic_id = topic_id

    with (
        patch.object(broker_module, "finish_deletions", confirm),
        patch.object(metadata_applier, "delete_folders", nothing),
        patch.object(MetadataApplier, "_remove_other_topics", nothing),
        patch.object(LogManager, "set_topic_id", set_topic_id),
    ):
        yield


def damaged_replica_is_cut_in_the_isr() -> AbstractContextManager[Any]:
    """A replica that finds damage cuts its log there, as a member of the ISR or its leader."""

    async def changed(self: Repairs, partition: Partition, found: Log) -> None:
        for damage in self.damaged.pop(partition):
            if damage.first_offset < partition.end_offset:
                partition.truncate_to(damage.first_offset, now_ms=self._broker.clock.now_ms())
        partition.damaged = False

    return patch.object(Repairs, "_repair", changed)


def bits_flip(seed: int) -> Plan:
    """Bits flip in what is synced, between a few other faults."""
    rng = random.Random(f"{seed} rot")
    kinds = rng.sample(AMONG_ROT, 3)
    rots = (
        Fault(round(rng.uniform(3, 15), 3), "rot", rng.choice(TARGETS), 0.0, rng.getrandbits(16))
        for _ in range(4)
    )
    return tuple(sorted((*draw_plan(seed, kinds, faults=6), *rots)))


def leader_behind_when_it_returns(seed: int) -> Plan:
    """A deposed leader shrinks its ISR to itself while it reaches neither the others nor the
    controller; the controller gets that later, and then the new leader dies."""
    rng = random.Random(seed)
    return (
        Fault(3.0, "cut", "leader", 5.0, rng.getrandbits(16)),
        Fault(3.0, "controller", "leader", 2.6, rng.getrandbits(16)),
        Fault(5.7 + rng.uniform(0, 0.5), "kill", "leader", 1.0, rng.getrandbits(16)),
    )


def followers_stand_still_until_the_leader_dies(seed: int) -> Plan:
    """Both leave the ISR; one of them leads next."""
    rng = random.Random(seed)
    return (
        Fault(2.0, "pause", "follower", 3.0, rng.getrandbits(16)),
        Fault(2.05, "pause", "follower", 3.0, rng.getrandbits(16)),
        Fault(4.7 + rng.uniform(0, 0.4), "kill", "leader", 2.0, rng.getrandbits(16)),
    )


def eligible_broker_loses_power(seed: int) -> Plan:
    """The second of two in the ISR loses power, then the leader dies: only the former returns."""
    rng = random.Random(seed)
    return (
        Fault(2.5, "kill", "follower", 7.0, rng.getrandbits(16)),
        Fault(3.5, "power", "follower", 4.0, rng.getrandbits(16)),
        Fault(6.8 + rng.uniform(0, 0.5), "kill", "leader", 2.0, rng.getrandbits(16)),
    )


def leader_dies_when_a_follower_joins(seed: int) -> Plan:
    """The last leader returns with the high watermark of its checkpoint, and dies again when a
    follower joins that lacks much and fetches little at a time over slow links."""
    rng = random.Random(seed)
    links_take_0_1_s = 0x15
    return (
        Fault(2.2, "kill", "follower", 2.0, rng.getrandbits(16)),
        *(Fault(2.6, "slow", each, 8.0, links_take_0_1_s) for each in ("1", "2", "3")),
        Fault(4.0, "kill", "follower", 0.9, rng.getrandbits(16)),
        Fault(4.0, "kill", "leader", 0.3, rng.getrandbits(16)),
        Fault(4.3, "join", "leader", 5.0, rng.getrandbits(16)),
    )


def eligible_broker_loses_its_disk(seed: int) -> Plan:
    """As `eligible_broker_loses_power`."""
    kill, power, last = eligible_broker_loses_power(seed)
    return (kill, power._replace(kind="wipe"), last)


@contextmanager
def a_sync_vouches_for_what_a_failed_one_left_out() -> Iterator[None]:
    """Linux takes pages that it could not write for clean; the next process syncs them."""
    with patch.object(recovery, "write_again", lambda *_: None):
        yield


def every_broker_fails_a_sync_and_then_loses_power(seed: int) -> Plan:
    """One after the other, and all at once: every record was synced by all when it was answered."""
    rng = random.Random(seed)
    return (
        *(Fault(0.5 + 1.5 * n, "sync-error", str(n), 0.3, rng.getrandbits(16)) for n in (1, 2, 3)),
        *(Fault(7.0, "power", str(n), 0.3, rng.getrandbits(16)) for n in (1, 2, 3)),
    )


class Mistake(NamedTuple):
    """A mistake, the seeds within which it is found, and the faults that bring it to light."""

    plant: Callable[[], AbstractContextManager[Any]]
    seeds: int
    plan: Callable[[int], Plan] = draw_plan
    settings: Mapping[str, object] = {}
    brokers: int = 3

    def run(self, seed: int) -> Outcome:
        """One run with the mistake planted."""
        with self.plant():
            run = ClusterRun(seed, self.plan(seed), brokers=self.brokers, settings=self.settings)
            return run.run()


MISTAKES = [
    Mistake(truncate_by_watermark, 5, lambda seed: draw_plan(seed, ("move",))),
    Mistake(no_epochs_in_the_fetch, 10),
    Mistake(answer_before_the_watermark, 10),
    Mistake(watermark_of_the_leader_alone, 10),
    Mistake(watermark_moves_below_min_isr, 30, followers_stand_still_until_the_leader_dies),
    Mistake(unclean_member_of_the_elr_elected, 10, eligible_broker_loses_power),
    Mistake(wiped_disk_elected, 10, eligible_broker_loses_its_disk),
    Mistake(duplicate_acknowledged_early, 20),
    Mistake(
        latest_offset_of_a_new_leader_too_early,
        10,
        lambda seed: draw_plan(seed, ("slow", "kill")),
    ),
    Mistake(stale_isr_change_accepted, 10, leader_behind_when_it_returns),
    Mistake(
        growth_without_the_start_of_the_epoch,
        10,
        leader_dies_when_a_follower_joins,
        {"replica.fetch.max.bytes": "300"},
    ),
    Mistake(deposed_controller_writes, 20, lambda seed: draw_plan(seed, ("depose", "controller"))),
    Mistake(older_image_applied, 20),
    Mistake(deleted_topic_adopted, 20, lambda seed: draw_plan(seed, ("kill", "stop"))),
    Mistake(damaged_replica_is_cut_in_the_isr, 5, bits_flip),
    Mistake(
        a_sync_vouches_for_what_a_failed_one_left_out,
        5,
        every_broker_fails_a_sync_and_then_loses_power,
        {"log.flush.before.ack": "true"},
    ),
    Mistake(
        reassignment_completed_before_its_replicas_have_caught_up,
        5,
        lambda seed: draw_plan(seed, ("reassign", "kill")),
        brokers=4,
    ),
]

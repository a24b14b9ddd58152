"""A run of a simulated cluster with a share group: a topic as a queue (KIP-932).

A producer writes to each partition; the members of `share_member.py` are given the records, while
faults strike the leaders of the partitions and the coordinators of the group and of its state.
After the last fault every record must come to be accepted or rejected by somebody, and the group's
durable state must end where the log does. `ottla.testing.queue_history` judges the rest. With an
even seed what is rejected becomes a dead letter (KIP-1191), which must be there at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping

from ottla.broker.shares.dead_letters import HEADER_OFFSET, HEADER_PARTITION, HEADER_TOPIC
from ottla.replica.partition import Partition
from ottla.replica.reads import FetchIsolation
from ottla.testing.history import Poll, Report
from ottla.testing.queue_history import QueueHistory, check
from ottla.testing.simulation.clients import Place
from ottla.testing.simulation.plan import Plan
from ottla.testing.simulation.run import BROKERS, TOPIC, TOPIC_CONFIGS, ClusterRun
from ottla.testing.simulation.share_member import GROUP, ShareMember
from ottla.testing.simulation.transformer import GROUPS
from ottla.wire.records import batch_bounds, read_records

# One partition: it has the state of every share partition.
STATES = Place("__share_group_state", 0)
# Where the group's dead letters go.
LETTERS = Place("dlq.queue", 0)
PARTITIONS = 2
MEMBERS = 3
LETTERS_BYTES = 1 << 20  # read at a time
LOCK_S = 1.0
ATTEMPTS_MAX = 10
GROUP_CONFIGS = {"share.auto.offset.reset": "earliest"}
SETTINGS: Mapping[str, object] = {
    "offsets.topic.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.snapshot.update.records.per.snapshot": 20,
    "share.coordinator.state.topic.prune.interval.ms": 2000,
    "share.coordinator.cold.partition.snapshot.interval.ms": 1500,
    # Each replica compacts by itself: the logs of its coordinators would not match batch by batch.
    "log.cleaner.enable": "false",
    "group.share.min.session.timeout.ms": 1500,
    "group.share.session.timeout.ms": 1500,
    "group.share.min.heartbeat.interval.ms": 300,
    "group.share.heartbeat.interval.ms": 300,
    "group.share.assignment.interval.ms": 0,
    "group.share.initialize.retry.interval.ms": 1000,
    "group.share.min.record.lock.duration.ms": int(LOCK_S * 1000),
    "group.share.record.lock.duration.ms": int(LOCK_S * 1000),
    "group.share.delivery.count.limit": ATTEMPTS_MAX,
}


class ShareRun(ClusterRun):
    """One history, with a queue."""

    faults_max = 10
    faults_s = 11.0

    def __init__(
        self,
        seed: int,
        plan: Plan | None = None,
        *,
        brokers: int = BROKERS,
        settings: Mapping[str, object] | None = None,
        zookeeper: bool = False,
    ) -> None:
        super().__init__(
            seed,
            plan,
            brokers=brokers,
            partitions=PARTITIONS,
            settings={**SETTINGS, **(settings or {})},
            zookeeper=zookeeper,
        )
        self.moved = [*self.places, GROUPS, STATES]
        self.struck = [self.places[0], GROUPS, STATES]
        self.queue = QueueHistory()
        self.lock_s = LOCK_S
        self.topic_id = b""
        self.processed = False
        self.has_letters = seed % 2 == 0
        self.rejected: set[tuple[Place, int]] = set()  # by members that got an answer
        self.accepted: Counter[tuple[Place, int]] = Counter()

    async def _begin(self) -> None:
        await super()._begin()
        compact = {"cleanup.policy": "compact", **TOPIC_CONFIGS}
        await self.admin.create_topic(GROUPS.topic, 1, self.replicas, compact)
        kept = {"cleanup.policy": "delete", "retention.ms": "-1", **TOPIC_CONFIGS}
        await self.admin.create_topic(STATES.topic, 1, self.replicas, kept)
        for name, value in GROUP_CONFIGS.items():
            await self.admin.set_group_config(GROUP, name, value)
        if self.has_letters:
            accepting = {"errors.deadletterqueue.group.enable": "true", **TOPIC_CONFIGS}
            await self.admin.create_topic(LETTERS.topic, 1, self.replicas, accepting)
            name = "errors.deadletterqueue.topic.name"
            await self.admin.set_group_config(GROUP, name, LETTERS.topic)
            await self.admin.raise_feature("share.version", 2)
        self.topic_id = self.view.image.topics[TOPIC].id

    def _start_clients(self) -> None:
        self._start_producers(PARTITIONS)
        self._start_readers(PARTITIONS)
        for number in range(MEMBERS):
            node = self.simulation.node(f"member{number}")
            node.task(ShareMember(self, node, TOPIC).run())

    def led_epoch(self, place: Place, host: str) -> int | None:
        """The leader epoch of a host if it leads the partition, and nobody after it."""
        for machine in self.machines.values():
            if machine.name == host:
                replica, known = machine.partition(place), self.view.partition(place)
                if replica is None or known is None or not replica.is_leader:
                    return None
                return replica.leader_epoch if replica.leader_epoch == known.leader_epoch else None
        return None

    def _missing(self) -> str | None:
        missing = super()._missing() or self._missing_of(GROUPS) or self._missing_of(STATES)
        if missing is not None:
            return missing
        if self.has_letters and (missing := self._missing_of(LETTERS)) is not None:
            return missing
        for place in self.places:
            missing = self._left_in_queue(place)
            if missing is not None:
                return missing
        self.processed = True
        return None

    def _left_in_queue(self, place: Place) -> str | None:
        """What of a partition is not done with, as the share coordinator has it."""
        image = self.view.partition(STATES)
        coordinating = self.machines.get(image.leader) if image is not None else None
        leading = self.machines.get(self.view.leader(place))
        partition = leading.partition(place) if leading is not None else None
        broker = coordinating.broker if coordinating is not None else None
        if broker is None or partition is None:
            return f"{place} or its state has no leader"
        coordinator = broker.coordinators.shares.coordinator_for("")
        states = getattr(getattr(coordinator, "shard", None), "states", {})
        state = states.get((GROUP, self.topic_id, place.number))
        if state is None:
            return f"the share coordinator does not know {place}"
        if state.start_offset < partition.end_offset:
            return f"the queue of {place} is at {state.start_offset} of {partition.end_offset}"
        return None

    def _judge(self) -> Report:
        if not self.problems:
            report = check(self.queue, self._log(), attempts_max=ATTEMPTS_MAX)
            if report.faults:
                self.problem(str(report))
            if self.has_letters:
                self._judge_letters()
        return super()._judge()

    def _judge_letters(self) -> None:
        """Every record whose rejection was answered has a letter, maybe more than one.

        But for those that somebody else had accepted: what comes late for a record that is done
        with is answered with success, and has no effect (as in Kafka).
        """
        machine = self.machines.get(self.view.leader(LETTERS))
        replica = machine.partition(LETTERS) if machine is not None else None
        if replica is None:
            self.problem(f"{LETTERS} has no leader")
            return
        found = letters_in(replica)
        for place, offset in sorted(self.rejected - found):
            if self.accepted[place, offset] > 0:
                continue
            self.problem(f"{place} at {offset} was rejected and has no dead letter")

    def _log(self) -> dict[Hashable, dict[int, str]]:
        """What the readers were given of each partition."""
        log: dict[Hashable, dict[int, str]] = {place: {} for place in self.places}
        for event in self.history.events:
            if isinstance(event, Poll):
                for offset, value in event.records:
                    log[event.partition][offset] = str(value)
        return log


def letters_in(partition: Partition) -> set[tuple[Place, int]]:
    """The places in the headers of all letters."""
    found: set[tuple[Place, int]] = set()
    offset = 0
    while offset < partition.high_watermark:
        info = partition.read(offset, LETTERS_BYTES, FetchIsolation.HIGH_WATERMARK)
        if info.records is None or not info.records.size:
            break
        data = bytes(info.records.file.pread(info.records.size, info.records.position))
        for start, end in batch_bounds(data):
            for record in read_records(data[start:end]):
                headers = {name: bytes(value or b"").decode() for name, value in record.headers}
                place = Place(headers[HEADER_TOPIC], int(headers[HEADER_PARTITION]))
                found.add((place, int(headers[HEADER_OFFSET])))
                offset = record.offset + 1
    return found

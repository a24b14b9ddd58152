"""Damage in this broker's logs: looked for by the scrubber (log/scrubber.py), and repaired.

A replica that finds damage below its high watermark leaves the ISR: the controller takes it out,
elects another leader if it led, and raises the leader epoch, so that no fetch sent before counts
(cluster/elections.py, `withdraws`). It fetches nothing while it is damaged and out of the ISR, so
it cannot join again, and is not elected. It reads the damaged range from the leader, or from
another replica, as a consumer would, and puts the bytes in the place of the damaged ones
(log/repair.py). Then it fetches again, and joins the ISR as any follower does. One that was found
at the start does not fetch before the ends of its segments were looked at.

Nothing is cut for it: no record that is sound loses a copy at any step. Only where the leader's log
was compacted otherwise the replica is cut, and copied again. The last member of an ISR stays in it,
and asks again later.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.log.failures import CorruptSegment
from ottla.log.repair import (
    Aborted,
    OffsetRange,
    Refill,
    is_current,
    keep_damaged,
    may_grow,
    note_damage,
    noted_damage,
)
from ottla.log.scrubber import Scrubber
from ottla.log.scrubbing import Damage, sound_range
from ottla.log.truncation import truncation_prepared
from ottla.log.upkeep import TimeSlice
from ottla.seams.disk import OutOfDescriptors
from ottla.seams.waiting import pause
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.batch_header import HEADER_BYTES, BatchHeader
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.log.log import Log
    from ottla.replica.partition import Partition

log = logging.getLogger("ottla.broker")

# Until the cluster's state is looked at again: it takes some milliseconds to change.
LOOK_S = 0.1
# Until the last member of an ISR looks for others, and one that could not be repaired tries again.
RETRY_S = 5.0
SUSPECT_S = 60.0  # within which a partition is checked once because of its followers
READ_COMMITTED = 1
TRIES = 3  # to copy a range, from each replica
ALONE = "alone in its ISR: it is repaired when another replica is in sync"
SLICES_NOTED = 64  # are synced and noted at once
SLICE_BYTES = 1024 * 1024  # fetched, checked and written at once; a larger batch comes whole


class Slice(NamedTuple):
    """Sound batches of another replica, and the transactions among them that were aborted."""

    data: bytes
    following_offset: int
    aborted: Aborted


class Repairs:
    """The scrubber of one broker, and what is done about what it finds."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.scrubber: Scrubber  # from the start on
        # What is known to be damaged, and being repaired.
        self.damaged: dict[Partition, list[Damage]] = {}
        self._waits: dict[Partition, str] = {}  # why it cannot be for now, which was logged
        # What the file in the log's folder says of it.
        self._noted: dict[Partition, tuple[list[OffsetRange], str]] = {}
        # Replicas whose segments have not been looked at since the start: nothing may be missing.
        self._not_looked_at: dict[Partition, None] = {}
        # When each was last checked because of a follower.
        self._suspected: dict[tuple[bytes, int], float] = {}
        metrics = broker.metrics
        self._found = metrics.counter(
            "ottla_log_DamageFound", "Times that the scrubber has found damaged batches in a log."
        )
        self._repaired = metrics.counter(
            "ottla_log_DamageRepaired", "Damaged ranges that were copied from another replica."
        )
        metrics.gauge(
            "ottla_log_DamagedPartitions",
            lambda: len(self.damaged),
            "Replicas that are damaged and wait for their repair.",
        )

    def begin(self, opened: AsyncExitStack) -> None:
        """Begin to scrub, before a partition is opened; the logs are there. `opened` ends it."""
        broker = self._broker
        self.scrubber = scrubber = Scrubber(
            broker.logs, broker.chance, limit_of=self.limit_of, damaged=self._damage_found
        )
        broker.metrics.gauge(
            "ottla_log_ScrubbedBytes",
            lambda: scrubber.bytes_read,
            "Bytes that the scrubber has read since the start.",
        )
        scrubber.reconfigure(broker.settings)
        broker.on_configured.append(scrubber.reconfigure)
        scrubber.begin()
        opened.callback(scrubber.stop)

    async def _check_noted(self, partition: Partition, found: Log) -> None:
        """Check what was being repaired when the last process ended."""
        for first_offset, next_offset in noted_damage(found.disk, found.directory):
            await self.scrubber.scrub_range(found, first_offset, next_offset)
        if partition not in self.damaged:
            await self._note(partition, found)
            self._noted.pop(partition, None)

    def limit_of(self, found: Log) -> int:
        """Below it all is synced and committed."""
        return min(found.recovery_point, self._broker.logs.high_watermark_of(found))

    def opened(self, partition: Partition) -> None:
        """Look whether segments of a replica miss their ends, or a repair was not finished. Until
        then it cannot join an ISR: its end may be that of the leader all the same.
        """
        if len(partition.replicas) < 2 or not partition.end_offset:
            return
        partition.damaged = True
        self._not_looked_at[partition] = None
        if len(self._not_looked_at) == 1:
            self._broker.replication.spawn(self._look_at_ends())

    async def _look_at_ends(self) -> None:
        time_slice = TimeSlice(self._broker.clock)
        while self._not_looked_at:
            await time_slice.yield_if_over()
            partition = next(iter(self._not_looked_at))
            name = f"{partition.topic}-{partition.index}"
            try:
                found = self._broker.logs.get(partition.topic, partition.index)
                if found is not None:
                    await self.scrubber.check_ends(found, urgent=True)
                    await self._check_noted(partition, found)
            except OutOfDescriptors as error:
                log.info("%s waits to be looked at: %s", name, error)
                await pause(self._broker.clock, RETRY_S)
                continue
            except Exception:
                log.exception("the segments of %s cannot be looked at", name)
            del self._not_looked_at[partition]
            if partition not in self.damaged:
                partition.damaged = False
                self._broker.replication.repaired(partition)

    def _damage_found(self, found: Log, damage: Damage) -> None:
        self._found.value += 1
        partition = self._broker.partitions.get(found.topic, found.partition)
        if partition is None or len(partition.replicas) < 2:
            log.error(
                "%s is damaged, and there is no other replica to copy from: %s. All else can be "
                "read. Try: restore the file from a backup, or give up what is there and before "
                "it (kafka-delete-records.sh, offset %d)",
                found.name,
                damage,
                damage.next_offset,
            )
            return
        known = self.damaged.get(partition)
        if known is None:
            log.error("%s is damaged, and is to be repaired: %s", found.name, damage)
            self.damaged[partition] = [damage]
            partition.damaged = True
            self._broker.replication.spawn(self._repair(partition, found))
        elif all(each.segment is not damage.segment or each.position != damage.position
                 for each in known):  # fmt: skip
            log.error("%s is damaged, and is to be repaired: %s", found.name, damage)
            known.append(damage)

    def suspect(self, partition: Partition, offset: int) -> None:
        """A follower asks for the records at `offset` again and again: check them, unless that was
        done lately.
        """
        found = self._broker.logs.get(partition.topic, partition.index)
        if found is None or not self.scrubber.bytes_per_second:
            return
        now_s = self._broker.clock.monotonic()
        key = (partition.topic_id, partition.index)
        if now_s - self._suspected.get(key, -SUSPECT_S) >= SUSPECT_S:
            lately = {k: at_s for k, at_s in self._suspected.items() if now_s - at_s < SUSPECT_S}
            self._suspected = {**lately, key: now_s}
            self._broker.replication.spawn(self.scrubber.scrub_at(found, offset))

    async def _repair(self, partition: Partition, found: Log) -> None:
        """Leave the ISR, copy what is damaged, and follow again."""
        damaged = self.damaged[partition]
        try:
            while damaged and self._is_here(partition):
                if not is_current(found, damaged[0]):
                    damaged.pop(0)
                    continue
                try:
                    await self._note(partition, found)
                    if await self._has_left(partition):
                        await self._note(partition, found)
                        await self._copy(partition, found, damaged)
                        damaged.pop(0)  # what could not be repaired is found again
                except OSError as problem:
                    # A full disk, say. The log is as it was: a later try may succeed.
                    log.error("%s cannot be repaired now: %s", found.name, problem)
                    self._waits[partition] = str(problem)
                    await pause(self._broker.clock, RETRY_S)
            if found.offline is None:
                await self._note(partition, found)
        except OSError as problem:
            log.warning("%s is checked again at the next start: %s", found.name, problem)
        finally:
            self._waits.pop(partition, None)
            self._noted.pop(partition, None)
            del self.damaged[partition]
            partition.damaged = partition in self._not_looked_at
        self._broker.replication.repaired(partition)

    async def _note(self, partition: Partition, found: Log) -> None:
        """Note in the log's folder what is damaged, and why it stays so: a start after a crash
        looks there first.
        """
        ranges = [(each.first_offset, each.next_offset) for each in self.damaged.get(partition, ())]
        said = (ranges, self._waits.get(partition, ""))
        if self._noted.get(partition) != said:
            logs = self._broker.logs
            await logs.background.thread(note_damage, logs.disk, found.directory, *said)
            self._noted[partition] = said

    def _is_here(self, partition: Partition) -> bool:
        here = self._broker.partitions.by_name.get(partition.topic, {}).get(partition.index)
        return here is partition and partition.offline is None and len(partition.replicas) > 1

    async def _has_left(self, partition: Partition) -> bool:
        """Whether this replica is out of the ISR and another one leads; asks for it if not."""
        broker = self._broker
        image = broker.image.partition(partition.topic, partition.index)
        if image is None or image.leader_epoch != partition.leader_epoch:
            await pause(broker.clock, LOOK_S)
            return False
        if broker.node_id not in image.isr:
            if image.leader >= 0:
                self._waits.pop(partition, None)
                return True
            await pause(broker.clock, LOOK_S)
            return False
        if image.isr == (broker.node_id,):
            if partition not in self._waits:
                self._waits[partition] = ALONE
                log.error("%s-%d is damaged and %s", partition.topic, partition.index, ALONE)
            await pause(broker.clock, RETRY_S)
            return False
        await broker.replication.leave_isr(partition, image)
        await pause(broker.clock, LOOK_S)
        return False

    async def _copy(self, partition: Partition, found: Log, damaged: list[Damage]) -> None:
        """Repair the first damage. Raises OSError when it cannot be kept, or noted: nothing has
        changed then, or less is damaged.
        """
        damage = damaged[0]
        sources = [partition.leader_id, *partition.replicas]
        is_kept = False
        for number in range(TRIES):
            for source in dict.fromkeys(each for each in sources if each != partition.node_id):
                size = await self._measure(source, partition, damage)
                if not is_current(found, damage):
                    return  # deleted meanwhile, or copied to another directory
                if size is None:
                    continue
                if size == damage.size or (size > damage.size and may_grow(found, damage)):
                    if not is_kept:
                        await keep_damaged(self._broker.logs, found, damage)
                        is_kept = True
                    rest = await self._put_in_place(partition, found, damage, size, source)
                    if rest is None:
                        return
                    damage = damaged[0] = rest
                    continue
                by_leader = source == partition.leader_id and partition.config.compact
                if by_leader and partition.has_min_isr:
                    await self._copy_again(partition, found, damage)
                    return
            if number < TRIES - 1:
                self._waits[partition] = "no other replica that can be asked has the same batches"
                await self._note(partition, found)
                await pause(self._broker.clock, RETRY_S)
        log.error(
            "%s is damaged, and no other replica has the same batches: %s. Try: restore the file "
            "from a backup, or give up what is there and before it (kafka-delete-records.sh, "
            "offset %d)",
            found.name,
            damage,
            damage.next_offset,
        )

    async def _put_in_place(
        self, partition: Partition, found: Log, damage: Damage, size: int, source: int
    ) -> Damage | None:
        """Copy the range; what is still damaged when the source fails, None if nothing is, or the
        log is no longer there.
        """
        # New segments need to know which transactions were aborted.
        isolation = READ_COMMITTED if size > damage.size else 0
        try:
            refill = Refill(self._broker.logs, found, damage, size)
            slices = 0
            while (rest := refill.rest).first_offset < rest.next_offset:
                each = await self._slice(source, partition, rest, rest.first_offset, isolation)
                if not is_current(found, rest):
                    return None
                if each is None or not refill.write(*each):
                    break
                slices += 1
                if not slices % SLICES_NOTED and each.following_offset < rest.next_offset:
                    await refill.sync()
                    self.damaged[partition][0] = refill.rest
                    with suppress(OSError):  # what is noted is more than is damaged
                        await self._note(partition, found)
            await refill.finish()
        except OSError as problem:
            partition.go_offline("cannot be repaired", problem)
            return None
        if rest.first_offset < rest.next_offset or rest.size:
            return rest
        self._repaired.value += 1
        log.warning("%s is repaired from broker %d: %s", found.name, source, damage)
        return None

    async def _copy_again(self, partition: Partition, found: Log, damage: Damage) -> None:
        """The leader's log was compacted otherwise: begin again where the damaged segment begins.

        All from there on is kept beside the log, and copied from the leader. Others have what was
        committed, as many as `min.insync.replicas` asks for; this one is not eligible.
        """
        broker = self._broker
        offset, epoch = damage.segment.base_offset, partition.leader_epoch
        try:
            async with truncation_prepared(broker.logs, found, offset, set_aside=True) as cut:
                if (
                    is_current(found, damage)
                    and partition.leader_epoch == epoch
                    and broker.node_id not in partition.in_sync
                ):
                    partition.truncate_to(offset, now_ms=broker.clock.now_ms())
                    cut.done = True
        except CorruptSegment as problem:
            log.error("%s cannot be cut: %s", found.name, problem)
            return
        if cut.done:
            self._repaired.value += 1
            log.warning("%s is copied again from offset %d on: %s", found.name, offset, damage)
        partition.sync_if_needed()

    async def _measure(self, source: int, partition: Partition, damage: Damage) -> int | None:
        """How many bytes the batches of another replica with the damaged offsets have; None if it
        has no sound ones.
        """
        size, offset = 0, damage.first_offset
        while offset < damage.next_offset:
            each = await self._slice(source, partition, damage, offset)
            if each is None:
                return None
            size, offset = size + len(each.data), each.following_offset
        return size

    async def _slice(
        self, source: int, partition: Partition, damage: Damage, offset: int, isolation: int = 0
    ) -> Slice | None:
        """Batches of another replica from `offset` on, which is damaged; None: no sound ones."""
        answer, aborted = await self._ask(source, partition, offset, isolation)
        whole, following_offset = whole_batches(answer, offset)
        data = sound_range(damage._replace(first_offset=offset), whole) if whole else None
        if data is None:
            return None
        return Slice(data, min(following_offset, damage.next_offset), aborted)

    async def _ask(
        self, source: int, partition: Partition, offset: int, isolation: int
    ) -> tuple[bytes, Aborted]:
        """Records from `offset` on, as a consumer is given them, and the aborted transactions among
        them, if it reads committed ones; empty if there is an error.
        """
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        wanted = FetchPartition(
            partition=partition.index, fetch_offset=offset, partition_max_bytes=SLICE_BYTES
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=SLICE_BYTES,
            isolation_level=isolation,
            topics=[FetchTopic(topic_id=partition.topic_id, partitions=[wanted])],
        )

        def settle(response: Any) -> None:
            if not answered.done():
                answered.set_result(response)

        self._broker.peers.send(source, request, settle)
        response = await answered
        if isinstance(response, ErrorCode) or response.error_code or not response.responses:
            return b"", []
        [found] = response.responses[0].partitions
        if found.error_code:
            return b"", []
        aborted = [
            (each.producer_id, each.first_offset) for each in found.aborted_transactions or ()
        ]
        return bytes(found.records or b""), aborted


def whole_batches(data: bytes, offset: int) -> tuple[bytes, int]:
    """The batches in an answer that are whole, and the offset behind them; unchecked."""
    at = 0
    while at + HEADER_BYTES <= len(data):
        batch = BatchHeader(data, at)
        if batch.size < HEADER_BYTES or at + batch.size > len(data):
            break
        at += batch.size
        offset = batch.last_offset + 1
    return data[:at], offset

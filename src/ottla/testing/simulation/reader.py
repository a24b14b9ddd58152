"""A reader of one partition of a simulated cluster, which judges what it is given.

What it was given must stay: the latest offset never goes back, no offset that it was given is out
of range at a leader, and the epoch of its last record ends where it has read or later.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from ottla.testing.simulation.clients import (
    NO_EPOCH,
    RETRY_S,
    ClusterClient,
    Place,
    Workload,
    fetch_request,
    records_in,
    within,
)
from ottla.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.api.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.seams.simulated.simulation import Node

LATEST_SHARE = 0.1  # of a reader's requests ask where the partition ends
FOLLOWER_SHARE = 0.15  # go to any broker
LATEST = -1


class Reader:
    """Reads a partition from its start; what it was given must stay, and the end never goes back.

    After a change of leader it asks where the epoch of its last record ends, as consumers do
    (KIP-320).
    """

    def __init__(self, workload: Workload, node: Node, place: Place, seed: object) -> None:
        self._workload = workload
        self._node = node
        self.place = place
        self._rng = random.Random(f"{seed} {node.name}")
        self._client = ClusterClient(node, workload.hosts, self._rng)
        self.offset = 0
        self._latest = 0
        self._last_epoch = NO_EPOCH  # of the last record read
        self._validated = NO_EPOCH  # the leader epoch under which that was confirmed

    async def run(self) -> None:
        while True:
            chance = self._rng.random()
            if chance < LATEST_SHARE:
                good = await self._ask_latest()
            elif chance < LATEST_SHARE + FOLLOWER_SHARE:
                good = await self._fetch_anywhere()
            else:
                good = await self._fetch()
            if not good:
                self._client.forget(self.place)
                await asyncio.sleep(RETRY_S)

    async def _fetch(self) -> bool:
        if not await self._validate():
            return False
        found = await self._client.ask(
            self.place, lambda epoch: fetch_request(self.place, self.offset, epoch), 12
        )
        if found is None:
            return False
        data = found[0].responses[0].partitions[0]
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._workload.problem(
                f"{self._node.name}: offset {self.offset} of {self.place} is out of range in epoch "
                f"{found[1]}"
            )
        return self._take(data)

    async def _fetch_anywhere(self) -> bool:
        """Fetch from any broker, as a consumer that was sent to a follower does (KIP-392)."""
        found = await self._client.leader(self.place)
        if found is None or not await self._validate():
            return False
        connection = await self._client.connect(self._rng.choice(self._workload.hosts))
        if connection is None:
            return True  # the leader is asked next
        request = fetch_request(self.place, self.offset, found[1])
        answer = await within(connection.post(request, 12))
        if answer is None:
            connection.close()
            return True
        # A follower may be behind what its leader gave: then it says that it has no such offset.
        self._take(answer.responses[0].partitions[0])
        return True

    def _take(self, data: Any) -> bool:
        if data.error_code:
            return False
        records = [each for each in records_in(data.records) if each[0] >= self.offset]
        if records:
            read = [(offset, value) for offset, value, _ in records]
            self._workload.history.polled(self._node.name, self.place, read)
            self.offset = records[-1][0] + 1
            self._last_epoch = records[-1][2]
        return bool(records) or not data.records  # else what it is given is damaged

    async def _validate(self) -> bool:
        found = await self._client.leader(self.place)
        if found is None:
            return False
        if found[1] == self._validated or self._last_epoch == NO_EPOCH:
            return True

        def request(epoch: int) -> OffsetForLeaderEpochRequest:
            partition = OffsetForLeaderPartition(
                partition=self.place.number,
                current_leader_epoch=epoch,
                leader_epoch=self._last_epoch,
            )
            topic = OffsetForLeaderTopic(topic=self.place.topic, partitions=[partition])
            return OffsetForLeaderEpochRequest(topics=[topic])

        answer = await self._client.ask(self.place, request, 4)
        if answer is None:
            return False
        end = answer[0].topics[0].partitions[0]
        if end.error_code:
            return False
        if end.leader_epoch != self._last_epoch or end.end_offset < self.offset:
            self._workload.problem(
                f"{self._node.name} read {self.place} to {self.offset} in epoch {self._last_epoch}"
                f", which ends at {end.end_offset} (epoch {end.leader_epoch}) by the leader of "
                f"epoch {answer[1]}"
            )
        self._validated = answer[1]
        return True

    async def _ask_latest(self) -> bool:
        found = await self._client.ask(self.place, self._latest_request, 5)
        if found is None:
            return False
        data = found[0].topics[0].partitions[0]
        if data.error_code:
            return False
        expected = max(self._latest, self.offset)
        if data.offset < expected:
            self._workload.problem(
                f"{self._node.name}: latest offset of {self.place} went back from {expected} to "
                f"{data.offset} in epoch {found[1]}"
            )
        self._latest = max(self._latest, data.offset)
        return True

    def _latest_request(self, epoch: int) -> ListOffsetsRequest:
        partition = ListOffsetsPartition(
            partition_index=self.place.number, current_leader_epoch=epoch, timestamp=LATEST
        )
        topic = ListOffsetsTopic(name=self.place.topic, partitions=[partition])
        return ListOffsetsRequest(replica_id=-1, topics=[topic])

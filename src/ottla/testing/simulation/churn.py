"""A client of a simulated cluster that creates, grows, configures and deletes topics."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Container
from typing import TYPE_CHECKING, Any

from ottla.log.directories import DELETE_SUFFIX, STRAY_SUFFIX
from ottla.testing.simulation.admin import RETRY_S, Admin
from ottla.testing.simulation.clients import (
    ClusterClient,
    Place,
    Workload,
    fetch_request,
    produce_request,
    records_in,
)
from ottla.wire.records import Record, write_batch

if TYPE_CHECKING:
    from ottla.seams.simulated.simulation import Node

CHURNED = ("c0", "c1")  # the names of its topics
BATCHES_MAX = 4
BY_ID_VERSION = 13  # of Produce and Fetch: topics by id, so that no other of the name is meant


def is_left(folder: str, topic_id: bytes | None, topics: Container[str]) -> bool:
    """Whether a partition's folder is of one of these topics that is no more, and should be gone.

    `topic_id` as the folder has it; `topics` are there. A folder that is renamed is unlinked later
    (file.delete.delay.ms). A stray one whose id a crash has taken stays, as Kafka's do: nobody can
    say which topic of its name it is of.
    """
    if not folder.startswith(CHURNED) or folder.endswith(DELETE_SUFFIX):
        return False
    # A request to create that came late may have made one more topic.
    if folder.rpartition("-")[0] in topics:
        return False
    return not folder.endswith(STRAY_SUFFIX) or topic_id is not None


class Churn:
    """Creates topics, writes and reads them, deletes them, and creates others of the same names.

    A topic of a name has nothing of the one before.
    """

    def __init__(self, workload: Workload, node: Node, replicas: int, seed: object) -> None:
        self._workload = workload
        self._node = node
        self._replicas = replicas
        self._rng = random.Random(f"{seed} {node.name}")
        self._admin = Admin(node, workload.hosts, self._rng)
        self._ids: set[bytes] = set()
        self._unsure: set[bytes] = set()  # ids of topics that may be deleted
        self.topics = 0

    async def run(self) -> None:
        while not self._workload.done:
            name = self._rng.choice(CHURNED)
            partitions = self._rng.randint(1, 2)
            topic_id = await self._admin.create_topic(
                name, partitions, self._replicas, unlike=self._ids, unsure=self._unsure
            )
            if topic_id in self._ids:
                self._workload.problem(f"topic {name} has the id of an earlier one")
            self._ids.add(topic_id)
            self.topics += 1
            known = {name: topic_id}
            client = ClusterClient(self._node, self._workload.hosts, self._rng, known)
            place = Place(name, self._rng.randrange(partitions))
            end = await self._write(client, place, topic_id)
            if self._rng.random() < 0.3:
                await self._admin.add_partitions(name, partitions + 1)
            await self._read(client, place, topic_id, end)
            client.close()
            gone = await self._admin.delete_topic(topic_id)
            (self._workload.deleted if gone else self._unsure).add(topic_id)
            await asyncio.sleep(self._rng.uniform(0, 0.5))

    async def _write(self, client: ClusterClient, place: Place, topic_id: bytes) -> int:
        """Write some records; the offset after the last that was acknowledged."""
        end = 0
        for number in range(self._rng.randint(1, BATCHES_MAX)):
            value = f"{topic_id.hex()} {number}"
            batch = write_batch(
                [Record(value.encode(), timestamp=self._node.clock.now_ms())],
                producer_id=self.topics,
                producer_epoch=0,
                base_sequence=number,
            )
            request = produce_request(place, batch, acks=-1, topic_id=topic_id)
            offset = await self._send(client, place, request)
            self._workload.history.sent(self._node.name, topic_id, value, offset=offset)
            end = offset + 1
        return end

    async def _send(self, client: ClusterClient, place: Place, request: Any) -> int:
        while True:
            answer = await client.ask(place, request, BY_ID_VERSION)
            if answer is not None:
                data = answer[0].responses[0].partition_responses[0]
                if not data.error_code:
                    return int(data.base_offset)
                client.forget(place)
            await asyncio.sleep(RETRY_S)

    async def _read(self, client: ClusterClient, place: Place, topic_id: bytes, end: int) -> None:
        reader = f"{self._node.name} {self.topics}"
        offset = 0
        while offset < end:
            found = await client.ask(
                place,
                lambda epoch, at=offset: fetch_request(place, at, epoch, topic_id),
                BY_ID_VERSION,
            )
            data = found[0].responses[0].partitions[0] if found is not None else None
            if data is None or data.error_code:
                client.forget(place)
                await asyncio.sleep(RETRY_S)
                continue
            records = [each for each in records_in(data.records) if each[0] >= offset]
            if records:
                read = [(at, value) for at, value, _ in records]
                self._workload.history.polled(reader, topic_id, read)
                offset = records[-1][0] + 1

"""A simulated client that copies in transactions, among brokers that answer what is scripted."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.seams.simulated.simulation import Simulation
from ottla.testing.simulation.clients import ClusterClient, Place
from ottla.testing.simulation.transformer import Transformer, Workload
from ottla.wire.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

COMMITTED = OffsetFetchResponsePartitions(committed_offset=104, committed_leader_epoch=26)
EPOCHS = {"replaced": 25, "leader": 26}


class ScriptedBroker:
    """A connection to a broker that takes itself for the leader of everything."""

    closed = False

    def __init__(self, host: str) -> None:
        self.host = host

    def post(self, request: Any, version: int) -> asyncio.Future[Any]:
        answered = asyncio.get_running_loop().create_future()
        answered.set_result(self._answer(request))
        return answered

    def _answer(self, request: Any) -> Any:
        if isinstance(request, OffsetFetchRequest):
            topic = OffsetFetchResponseTopics(partitions=[COMMITTED])
            return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(topics=[topic])])
        partition = MetadataResponsePartition(leader_id=1, leader_epoch=EPOCHS[self.host])
        topics = [
            MetadataResponseTopic(name=each.name, partitions=[partition]) for each in request.topics
        ]
        brokers = [MetadataResponseBroker(node_id=1, host=self.host)]
        return MetadataResponse(brokers=brokers, topics=topics)


def test_no_leader_before_the_epoch_of_a_committed_offset_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that was replaced and does not know it may lack what another client has read: it says
    that the offset is out of range, as Kafka's would (seed 600948 with transactions).
    """

    async def connect(client: ClusterClient, host: str) -> Any:
        return ScriptedBroker(host)

    monkeypatch.setattr(ClusterClient, "connect", connect)
    source = Place("source", 0)
    workload = cast("Workload", SimpleNamespace(hosts=list(EPOCHS), transformed=False))
    with Simulation(1) as simulation:
        node = simulation.node("client")
        transformer = Transformer(workload, node, source, Place("output", 0), bumps=False)

        async def begin() -> list[int]:
            client = transformer._client
            client._at = -1
            await client.leader(source)  # it knows the one that was replaced
            assert await transformer._committed_offset() == COMMITTED.committed_offset
            found = [await client.leader(source) for _ in EPOCHS]
            return [each[1] for each in found if each is not None]

        epochs = node.run(begin(), limit_s=10)
    assert set(epochs) == {COMMITTED.committed_leader_epoch}

"""Producer ids among several brokers: no two producers ever have the same."""

from __future__ import annotations

import asyncio

from ottla.broker.producer_ids import ProducerIds
from ottla.cluster.producer_ids import BLOCK_SIZE
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, write_batch
from tests.broker.cluster_harness import SHARED, Cluster
from tests.broker.harness import produce_request
from tests.simulated import run_simulated


def next_id(cluster: Cluster, broker_id: int) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    answer = cluster.ask(broker_id, request, 4)
    assert not answer.error_code, ErrorCode(answer.error_code)
    return int(answer.producer_id)


def test_brokers_have_ids_of_their_own() -> None:
    """Blocks come from the controller, also from the next one and after a broker's restart."""
    with Cluster(3) as cluster:
        found = [next_id(cluster, each) for each in (1, 2, 3, 2, 3)]
        cluster.brokers[1].crash()
        cluster.host(2)
        cluster.brokers[3].crash()
        cluster.brokers[3].start()
        cluster.brokers[1].start()
        cluster.wait(lambda: all(each.started for each in cluster.brokers.values()))
        found += [next_id(cluster, each) for each in (1, 2, 3, 2, 3)]
        assert len(set(found)) == len(found)


def test_a_new_tree_begins_beyond_the_ids_on_the_disks() -> None:
    """The tree is lost: brokers register with the highest id that their logs know.

    Under an id from before, a new producer's records would be taken for duplicates.
    """
    with Cluster(3) as cluster:
        cluster.create("t", 1, 3, through=2)
        cluster.wait(lambda: cluster.images_agree((1, 2, 3)))
        for _ in range(3):
            used = next_id(cluster, 2)
        batch = write_batch(
            [Record(b"x", timestamp=1)], producer_id=used, producer_epoch=0, base_sequence=0
        )
        leader = cluster.partition("t").leader
        answer = cluster.ask(leader, produce_request("t", 0, batch), 9)
        assert not answer.responses[0].partition_responses[0].error_code
        for broker in cluster.brokers.values():
            broker.crash()
        cluster.shared = SimulatedDisk()
        cluster.shared.mkdir(SHARED)
        for broker in cluster.brokers.values():
            broker.start()
        cluster.wait(lambda: all(each.started for each in cluster.brokers.values()))
        assert min(next_id(cluster, each) for each in (1, 2, 3)) > used


def test_the_next_block_is_there_before_it_is_needed() -> None:
    """At nine tenths of a block the next is requested: producers begin without a controller too."""
    with Cluster(3) as cluster:
        broker = cluster.brokers[2].broker

        async def take(count: int) -> list[int | None]:
            return [broker.producer_ids.take() for _ in range(count)]

        found = [next_id(cluster, 2)]
        found += cluster.run(cluster.brokers[2].node, take(BLOCK_SIZE * 9 // 10 - 2))
        last = cluster.controller._state.last_producer_id
        found.append(next_id(cluster, 2))
        cluster.wait(lambda: cluster.controller._state.last_producer_id != last)
        cluster.simulation.run_for(1.0)
        cluster.brokers[1].crash()
        found += cluster.run(cluster.brokers[2].node, take(BLOCK_SIZE // 10 - 1))
        found += [next_id(cluster, 2) for _ in range(3)]
        assert len(set(found)) == len(found) == BLOCK_SIZE + 2
        assert None not in found


def test_a_block_that_was_not_allocated_is_asked_for_again() -> None:
    """A failure costs nobody an id that is left, and the next one who takes an id tries again."""
    answers: list[range | Exception | None] = [range(10), None, OSError("lost"), range(10, 20)]

    async def allocate() -> range | None:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def scenario() -> None:
        ids = ProducerIds(allocate)
        assert ids.take() is None
        assert await ids.next() == 0
        found = []
        for _ in range(9):
            found.append(ids.take())
            await asyncio.sleep(0)
        assert found == list(range(1, 10))
        assert len(answers) == 1  # asked for in vain with one id left, and with none left
        assert await ids.next() == 10

    run_simulated(scenario())

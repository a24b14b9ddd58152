"""Producer ids among several brokers: no two producers ever have the same."""

from __future__ import annotations

from ottla.seams.simulated.disk import SimulatedDisk
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, write_batch
from tests.broker.cluster_harness import SHARED, Cluster
from tests.broker.harness import produce_request


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

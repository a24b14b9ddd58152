"""An operator's mistakes with the folders of one broker of three."""

from __future__ import annotations

import pytest

from tests.broker.cluster_clients import SETTINGS, ClusterClient, codes, place
from tests.broker.cluster_harness import Cluster
from tests.broker.harness import DATA, fetch_request, produce_request, values
from tests.broker.transactional import TOPIC

FOLDERS = [f"{DATA}/{TOPIC}-{index}" for index in (0, 1)]


def exchange_folders(cluster: Cluster, broker_id: int) -> None:
    """Give each of the two partitions the folder of the other."""
    disk = cluster.brokers[broker_id].node.disk
    disk.rename(FOLDERS[0], f"{DATA}/other")
    disk.rename(FOLDERS[1], FOLDERS[0])
    disk.rename(f"{DATA}/other", FOLDERS[1])


def read(cluster: Cluster, index: int) -> list[bytes | None]:
    answer = ClusterClient(cluster).ask(fetch_request((TOPIC, index, 0)), 11)
    return values(answer)[TOPIC, index]


@pytest.mark.parametrize("clean", [False, True], ids=["killed", "stopped"])
def test_the_folder_of_another_partition_is_not_served(clean: bool) -> None:
    """A batch does not name its partition, and the epochs of two logs may be the same: a replica
    with another's records would be taken for one in sync, and lead. Once renamed back it may."""
    with Cluster(3, **SETTINGS) as cluster:
        place(cluster, groups=(1, 2, 3), transactions=(1, 2, 3), data=(2, 3, 1))
        client = ClusterClient(cluster)
        sent = [[b"%d %d" % (index, number) for number in range(4)] for index in (0, 1)]
        for index in (0, 1):
            for value in sent[index]:
                answer = client.ask(produce_request(TOPIC, index, client.batch(value)), 9)
                assert set(codes(answer)) == {0}
        third = cluster.brokers[3]

        def stop() -> None:
            if clean:
                cluster.run(third.node, third.stop())
            third.crash()

        def in_sync() -> list[bool]:
            return [3 in each.isr for each in cluster.controller.image.topics[TOPIC].partitions]

        def start() -> None:
            third.start()
            cluster.wait(lambda: third.started)
            cluster.wait(lambda: cluster.controller.image.brokers[3].active)

        stop()
        cluster.wait(lambda: not any(in_sync()))
        exchange_folders(cluster, 3)
        start()
        cluster.simulation.run_for(3)
        for index in (0, 1):
            partition = third.broker.partitions.get(TOPIC, index)
            assert partition is not None
            assert "rename it back" in str(partition.log.offline)
        assert not any(in_sync())
        stop()
        exchange_folders(cluster, 3)
        start()
        cluster.wait(lambda: all(in_sync()))
        cluster.brokers[2].crash()
        cluster.wait(lambda: all(client.leader(TOPIC, index) == 3 for index in (0, 1)))
        assert [read(cluster, index) for index in (0, 1)] == sent

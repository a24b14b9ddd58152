"""Folders of partitions that a cluster's tree does not know: set aside, never served again."""

from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.api.unregister_broker import UnregisterBrokerRequest
from ottla.wire.errors import ErrorCode
from tests.broker.cluster_harness import Cluster, produce
from tests.broker.harness import DATA

METADATA = f"{DATA}/t-0/partition.metadata"


def folders(cluster: Cluster, broker_id: int) -> list[str]:
    disk = cluster.brokers[broker_id].node.disk
    return [each.name for each in disk.entries(DATA) if each.is_directory]


def with_a_topic_that_broker_3_missed(cluster: Cluster) -> None:
    """Broker 3 has records of a topic that was deleted, and forgotten with the broker itself."""
    assert cluster.create("t", 1, 3, through=1, replicas=(1, 2, 3)).error_code == ErrorCode.NONE
    cluster.wait(lambda: all("t" in cluster.image(each).topics for each in cluster.brokers))
    for value in ("old 0", "old 1", "old 2"):
        produce(cluster, 1, value)
    cluster.wait(lambda: cluster.brokers[3].broker.partitions.get("t", 0).end_offset == 3)
    cluster.brokers[3].crash()
    cluster.wait(lambda: cluster.image(1).brokers[3].fenced)
    wanted = DeleteTopicsRequest(
        topics=[DeleteTopicState(topic_id=cluster.image(1).topics["t"].id)], timeout_ms=10_000
    )
    assert cluster.ask(1, wanted, 6).responses[0].error_code == ErrorCode.NONE
    assert cluster.ask(1, UnregisterBrokerRequest(broker_id=3), 0).error_code == ErrorCode.NONE
    cluster.wait(lambda: not cluster.image(1).deletions)


def test_the_folder_of_a_topic_that_nobody_knows_any_more_is_kept_as_stray() -> None:
    """Deleted while its broker was away and unregistered: it is set aside, and not served."""
    with Cluster(3) as cluster:
        with_a_topic_that_broker_3_missed(cluster)
        cluster.brokers[3].start()
        cluster.wait(lambda: cluster.brokers[3].started)
        [stray] = [name for name in folders(cluster, 3) if name.startswith("t-0")]
        assert stray.endswith("-stray")
        disk = cluster.brokers[3].node.disk
        assert b"old 2" in disk.read(f"{DATA}/{stray}/{0:020d}.log")
        assert not cluster.brokers[3].broker.logs.found()


def test_nor_is_it_taken_for_a_later_topic_when_its_id_is_lost() -> None:
    """A power cut may have taken the file that has the topic's id; the next one of its name begins
    empty."""
    with Cluster(3) as cluster:
        with_a_topic_that_broker_3_missed(cluster)
        cluster.brokers[3].node.disk.unlink(METADATA, missing_ok=True)
        cluster.brokers[3].start()
        cluster.wait(lambda: cluster.brokers[3].started)
        assert cluster.create("t", 1, 1, through=1, replicas=(3,)).error_code == ErrorCode.NONE
        cluster.wait(lambda: "t" in cluster.image(3).topics)
        assert produce(cluster, 3, "new") == 0


def test_a_partition_that_its_topic_does_not_have_is_kept_as_stray() -> None:
    """A folder of the topic's id, with an index that the tree has not got."""
    with Cluster(3) as cluster:
        assert cluster.create("t", 1, 3, through=1).error_code == ErrorCode.NONE
        cluster.wait(lambda: "t" in cluster.image(3).topics)
        cluster.wait(lambda: cluster.brokers[3].node.disk.exists(METADATA))
        cluster.brokers[3].crash()
        disk = cluster.brokers[3].node.disk
        disk.mkdir(f"{DATA}/t-1")
        noted = disk.read(METADATA).replace(b"partition: 0", b"partition: 1")
        disk.write_atomically(f"{DATA}/t-1/partition.metadata", noted, sync=True)
        cluster.brokers[3].start()
        cluster.wait(lambda: cluster.brokers[3].started)
        [stray] = [name for name in folders(cluster, 3) if name.startswith("t-1")]
        assert stray.endswith("-stray")
        assert "t-0" in folders(cluster, 3)


def test_a_folder_that_is_only_named_like_a_partition_is_left_alone() -> None:
    """An operator's own: it has neither a segment nor a topic id."""
    with Cluster(1, min_insync_replicas=1) as cluster:
        cluster.brokers[1].crash()
        cluster.brokers[1].node.disk.mkdir(f"{DATA}/backup-20261116")
        cluster.brokers[1].start()
        cluster.wait(lambda: cluster.brokers[1].started)
        assert "backup-20261116" in folders(cluster, 1)

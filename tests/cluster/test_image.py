"""The image: what changes make of it, and that it shares what did not change."""

from ottla.cluster.image import (
    BrokerConfigured,
    BrokerGone,
    BrokerInfo,
    BrokerRegistered,
    ClusterImage,
    ClusterNamed,
    ControllerChanged,
    DeletionDone,
    FeatureImage,
    FeaturesChanged,
    PartitionImage,
    PartitionsChanged,
    PartitionsCreated,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    TopicImage,
)


def topic(name: str, count: int) -> TopicImage:
    partitions = tuple(PartitionImage(i, 1, 0, 0, (1,), (1,)) for i in range(count))
    return TopicImage(name, name.encode().ljust(16, b"\0"), partitions)


def test_a_topic_comes_grows_and_goes() -> None:
    """It is found by name and id, with its configs; gone, it is a deletion until that is done."""
    first = topic("first", 2)
    image = ClusterImage().apply(1, [TopicCreated(first, {"retention.ms": "1"})])
    assert image.topic("first") is image.topics_by_id[first.id] is first
    assert image.topic_name(first.id) == "first"
    assert image.configs_of("first") == {"retention.ms": "1"}
    more = (PartitionImage(2, 1, 0, 0, (1,), (1,)),)
    grown = image.apply(2, [PartitionsCreated("first", first.id, more)])
    assert grown.partition("first", 2) == more[0]
    assert image.partition("first", 2) is None
    assert image.partition("first", -1) is None
    assert grown.partition_count() == 3
    assert grown.topics_by_id[first.id] is grown.topics["first"]
    gone = grown.apply(3, [TopicDeleted("first", first.id, 3)])
    assert (gone.topics, gone.topics_by_id, gone.topic_configs) == ({}, {}, {})
    assert gone.deletions == {first.id: "first"}
    assert gone.apply(4, [DeletionDone("first", first.id)]).deletions == {}
    assert [i.number for i in (image, grown, gone)] == [1, 2, 3]


def test_one_change_does_not_copy_the_partitions() -> None:
    """All other topics, and all parts that did not change, are the same objects."""
    many = [TopicCreated(topic(f"t{i}", 10), {}) for i in range(1_000)]
    image = ClusterImage().apply(1, many)
    after = image.apply(2, [TopicCreated(topic("new", 1), {})])
    assert all(after.topics[name] is image.topics[name] for name in image.topics)
    assert after.topic_configs is image.topic_configs
    assert after.brokers is image.brokers
    assert after.broker_configs is image.broker_configs
    assert "new" not in image.topics
    changed = image.topics["t5"].partitions[3]._replace(leader=2, leader_epoch=1)
    moved = after.apply(3, [PartitionsChanged("t5", image.topics["t5"].id, (changed,))])
    assert moved.partition("t5", 3) == changed
    assert moved.topics["t5"].partitions[4] is image.topics["t5"].partitions[4]
    assert after.topics["t5"] is image.topics["t5"]


def test_brokers_configs_features() -> None:
    """Each change has its part; configs that become empty are gone."""
    broker = BrokerInfo(1, {})
    image = ClusterImage().apply(
        1,
        [
            ControllerChanged(1, 4),
            ClusterNamed("abc"),
            BrokerRegistered(broker),
            BrokerConfigured("", {"a": "1"}),
            TopicConfigured("t", {"b": "2"}),
            FeaturesChanged(FeatureImage({"metadata.version": 30}, 1)),
        ],
    )
    assert (image.controller_id, image.controller_epoch, image.cluster_id) == (1, 4, "abc")
    assert image.brokers == {1: broker}
    assert image.broker_configs == {"": {"a": "1"}}
    assert image.features.levels == {"metadata.version": 30}
    after = image.apply(2, [BrokerGone(1), BrokerConfigured("", {}), TopicConfigured("t", {})])
    assert (after.brokers, after.broker_configs, after.topic_configs) == ({}, {}, {})
    assert image.brokers == {1: broker}

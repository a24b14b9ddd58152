"""Changes as messages: whatever a controller publishes arrives as it was, in its order."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.cluster.features import metadata_level
from ottla.cluster.feed import Batch
from ottla.cluster.feed_codec import (
    PARTITIONS_PER_CHANGE,
    changes_of,
    from_message,
    read_batch,
    write_batch,
)
from ottla.cluster.image import (
    APPLY,
    AclsChanged,
    BrokerConfigured,
    BrokerGone,
    BrokerInfo,
    BrokerRegistered,
    Change,
    ClusterImage,
    ClusterNamed,
    ControllerChanged,
    DeletionDone,
    Endpoint,
    EntityConfigured,
    FeatureImage,
    FeaturesChanged,
    GroupConfigured,
    Levels,
    PartitionImage,
    PartitionsChanged,
    PartitionsCreated,
    SecretChanged,
    TokenChanged,
    TokenGone,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    TopicImage,
)
from ottla.security.acls import Acl, Operation, PatternType, Permission, ResourcePattern
from ottla.security.acls import ResourceType as AclResourceType
from ottla.security.principal import Principal
from ottla.security.quotas.entities import TYPES, entity_of
from ottla.security.tokens import Token
from ottla.wire import feed_records
from ottla.wire.malformed import MalformedMessage

int32 = st.integers(-1, 2**31 - 1)
count = st.integers(0, 2**31 - 1)
int64 = st.integers(-1, 2**63 - 1)
names = st.sampled_from(("t", "u", "a/b", "ünïcödé", ""))
topic_ids = st.sampled_from([bytes([n]) * 16 for n in range(1, 6)])
keys = st.binary(max_size=64)
configs = st.dictionaries(names, st.text(max_size=5), max_size=2)
replicas = st.lists(int32, max_size=3).map(tuple)
partitions = st.lists(
    st.builds(
        PartitionImage,
        count,
        int32,
        int32,
        int32,
        replicas,
        replicas,
        replicas,
        replicas,
        replicas,
        int32,
        st.booleans(),
        replicas,
    ),
    max_size=3,
).map(tuple)
endpoints = st.dictionaries(names, st.builds(Endpoint, names, count, names), max_size=2)
brokers = st.builds(
    BrokerInfo,
    int32,
    endpoints,
    st.none() | names,
    int64,
    st.booleans(),
    st.booleans(),
    topic_ids,
    st.lists(topic_ids, max_size=2).map(tuple),
    st.builds(Levels, st.integers(1, 9), st.integers(1, 9)),
)
features = st.builds(
    FeatureImage, st.dictionaries(names, st.integers(0, 2**15 - 1), max_size=2), int64
)
principals = st.builds(Principal, names, names)
tokens = st.builds(
    Token,
    names,
    principals,
    principals,
    st.lists(principals, max_size=2).map(tuple),
    int64,
    int64,
    int64,
)
STRATEGIES: dict[type, st.SearchStrategy[Change]] = {
    ControllerChanged: st.builds(ControllerChanged, int32, int32),
    ClusterNamed: st.builds(ClusterNamed, names),
    BrokerRegistered: st.builds(BrokerRegistered, brokers),
    BrokerGone: st.builds(BrokerGone, int32),
    TopicCreated: st.builds(
        TopicCreated, st.builds(TopicImage, names, topic_ids, partitions), configs
    ),
    TopicDeleted: st.builds(TopicDeleted, names, topic_ids, count),
    DeletionDone: st.builds(DeletionDone, names, topic_ids),
    PartitionsCreated: st.builds(PartitionsCreated, names, topic_ids, partitions),
    PartitionsChanged: st.builds(PartitionsChanged, names, topic_ids, partitions),
    TopicConfigured: st.builds(TopicConfigured, names, configs),
    BrokerConfigured: st.builds(BrokerConfigured, names, configs),
    GroupConfigured: st.builds(GroupConfigured, names, configs),
    AclsChanged: st.builds(
        AclsChanged,
        st.builds(
            ResourcePattern, st.sampled_from(AclResourceType), names, st.sampled_from(PatternType)
        ),
        st.lists(
            st.builds(Acl, names, names, st.sampled_from(Operation), st.sampled_from(Permission)),
            max_size=3,
        ).map(tuple),
    ),
    EntityConfigured: st.builds(
        EntityConfigured,
        st.dictionaries(st.sampled_from(TYPES), st.none() | names, min_size=1).map(
            lambda parts: entity_of(parts.items())
        ),
        configs,
    ),
    SecretChanged: st.builds(SecretChanged, keys),
    TokenChanged: st.builds(TokenChanged, tokens),
    TokenGone: st.builds(TokenGone, names),
    FeaturesChanged: st.builds(FeaturesChanged, features),
}


def test_every_change_has_a_strategy_here() -> None:
    """A new kind of change is tested, or this fails."""
    assert set(STRATEGIES) == set(APPLY)


@pytest.mark.parametrize("kind", STRATEGIES, ids=lambda kind: kind.__name__)
@settings(max_examples=20)
@given(data=st.data())
def test_a_change_is_read_as_it_was_written(kind: type, data: st.DataObject) -> None:
    """All fields, any values, several in a batch."""
    changes = data.draw(st.lists(STRATEGIES[kind], min_size=1, max_size=3))
    batch = Batch(data.draw(int64), data.draw(int32), changes)
    assert read_batch(write_batch(batch)) == batch


@settings(max_examples=20)
@given(st.lists(st.one_of(*STRATEGIES.values()), max_size=5))
def test_changes_keep_their_order(changes: list[Change]) -> None:
    """Also when there are none."""
    batch = Batch(3, 7, changes)
    assert read_batch(write_batch(batch)) == batch


@settings(max_examples=40)
@given(
    st.lists(
        st.one_of(
            STRATEGIES[ControllerChanged],
            STRATEGIES[ClusterNamed],
            STRATEGIES[BrokerRegistered],
            # A name and an id belong together, as they do in a cluster.
            st.builds(
                lambda name, partitions, configs: TopicCreated(
                    TopicImage(name, name.encode().ljust(16, b"-")[:16], partitions), configs
                ),
                names,
                partitions,
                configs,
            ),
            st.builds(
                lambda name: TopicDeleted(name, name.encode().ljust(16, b"-")[:16], 1), names
            ),
            st.builds(lambda name: TopicDeleted(name, b"an older one----", 1), names),
            STRATEGIES[BrokerConfigured],
            STRATEGIES[GroupConfigured],
            STRATEGIES[AclsChanged],
            STRATEGIES[EntityConfigured],
            STRATEGIES[SecretChanged],
            STRATEGIES[TokenChanged],
            STRATEGIES[FeaturesChanged],
        ),
        max_size=8,
    )
)
def test_a_whole_image_is_read_as_it_was_written(changes: list[Change]) -> None:
    """An image is sent as the changes that make it from an empty one."""
    image = ClusterImage().apply(5, changes)
    expected = image
    if metadata_level(image.features) < feed_records.SECURITY_LEVEL:
        expected = image._replace(scram_secret=b"")  # which brokers of that level do not know
    if metadata_level(image.features) < feed_records.TOKENS_LEVEL:
        expected = expected._replace(tokens={})
    assert ClusterImage().apply(5, list(changes_of(image))) == expected


def test_what_cannot_be_read_is_not_skipped() -> None:
    """A record of a later version, of an unknown type, or torn fails the whole update."""
    good = feed_records.pack(feed_records.ClusterRecord(cluster_id="c"), 1)
    for bad in (
        feed_records.FeedRecord(type=99, version=0, data=b""),
        feed_records.FeedRecord(type=good.type, version=1, data=good.data),
        feed_records.FeedRecord(type=good.type, version=0, data=good.data[:-1]),
        feed_records.FeedRecord(type=good.type, version=0, data=good.data + b"\0"),
        feed_records.pack(feed_records.ConfigsRecord(resource_type=99), 1),
    ):
        batch = feed_records.FeedBatch(number=1, controller_epoch=1, records=[good, bad])
        with pytest.raises(MalformedMessage):
            read_batch(feed_records.write(batch))


def test_a_large_topic_is_several_changes_of_an_image() -> None:
    """So that no piece of an image becomes too large; together they make the topic."""
    partitions = tuple(PartitionImage(n, 1, 0, 0, (1,), (1,)) for n in range(1201))
    image = ClusterImage().apply(5, [TopicCreated(TopicImage("t", b"t" * 16, partitions), {})])
    changes = list(changes_of(image))
    assert max(len(each.partitions) for each in changes if isinstance(each, PartitionsCreated)) == (
        PARTITIONS_PER_CHANGE
    )
    assert ClusterImage().apply(5, changes) == image


@pytest.mark.parametrize(
    "columns",
    [
        {"indexes": [0, 1]},
        {"leaders": []},
        {"shapes_of": [1]},
        {"shapes_of": [-1]},
        {"shapes": []},
    ],
    ids=str,
)
def test_columns_that_do_not_fit_are_refused(columns: dict[str, list[int]]) -> None:
    """Whatever column is too long, too short, or refers to nothing."""
    good: dict[str, list[int]] = {
        name: [0]
        for name in ("indexes", "leaders", "leader_epochs", "partition_epochs", "shapes_of")
    }
    shapes = {"shapes": [feed_records.RecordShape(replicas=[1], isr=[1])]}

    def read(changed: dict[str, list[int]]) -> Change:
        partitions = feed_records.RecordPartitions(**{**good, **shapes, **changed})  # type: ignore[arg-type]
        return from_message(feed_records.TopicRecord(name="t", partitions=partitions))

    assert isinstance(read({}), TopicCreated)
    with pytest.raises(MalformedMessage):
        read(columns)


def test_fields_of_a_later_level_are_left_out() -> None:
    """A broker of level 1 gets the record as it was, without what came with level 2."""
    change = BrokerRegistered(BrokerInfo(1, {}, levels=Levels(1, 2)))
    batch = Batch(1, 1, [change])
    first = Batch(1, 1, [BrokerRegistered(change.broker._replace(levels=Levels(1, 1)))])
    assert read_batch(write_batch(batch, 1), 1) == first
    assert read_batch(write_batch(batch, 2), 2) == batch
    with pytest.raises(MalformedMessage, match="type 2, version 1"):
        read_batch(write_batch(batch, 2), 1)


def test_records_of_a_later_level_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither written nor read before the level is finalized."""
    record = feed_records.BrokerGoneRecord(id=1)
    monkeypatch.setitem(feed_records.LEVELS, feed_records.BrokerGoneRecord, (2,))
    with pytest.raises(ValueError, match="BrokerGoneRecord cannot be sent at level 1"):
        feed_records.pack(record, 1)
    packed = feed_records.pack(record, 2)
    with pytest.raises(MalformedMessage):
        feed_records.unpack(packed, 1)
    assert feed_records.unpack(packed, 2) == record


def test_every_version_of_a_record_belongs_to_a_level() -> None:
    """A new version of a record is sent from a level on that this version understands."""
    for cls in feed_records.RECORDS.values():
        versions = cls.__schema__.versions
        assert versions is not None
        assert feed_records.version_at(cls, feed_records.HIGHEST_LEVEL) == versions[1]

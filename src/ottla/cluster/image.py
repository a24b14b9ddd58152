"""The image of a cluster: brokers, topics, leaders, configs, features at one moment. Immutable.

A new image shares all that did not change with the old one: a change of one partition copies
one tuple of its topic's partitions and the dictionary of topics (pointers), never the partitions.
`apply` turns an image and the changes of the controller's feed into the next image. It is pure, and
the controller itself uses it, so every broker that applies the feed has the controller's image.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from ottla.security.acls import Acl, ResourcePattern
from ottla.security.quotas.entities import Entity
from ottla.security.tokens import Token
from ottla.wire.feed_records import FIRST_LEVEL, HIGHEST_LEVEL

NO_LEADER = -1
ZERO_ID = bytes(16)


class Endpoint(NamedTuple):
    """Where one listener of a broker is reached, as advertised."""

    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


class Levels(NamedTuple):
    """The levels of `ottla.metadata.version` that a broker understands."""

    lowest: int = FIRST_LEVEL
    highest: int = FIRST_LEVEL

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.lowest <= level <= self.highest


UNDERSTOOD = Levels(FIRST_LEVEL, HIGHEST_LEVEL)  # by this version


class BrokerInfo(NamedTuple):
    """A registered broker. Its epoch rises with every registration of another incarnation."""

    id: int
    endpoints: Mapping[str, Endpoint]  # by listener name
    rack: str | None = None
    epoch: int = -1
    fenced: bool = False  # leads nothing and is in no ISR (KIP-841)
    in_controlled_shutdown: bool = False
    incarnation: bytes = ZERO_ID  # drawn anew by each process; ZERO_ID: not known
    directories: tuple[bytes, ...] = ()  # ids of its data directories
    levels: Levels = UNDERSTOOD

    @property
    def active(self) -> bool:
        """Whether it may lead partitions and be in an ISR."""
        return not self.fenced and not self.in_controlled_shutdown


class PartitionImage(NamedTuple):
    """A partition's replicas, and who leads it since which epoch."""

    index: int  # type: ignore[assignment] # hides tuple.index, which is not needed
    leader: int
    leader_epoch: int
    partition_epoch: int  # rises with every change of leader or ISR
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    # Replicas that left the ISR while it was below min.insync.replicas: they have all that was
    # committed, and may lead when the ISR is empty (KIP-966).
    elr: tuple[int, ...] = ()
    last_known_leader: int = NO_LEADER  # of a partition whose ISR is empty
    recovering: bool = False  # its leader may lack committed records, and nobody joined it since
    wiped: tuple[int, ...] = ()  # replicas that came with an empty disk, and were in no ISR since


class TopicImage(NamedTuple):
    """A topic with its partitions, in order of their index and without gaps."""

    name: str
    id: bytes
    partitions: tuple[PartitionImage, ...]


class FeatureImage(NamedTuple):
    """Finalized feature levels, without those at 0. `epoch` rises with each change."""

    levels: Mapping[str, int]
    epoch: int


class ControllerChanged(NamedTuple):
    """Another controller, or the same one elected again: `epoch` has risen."""

    id: int
    epoch: int


class ClusterNamed(NamedTuple):
    """The cluster's id, known once it was made."""

    cluster_id: str


class BrokerRegistered(NamedTuple):
    """A broker was registered, or registered again with a higher epoch."""

    broker: BrokerInfo


class BrokerGone(NamedTuple):
    """A broker's registration ended."""

    id: int


class TopicCreated(NamedTuple):
    """A whole new topic with its configs."""

    topic: TopicImage
    configs: Mapping[str, str]


class TopicDeleted(NamedTuple):
    """A topic is gone. Brokers remove its directories, then confirm to the controller."""

    name: str
    id: bytes
    partition_count: int


class DeletionDone(NamedTuple):
    """Every broker has confirmed that the directories of a deleted topic are gone."""

    name: str
    id: bytes


class PartitionsCreated(NamedTuple):
    """A topic has grown by these partitions."""

    name: str
    id: bytes
    partitions: tuple[PartitionImage, ...]


class PartitionsChanged(NamedTuple):
    """Leader, ISR or epochs of these partitions have changed."""

    name: str
    id: bytes
    partitions: tuple[PartitionImage, ...]


class TopicConfigured(NamedTuple):
    """All dynamic configs that a topic now has."""

    name: str
    configs: Mapping[str, str]


class BrokerConfigured(NamedTuple):
    """All dynamic configs that a broker now has; the name '' stands for the default of all."""

    name: str
    configs: Mapping[str, str]


class GroupConfigured(NamedTuple):
    """All dynamic configs that a group now has."""

    name: str
    configs: Mapping[str, str]


class AclsChanged(NamedTuple):
    """All ACLs that a resource pattern now has."""

    pattern: ResourcePattern
    acls: tuple[Acl, ...]


class EntityConfigured(NamedTuple):
    """All configs that a user, a client id, both or an address now has."""

    entity: Entity
    configs: Mapping[str, str]


class SecretChanged(NamedTuple):
    """What brokers derive salts from for users that have no credential."""

    secret: bytes

    def __repr__(self) -> str:
        return "SecretChanged([hidden])"


class TokenChanged(NamedTuple):
    """A delegation token was issued, or its time has changed."""

    token: Token


class TokenGone(NamedTuple):
    """A delegation token was removed, or has expired."""

    id: str


class FeaturesChanged(NamedTuple):
    """The finalized features as they are now."""

    features: FeatureImage


Change: TypeAlias = (
    ControllerChanged
    | ClusterNamed
    | BrokerRegistered
    | BrokerGone
    | TopicCreated
    | TopicDeleted
    | DeletionDone
    | PartitionsCreated
    | PartitionsChanged
    | TopicConfigured
    | BrokerConfigured
    | GroupConfigured
    | AclsChanged
    | EntityConfigured
    | SecretChanged
    | TokenChanged
    | TokenGone
    | FeaturesChanged
)

EMPTY: Mapping[str, str] = {}


class ClusterImage(NamedTuple):
    """The whole image as of change `number` of the controller with `controller_epoch`."""

    number: int = 0
    controller_id: int = NO_LEADER
    controller_epoch: int = 0
    cluster_id: str = ""
    brokers: Mapping[int, BrokerInfo] = {}
    topics: Mapping[str, TopicImage] = {}
    topics_by_id: Mapping[bytes, TopicImage] = {}
    topic_configs: Mapping[str, Mapping[str, str]] = {}
    broker_configs: Mapping[str, Mapping[str, str]] = {}
    group_configs: Mapping[str, Mapping[str, str]] = {}
    features: FeatureImage = FeatureImage({}, 0)
    deletions: Mapping[bytes, str] = {}
    acls: Mapping[ResourcePattern, tuple[Acl, ...]] = {}
    entity_configs: Mapping[Entity, Mapping[str, str]] = {}
    scram_secret: bytes = b""
    tokens: Mapping[str, Token] = {}

    def topic(self, name: str) -> TopicImage | None:
        """The topic of that name, if there is one."""
        return self.topics.get(name)

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with that id, if there is one."""
        topic = self.topics_by_id.get(topic_id)
        return topic.name if topic is not None else None

    def partition(self, name: str, index: int) -> PartitionImage | None:
        """The partition, if there is such a one."""
        topic = self.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def configs_of(self, topic: str) -> Mapping[str, str]:
        """The dynamic configs of a topic."""
        return self.topic_configs.get(topic, EMPTY)

    def partition_count(self) -> int:
        """How many partitions there are in all."""
        return sum(len(topic.partitions) for topic in self.topics.values())

    def apply(self, number: int, changes: Iterable[Change]) -> "ClusterImage":
        """The next image, numbered `number`."""
        draft = Draft(self)
        for change in changes:
            draft.apply(change)
        return draft.image(number)


class Draft:
    """An image under change: copies a part of the old one when it first writes to it."""

    def __init__(self, base: ClusterImage) -> None:
        self.base = base
        self.controller = ControllerChanged(base.controller_id, base.controller_epoch)
        self.cluster_id = base.cluster_id
        self.features = base.features
        self.scram_secret = base.scram_secret
        self._copies: dict[str, dict[Any, Any]] = {}  # one per part, each of its own kind

    def _part(self, name: str) -> dict[Any, Any]:
        part = self._copies.get(name)
        if part is None:
            part = self._copies[name] = dict(getattr(self.base, name))
        return part

    def apply(self, change: Change) -> None:
        APPLY[type(change)](self, change)

    def _put_topic(self, topic: TopicImage) -> None:
        self._part("topics")[topic.name] = topic
        self._part("topics_by_id")[topic.id] = topic

    def _configure(self, part: str, name: str, configs: Mapping[str, str]) -> None:
        if configs:
            self._part(part)[name] = configs
        elif name in getattr(self.base, part) or name in self._copies.get(part, ()):
            self._part(part).pop(name, None)

    def controller_changed(self, change: ControllerChanged) -> None:
        self.controller = change

    def cluster_named(self, change: ClusterNamed) -> None:
        self.cluster_id = change.cluster_id

    def broker_registered(self, change: BrokerRegistered) -> None:
        self._part("brokers")[change.broker.id] = change.broker

    def broker_gone(self, change: BrokerGone) -> None:
        self._part("brokers").pop(change.id, None)

    def topic_created(self, change: TopicCreated) -> None:
        self._put_topic(change.topic)
        self._configure("topic_configs", change.topic.name, change.configs)

    def topic_deleted(self, change: TopicDeleted) -> None:
        topic: TopicImage | None = self._part("topics").get(change.name)
        if topic is not None and topic.id == change.id:  # not another one of that name
            self._part("topics").pop(change.name)
            self._configure("topic_configs", change.name, EMPTY)
        self._part("topics_by_id").pop(change.id, None)
        self._part("deletions")[change.id] = change.name

    def deletion_done(self, change: DeletionDone) -> None:
        self._part("deletions").pop(change.id, None)

    def partitions_created(self, change: PartitionsCreated) -> None:
        topic: TopicImage = self._part("topics")[change.name]
        self._put_topic(topic._replace(partitions=topic.partitions + change.partitions))

    def partitions_changed(self, change: PartitionsChanged) -> None:
        topic: TopicImage = self._part("topics")[change.name]
        self._put_topic(topic._replace(partitions=replaced(topic.partitions, change.partitions)))

    def topic_configured(self, change: TopicConfigured) -> None:
        self._configure("topic_configs", change.name, change.configs)

    def broker_configured(self, change: BrokerConfigured) -> None:
        self._configure("broker_configs", change.name, change.configs)

    def group_configured(self, change: GroupConfigured) -> None:
        self._configure("group_configs", change.name, change.configs)

    def acls_changed(self, change: AclsChanged) -> None:
        acls = self._part("acls")
        acls.pop(change.pattern, None)
        if change.acls:
            acls[change.pattern] = change.acls

    def entity_configured(self, change: EntityConfigured) -> None:
        configs = self._part("entity_configs")
        if change.configs:
            configs[change.entity] = change.configs
        else:
            configs.pop(change.entity, None)

    def secret_changed(self, change: SecretChanged) -> None:
        self.scram_secret = change.secret

    def token_changed(self, change: TokenChanged) -> None:
        self._part("tokens")[change.token.id] = change.token

    def token_gone(self, change: TokenGone) -> None:
        self._part("tokens").pop(change.id, None)

    def features_changed(self, change: FeaturesChanged) -> None:
        self.features = change.features

    def image(self, number: int) -> ClusterImage:
        return self.base._replace(
            number=number,
            controller_id=self.controller.id,
            controller_epoch=self.controller.epoch,
            cluster_id=self.cluster_id,
            features=self.features,
            scram_secret=self.scram_secret,
            **self._copies,
        )


def replaced(
    old: tuple[PartitionImage, ...], new: Sequence[PartitionImage]
) -> tuple[PartitionImage, ...]:
    """`old` with the partitions of `new` in their places."""
    if len(new) == len(old):
        return tuple(new)
    partitions = list(old)
    for partition in new:
        partitions[partition.index] = partition
    return tuple(partitions)


def deleted_between(old: ClusterImage, new: ClusterImage) -> list[TopicDeleted]:
    """The topics of `old` that `new` no longer has; another id is another topic."""
    return [
        TopicDeleted(topic.name, topic.id, len(topic.partitions))
        for topic in old.topics.values()
        if topic.id not in new.topics_by_id
    ]


APPLY: dict[type, Callable[[Draft, Any], None]] = {
    ControllerChanged: Draft.controller_changed,
    ClusterNamed: Draft.cluster_named,
    BrokerRegistered: Draft.broker_registered,
    BrokerGone: Draft.broker_gone,
    TopicCreated: Draft.topic_created,
    TopicDeleted: Draft.topic_deleted,
    DeletionDone: Draft.deletion_done,
    PartitionsCreated: Draft.partitions_created,
    PartitionsChanged: Draft.partitions_changed,
    TopicConfigured: Draft.topic_configured,
    BrokerConfigured: Draft.broker_configured,
    GroupConfigured: Draft.group_configured,
    AclsChanged: Draft.acls_changed,
    EntityConfigured: Draft.entity_configured,
    SecretChanged: Draft.secret_changed,
    TokenChanged: Draft.token_changed,
    TokenGone: Draft.token_gone,
    FeaturesChanged: Draft.features_changed,
}

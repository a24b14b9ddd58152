"""Requests to the controller and their outcomes: values without behaviour.

Answers carry Kafka's error code and message; a message of None means that Kafka sends none.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from ottla.cluster.image import ZERO_ID
from ottla.security.acls import AclBinding
from ottla.security.principal import Principal
from ottla.security.quotas.entities import Entity
from ottla.security.tokens import Token
from ottla.wire.errors import ErrorCode


class Refusal(NamedTuple):
    """The error code and message of something that is not done."""

    error_code: ErrorCode
    error_message: str | None = None


class NewTopic(NamedTuple):
    """A topic to create. -1 stands for the broker's default; assignments stand in for both."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[tuple[int, Sequence[int]]] = ()  # partition index, broker ids
    configs: Sequence[tuple[str, str | None]] = ()


class TopicOutcome(NamedTuple):
    """The outcome of a topic to create."""

    name: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    topic_id: bytes = ZERO_ID
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}


class AdoptedTopic(NamedTuple):
    """A topic of which the disk has more than the tree: its folders, or newer state of them."""

    name: str
    id: bytes  # ZERO_ID: draw one
    partition_count: int
    # The newest leader epoch in any of its logs, -1 if they have none. Its leaders begin with the
    # next one: an epoch never goes back, whichever broker wrote the log (KIP-101).
    leader_epoch: int = -1
    configs: Mapping[str, str] | None = None  # None: as the tree has them


class IsrProposal(NamedTuple):
    """An ISR that a leader asks for, each member with the broker epoch it is known by (KIP-903).

    A broker epoch of -1 is not compared.
    """

    topic_id: bytes
    index: int  # type: ignore[assignment] # hides tuple.index
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[tuple[int, int]]
    recovering: bool = False


class IsrOutcome(NamedTuple):
    """The controller's answer to a proposed ISR: an error, or what is committed now."""

    error_code: int
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1
    leader: int = -1
    leader_epoch: int = -1
    recovering: bool = False


class ShutdownOutcome(NamedTuple):
    """The answer to a broker that wants to stop: it may when nobody is behind any more."""

    error_code: ErrorCode = ErrorCode.NONE
    behind: int = 0  # active brokers that have not applied yet what this has changed


class ElectionType(IntEnum):
    """Which leader is asked for, by Kafka's numbers."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectionOutcome(NamedTuple):
    """The outcome of an election that was asked for."""

    topic: str
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class Reassignment(NamedTuple):
    """The replicas that a partition is to have; None cancels a reassignment under way."""

    topic: str
    partition: int
    replicas: Sequence[int] | None


class ReassignmentOutcome(NamedTuple):
    """The outcome of a reassignment that was asked for, or cancelled."""

    topic: str
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class OngoingReassignment(NamedTuple):
    """A partition that is on its way to other replicas."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class TopicRef(NamedTuple):
    """A topic to delete, by name or by id."""

    name: str | None
    id: bytes = ZERO_ID


class DeletionOutcome(NamedTuple):
    """The outcome of a topic to delete."""

    name: str | None
    id: bytes
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class NewPartitions(NamedTuple):
    """A topic to grow to `count` partitions; assignments are for the new ones only."""

    name: str
    count: int  # type: ignore[assignment] # hides tuple.count
    assignments: Sequence[Sequence[int]] | None = None


class PartitionsOutcome(NamedTuple):
    """The outcome of a topic to grow."""

    name: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class DeletedAcls(NamedTuple):
    """What a filter of DeleteAcls has deleted."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    bindings: Sequence[AclBinding] = ()


class QuotaOutcome(NamedTuple):
    """What came of the changes to the quotas of an entity."""

    entity: Entity
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class CredentialDeletion(NamedTuple):
    """A SCRAM credential that is to go; the mechanism by Kafka's number."""

    user: str
    mechanism: int


class CredentialUpsertion(NamedTuple):
    """A SCRAM credential as it is to be."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"CredentialUpsertion({self.user!r}, [hidden])"


class UserOutcome(NamedTuple):
    """What came of the credentials of a user."""

    user: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class NewToken(NamedTuple):
    """A delegation token to issue; a lifetime of 0 or less is the longest that is allowed."""

    owner: Principal
    requester: Principal
    renewers: Sequence[Principal] = ()
    lifetime_ms: int = -1


class TokenRenewal(NamedTuple):
    """The token that the HMAC proves is to hold for a period; 0 or less: the usual one."""

    requester: Principal
    hmac: bytes
    period_ms: int = -1

    def __repr__(self) -> str:
        return f"TokenRenewal({self.requester}, [hidden], {self.period_ms})"


class TokenExpiry(NamedTuple):
    """The token that the HMAC proves is to expire after a period; a negative one: now."""

    requester: Principal
    hmac: bytes
    period_ms: int = -1

    def __repr__(self) -> str:
        return f"TokenExpiry({self.requester}, [hidden], {self.period_ms})"


TokenRequest: TypeAlias = NewToken | TokenRenewal | TokenExpiry


class TokenOutcome(NamedTuple):
    """The token as it is then; a new one with its HMAC."""

    error_code: ErrorCode = ErrorCode.NONE
    token: Token | None = None
    hmac: bytes = b""

    def __repr__(self) -> str:
        return f"TokenOutcome({self.error_code!r}, {self.token}, [hidden])"


class ResourceType(IntEnum):
    """What a config belongs to, by Kafka's numbers."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Op(IntEnum):
    """What IncrementalAlterConfigs does to a config, by Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Resource(NamedTuple):
    """A topic, a broker or a group that has configs; the name '' stands for all brokers."""

    type: int
    name: str


class ConfigOutcome(NamedTuple):
    """The outcome of the changes to a resource's configs."""

    resource: Resource
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class UpgradeType(IntEnum):
    """In which direction a feature may change, by Kafka's numbers."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A feature to finalize at another level; 0 takes it away."""

    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


class FeaturesOutcome(NamedTuple):
    """The outcome of all updates of one request: Kafka does all or none."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None

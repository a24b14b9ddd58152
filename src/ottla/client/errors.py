"""What a client can raise, under the names that kafka-python has for it.

Every error is a `KafkaError`. `retriable` says whether the same call may succeed later;
`invalid_metadata` says that the cluster metadata was out of date. There is one class for each
code of the protocol, made from the wire's table: `error_class(code)` finds it, `raise_for(code)`
raises it. Names follow one rule (`TOPIC_ALREADY_EXISTS` → `TopicAlreadyExistsError`) and the few
exceptions of `OTHER_NAMES`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode

INVALID_METADATA = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.LISTENER_NOT_FOUND,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
}

NO_LONGER_MEMBER = {  # of the consumer group: its partitions are another's now
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.STALE_MEMBER_EPOCH,
}

OTHER_NAMES = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "UnknownError",
    ErrorCode.CORRUPT_MESSAGE: "CorruptRecordError",
    ErrorCode.INVALID_FETCH_SIZE: "InvalidFetchRequestError",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "NotLeaderForPartitionError",
    ErrorCode.MESSAGE_TOO_LARGE: "MessageSizeTooLargeError",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "InvalidTopicError",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "InvalidReplicationAssignmentError",
    ErrorCode.INVALID_CONFIG: "InvalidConfigurationError",
}


class KafkaError(RuntimeError):
    """Anything that goes wrong in a client."""

    retriable = False
    invalid_metadata = False


class RetriableError(KafkaError):
    """The same call may succeed later."""

    retriable = True


class InvalidMetadataError(RetriableError):
    """What the client knew of the cluster is out of date."""

    invalid_metadata = True


class KafkaTimeoutError(RetriableError):
    """Not done within the time given."""


class KafkaConnectionError(InvalidMetadataError):
    """The connection could not be made, or ended before the answer came."""


class SslAuthenticationError(KafkaError):
    """The two sides of a connection of TLS do not accept each other; trying again will not help."""


class NoBrokersAvailable(KafkaConnectionError):
    """None of the bootstrap servers answers."""


class NodeNotReadyError(InvalidMetadataError):
    """The broker is not known, or not connected yet."""


class StaleMetadata(InvalidMetadataError):
    """The answer was made from older metadata of the cluster."""


class KafkaConfigurationError(KafkaError, ValueError):
    """An option is unknown or has a value that it cannot have."""


class IllegalStateError(KafkaError):
    """The call does not fit the state that the client is in."""


class IllegalArgumentError(KafkaError, ValueError):
    """An argument that cannot be."""


class KafkaProtocolError(KafkaError):
    """The peer sent what the protocol does not allow."""


class CorrelationIdError(KafkaProtocolError):
    """An answer to a question that was not asked."""


class InvalidReceiveError(KafkaProtocolError):
    """A frame that is negative or larger than `receive_message_max_bytes`."""


class UnsupportedCodecError(KafkaError):
    """There is no such compression."""


class SerializationError(KafkaError):
    """A key or value could not be turned into bytes, or back."""


class CommitFailedError(KafkaError):
    """The group has moved on: the partitions belong to another member now."""


class NoOffsetForPartitionError(KafkaError):
    """There is no committed offset, and `auto_offset_reset` is `none`."""


class LogTruncationError(KafkaError):
    """The log was cut below the position of the consumer; `divergent_offsets` says for each
    partition where the logs part (an `OffsetAndMetadata`), or None if it is unknown."""

    def __init__(self, divergent_offsets: object, *args: object) -> None:
        super().__init__(*(args or (f"the log was cut: {divergent_offsets}",)))
        self.divergent_offsets = divergent_offsets


class Cancelled(RetriableError):
    """The request was given up before it was sent."""


class TransactionAbortedError(KafkaError):
    """The batch was not sent, because its transaction was aborted."""


class QuotaViolationError(KafkaError):
    """A quota does not allow it."""


class BrokerResponseError(KafkaError):
    """A broker answered with an error code; `errno` is its number, `message` its name."""

    errno: int = -1
    message: str = "UNKNOWN_SERVER_ERROR"
    description: str = ""

    def __str__(self) -> str:
        detail = super().__str__() or self.description
        return f"[{self.message}] {detail}"


class NoError(BrokerResponseError):
    """Nothing went wrong: what calls about ACLs give in the place of an error."""

    errno = 0
    message = "NO_ERROR"
    description = "No error"


class AuthorizationError(BrokerResponseError):
    """The client may not do that."""


def _name_of(code: ErrorCode) -> str:
    name = OTHER_NAMES.get(code)
    if name is None:
        name = "".join(part.capitalize() for part in code.name.split("_"))
        name = name if name.endswith("Error") else f"{name}Error"
    return name


def _class_of(code: ErrorCode) -> type[BrokerResponseError]:
    denied = code.name.endswith("AUTHORIZATION_FAILED")
    return type(
        _name_of(code),
        (AuthorizationError if denied else BrokerResponseError,),
        {
            "__doc__": code.message,
            "__module__": __name__,
            "errno": int(code),
            "message": code.name,
            "description": code.message,
            "retriable": code.retriable,
            "invalid_metadata": code in INVALID_METADATA,
        },
    )


BY_CODE: dict[int, type[BrokerResponseError]] = {
    int(code): _class_of(code) for code in ErrorCode if code is not ErrorCode.NONE
}
globals().update({made.__name__: made for made in BY_CODE.values()})
IncompatibleBrokerVersion = BY_CODE[int(ErrorCode.UNSUPPORTED_VERSION)]
CorruptRecordException = BY_CODE[int(ErrorCode.CORRUPT_MESSAGE)]

if TYPE_CHECKING:

    def __getattr__(name: str) -> type[BrokerResponseError]: ...


def error_class(code: int) -> type[BrokerResponseError]:
    """The class for an error code; a code from the future counts as an unknown server error."""
    return BY_CODE.get(code) or BY_CODE[int(ErrorCode.UNKNOWN_SERVER_ERROR)]


def error_for(code: int, detail: str | None = None) -> BrokerResponseError:
    """The exception for an error code, with the broker's own words if it sent any."""
    made = error_class(code)
    return made(detail) if detail else made()


def raise_for(code: int, detail: str | None = None) -> None:
    """Raise what `code` stands for; nothing for 0."""
    if code:
        raise error_for(code, detail)

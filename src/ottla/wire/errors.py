"""Kafka's error codes: what each means, and whether asking again may help.

A code is how a broker answers "no" inside a response; it is returned, never raised across
modules. `retriable` says what Kafka's own clients do: try the same request again after refreshing
what they know.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ErrorCode"]


class ErrorCode(IntEnum):
    """An error code of the protocol, with `.retriable` and `.message`."""

    retriable: bool
    message: str

    def __new__(cls, code: int, retriable: int = 0, message: str = "") -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = bool(retriable)
        member.message = message
        return member

    UNKNOWN_SERVER_ERROR = -1, 0, "The server met a problem that has no code of its own."
    NONE = 0, 0, "No error."
    OFFSET_OUT_OF_RANGE = 1, 0, "The offset lies outside what the partition holds."
    CORRUPT_MESSAGE = 2, 1, "A record batch is damaged: its checksum, size or layout is wrong."
    UNKNOWN_TOPIC_OR_PARTITION = 3, 1, "This server does not host the topic or partition."
    INVALID_FETCH_SIZE = 4, 0, "The size asked for in a fetch is not valid."
    LEADER_NOT_AVAILABLE = 5, 1, "The partition has no leader at the moment; one is being elected."
    NOT_LEADER_OR_FOLLOWER = 6, 1, "This broker is neither leader nor a follower that may answer."
    REQUEST_TIMED_OUT = 7, 1, "The request was not finished within its time."
    BROKER_NOT_AVAILABLE = 8, 0, "The broker is not there."
    REPLICA_NOT_AVAILABLE = 9, 1, "The replica is not on this broker, or not there at all."
    MESSAGE_TOO_LARGE = 10, 0, "The batch is larger than the server accepts."
    STALE_CONTROLLER_EPOCH = 11, 0, "The controller has moved on to another broker."
    OFFSET_METADATA_TOO_LARGE = 12, 0, "The text committed with the offset is too long."
    NETWORK_EXCEPTION = 13, 1, "The connection ended before an answer came."
    COORDINATOR_LOAD_IN_PROGRESS = 14, 1, "The coordinator is still reading its log."
    COORDINATOR_NOT_AVAILABLE = 15, 1, "There is no coordinator at the moment."
    NOT_COORDINATOR = 16, 1, "Another broker coordinates this."
    INVALID_TOPIC_EXCEPTION = 17, 0, "The topic's name is not allowed, or its use is not."
    RECORD_LIST_TOO_LARGE = 18, 0, "The batch is larger than a whole segment."
    NOT_ENOUGH_REPLICAS = 19, 1, "Fewer replicas are in sync than min.insync.replicas asks for."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        *(20, 1),
        "Written, but fewer replicas were in sync than min.insync.replicas asks for.",
    )
    INVALID_REQUIRED_ACKS = 21, 0, "acks must be -1, 0 or 1."
    ILLEGAL_GENERATION = 22, 0, "The group has moved on to another generation."
    INCONSISTENT_GROUP_PROTOCOL = 23, 0, "The member shares no protocol with the rest of the group."
    INVALID_GROUP_ID = 24, 0, "The group's id is not allowed."
    UNKNOWN_MEMBER_ID = 25, 0, "The coordinator does not know this member."
    INVALID_SESSION_TIMEOUT = 26, 0, "The session timeout is outside what the broker allows."
    REBALANCE_IN_PROGRESS = 27, 0, "The group is rebalancing; the member should join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, 0, "The offset to commit is too large."
    TOPIC_AUTHORIZATION_FAILED = 29, 0, "Topic authorization failed."
    GROUP_AUTHORIZATION_FAILED = 30, 0, "Group authorization failed."
    CLUSTER_AUTHORIZATION_FAILED = 31, 0, "Cluster authorization failed."
    INVALID_TIMESTAMP = 32, 0, "A record's timestamp lies outside what the topic allows."
    UNSUPPORTED_SASL_MECHANISM = 33, 0, "The server does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, 0, "This request has no place at this point of the SASL exchange."
    UNSUPPORTED_VERSION = 35, 0, "The server does not serve this version of the request."
    TOPIC_ALREADY_EXISTS = 36, 0, "There is already a topic of that name."
    INVALID_PARTITIONS = 37, 0, "The number of partitions is not allowed."
    INVALID_REPLICATION_FACTOR = 38, 0, "The replication factor is not allowed or cannot be met."
    INVALID_REPLICA_ASSIGNMENT = 39, 0, "The assignment of replicas to brokers is not valid."
    INVALID_CONFIG = 40, 0, "A config is unknown or its value is not allowed."
    NOT_CONTROLLER = 41, 1, "This broker is not the controller."
    INVALID_REQUEST = 42, 0, "The request contradicts itself or leaves out what it must say."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, 0, "The format of the stored batches cannot do this."
    POLICY_VIOLATION = 44, 0, "The request breaks a policy of this cluster."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, 0, "A batch's sequence number does not follow the last one."
    DUPLICATE_SEQUENCE_NUMBER = 46, 0, "A batch with this sequence number was written before."
    INVALID_PRODUCER_EPOCH = 47, 0, "A producer of a later epoch has taken over."
    INVALID_TXN_STATE = 48, 0, "The transaction's state does not allow this."
    INVALID_PRODUCER_ID_MAPPING = 49, 0, "The producer id does not belong to this transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, 0, "The transaction timeout is above what the broker allows."
    CONCURRENT_TRANSACTIONS = 51, 1, "The transaction before is not finished yet."
    TRANSACTION_COORDINATOR_FENCED = 52, 0, "A later transaction coordinator has taken over."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, 0, "Transactional Id authorization failed."
    SECURITY_DISABLED = 54, 0, "Access control is not switched on."
    OPERATION_NOT_ATTEMPTED = 55, 0, "Not tried, because another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, 1, "The disk below the partition failed."
    LOG_DIR_NOT_FOUND = 57, 0, "The log directory is not one of this broker's."
    SASL_AUTHENTICATION_FAILED = 58, 0, "The credentials were refused."
    UNKNOWN_PRODUCER_ID = 59, 0, "The partition has forgotten, or never knew, this producer."
    REASSIGNMENT_IN_PROGRESS = 60, 0, "The partition is being reassigned."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, 0, "Delegation tokens are not switched on."
    DELEGATION_TOKEN_NOT_FOUND = 62, 0, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = (
        63,
        0,
        "The token may be changed by its owner or renewers only.",
    )
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        *(64, 0),
        "Tokens can be asked for only over an authenticated channel, and not with a token.",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, 0, "Delegation Token authorization failed."
    DELEGATION_TOKEN_EXPIRED = 66, 0, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, 0, "Principals of this type are not supported here."
    NON_EMPTY_GROUP = 68, 0, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, 0, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, 1, "There is no such fetch session."
    INVALID_FETCH_SESSION_EPOCH = 71, 1, "The fetch session is at another epoch."
    LISTENER_NOT_FOUND = 72, 1, "The leader has no listener of the name this request came in by."
    TOPIC_DELETION_DISABLED = 73, 0, "Topics cannot be deleted here."
    FENCED_LEADER_EPOCH = 74, 1, "The leader epoch given is older than the broker's."
    UNKNOWN_LEADER_EPOCH = 75, 1, "The leader epoch given is newer than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = (
        76,
        0,
        "This version of the request cannot carry this compression.",
    )
    STALE_BROKER_EPOCH = 77, 0, "The broker has registered again since."
    OFFSET_NOT_AVAILABLE = 78, 1, "The new leader cannot tell its high watermark yet."
    MEMBER_ID_REQUIRED = 79, 0, "Join again with the member id given in this answer."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, 1, "The preferred leader is not alive or not in sync."
    GROUP_MAX_SIZE_REACHED = 81, 0, "The group has as many members as it may."
    FENCED_INSTANCE_ID = 82, 0, "Another member has taken this static instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, 1, "No replica that may lead is alive."
    ELECTION_NOT_NEEDED = 84, 1, "The partition already has the leader asked for."
    NO_REASSIGNMENT_IN_PROGRESS = 85, 0, "No reassignment of this partition is under way."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, 0, "Members of the group still subscribe to this topic."
    INVALID_RECORD = 87, 0, "A record breaks a rule of its topic."
    UNSTABLE_OFFSET_COMMIT = 88, 1, "Offsets of an open transaction are not settled yet."
    THROTTLING_QUOTA_EXCEEDED = 89, 1, "The quota is used up for now."
    PRODUCER_FENCED = 90, 0, "A producer with the same transactional id has taken over."
    RESOURCE_NOT_FOUND = 91, 0, "There is no such resource."
    DUPLICATE_RESOURCE = 92, 0, "The resource is named twice."
    UNACCEPTABLE_CREDENTIAL = 93, 0, "The credential does not meet the rules."
    INCONSISTENT_VOTER_SET = 94, 0, "The two sides do not agree on who may vote."
    INVALID_UPDATE_VERSION = 95, 0, "The version of the update does not follow the last one."
    FEATURE_UPDATE_FAILED = 96, 0, "A feature could not be brought to the level asked for."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, 0, "The forwarded principal could not be read."
    SNAPSHOT_NOT_FOUND = 98, 0, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, 0, "The position lies outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, 1, "This server knows no topic of that id."
    DUPLICATE_BROKER_REGISTRATION = 101, 0, "A live broker already has this id."
    BROKER_ID_NOT_REGISTERED = 102, 0, "No broker of this id is registered."
    INCONSISTENT_TOPIC_ID = 103, 1, "The topic's id is not the one stored with its log."
    INCONSISTENT_CLUSTER_ID = 104, 0, "The request is meant for another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, 0, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, 1, "The fetch session mixes topic names and ids."
    INELIGIBLE_REPLICA = 107, 0, "The replica may not join the in-sync set."
    NEW_LEADER_ELECTED = 108, 0, "The change was made, and it elected another leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, 0, "The offset now lives in remote storage."
    FENCED_MEMBER_EPOCH = 110, 0, "The coordinator has fenced this member; it must join anew."
    UNRELEASED_INSTANCE_ID = 111, 0, "The member before still holds this static instance id."
    UNSUPPORTED_ASSIGNOR = 112, 0, "The group cannot use this assignor."
    STALE_MEMBER_EPOCH = (
        113,
        0,
        "The member's epoch is behind; it should ask again with the new one.",
    )
    MISMATCHED_ENDPOINT_TYPE = 114, 0, "The request was sent to the wrong kind of node."
    UNSUPPORTED_ENDPOINT_TYPE = 115, 0, "This kind of node cannot be described."
    UNKNOWN_CONTROLLER_ID = 116, 0, "There is no controller of this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, 0, "The metrics subscription has changed or is not known."
    TELEMETRY_TOO_LARGE = 118, 0, "The pushed metrics are larger than the broker accepts."
    INVALID_REGISTRATION = 119, 0, "The controller refuses this registration."
    TRANSACTION_ABORTABLE = 120, 0, "The transaction met an error; abort it and go on."
    INVALID_RECORD_STATE = 121, 0, "The record's state does not allow this acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, 1, "There is no such share session."
    INVALID_SHARE_SESSION_EPOCH = 123, 1, "The share session is at another epoch."
    FENCED_STATE_EPOCH = 124, 0, "The share coordinator has a later state epoch."
    INVALID_VOTER_KEY = 125, 0, "The voter's key is not the receiver's."
    DUPLICATE_VOTER = 126, 0, "The voter is already in the set."
    VOTER_NOT_FOUND = 127, 0, "The voter is not in the set."
    INVALID_REGULAR_EXPRESSION = 128, 0, "The regular expression cannot be understood."
    REBOOTSTRAP_REQUIRED = (
        129,
        0,
        "The client's picture is too old; it should start from bootstrap.",
    )
    STREAMS_INVALID_TOPOLOGY = 130, 0, "The topology sent is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, 0, "The topology's epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, 0, "The topology's epoch is behind."
    SHARE_SESSION_LIMIT_REACHED = 133, 1, "The broker holds as many share sessions as it may."

"""What is particular to one API in what it checks, or in how it answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.broker.authorization.guards import (
    FAILED,
    Guarded,
    Handle,
    Need,
    parted,
    then,
    with_field,
)
from ottla.broker.authorization.rights import CLUSTER, rights_of
from ottla.broker.context import Context, PeerError
from ottla.cluster.image import ZERO_ID
from ottla.cluster.names import CLUSTER_METADATA, INTERNAL
from ottla.cluster.requests import ResourceType as ConfigType
from ottla.security.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.security.audit import DEBUG, audit
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.authorization.rights import Rules
    from ottla.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest
    from ottla.wire.api.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from ottla.wire.api.delete_topics import (
        DeleteTopicsRequest,
        DeleteTopicsResponse,
        DeleteTopicState,
    )
    from ottla.wire.api.describe_configs import DescribeConfigsRequest
    from ottla.wire.api.describe_transactions import DescribeTransactionsResponse
    from ottla.wire.api.init_producer_id import InitProducerIdRequest
    from ottla.wire.api.list_transactions import ListTransactionsResponse
    from ottla.wire.api.produce import ProduceRequest

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
DESCRIBE, DESCRIBE_CONFIGS = Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS

# ---- Produce -------------------------------------------------------------------------------------

PRODUCE_IDS_FROM = 13
# Of a batch: the byte of its attributes that says whether it belongs to a transaction.
ATTRIBUTES_AT = 22
TRANSACTIONAL = 0x10


class Produce:
    """WRITE on each topic, and on the transactional id if there are records of a transaction."""

    needs = (Need(TOPIC, WRITE), Need(TRANSACTIONAL_ID, WRITE))

    def around(self, inner: Guarded) -> Handle:
        def check(request: ProduceRequest, context: Context) -> Any:
            name = request.transactional_id
            if any(
                is_transactional(data.records)
                for topic in request.topic_data
                for data in topic.partition_data
            ) and (name is None or not rights_of(context).allows(WRITE, TRANSACTIONAL_ID, name)):
                return inner.failure(request, FAILED[TRANSACTIONAL_ID], context)
            return _produce_allowed(inner, request, context)

        return check

    def shortcut(self, rules: Rules, handle: Handle, ask: Handle, version: int) -> Handle:
        """Lets pass what has been allowed before: nearly every request. `ask` does the rest.

        One function without calls: it is to cost next to nothing of a small request.
        """
        by_id = version >= PRODUCE_IDS_FROM
        broker = rules.broker
        logs = audit.isEnabledFor

        def pass_known(request: ProduceRequest, context: Context) -> Any:
            session = context.peer.rights
            if session is None or session.acls is not broker.image.acls or logs(DEBUG):
                return ask(request, context)
            writable = session.writable
            for topic in request.topic_data:
                if (topic.topic_id if by_id else topic.name) not in writable:
                    return ask(request, context)
                for data in topic.partition_data:
                    records = data.records
                    if (
                        records is not None
                        and len(records) > ATTRIBUTES_AT
                        and records[ATTRIBUTES_AT] & TRANSACTIONAL
                    ):
                        return ask(request, context)
            return handle(request, context)

        return pass_known


def is_transactional(records: memoryview | bytes | None) -> bool:
    """Whether a batch belongs to a transaction."""
    return (
        records is not None
        and len(records) > ATTRIBUTES_AT
        and bool(records[ATTRIBUTES_AT] & TRANSACTIONAL)
    )


def _produce_allowed(inner: Guarded, request: ProduceRequest, context: Context) -> Any:
    by_id = context.api_version >= PRODUCE_IDS_FROM
    topics, image, rights = request.topic_data, context.broker.image, rights_of(context)
    names = [image.topic_name(each.topic_id) if by_id else each.name for each in topics]
    asked = zip(topics, names, strict=True)
    # One that is named for several partitions counts as often.
    known = [name for topic, name in asked if name is not None for _ in topic.partition_data]
    allowed = rights.allowed(WRITE, TOPIC, known)
    if allowed.issuperset(known):
        found = zip(topics, names, strict=True)
        rights.remember_writable(
            topic.topic_id if by_id else topic.name for topic, name in found if name in allowed
        )
        return inner.handle(request, context)
    left, denied = parted(topics, names, allowed)
    if not left:
        return inner.failure(request, FAILED[TOPIC], context)
    answer = inner.handle(with_field(request, "topic_data", left), context)
    if request.acks == 0:
        raise PeerError("a produce request with acks=0 names topics that may not be written to")
    failed = inner.failure(with_field(request, "topic_data", denied), FAILED[TOPIC], context)

    def joined(response: Any) -> Any:
        response.responses += failed.responses
        return response

    return then(answer, joined)


# ---- Transactions --------------------------------------------------------------------------------


def init_producer_id(inner: Guarded, request: InitProducerIdRequest, context: Context) -> Any:
    """WRITE on the transactional id; without one IDEMPOTENT_WRITE, or WRITE on any topic."""
    rights = rights_of(context)
    transactional_id = request.transactional_id
    if transactional_id is not None:
        if not rights.allows(WRITE, TRANSACTIONAL_ID, transactional_id):
            return inner.failure(request, FAILED[TRANSACTIONAL_ID], context)
    elif not (
        rights.allows_cluster(Operation.IDEMPOTENT_WRITE, log_denied=False)
        or rights.allows_type(WRITE, TOPIC)  # KIP-679
    ):
        return inner.failure(request, FAILED[CLUSTER], context)
    return inner.handle(request, context)


ADDED_BY_BROKERS_FROM = 4


def add_partitions_to_txn(
    inner: Guarded, request: AddPartitionsToTxnRequest, context: Context
) -> Any:
    """From producers WRITE on the transactional id and the topics, from brokers CLUSTER_ACTION."""
    rights = rights_of(context)
    if context.api_version >= ADDED_BY_BROKERS_FROM:
        if rights.allows_cluster(Operation.CLUSTER_ACTION):
            return inner.handle(request, context)
        # One error for all; clients of this version look for it there.
        return inner.response(error_code=FAILED[CLUSTER])
    if not rights.allows(WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        return inner.failure(request, FAILED[TRANSACTIONAL_ID], context)
    names = [
        topic.name
        for topic in request.v3_and_below_topics
        for _ in topic.partitions
        if topic.name not in INTERNAL
    ]
    allowed = rights.allowed(WRITE, TOPIC, names)
    if allowed.issuperset(topic.name for topic in request.v3_and_below_topics):
        return inner.handle(request, context)
    # All or nothing: with one partition that cannot be added none is.
    response = inner.failure(request, ErrorCode.OPERATION_NOT_ATTEMPTED, context)
    image = context.broker.image
    for topic in response.results_by_topic_v3_and_below:
        for each in topic.results_by_partition:
            if topic.name not in allowed:
                each.partition_error_code = FAILED[TOPIC]
            elif image.partition(topic.name, each.partition_index) is None:
                each.partition_error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return response


def described_transactions(response: DescribeTransactionsResponse, context: Context) -> Any:
    """Only the topics that may be described are shown."""
    rights = rights_of(context)
    for state in response.transaction_states:
        state.topics = [each for each in state.topics if rights.allows(DESCRIBE, TOPIC, each.topic)]
    return response


def listed_transactions(response: ListTransactionsResponse, context: Context) -> Any:
    rights = rights_of(context)
    response.transaction_states = [
        each
        for each in response.transaction_states
        if rights.allows(DESCRIBE, TRANSACTIONAL_ID, each.transactional_id)
    ]
    return response


# ---- Topics and configs --------------------------------------------------------------------------


def create_topics(inner: Guarded, request: CreateTopicsRequest, context: Context) -> Any:
    """CREATE on the cluster or on each topic; configs are shown with DESCRIBE_CONFIGS."""
    rights = rights_of(context)
    counts = Counter(topic.name for topic in request.topics)
    names = [name for name, count in counts.items() if count == 1 and name != CLUSTER_METADATA]
    creatable = set(names)
    if not rights.allows_cluster(CREATE, log_denied=False):
        creatable = rights.allowed(CREATE, TOPIC, names)
    describable = rights.allowed(DESCRIBE_CONFIGS, TOPIC, names, log_denied=False)
    refused = set(names) - creatable
    denied = [topic for topic in request.topics if topic.name in refused]
    failed = inner.failure(with_field(request, "topics", denied), FAILED[TOPIC], context).topics
    for each in failed:
        each.error_message = "Authorization failed."
    left = [topic for topic in request.topics if topic.name not in refused]

    def joined(response: CreateTopicsResponse) -> CreateTopicsResponse:
        for each in response.topics:
            if not each.error_code and each.name not in describable:
                each.topic_config_error_code = FAILED[TOPIC]
                each.num_partitions = each.replication_factor = -1
                each.configs = []
        response.topics += failed
        return response

    if not left:
        return joined(inner.response())
    return then(inner.handle(with_field(request, "topics", left), context), joined)


DELETIONS_BY_ID_FROM = 6


def delete_topics(inner: Guarded, request: DeleteTopicsRequest, context: Context) -> Any:
    """DELETE on the cluster or on each topic; a name is shown to who may describe it."""
    rights = rights_of(context)
    enabled = context.broker.settings.flag("delete.topic.enable")
    if not enabled or rights.allows_cluster(DELETE, log_denied=False):
        return inner.handle(request, context)
    by_id = context.api_version >= DELETIONS_BY_ID_FROM
    field = "topics" if by_id else "topic_names"
    items: list[Any] = getattr(request, field)
    names = _to_delete(items, context) if by_id else _named_once(items)
    known = [each for each in names if each is not None]
    describable = rights.allowed(DESCRIBE, TOPIC, known)
    deletable = rights.allowed(DELETE, TOPIC, known)
    left, denied = parted(items, names, deletable)
    if not denied:
        return inner.handle(request, context)
    failed = inner.failure(with_field(request, field, denied), FAILED[TOPIC], context).responses
    for each in failed:
        each.error_message = FAILED[TOPIC].message
        if each.topic_id != ZERO_ID:
            name = context.broker.image.topic_name(each.topic_id)
            each.name = name if name in describable else None
    if not left:
        return inner.response(responses=failed)

    def joined(response: DeleteTopicsResponse) -> DeleteTopicsResponse:
        response.responses += failed
        return response

    return then(inner.handle(with_field(request, field, left), context), joined)


def _to_delete(topics: Sequence[DeleteTopicState], context: Context) -> list[str | None]:
    """The names; None where the handler refuses what is asked, or knows no such topic."""
    counts = Counter((topic.name, topic.topic_id) for topic in topics)
    names: list[str | None] = []
    for topic in topics:
        name: str | None = topic.name
        if topic.topic_id != ZERO_ID:
            name = None if name is not None else context.broker.image.topic_name(topic.topic_id)
        names.append(name if counts[topic.name, topic.topic_id] == 1 else None)
    return names


def _named_once(names: Sequence[str]) -> list[str | None]:
    counts = Counter(names)
    return [name if counts[name] == 1 else None for name in names]


CONFIG_TYPES = frozenset(ConfigType) - {ConfigType.UNKNOWN}
CONFIG_KINDS = {ConfigType.TOPIC: TOPIC, ConfigType.GROUP: GROUP}


def describe_configs(inner: Guarded, request: DescribeConfigsRequest, context: Context) -> Any:
    """DESCRIBE_CONFIGS on each topic, group, or for brokers on the cluster."""
    rights = rights_of(context)
    if any(each.resource_type not in CONFIG_TYPES for each in request.resources):
        return inner.handle(request, context)  # which refuses it as a whole
    left, failed = [], []
    for each in request.resources:
        kind, name = config_resource(each.resource_type, each.resource_name)
        if rights.allows(DESCRIBE_CONFIGS, kind, name):
            left.append(each)
        else:
            alone = with_field(request, "resources", [each])
            failed += inner.failure(alone, FAILED[kind], context).results
    if not failed:
        return inner.handle(request, context)

    def joined(response: Any) -> Any:
        response.results += failed
        return response

    return then(inner.handle(with_field(request, "resources", left), context), joined)


def config_resource(config_type: int, name: str) -> tuple[ResourceType, str]:
    """What the configs of a resource are protected by."""
    kind = CONFIG_KINDS.get(ConfigType(config_type))
    return (CLUSTER, CLUSTER_NAME) if kind is None else (kind, name)

"""Metadata (KIP-516 topic ids): brokers, topics, leaders; and topics created by asking for them.

A client gets the addresses of the listener it is connected to. A topic that is created by the
request is in this very answer, with its leader: the next request of the client can go there.

Answers are put together from encoded topics that are kept (metadata_answers.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

from ottla.broker.authorized_operations import (
    NOT_ASKED,
    TOPIC_OPERATIONS,
    cluster_operations,
    topic_operations,
)
from ottla.broker.context import Context, Encoded
from ottla.broker.metadata_answers import Variant
from ottla.cluster.image import ZERO_ID, ClusterImage, TopicImage
from ottla.cluster.names import INTERNAL, name_error
from ottla.cluster.requests import NewTopic
from ottla.security.acls import Operation, ResourceType
from ottla.wire.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.authorization.rights import Rights

TOPIC_IDS_FROM = 12
AUTHORIZED_OPERATIONS_FROM = 8
CLUSTER_OPERATIONS_UP_TO = 10
DESCRIBE, TOPIC = Operation.DESCRIBE, ResourceType.TOPIC
# With these errors it is not told what may be done with a topic.
UNTOLD = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID)

# A topic of the image, or the answer about one that is not there.
Topic: TypeAlias = TopicImage | MetadataResponseTopic


def handle(
    request: MetadataRequest, context: Context
) -> MetadataResponse | Encoded | Awaitable[Encoded]:
    """At once when every topic is there, after their creation when some must be made."""
    version = context.api_version
    topics = request.topics
    image = context.broker.image
    if topics is None or (not topics and version == 0):
        return _all_topics(request, context)
    if version < TOPIC_IDS_FROM and any(_needs_ids(topic) for topic in topics):
        return failure(request, ErrorCode.INVALID_REQUEST, context)
    topic_ids = [topic.topic_id for topic in topics if topic.topic_id != ZERO_ID]
    if topic_ids:
        return _encoded(_by_id(dict.fromkeys(topic_ids), context), request, context)
    names = list(dict.fromkeys(topic.name or "" for topic in topics))
    hidden: list[Topic] = []
    if context.rights is not None:
        allowed = context.rights.allowed(DESCRIBE, TOPIC, names)
        hidden = [_denied(name) for name in names if name not in allowed]
        names = [name for name in names if name in allowed]
    settings = context.broker.settings
    if request.allow_auto_topic_creation and settings.flag("auto.create.topics.enable"):
        missing = [name for name in names if name not in image.topics]
        if missing and context.rights is not None:
            barred = missing_rights_to_create(missing, context.rights)
            hidden[:0] = [_denied(name, is_internal=name in INTERNAL) for name in barred]
            names = [name for name in names if name not in barred]
            missing = [name for name in missing if name not in barred]
        new = [name for name in missing if name_error(name) is None]
        if new:
            return _create(new, names, hidden, request, context)
    return _encoded([*_by_name(names, image), *hidden], request, context)


def failure(request: MetadataRequest, error_code: ErrorCode, context: Context) -> MetadataResponse:
    """The same error for every topic asked for."""
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(
                error_code=error_code,
                name=topic.name or "",
                topic_id=topic.topic_id,
            )
            for topic in request.topics or ()
        ]
    )


def _all_topics(request: MetadataRequest, context: Context) -> Encoded | Awaitable[Encoded]:
    image = context.broker.image
    topics: Sequence[Topic] = list(image.topics.values())
    if context.rights is not None:
        topics = context.rights.described(image.topics)
        if len(topics) < len(image.topics) or _asks_operations(request, context):
            return _encoded(topics, request, context)
    variant = _variant(request, context, _topic_operations(request, context))
    body = variant.all_topics(image, _cluster_operations(request, context))
    if body is not None:
        return Encoded(body)
    return _encoded(topics, request, context, whole=True)


def _encoded(
    topics: Sequence[Topic], request: MetadataRequest, context: Context, *, whole: bool = False
) -> Encoded | Awaitable[Encoded]:
    """The answer about these topics; later, when too much of it has to be encoded first."""
    answers, image = context.broker.metadata_answers, context.broker.image
    pieces = _pieces(topics, request, context)
    variant, _ = pieces[0]
    operations = _cluster_operations(request, context)

    def finish(parts: list[bytes]) -> Encoded:
        body = variant.answer(image, parts, operations)
        if whole:
            variant.keep_all_topics(image, operations, body)
        answers.limit()
        return Encoded(body)

    async def later() -> Encoded:
        # One at a time: the next one finds encoded what this one has.
        async with variant.encoding:
            parts: list[bytes] = []
            for each, some in pieces:
                for _ in each.encode(some, parts):
                    await asyncio.sleep(0)
            return finish(parts)

    if variant.encoding.locked():
        return later()
    parts: list[bytes] = []
    for each, some in pieces:
        for _ in each.encode(some, parts):
            return later()
    return finish(parts)


def _pieces(
    topics: Sequence[Topic], request: MetadataRequest, context: Context
) -> list[tuple[Variant, Sequence[Topic]]]:
    """The topics in their order, each with the variant that has what may be done with it."""
    if context.rights is None or not _asks_operations(request, context) or not topics:
        return [(_variant(request, context, _topic_operations(request, context)), topics)]

    def operations(topic: Topic) -> int:
        if isinstance(topic, MetadataResponseTopic) and topic.error_code in UNTOLD:
            return NOT_ASKED
        return topic_operations(context, topic.name or "")

    return [
        (_variant(request, context, bits), list(run)) for bits, run in groupby(topics, operations)
    ]


def _variant(request: MetadataRequest, context: Context, operations: int) -> Variant:
    return context.broker.metadata_answers.variant(
        context.broker.image, context.peer.listener_name, context.api_version, operations
    )


def _asks_operations(request: MetadataRequest, context: Context) -> bool:
    return (
        context.api_version >= AUTHORIZED_OPERATIONS_FROM
        and request.include_topic_authorized_operations
    )


def _topic_operations(request: MetadataRequest, context: Context) -> int:
    return TOPIC_OPERATIONS if _asks_operations(request, context) else NOT_ASKED


def _cluster_operations(request: MetadataRequest, context: Context) -> int:
    version = context.api_version
    if not AUTHORIZED_OPERATIONS_FROM <= version <= CLUSTER_OPERATIONS_UP_TO:
        return NOT_ASKED
    if not request.include_cluster_authorized_operations:
        return NOT_ASKED
    return cluster_operations(context)


async def _create(
    new: Sequence[str],
    names: Sequence[str],
    hidden: Sequence[Topic],
    request: MetadataRequest,
    context: Context,
) -> Encoded:
    """Create the topics with the broker's defaults; what cannot be created stays unknown."""
    await context.broker.controller.create_topics([NewTopic(name) for name in new])
    answer = _encoded([*_by_name(names, context.broker.image), *hidden], request, context)
    return answer if isinstance(answer, Encoded) else await answer


def _needs_ids(topic: MetadataRequestTopic) -> bool:
    """The fields for ids came in version 10, but asking by id only works since 12."""
    return topic.name is None or topic.topic_id != ZERO_ID


def missing_rights_to_create(names: Sequence[str], rights: Rights) -> list[str]:
    """CREATE on the cluster will do, or on each of the topics."""
    if rights.allows_cluster(Operation.CREATE, log_denied=False):
        return []
    allowed = rights.allowed(Operation.CREATE, TOPIC, names)
    return [name for name in names if name not in allowed]


def _denied(name: str, *, is_internal: bool = False) -> MetadataResponseTopic:
    """Whether there is such a topic is not told."""
    return MetadataResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, is_internal=is_internal
    )


def _by_id(topic_ids: Iterable[bytes], context: Context) -> list[Topic]:
    """Unknown topics first, as Kafka answers them; an id tells nothing, so it has an error too."""
    image = context.broker.image
    found: list[Topic] = [
        MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        for topic_id in topic_ids
        if topic_id not in image.topics_by_id
    ]
    by_id = image.topics_by_id
    known: list[TopicImage] = [by_id[topic_id] for topic_id in topic_ids if topic_id in by_id]
    if context.rights is None:
        return [*found, *known]
    allowed = context.rights.allowed(DESCRIBE, TOPIC, (topic.name for topic in known))
    hidden = [
        MetadataResponseTopic(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=topic.id
        )
        for topic in known
        if topic.name not in allowed
    ]
    return [*found, *(topic for topic in known if topic.name in allowed), *hidden]


def _by_name(names: Iterable[str], image: ClusterImage) -> list[Topic]:
    return [image.topics.get(name) or _unknown(name) for name in names]


def _unknown(name: str) -> MetadataResponseTopic:
    bad_name = name_error(name) is not None
    return MetadataResponseTopic(
        error_code=(
            ErrorCode.INVALID_TOPIC_EXCEPTION if bad_name else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ),
        name=name,
        is_internal=name in INTERNAL,
    )

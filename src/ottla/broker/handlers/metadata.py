"""Metadata (KIP-516 topic ids): brokers, topics, leaders; and topics created by asking for them.

A client gets the addresses of the listener it is connected to. A topic that is created by the
request is in this very answer, with its leader: the next request of the client can go there.

Answers are put together from encoded topics that are kept (metadata_answers.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from typing import TypeAlias

from ottla.broker.context import Context, Encoded
from ottla.broker.metadata_answers import Variant
from ottla.cluster.image import ZERO_ID, ClusterImage, TopicImage
from ottla.cluster.names import INTERNAL, name_error
from ottla.cluster.requests import NewTopic
from ottla.wire.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from ottla.wire.errors import ErrorCode

TOPIC_IDS_FROM = 12
AUTHORIZED_OPERATIONS_FROM = 8
CLUSTER_OPERATIONS_UP_TO = 10

# Bits by AclOperation: without an authorizer a client may do all there is to do.
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
NOT_ASKED = -(1 << 31)

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
        return _encoded(_by_id(dict.fromkeys(topic_ids), image), request, context)
    names = list(dict.fromkeys(topic.name or "" for topic in topics))
    settings = context.broker.settings
    if request.allow_auto_topic_creation and settings.flag("auto.create.topics.enable"):
        new = [name for name in names if name not in image.topics and name_error(name) is None]
        if new:
            return _create(new, names, request, context)
    return _encoded(_by_name(names, image), request, context)


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
    body = _variant(request, context).all_topics(image, _cluster_operations(request, context))
    if body is not None:
        return Encoded(body)
    return _encoded(list(image.topics.values()), request, context, whole=True)


def _encoded(
    topics: Sequence[Topic], request: MetadataRequest, context: Context, *, whole: bool = False
) -> Encoded | Awaitable[Encoded]:
    """The answer about these topics; later, when too much of it has to be encoded first."""
    answers, image = context.broker.metadata_answers, context.broker.image
    variant = _variant(request, context)
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
            for _ in variant.encode(topics, parts):
                await asyncio.sleep(0)
            return finish(parts)

    if variant.encoding.locked():
        return later()
    parts: list[bytes] = []
    for _ in variant.encode(topics, parts):
        return later()
    return finish(parts)


def _variant(request: MetadataRequest, context: Context) -> Variant:
    asked = request.include_topic_authorized_operations
    if context.api_version < AUTHORIZED_OPERATIONS_FROM:
        asked = False
    return context.broker.metadata_answers.variant(
        context.broker.image,
        context.peer.listener_name,
        context.api_version,
        TOPIC_OPERATIONS if asked else NOT_ASKED,
    )


def _cluster_operations(request: MetadataRequest, context: Context) -> int:
    version = context.api_version
    if not AUTHORIZED_OPERATIONS_FROM <= version <= CLUSTER_OPERATIONS_UP_TO:
        return NOT_ASKED
    return CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED


async def _create(
    new: Sequence[str], names: Sequence[str], request: MetadataRequest, context: Context
) -> Encoded:
    """Create the topics with the broker's defaults; what cannot be created stays unknown."""
    await context.broker.controller.create_topics([NewTopic(name) for name in new])
    answer = _encoded(_by_name(names, context.broker.image), request, context)
    return answer if isinstance(answer, Encoded) else await answer


def _needs_ids(topic: MetadataRequestTopic) -> bool:
    """The fields for ids came in version 10, but asking by id only works since 12."""
    return topic.name is None or topic.topic_id != ZERO_ID


def _by_id(topic_ids: Iterable[bytes], image: ClusterImage) -> list[Topic]:
    """Unknown topics first, as Kafka answers them."""
    found: list[Topic] = [
        MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        for topic_id in topic_ids
        if topic_id not in image.topics_by_id
    ]
    by_id = image.topics_by_id
    return found + [by_id[topic_id] for topic_id in topic_ids if topic_id in by_id]


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

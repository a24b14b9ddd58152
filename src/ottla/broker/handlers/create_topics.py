"""CreateTopics: the controller decides; the answer has the topics created, with all configs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.broker.client_quotas import MutationQuota, mutation_quota
from ottla.broker.context import Context
from ottla.broker.forwarding import new_topic
from ottla.cluster.requests import NewTopic, TopicOutcome
from ottla.settings.describe import source_at_creation, topic_entries
from ottla.wire.api.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.errors import ErrorCode

CONFIGS_FROM = 5
QUOTA_ERROR_FROM = 6


async def handle(request: CreateTopicsRequest, context: Context) -> CreateTopicsResponse:
    """One result for each name; a name given twice has one result, after the others."""
    if request.timeout_ms <= 0:
        return failure(request, ErrorCode.REQUEST_TIMED_OUT, context)  # its time is over already
    wanted = [new_topic(topic) for topic in request.topics]
    quota = mutation_quota(context, QUOTA_ERROR_FROM)
    if quota is None:
        outcomes = await context.broker.controller.create_topics(wanted, request.validate_only)
    else:
        outcomes = await _create_within(quota, wanted, request.validate_only, context)
    shown: dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]] = {}
    return CreateTopicsResponse(topics=[_result(each, context, shown) for each in outcomes])


async def _create_within(
    quota: MutationQuota, wanted: Sequence[NewTopic], validate_only: bool, context: Context
) -> list[TopicOutcome]:
    """First what there is to be said against them: what cannot be created costs nothing."""
    controller = context.broker.controller
    outcomes = await controller.create_topics(wanted, True)
    refused = {
        each.name
        for each in outcomes
        if each.error_code == ErrorCode.NONE and not quota.take(each.num_partitions)
    }
    found = {each.name: each for each in outcomes}
    if not validate_only:
        left = [
            each
            for each in wanted
            if each.name not in refused and found[each.name].error_code == ErrorCode.NONE
        ]
        if left:
            found |= {each.name: each for each in await controller.create_topics(left, False)}
    for name in refused:
        found[name] = TopicOutcome(name, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    quota.done()
    return [found[each.name] for each in outcomes]


def failure(
    request: CreateTopicsRequest, error_code: ErrorCode, context: Context
) -> CreateTopicsResponse:
    """The same error for every topic."""
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(
                name=topic.name, error_code=error_code, error_message=None, configs=[]
            )
            for topic in request.topics
        ]
    )


def _result(
    outcome: TopicOutcome,
    context: Context,
    shown: dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]],
) -> CreatableTopicResult:
    result = CreatableTopicResult(
        name=outcome.name,
        topic_id=outcome.topic_id,
        error_code=outcome.error_code,
        error_message=outcome.error_message,
        num_partitions=outcome.num_partitions,
        replication_factor=outcome.replication_factor,
        configs=[],
    )
    if outcome.error_code == ErrorCode.NONE and context.api_version >= CONFIGS_FROM:
        # A request that makes a thousand topics makes most of them alike.
        key = frozenset(outcome.configs.items())
        configs = shown.get(key)
        if configs is None:
            configs = shown[key] = _configs(outcome.configs, context)
        result.configs = configs
    return result


def _configs(overrides: Mapping[str, str], context: Context) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=entry.name,
            # A config that was asked for is shown as it was written, blanks and all.
            value=overrides.get(entry.name, entry.value),
            read_only=entry.read_only,
            config_source=source_at_creation(context.broker.settings, entry),
            is_sensitive=entry.sensitive,
        )
        # By name: here the controller answers, and it sorts.
        for entry in sorted(topic_entries(context.broker.settings, overrides))
    ]

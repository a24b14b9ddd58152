"""DescribeConfigs: every config with its value, where that comes from and what else would set it.

Defaults are not overrides: a config that is not set has the source DEFAULT_CONFIG. Configs are in
Kafka's order, also where the request names some. A resource that is wrong has its own error; a type
that Kafka does not know makes the whole request fail.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.context import Context
from ottla.broker.loggers import logger_entries
from ottla.cluster.configs import parsed_int
from ottla.cluster.names import name_error
from ottla.cluster.requests import Refusal, ResourceType
from ottla.settings.describe import (
    ConfigEntry,
    broker_default_entries,
    broker_entries,
    client_metrics_entries,
    group_entries,
    topic_entries,
)
from ottla.wire.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ottla.wire.errors import ErrorCode

KNOWN_TYPES = frozenset(ResourceType) - {ResourceType.UNKNOWN}


def handle(request: DescribeConfigsRequest, context: Context) -> DescribeConfigsResponse:
    if any(resource.resource_type not in KNOWN_TYPES for resource in request.resources):
        return failure(request, ErrorCode.INVALID_REQUEST, context)
    return DescribeConfigsResponse(
        results=[_result(resource, request, context) for resource in request.resources]
    )


def failure(
    request: DescribeConfigsRequest, error_code: ErrorCode, context: Context
) -> DescribeConfigsResponse:
    """The same error for every resource."""
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=error_code,
                error_message=error_code.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _result(
    resource: DescribeConfigsResource, request: DescribeConfigsRequest, context: Context
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    entries = _entries(resource.resource_type, resource.resource_name, context)
    if isinstance(entries, Refusal):
        result.error_code = entries.error_code
        result.error_message = entries.error_message or ""
        return result
    wanted = frozenset(resource.configuration_keys or ())
    # The entries of loggers have a documentation, an empty one, whether asked for or not.
    documented = request.include_documentation
    result.configs = [
        DescribeConfigsResourceResult(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.sensitive,
            synonyms=_synonyms(entry) if request.include_synonyms else [],
            config_type=entry.type,
            documentation=entry.doc if documented or not entry.type else None,
        )
        for entry in entries
        if not wanted or entry.name in wanted
    ]
    return result


def _synonyms(entry: ConfigEntry) -> list[DescribeConfigsSynonym]:
    return [
        DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
        for synonym in entry.synonyms
    ]


def _entries(resource_type: int, name: str, context: Context) -> Iterable[ConfigEntry] | Refusal:
    settings = context.broker.settings
    if resource_type == ResourceType.TOPIC:
        return _topic(name, context)
    if resource_type == ResourceType.BROKER:
        if not name:
            return broker_default_entries(settings)
        node_id = settings.node_id
        wrong = _wrong_id(name, node_id, f"expected {node_id} or empty string, but received")
        return wrong or broker_entries(settings)
    if resource_type == ResourceType.BROKER_LOGGER:
        if not name:
            return Refusal(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        node_id = settings.node_id
        return _wrong_id(name, node_id, f"expected {node_id} but received") or logger_entries()
    if resource_type == ResourceType.CLIENT_METRICS:
        if not name:
            message = "Client metrics subscription name must not be empty"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
        return client_metrics_entries()
    if not name:
        return Refusal(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    return group_entries(settings, context.broker.image.group_configs.get(name, {}))


def _topic(name: str, context: Context) -> Iterable[ConfigEntry] | Refusal:
    image = context.broker.image
    wrong = name_error(name)
    if wrong is not None:
        return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
    if name not in image.topics:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic_entries(context.broker.settings, image.configs_of(name))


def _wrong_id(name: str, node_id: int, expected: str) -> Refusal | None:
    broker_id = parsed_int(name)
    if broker_id is None:
        message = f"Broker id must be an integer, but it is: {name}"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    if broker_id != node_id:
        message = f"Unexpected broker id, {expected} {name}"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    return None

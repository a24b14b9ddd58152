"""IncrementalAlterConfigs: set, delete, append to and subtract from single configs (KIP-339)."""

from __future__ import annotations

from ottla.broker.config_changes import Change, change_configs, preprocess_incremental
from ottla.broker.context import Context
from ottla.cluster.requests import ConfigOutcome, Op, Resource
from ottla.wire.api.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.errors import ErrorCode

OPERATIONS = frozenset(Op)


async def handle(
    request: IncrementalAlterConfigsRequest, context: Context
) -> IncrementalAlterConfigsResponse:
    changes = [
        Change(
            Resource(resource.resource_type, resource.resource_name),
            [(config.name, config.config_operation, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]

    async def persist(left: list[Change]) -> list[ConfigOutcome]:
        if any(each[1] not in OPERATIONS for change in left for each in change.configs):
            # Kafka's controller trips over an operation it does not know, and with it all it got.
            unknown = ErrorCode.UNKNOWN_SERVER_ERROR
            return [ConfigOutcome(change.resource, unknown) for change in left]
        wanted = [(change.resource, change.configs) for change in left]
        controller = context.broker.controller
        return await controller.incremental_alter_configs(wanted, request.validate_only)

    preprocess = preprocess_incremental(context, request.validate_only)
    answers = await change_configs(changes, preprocess, persist, context.rights)
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=answer.error_code,
                error_message=answer.error_message,
                resource_type=change.resource.type,
                resource_name=change.resource.name,
            )
            for change, answer in zip(changes, answers, strict=True)
        ]
    )


def failure(
    request: IncrementalAlterConfigsRequest, error_code: ErrorCode, context: Context
) -> IncrementalAlterConfigsResponse:
    """The same error for every resource."""
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=error_code,
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )

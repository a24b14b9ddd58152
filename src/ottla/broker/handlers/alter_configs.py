"""AlterConfigs: all dynamic configs of a resource are replaced; what is not named is gone."""

from __future__ import annotations

from ottla.broker.config_changes import Change, change_configs, preprocess_whole
from ottla.broker.context import Context
from ottla.cluster.requests import ConfigOutcome, Op, Resource
from ottla.wire.api.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ottla.wire.errors import ErrorCode


async def handle(request: AlterConfigsRequest, context: Context) -> AlterConfigsResponse:
    changes = [
        Change(
            Resource(resource.resource_type, resource.resource_name),
            [(config.name, Op.SET, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]

    async def persist(left: list[Change]) -> list[ConfigOutcome]:
        wanted = [
            (change.resource, [(name, value) for name, _, value in change.configs])
            for change in left
        ]
        return await context.broker.controller.alter_configs(wanted, request.validate_only)

    answers = await change_configs(changes, preprocess_whole(context), persist, context.rights)
    return AlterConfigsResponse(
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
    request: AlterConfigsRequest, error_code: ErrorCode, context: Context
) -> AlterConfigsResponse:
    """The same error for every resource."""
    return AlterConfigsResponse(
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

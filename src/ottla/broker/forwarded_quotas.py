"""Client quotas in Kafka's messages: what is asked for, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.cluster.channel import ControllerChannel
from ottla.cluster.requests import QuotaOutcome
from ottla.security.quotas.entities import Alteration, Entity, entity_of
from ottla.wire.api import alter_client_quotas_response as answers
from ottla.wire.api.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from ottla.wire.errors import ErrorCode


def alterations_of(request: AlterClientQuotasRequest) -> list[Alteration]:
    return [
        Alteration(
            entity_of((each.entity_type, each.entity_name) for each in entry.entity),
            [(each.key, None if each.remove else each.value) for each in entry.ops],
        )
        for entry in request.entries
    ]


async def alter(
    controller: ControllerChannel, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Have the controller do what a request asks."""
    outcomes = await controller.alter_client_quotas(alterations_of(request), request.validate_only)
    return alter_response(outcomes)


def alter_request(
    alterations: Sequence[Alteration], validate_only: bool
) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[
                    EntityData(entity_type=kind, entity_name=name)
                    for kind, name in alteration.entity
                ],
                ops=[
                    OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in alteration.operations
                ],
            )
            for alteration in alterations
        ],
        validate_only=validate_only,
    )


def alter_response(outcomes: Sequence[QuotaOutcome]) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            answers.EntryData(
                error_code=each.error_code,
                error_message=each.error_message,
                entity=entity_data(each.entity),
            )
            for each in outcomes
        ]
    )


def alter_outcomes(response: AlterClientQuotasResponse) -> list[QuotaOutcome]:
    return [
        QuotaOutcome(
            entity_of((part.entity_type, part.entity_name) for part in each.entity),
            ErrorCode(each.error_code),
            each.error_message,
        )
        for each in response.entries
    ]


def entity_data(entity: Entity) -> list[answers.EntityData]:
    return [answers.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]

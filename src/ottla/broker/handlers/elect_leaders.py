"""ElectLeaders (KIP-460): the controller elects the leaders that a user asks for."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.broker.forwarded_elections import election_results, partitions_asked
from ottla.cluster.requests import ElectionOutcome, ElectionType, Refusal
from ottla.wire.api.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from ottla.wire.errors import ErrorCode

KINDS = frozenset(ElectionType)


async def handle(request: ElectLeadersRequest, context: Context) -> ElectLeadersResponse:
    """A result for each partition; asked for all, only of those that need an election."""
    if request.election_type not in KINDS:
        message = f"Unknown election type {request.election_type}"
        return refused(request, Refusal(ErrorCode.INVALID_REQUEST, message))
    outcomes = await context.broker.controller.elect_leaders(
        ElectionType(request.election_type), partitions_asked(request)
    )
    if isinstance(outcomes, Refusal):
        return refused(request, outcomes)
    asked = request.topic_partitions
    names = context.broker.image.topics if asked is None else [each.topic for each in asked]
    return ElectLeadersResponse(replica_election_results=election_results(outcomes, names))


def failure(
    request: ElectLeadersRequest, error_code: ErrorCode, context: Context
) -> ElectLeadersResponse:
    """The same error for the request and every partition."""
    return refused(request, Refusal(error_code, error_code.message))


def refused(request: ElectLeadersRequest, refusal: Refusal) -> ElectLeadersResponse:
    outcomes = [ElectionOutcome(*each, *refusal) for each in partitions_asked(request) or ()]
    return ElectLeadersResponse(
        error_code=refusal.error_code, replica_election_results=election_results(outcomes)
    )

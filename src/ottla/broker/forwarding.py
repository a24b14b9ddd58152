"""Admin requests on their way to a controller in another process: as declared requests. Pure.

`carry_out` is the controller's end: it calls the controller as a forwarded request says. The other
functions are the end of the broker that forwards: what it asks for as a request, and the response
as outcomes. Kafka's own messages carry both, in their latest version. Where they show more than the
controller decides (the configs of a new topic), they carry what it decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.broker import (
    forwarded_acls,
    forwarded_credentials,
    forwarded_elections,
    forwarded_quotas,
    forwarded_tokens,
)
from ottla.broker import forwarded_reassignments as reassignments
from ottla.cluster.requests import (
    ConfigOutcome,
    DeletionOutcome,
    ElectionType,
    FeaturesOutcome,
    FeatureUpdate,
    NewPartitions,
    NewTopic,
    PartitionsOutcome,
    Refusal,
    Resource,
    TopicOutcome,
    TopicRef,
)
from ottla.security.principal import ANONYMOUS, Principal
from ottla.wire.api import alter_configs as whole
from ottla.wire.api import incremental_alter_configs as incremental
from ottla.wire.api.alter_client_quotas import AlterClientQuotasRequest
from ottla.wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from ottla.wire.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from ottla.wire.api.create_acls import CreateAclsRequest, CreateAclsResponse
from ottla.wire.api.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.wire.api.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.wire.api.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.api.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from ottla.wire.api.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.wire.api.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from ottla.wire.api.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from ottla.wire.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ottla.wire.api.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from ottla.wire.api.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.wire.api.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.cluster.channel import ControllerChannel
    from ottla.wire.schema import Struct

# What may be forwarded, by API key.
FORWARDED: dict[int, type[Struct]] = {
    19: CreateTopicsRequest,
    20: DeleteTopicsRequest,
    30: CreateAclsRequest,
    31: DeleteAclsRequest,
    33: whole.AlterConfigsRequest,
    37: CreatePartitionsRequest,
    38: CreateDelegationTokenRequest,
    39: RenewDelegationTokenRequest,
    40: ExpireDelegationTokenRequest,
    43: ElectLeadersRequest,
    44: incremental.IncrementalAlterConfigsRequest,
    45: AlterPartitionReassignmentsRequest,
    46: ListPartitionReassignmentsRequest,
    49: AlterClientQuotasRequest,
    51: AlterUserScramCredentialsRequest,
    57: UpdateFeaturesRequest,
    64: UnregisterBrokerRequest,
}


# Responses with one error for all.
ONE_ERROR = (
    UpdateFeaturesResponse,
    ElectLeadersResponse,
    UnregisterBrokerResponse,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsResponse,
    CreateDelegationTokenResponse,
    RenewDelegationTokenResponse,
    ExpireDelegationTokenResponse,
)


async def carry_out(
    controller: ControllerChannel, request: Any, requester: Principal = ANONYMOUS
) -> Struct:
    """Have the controller do what a forwarded request asks; its response."""
    match request:
        case CreateTopicsRequest():
            topics = [new_topic(topic) for topic in request.topics]
            return topics_response(await controller.create_topics(topics, request.validate_only))
        case DeleteTopicsRequest():
            refs = [TopicRef(topic.name, topic.topic_id) for topic in request.topics]
            return deletions_response(await controller.delete_topics(refs))
        case CreatePartitionsRequest():
            grown = [new_partitions(topic) for topic in request.topics]
            return partitions_response(
                await controller.create_partitions(grown, request.validate_only)
            )
        case whole.AlterConfigsRequest():
            return whole.AlterConfigsResponse(
                responses=[
                    whole.AlterConfigsResourceResponse(**config_result(outcome))
                    for outcome in await controller.alter_configs(
                        [
                            (
                                Resource(each.resource_type, each.resource_name),
                                [(config.name, config.value) for config in each.configs],
                            )
                            for each in request.resources
                        ],
                        request.validate_only,
                    )
                ]
            )
        case incremental.IncrementalAlterConfigsRequest():
            return incremental.IncrementalAlterConfigsResponse(
                responses=[
                    incremental.AlterConfigsResourceResponse(**config_result(outcome))
                    for outcome in await controller.incremental_alter_configs(
                        [
                            (
                                Resource(each.resource_type, each.resource_name),
                                [
                                    (config.name, config.config_operation, config.value)
                                    for config in each.configs
                                ],
                            )
                            for each in request.resources
                        ],
                        request.validate_only,
                    )
                ]
            )
        case CreateAclsRequest():
            bindings = [forwarded_acls.binding_of(each) for each in request.creations]
            return forwarded_acls.create_response(await controller.create_acls(bindings))
        case DeleteAclsRequest():
            filters = [forwarded_acls.filter_of(each) for each in request.filters]
            return forwarded_acls.delete_response(await controller.delete_acls(filters))
        case AlterClientQuotasRequest():
            return await forwarded_quotas.alter(controller, request)
        case AlterUserScramCredentialsRequest():
            altered = await controller.alter_scram_credentials(
                *forwarded_credentials.wanted_by(request)
            )
            if isinstance(altered, Refusal):
                return forwarded_credentials.refused(request, altered)
            return forwarded_credentials.response_of(altered)
        case (
            CreateDelegationTokenRequest()
            | RenewDelegationTokenRequest()
            | ExpireDelegationTokenRequest()
        ):
            change = forwarded_tokens.wanted_by(request, requester)
            return forwarded_tokens.response_of(change, await controller.change_token(change))
        case UpdateFeaturesRequest():
            updates = [
                FeatureUpdate(each.feature, each.max_version_level, each.upgrade_type)
                for each in request.feature_updates
            ]
            updated = await controller.update_features(updates, request.validate_only)
            return UpdateFeaturesResponse(
                error_code=updated.error_code, error_message=updated.error_message
            )
        case ElectLeadersRequest():
            elected = await controller.elect_leaders(
                ElectionType(request.election_type), forwarded_elections.partitions_asked(request)
            )
            if isinstance(elected, Refusal):
                return ElectLeadersResponse(error_code=elected.error_code)
            return ElectLeadersResponse(
                replica_election_results=forwarded_elections.election_results(elected)
            )
        case AlterPartitionReassignmentsRequest():
            allowed = request.allow_replication_factor_change
            wanted = reassignments.wanted_by(request)
            begun = await controller.alter_reassignments(wanted, allowed)
            if isinstance(begun, Refusal):
                return reassignments.refused(request, begun)
            return reassignments.alter_response(begun, allowed)
        case ListPartitionReassignmentsRequest():
            listed = await controller.list_reassignments(reassignments.listed_by(request))
            if isinstance(listed, Refusal):
                return reassignments.list_response((), listed)
            return reassignments.list_response(listed)
        case UnregisterBrokerRequest():
            refusal = await controller.unregister_broker(request.broker_id)
            if refusal is None:
                return UnregisterBrokerResponse(error_message=None)
            return UnregisterBrokerResponse(
                error_code=refusal.error_code, error_message=refusal.error_message
            )
    raise TypeError(f"{type(request).__name__} is not forwarded")


def is_refused_by(error_code: ErrorCode, response: Any) -> bool:
    """Whether the response says nothing but this error, for each thing that was asked for."""
    if isinstance(response, ONE_ERROR):
        return bool(response.error_code == error_code)
    if isinstance(response, CreateTopicsResponse):
        results: list[Any] = list(response.topics)
    elif isinstance(
        response,
        CreatePartitionsResponse | CreateAclsResponse | AlterUserScramCredentialsResponse,
    ):
        results = list(response.results)
    elif isinstance(response, DeleteAclsResponse):
        results = list(response.filter_results)
    else:
        results = list(response.responses if hasattr(response, "responses") else response.entries)
    return bool(results) and all(each.error_code == error_code for each in results)


# Topics


def new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(each.partition_index, each.broker_ids) for each in topic.assignments],
        [(config.name, config.value) for config in topic.configs],
    )


def create_topics_request(topics: Sequence[NewTopic], validate_only: bool) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.num_partitions,
                replication_factor=topic.replication_factor,
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids))
                    for index, ids in topic.assignments
                ],
                configs=[
                    CreatableTopicConfig(name=name, value=value) for name, value in topic.configs
                ],
            )
            for topic in topics
        ],
        validate_only=validate_only,
    )


def topics_response(outcomes: Sequence[TopicOutcome]) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(
                name=outcome.name,
                topic_id=outcome.topic_id,
                error_code=outcome.error_code,
                error_message=outcome.error_message,
                num_partitions=outcome.num_partitions,
                replication_factor=outcome.replication_factor,
                configs=[
                    CreatableTopicConfigs(name=name, value=value)
                    for name, value in outcome.configs.items()
                ],
            )
            for outcome in outcomes
        ]
    )


def topic_outcomes(response: CreateTopicsResponse) -> list[TopicOutcome]:
    return [
        TopicOutcome(
            each.name,
            ErrorCode(each.error_code),
            each.error_message,
            each.topic_id,
            each.num_partitions,
            each.replication_factor,
            {config.name: config.value or "" for config in each.configs or ()},
        )
        for each in response.topics
    ]


def delete_topics_request(topics: Sequence[TopicRef]) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(
        topics=[DeleteTopicState(name=topic.name, topic_id=topic.id) for topic in topics]
    )


def deletions_response(outcomes: Sequence[DeletionOutcome]) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=outcome.name,
                topic_id=outcome.id,
                error_code=outcome.error_code,
                error_message=outcome.error_message,
            )
            for outcome in outcomes
        ]
    )


def deletion_outcomes(response: DeleteTopicsResponse) -> list[DeletionOutcome]:
    return [
        DeletionOutcome(each.name, each.topic_id, ErrorCode(each.error_code), each.error_message)
        for each in response.responses
    ]


def new_partitions(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = topic.assignments
    return NewPartitions(
        topic.name,
        topic.count,
        None if assignments is None else [each.broker_ids for each in assignments],
    )


def create_partitions_request(
    topics: Sequence[NewPartitions], validate_only: bool
) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(
                name=topic.name,
                count=topic.count,
                assignments=None
                if topic.assignments is None
                else [
                    CreatePartitionsAssignment(broker_ids=list(ids)) for ids in topic.assignments
                ],
            )
            for topic in topics
        ],
        validate_only=validate_only,
    )


def partitions_response(outcomes: Sequence[PartitionsOutcome]) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=outcome.name,
                error_code=outcome.error_code,
                error_message=outcome.error_message,
            )
            for outcome in outcomes
        ]
    )


def partitions_outcomes(response: CreatePartitionsResponse) -> list[PartitionsOutcome]:
    return [
        PartitionsOutcome(each.name, ErrorCode(each.error_code), each.error_message)
        for each in response.results
    ]


# Configs and features


def alter_configs_request(
    resources: Sequence[tuple[Resource, Sequence[tuple[str, str | None]]]], validate_only: bool
) -> whole.AlterConfigsRequest:
    return whole.AlterConfigsRequest(
        resources=[
            whole.AlterConfigsResource(
                resource_type=resource.type,
                resource_name=resource.name,
                configs=[whole.AlterableConfig(name=name, value=value) for name, value in configs],
            )
            for resource, configs in resources
        ],
        validate_only=validate_only,
    )


def incremental_alter_configs_request(
    resources: Sequence[tuple[Resource, Sequence[tuple[str, int, str | None]]]],
    validate_only: bool,
) -> incremental.IncrementalAlterConfigsRequest:
    return incremental.IncrementalAlterConfigsRequest(
        resources=[
            incremental.AlterConfigsResource(
                resource_type=resource.type,
                resource_name=resource.name,
                configs=[
                    incremental.AlterableConfig(name=name, config_operation=operation, value=value)
                    for name, operation, value in configs
                ],
            )
            for resource, configs in resources
        ],
        validate_only=validate_only,
    )


def config_result(outcome: ConfigOutcome) -> dict[str, Any]:
    """The fields of one result, which both responses for configs have."""
    return {
        "error_code": outcome.error_code,
        "error_message": outcome.error_message,
        "resource_type": outcome.resource.type,
        "resource_name": outcome.resource.name,
    }


def config_outcomes(
    response: whole.AlterConfigsResponse | incremental.IncrementalAlterConfigsResponse,
) -> list[ConfigOutcome]:
    return [
        ConfigOutcome(
            Resource(each.resource_type, each.resource_name),
            ErrorCode(each.error_code),
            each.error_message,
        )
        for each in response.responses
    ]


def update_features_request(
    updates: Sequence[FeatureUpdate], validate_only: bool
) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(
                feature=each.name, max_version_level=each.level, upgrade_type=each.upgrade_type
            )
            for each in updates
        ],
        validate_only=validate_only,
    )


def features_outcome(response: UpdateFeaturesResponse) -> FeaturesOutcome:
    return FeaturesOutcome(ErrorCode(response.error_code), response.error_message)

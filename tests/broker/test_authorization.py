"""A broker with an authorizer, request by request: what is denied, and how it is answered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.context import Peer
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclBinding,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from ottla.security.principal import user
from ottla.settings.authorization import STANDARD
from ottla.wire.api.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.api.describe_acls import DescribeAclsRequest
from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.errors import ErrorCode

from .harness import BrokerHarness


def peer_of(name: str) -> Peer:
    peer = Peer("PLAINTEXT", "10.0.0.1:50000")
    peer.principal = user(name)
    return peer


ADMIN = peer_of("admin")
EVERYTHING: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def secured(disk: SimulatedDisk | None = None, **settings: object) -> BrokerHarness:
    return BrokerHarness(
        disk=disk, authorizer_class_name=STANDARD, super_users="User:admin", **settings
    )


@pytest.fixture
def broker() -> Iterator[BrokerHarness]:
    with secured() as harness:
        yield harness


def creation(
    who: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    permission: Permission = Permission.ALLOW,
) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        principal=f"User:{who}",
        host="*",
        operation=operation,
        permission_type=permission,
    )


def allow(
    harness: BrokerHarness,
    who: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    permission: Permission = Permission.ALLOW,
) -> None:
    """As an admin, by the API."""
    request = CreateAclsRequest(creations=[creation(who, operation, kind, name, permission)])
    [result] = harness.ask(request, 3, peer=ADMIN).results
    assert (result.error_code, result.error_message) == (0, "")


def offsets_of(harness: BrokerHarness, peer: Peer, *topics: str) -> dict[str, int]:
    """The error codes of ListOffsets, by topic."""
    asked = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=asked) for name in topics]
    )
    response: Any = harness.ask(request, 5, peer=peer)
    return {each.name: each.partitions[0].error_code for each in response.topics}


def test_what_nobody_has_allowed_is_denied(broker: BrokerHarness) -> None:
    """And what there is not looks like what may not be seen; a super user sees the difference."""
    broker.create("there")
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    alice = peer_of("alice")
    assert offsets_of(broker, alice, "there", "missing") == {"there": denied, "missing": denied}
    assert offsets_of(broker, ADMIN, "there", "missing") == {
        "there": 0,
        "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_an_acl_holds_from_the_next_request_on(broker: BrokerHarness) -> None:
    """On the connection that was denied before; and no longer when it is deleted."""
    broker.create("t")
    alice = peer_of("alice")
    assert offsets_of(broker, alice, "t") == {"t": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    allow(broker, "alice", Operation.DESCRIBE, ResourceType.TOPIC, "t")
    assert offsets_of(broker, alice, "t") == {"t": 0}
    assert offsets_of(broker, peer_of("bob"), "t") == {"t": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    everything = DeleteAclsRequest(filters=[DeleteAclsFilter(**EVERYTHING)])
    [result] = broker.ask(everything, 3, peer=ADMIN).filter_results
    assert [each.resource_name for each in result.matching_acls] == ["t"]
    assert offsets_of(broker, alice, "t") == {"t": ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def test_acls_need_rights_on_the_cluster(broker: BrokerHarness) -> None:
    """To describe them DESCRIBE, to change them ALTER."""
    alice = peer_of("alice")
    describe = DescribeAclsRequest(**EVERYTHING)
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert broker.ask(describe, 3, peer=alice).error_code == denied
    create = CreateAclsRequest(
        creations=[creation("alice", Operation.READ, ResourceType.TOPIC, "t")]
    )
    assert [each.error_code for each in broker.ask(create, 3, peer=alice).results] == [denied]
    allow(broker, "alice", Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    assert [each.error_code for each in broker.ask(create, 3, peer=alice).results] == [0]
    resources = broker.ask(describe, 3, peer=alice).resources  # ALTER implies DESCRIBE
    assert {(each.resource_type, each.resource_name) for each in resources} == {
        (4, CLUSTER_NAME),
        (2, "t"),
    }


def test_acls_outlive_the_broker() -> None:
    """They are in its tree, at Kafka's paths."""
    with secured() as first:
        allow(first, "alice", Operation.READ, ResourceType.GROUP, "a/b")
        allow(first, "alice", Operation.WRITE, ResourceType.TOPIC, "t", Permission.DENY)
        before = first.broker.image.acls
        disk = first.disk
    with secured(disk=disk) as second:
        assert second.broker.image.acls == before
        assert AclBinding(
            ResourcePattern(ResourceType.GROUP, "a/b"),
            Acl("User:alice", "*", Operation.READ, Permission.ALLOW),
        ) in [AclBinding(pattern, acl) for pattern, acls in before.items() for acl in acls]


def test_without_an_authorizer_there_are_no_acls() -> None:
    """All three APIs say so, and everybody may do everything."""
    with BrokerHarness() as harness:
        describe = DescribeAclsRequest(**EVERYTHING)
        response = harness.ask(describe, 3)
        assert response.error_code == ErrorCode.SECURITY_DISABLED
        assert response.error_message == "No Authorizer is configured on the broker"
        create = CreateAclsRequest(
            creations=[creation("alice", Operation.READ, ResourceType.TOPIC, "t")]
        )
        [result] = harness.ask(create, 3).results
        assert result.error_code == ErrorCode.SECURITY_DISABLED
        assert result.error_message == "No Authorizer is configured."
        delete = DeleteAclsRequest(filters=[DeleteAclsFilter(**EVERYTHING)])
        [result] = harness.ask(delete, 3).filter_results
        assert result.error_code == ErrorCode.SECURITY_DISABLED

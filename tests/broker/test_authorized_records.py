"""Rights to write and read records: who may, what asking costs, what is logged."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ottla.broker.context import Peer
from ottla.security.acls import Operation, PatternType, Permission, ResourceType
from ottla.security.principal import user
from ottla.wire.api.create_acls import CreateAclsRequest
from ottla.wire.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.header import start_request
from ottla.wire.schema import reader, writer
from tests.work import counted_calls

from .cluster_harness import Cluster
from .harness import API_BY_REQUEST, BrokerHarness, fetch_request, produce_request, sent, values
from .test_authorization import ADMIN, allow, creation, peer_of, secured

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
TOPIC = ResourceType.TOPIC
# Calls of functions that the authorizer adds to a produce or fetch of one partition; without it
# they take about a hundred.
CALLS_MAX = 10
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def errors_of(response: Any) -> dict[str, int]:
    """By topic, of a produce or a fetch."""
    if hasattr(response, "session_id"):
        return {
            topic.topic: each.error_code
            for topic in response.responses
            for each in topic.partitions
        }
    return {
        topic.name: each.error_code
        for topic in response.responses
        for each in topic.partition_responses
    }


def test_a_session_is_asked_for_again_when_acls_change() -> None:
    """A right that is taken away holds back records from the next fetch on, though the partition
    has not moved; and they come again with the right."""
    with secured() as broker:
        broker.create("t")
        alice = peer_of("alice")
        allow(broker, "alice", READ, TOPIC, "t")
        first = broker.ask(fetch_request(("t", 0, 0), session_epoch=0), 12, peer=alice)
        assert errors_of(first) == {"t": 0}

        def again(epoch: int) -> Any:
            fields = {"session_id": first.session_id, "session_epoch": epoch}
            return broker.ask(fetch_request(**fields), 12, peer=alice)

        assert errors_of(again(1)) == {}  # nothing is new
        deny = creation("alice", READ, TOPIC, "t")
        deny.permission_type = 2
        broker.ask(CreateAclsRequest(creations=[deny]), 3, peer=ADMIN)
        assert errors_of(again(2)) == {"t": DENIED}
        assert errors_of(again(3)) == {"t": DENIED}


def test_what_was_allowed_is_kept_only_until_acls_change() -> None:
    """A produce by name or by id and a fetch without a session are refused from the request after
    the change on, and allowed again from the one after the next; another topic never was."""
    with secured() as broker:
        topic_id = broker.create("t")
        other_id = broker.create("other")
        alice = peer_of("alice")
        for operation in (READ, WRITE):
            allow(broker, "alice", operation, TOPIC, "t")

        def answers(name: str, topic_id: bytes) -> list[int]:
            batch = broker.batch(b"x")
            by_name = broker.ask(produce_request(name, 0, batch), 9, peer=alice)
            by_id = broker.ask(produce_request(topic_id, 0, batch), 13, peer=alice)
            fetched = broker.ask(fetch_request((name, 0, 0)), 12, peer=alice)
            return [
                error for each in (by_name, by_id, fetched) for error in errors_of(each).values()
            ]

        for _ in range(2):  # asked for, and known
            assert answers("t", topic_id) == [0, 0, 0]
            assert answers("other", other_id) == [DENIED, DENIED, DENIED]
        denials = [creation("alice", each, TOPIC, "t", Permission.DENY) for each in (READ, WRITE)]
        broker.ask(CreateAclsRequest(creations=denials), 3, peer=ADMIN)
        for _ in range(2):
            assert answers("t", topic_id) == [DENIED, DENIED, DENIED]
        filters = [
            DeleteAclsFilter(
                resource_type_filter=TOPIC,
                resource_name_filter="t",
                pattern_type_filter=PatternType.LITERAL,
                principal_filter="User:alice",
                host_filter=None,
                operation=1,
                permission_type=Permission.DENY,
            )
        ]
        broker.ask(DeleteAclsRequest(filters=filters), 3, peer=ADMIN)
        for _ in range(2):
            assert answers("t", topic_id) == [0, 0, 0]


def test_what_may_be_written_is_written() -> None:
    """Of two topics in one request one is refused; acks=0 ends the connection after it."""
    with secured() as broker:
        for name in ("mine", "other"):
            broker.create(name)
        alice = peer_of("alice")
        allow(broker, "alice", WRITE, TOPIC, "mine")
        request = produce_request("mine", 0, broker.batch(b"kept"))
        request.topic_data += produce_request("other", 0, broker.batch(b"lost")).topic_data
        answered = errors_of(broker.ask(request, 9, peer=alice))
        assert answered == {"mine": 0, "other": DENIED}
        found = broker.ask(fetch_request(("mine", 0, 0), ("other", 0, 0)), 12, peer=ADMIN)
        assert values(found) == {("mine", 0): [b"kept"], ("other", 0): []}


def calls_of(acl_count: int | None) -> tuple[int, int]:
    """The calls that a produce and a fetch of a user take; None: without an authorizer."""
    with BrokerHarness() if acl_count is None else secured() as broker:
        broker.create("t")
        alice = peer_of("alice")
        if acl_count is not None:
            creations = [creation("alice", each, TOPIC, "t") for each in (READ, WRITE)]
            creations += [
                creation(f"user-{number}", READ, TOPIC, f"topic-{number}")
                for number in range(acl_count)
            ]
            for start in range(0, len(creations), 5_000):  # a request has a limit
                some = creations[start : start + 5_000]
                made = broker.ask(CreateAclsRequest(creations=some), 3, peer=ADMIN)
                assert {each.error_code for each in made.results} == {0}
        counts = []
        for make in (
            lambda: (produce_request("t", 0, broker.batch(b"x")), 9),
            lambda: (fetch_request(("t", 0, 0)), 12),
        ):
            found = []
            for _ in range(10):  # the first ones make what the later ones find
                request, version = make()
                frame = frame_of(request, version)
                with counted_calls() as calls:
                    broker.handle(frame, alice)
                found.append(calls.count)
            counts.append(min(found))
        return counts[0], counts[1]


def frame_of(request: Any, version: int) -> bytes:
    out = start_request(API_BY_REQUEST[type(request).__name__].key, version, 7, "test")
    writer(type(request), version)(request, out)
    return bytes(out[4:])


def test_the_check_costs_little_however_many_acls_there_are() -> None:
    """As many calls with 10,000 ACLs as with 10, and a few more than without an authorizer."""
    without, few, many = calls_of(None), calls_of(10), calls_of(10_000)
    assert few == many
    for plain, checked in zip(without, few, strict=True):
        assert plain <= checked <= plain + CALLS_MAX, (without, few)


def test_each_denial_is_a_line_and_by_option_each_allowance(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In the words of Kafka's authorizer logger; allowances at DEBUG."""
    with secured() as broker:
        broker.create("t")
        alice = peer_of("alice")
        with caplog.at_level(logging.INFO, "ottla.authorizer"):
            broker.ask(produce_request("t", 0, broker.batch(b"x")), 9, peer=alice)
            broker.ask(fetch_request(("t", 0, 0)), 12, peer=alice)
        said = [each.getMessage() for each in caplog.records if each.name == "ottla.authorizer"]
        line = (
            "Principal = User:alice is Denied operation = {} from host = 10.0.0.1 on resource = "
            "Topic:LITERAL:t for request = {} with resourceRefCount = 1 based on rule DefaultDeny"
        )
        assert said == [line.format("WRITE", "Produce"), line.format("READ", "Fetch")]
        caplog.clear()
        allow(broker, "alice", WRITE, TOPIC, "t")
        with caplog.at_level(logging.DEBUG, "ottla.authorizer"):
            broker.ask(produce_request("t", 0, broker.batch(b"x")), 9, peer=alice)
        [said_now] = [r.getMessage() for r in caplog.records if r.name == "ottla.authorizer"]
        assert said_now == (
            "Principal = User:alice is Allowed operation = WRITE from host = 10.0.0.1 on resource "
            "= Topic:LITERAL:t for request = Produce with resourceRefCount = 1 based on rule "
            "MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=t, patternType=LITERAL, "
            "principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW))"
        )


def test_allowances_known_already_are_logged_from_the_change_of_the_level_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also through a level that the logger only inherits; and no longer after it has changed back.
    A fetch that is allowed and logged is allowed without a line before and after."""
    with secured() as broker:
        broker.create("t")
        alice = peer_of("alice")
        allow(broker, "alice", WRITE, TOPIC, "t")
        allow(broker, "alice", READ, TOPIC, "t")

        def lines() -> list[str]:
            caplog.clear()
            for _ in range(2):
                broker.ask(produce_request("t", 0, broker.batch(b"x")), 9, peer=alice)
                broker.ask(fetch_request(("t", 0, 0)), 12, peer=alice)
            said = [r for r in caplog.records if r.name == "ottla.authorizer"]
            return [str(r.getMessage()).split("for request = ")[1].split()[0] for r in said]

        with caplog.at_level(logging.INFO, "ottla"):
            assert lines() == []
        with caplog.at_level(logging.DEBUG, "ottla"):
            assert lines() == ["Produce", "Fetch"] * 2
        with caplog.at_level(logging.INFO, "ottla"):
            assert lines() == []


def test_who_logs_in_anew_has_the_rights_of_the_new_name() -> None:
    """On the same connection, also of what the name before had used."""
    with secured() as broker:
        broker.create("t")
        peer = peer_of("alice")
        allow(broker, "alice", WRITE, TOPIC, "t")

        def error() -> int:
            request = produce_request("t", 0, broker.batch(b"x"))
            response = broker.ask(request, 9, peer=peer)
            return int(response.responses[0].partition_responses[0].error_code)

        assert [error(), error()] == [0, 0]
        peer.principal = user("bob")
        assert error() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        peer.principal = user("alice")
        assert error() == 0


@pytest.mark.parametrize("records", [None, b"", b"short"])
def test_what_is_no_batch_is_refused_behind_the_check(records: bytes | None) -> None:
    """Also where the topic is known to be allowed."""
    with secured() as broker:
        broker.create("t")
        alice = peer_of("alice")
        allow(broker, "alice", WRITE, TOPIC, "t")
        errors = []
        for each in (broker.batch(b"x"), records, broker.batch(b"x")):
            response = broker.ask(produce_request("t", 0, each), 9, peer=alice)
            errors.append(response.responses[0].partition_responses[0].error_code)
        with BrokerHarness() as plain:
            plain.create("t")
            response = plain.ask(produce_request("t", 0, records), 9)
            expected = response.responses[0].partition_responses[0].error_code
        assert errors == [0, expected, 0]
        assert expected != 0


def offsets_error(cluster: Cluster, broker_id: int, peer: Peer) -> int:
    """What ListOffsets of `t` answers to somebody."""
    asked = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=asked)]
    )
    member = cluster.brokers[broker_id]

    async def ask() -> Any:
        frame = memoryview(bytearray(frame_of(request, 5)))
        return member.broker.dispatcher.handle(frame, peer)

    answer = member.node.run(ask())
    data = sent(answer)
    response, _ = reader(API_BY_REQUEST["ListOffsetsRequest"].response, 5)(memoryview(data), 8)
    return int(response.topics[0].partitions[0].error_code)


def test_a_broker_without_its_controller_keeps_denying() -> None:
    """And allowing: it decides by the ACLs that it has."""
    rules = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
    with Cluster(3, **rules) as cluster:
        cluster.create("t", 1, 3, through=2)
        request = CreateAclsRequest(creations=[creation("alice", DESCRIBE, TOPIC, "t")])
        [result] = cluster.ask(2, request, 3).results
        assert result.error_code == 0
        alice, bob = peer_of("alice"), peer_of("bob")
        cluster.wait(lambda: bool(cluster.brokers[3].broker.image.acls))
        cluster.brokers[1].crash()
        for broker_id in (2, 3):
            assert offsets_error(cluster, broker_id, bob) == DENIED
            assert offsets_error(cluster, broker_id, alice) != DENIED

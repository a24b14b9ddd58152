"""`inter.broker.listener.name` with each of the protocols: two brokers, and clients elsewhere."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ottla import Admin, Consumer, Producer
from ottla.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    NewTopic,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from ottla.errors import TopicAuthorizationFailedError
from ottla.supervisor.ports import free_port
from ottla.testing.broker import BrokerFailed
from tests import needs
from tests.live import Server
from tests.waiting import eventually

from .certificates import authority, server_identity
from .clusters import ADMIN, BROKER, SHOP, client_options, secured_options

pytestmark = pytest.mark.xdist_group("cluster")

# SASL_SSL has a test of its own, and PLAINTEXT is what all other clusters speak.
PROTOCOLS = ["SSL", "SASL_PLAINTEXT"]
if needs.LONG:
    PROTOCOLS += ["PLAINTEXT", "SASL_SSL"]

JAAS_OF_CLIENTS = "listener.name.outside.plain.sasl.jaas.config"
# Who a broker is to the others.
NAMES = {"PLAINTEXT": "ANONYMOUS", "SSL": "CN=broker", "SASL_PLAINTEXT": BROKER, "SASL_SSL": BROKER}


class Member(Server):
    """A broker with one listener for clients, of SASL_SSL, and one for brokers."""

    def __init__(self, folder: Path, node_id: int, protocol: str) -> None:
        outside, inside = free_port(), free_port()
        self.trusted = authority().write(folder / "ca.pem")
        keys = server_identity().write_pem(folder / "server.pem")
        login = str(secured_options(keys, self.trusted, "OUTSIDE").pop(JAAS_OF_CLIENTS))
        options = secured_options(keys, self.trusted, "OUTSIDE") | {
            "node.id": node_id,
            "ottla.cluster.directory": folder / "shared",
            "listeners": f"OUTSIDE://127.0.0.1:{outside},INSIDE://127.0.0.1:{inside}",
            "listener.security.protocol.map": f"OUTSIDE:SASL_SSL,INSIDE:{protocol}",
            "inter.broker.listener.name": "INSIDE",
            "listener.name.inside.ssl.client.auth": "required" if protocol == "SSL" else "none",
            "listener.name.inside.plain.sasl.jaas.config": login,
            "default.replication.factor": 2,
            "offsets.topic.replication.factor": 2,
            "min.insync.replicas": 2,
            "super.users": f"User:{ADMIN};User:{NAMES[protocol]}",
        }
        del options["security.inter.broker.protocol"]
        super().__init__(folder / f"data-{node_id}", settings=options, port=outside)

    def _command(self) -> list[str]:
        command = super()._command()
        at = command.index("--listen")
        return command[:at] + command[at + 2 :]


@contextmanager
def two_brokers(folder: Path, protocol: str, **options: object) -> Iterator[tuple[Member, Member]]:
    with ExitStack() as stack:
        first, second = (Member(folder, node_id, protocol) for node_id in (1, 2))
        for each in (first, second):
            each.options |= {name.replace("_", "."): value for name, value in options.items()}
            stack.enter_context(each)
        yield first, second


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_brokers_reach_each_other(protocol: str, tmp_path: Path) -> None:
    """Topics whose two replicas must both acknowledge are made, written and read, by clients that
    know nothing of the brokers' listener."""
    with two_brokers(tmp_path, protocol) as (first, second):
        servers = {
            "bootstrap_servers": [first.bootstrap, second.bootstrap],
            **client_options(first.trusted, ADMIN),
        }
        with Admin(**servers) as admin:
            eventually(lambda: len(admin.describe_cluster()["brokers"]) == 2, "both are there")
            admin.create_topics([NewTopic("t", 2, 2)], wait_for_metadata=True)
            ports = {each["port"] for each in admin.describe_cluster()["brokers"]}
        assert ports == {int(each.bootstrap.rpartition(":")[2]) for each in (first, second)}
        with Producer(**servers, acks="all") as producer:
            sent = [producer.send("t", b"%d" % n, partition=n % 2) for n in range(200)]
            assert all(each.get(60) for each in sent)
        with Consumer("t", **servers, auto_offset_reset="earliest", group_id="g") as consumer:
            found = {next(consumer).value for _ in sent}
        assert found == {b"%d" % n for n in range(200)}


def test_brokers_without_rights(tmp_path: Path) -> None:
    """Where the brokers' user is no super user, one that joins says what it lacks. With an ACL it
    goes, and when another one denies it, whoever asks by that broker learns so, and not that it has
    no rights itself. By the controller a super user takes that back, and all is as before."""
    with ExitStack() as stack:
        first, second = (Member(tmp_path, node_id, "SASL_PLAINTEXT") for node_id in (1, 2))
        for each in (first, second):
            each.options["super.users"] = f"User:{ADMIN}"
            each.options["initial.broker.registration.timeout.ms"] = 1_500
        stack.enter_context(first)
        with pytest.raises(BrokerFailed, match="denies this broker CLUSTER_ACTION; the user by wh"):
            second.start()
        options = client_options(first.trusted, ADMIN)
        operator = stack.enter_context(Admin(bootstrap_servers=first.bootstrap, **options))
        operator.create_acls([acting(f"User:{BROKER}", ACLPermissionType.ALLOW)])
        stack.enter_context(second)
        operator.create_topics([NewTopic("t", 1, 2)], wait_for_metadata=True)
        denial = acting("User:*", ACLPermissionType.DENY)
        operator.create_acls([denial])
        eventually(lambda: "followed for now: the controller denies" in second.errors())
        meant = ACLFilter(
            "User:*", "*", ACLOperation.CLUSTER_ACTION, ACLPermissionType.DENY,
            ResourcePatternFilter(*CLUSTER),
        )  # fmt: skip
        with Admin(bootstrap_servers=second.bootstrap, **options) as elsewhere:
            ((_, deleted, error),) = elsewhere.delete_acls([meant])
        assert not deleted
        assert "UnknownError" in repr(error)
        assert "denies this broker CLUSTER_ACTION" in str(error)
        ((_, deleted, _),) = operator.delete_acls([meant])
        assert deleted == [denial]
        eventually(lambda: "the cluster's changes are followed again" in second.errors())
        servers = [first.bootstrap, second.bootstrap]
        with Producer(bootstrap_servers=servers, **options, acks="all") as producer:
            assert producer.send("t", b"x").get(60).offset == 0


def test_a_broker_without_a_controller_goes_on_denying(tmp_path: Path) -> None:
    """The controller hangs: the other broker has its ACLs as of then, for what they allow and for
    what they do not."""
    quick = {"broker_session_timeout_ms": 2_000, "broker_heartbeat_interval_ms": 500}
    with two_brokers(tmp_path, "SASL_PLAINTEXT", **quick) as (first, second):
        with Admin(
            bootstrap_servers=first.bootstrap, **client_options(first.trusted, ADMIN)
        ) as admin:
            assert admin.describe_cluster()["controller_id"] == 1
            topics = [
                NewTopic(
                    name, replica_assignments={0: [2]}, topic_configs={"min.insync.replicas": "1"}
                )
                for name in ("allowed", "others")
            ]
            admin.create_topics(topics, wait_for_metadata=True)
            topic = ResourcePattern(ResourceType.TOPIC, "allowed", ACLResourcePatternType.LITERAL)
            granted = ACL(f"User:{SHOP}", "*", ACLOperation.WRITE, ACLPermissionType.ALLOW, topic)
            admin.create_acls([granted])
        options = client_options(first.trusted, SHOP)
        with Producer(bootstrap_servers=second.bootstrap, **options, acks=1) as before:
            eventually(lambda: written(before, "allowed"), "the ACL is known to the other broker")
            assert first.process is not None
            os.kill(first.process.pid, signal.SIGSTOP)
            try:
                eventually(lambda: "cannot be followed for now" in second.errors())
                assert written(before, "allowed")
                assert not written(before, "others")
                with Producer(bootstrap_servers=second.bootstrap, **options, acks=1) as after:
                    assert written(after, "allowed")
                    assert not written(after, "others")
            finally:
                os.kill(first.process.pid, signal.SIGCONT)


def written(producer: Producer, topic: str) -> bool:
    """False: it may not be."""
    try:
        return producer.send(topic, b"x", partition=0).get(60).offset >= 0
    except TopicAuthorizationFailedError:
        return False


CLUSTER = (ResourceType.CLUSTER, "kafka-cluster", ACLResourcePatternType.LITERAL)


def acting(principal: str, permission: ACLPermissionType) -> ACL:
    """Whether somebody may act as a broker."""
    return ACL(principal, "*", ACLOperation.CLUSTER_ACTION, permission, ResourcePattern(*CLUSTER))

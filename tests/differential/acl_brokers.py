"""Apache Kafka and Ottla with an authorizer and many users; and a client that logs in as one."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ottla.supervisor.ports import free_port
from tests.apache.client import RawClient
from tests.apache.kafka import ApacheKafka
from tests.apache.messages import NO_UUID, Fields
from tests.differential.normal import Names
from tests.differential.peer import PATIENCE_S, Peer
from tests.security.harness import PLAIN, SCRAM, SaslServer

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ADMIN, PASSWORD = "admin", "admin-secret"
TOKEN_KEY = "the key of all brokers"
LITERAL, PREFIXED = 3, 4
ALLOW = 3
# Kafka's numbers of kinds of resources, and of what is done with them.
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = 2, 3, 4, 5, 6, 7
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12
CREATE_TOKENS, DESCRIBE_TOKENS = 13, 14
TOPICS_PER_REQUEST = 100
TRIAL_S = 1.0


class Right(NamedTuple):
    """An ACL for a user, on what has the user's name in front of its own."""

    kind: int
    operation: int
    stem: str = ""
    pattern: int = LITERAL

    def acl(self, user: str) -> Fields:
        name = f"{user}-{self.stem}"
        if self.kind in (CLUSTER, DELEGATION_TOKEN):
            # The id of a token is not known before there is one.
            name = "kafka-cluster" if self.kind == CLUSTER else "*"
        elif self.kind == USER:
            name = f"User:{name}"
        return {
            "resource_type": self.kind,
            "resource_name": name,
            "resource_pattern_type": self.pattern,
            "principal": f"User:{user}",
            "host": "*",
            "operation": self.operation,
            "permission_type": ALLOW,
        }


class SecuredKafka(ApacheKafka):
    """Clients log in by PLAIN; among itself the one broker needs no login."""

    def __init__(
        self, directory: Path, users: Iterable[str], *, token_key: str = TOKEN_KEY, **settings: str
    ) -> None:
        super().__init__(directory, **settings)
        self.token_key = token_key
        self.sasl_port = free_port()
        self.users = tuple(users)

    def _properties(self) -> dict[str, str]:
        found = super()._properties()
        known = " ".join(f'user_{name}="{PASSWORD}"' for name in self.users)
        listener = "listener.name.sasl_plaintext"
        return found | {
            "listeners": f"{found['listeners']},SASL_PLAINTEXT://127.0.0.1:{self.sasl_port}",
            "advertised.listeners": f"{found['advertised.listeners']},"
            f"SASL_PLAINTEXT://127.0.0.1:{self.sasl_port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT",
            f"{listener}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            f"{listener}.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
            f"{listener}.plain.sasl.jaas.config": f"{PLAIN} required {known};",
            "delegation.token.secret.key": self.token_key,
            "authorizer.class.name": STANDARD,
            "super.users": f"User:ANONYMOUS;User:{ADMIN}",
        }


def secured_ottla(directory: Path, users: Iterable[str], settings: Fields) -> SaslServer:
    return SaslServer(
        directory,
        dict.fromkeys(users, PASSWORD),
        settings={
            "delegation.token.secret.key": TOKEN_KEY,
            **settings,
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "authorizer.class.name": STANDARD,
            "super.users": f"User:{ADMIN}",
        },
    )


class LoggedIn(RawClient):
    """A raw client behind a login."""

    def __init__(self, port: int, user: str) -> None:
        super().__init__(port)
        assert self.ask("SaslHandshake", 1, {"mechanism": "PLAIN"})["error_code"] == 0
        token = f"\0{user}\0{PASSWORD}".encode()
        answer = self.ask("SaslAuthenticate", 2, {"auth_bytes": token})
        assert answer["error_code"] == 0, answer


class UserPeer(Peer):
    """A peer that is somebody; what has to be there for a case is made by `admin`."""

    def __init__(self, port: int, user: str, admin: UserPeer | None = None) -> None:
        self.port = port
        self.user = user
        self.prefix = user if admin is not None else ADMIN
        self.steps = []
        self.names = Names(self.prefix)
        self.client = LoggedIn(port, user)
        self._settled = 0
        self.admin = admin or self

    def reconnect(self) -> None:
        self.client.close()
        self.client = LoggedIn(self.port, self.user)

    def until(self, api: str, version: int, fields: Fields, done: Any) -> Fields:
        """Ask until an answer is as wanted."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            answer = self.quietly(api, version, fields)
            if done(answer):
                return answer
            time.sleep(0.01)
        raise AssertionError(f"{api}: {answer}")


def acls_in(answer: Fields) -> int:
    return sum(len(each["acls"]) for each in answer["resources"])


def wait_for_acls(admin: UserPeer) -> None:
    """Until new ACLs reach the broker."""
    asked: Fields = {"resource_type_filter": GROUP, "principal_filter": None, "host_filter": None}
    asked |= {"pattern_type_filter": LITERAL, "operation": 1, "permission_type": 1}
    deadline = time.monotonic() + PATIENCE_S
    for number in range(1 << 20):
        trial = Right(GROUP, READ, f"trial-{number}").acl("nobody")
        admin.quietly("CreateAcls", 3, {"creations": [trial]})
        asked["resource_name_filter"] = trial["resource_name"]
        soon = min(deadline, time.monotonic() + TRIAL_S)
        while time.monotonic() < soon:
            if acls_in(admin.quietly("DescribeAcls", 3, asked)):
                return
            time.sleep(0.01)
        assert time.monotonic() < deadline, "ACLs do not reach the broker"


def prepare(admin: UserPeer, topics: list[str], acls: list[Fields]) -> dict[str, bytes]:
    """Make topics and ACLs and wait until they are everywhere; gives the topics' ids."""
    wait_for_acls(admin)
    answer = admin.quietly("CreateAcls", 3, {"creations": acls})
    assert not any(each["error_code"] for each in answer["results"]), answer
    # In Kafka broker and controller learn of changes in their order, each in its time.
    anything = ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")
    everything: Fields = dict.fromkeys(anything, 1)
    everything |= dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
    admin.until(
        "DescribeAcls",
        3,
        everything | {"resource_type_filter": TOPIC},
        lambda got: acls_in(got) == sum(each["resource_type"] == TOPIC for each in acls),
    )
    for kind, key in ((0, "any"), (1, "any")):
        admin.until(
            "FindCoordinator",
            3,
            {"key": key, "key_type": kind},
            lambda got: got["error_code"] == 0,
        )
    for start in range(0, len(topics), TOPICS_PER_REQUEST):
        made = [
            {"name": name, "num_partitions": 1, "replication_factor": 1}
            for name in topics[start : start + TOPICS_PER_REQUEST]
        ]
        answer = admin.quietly("CreateTopics", 7, {"topics": made, "timeout_ms": 60_000})
        assert not any(each["error_code"] for each in answer["topics"]), answer
    asked = [{"name": name, "partitions": [{"timestamp": -1}]} for name in topics]
    admin.until(
        "ListOffsets",
        1,
        {"replica_id": -1, "topics": asked},
        lambda got: not any(each["partitions"][0]["error_code"] for each in got["topics"]),
    )
    known = admin.quietly("Metadata", 12, {"topics": [{"name": name} for name in topics]})
    admin.until(
        "OffsetFetch", 5, {"group_id": "any", "topics": []}, lambda got: got["error_code"] == 0
    )
    transactional = {"transactional_id": "any", "transaction_timeout_ms": 60_000}
    admin.until("InitProducerId", 3, transactional, lambda got: got["error_code"] == 0)
    admin.until("InitProducerId", 3, {"transactional_id": None}, lambda got: got["error_code"] == 0)
    return {each["name"]: each["topic_id"] for each in known["topics"]} | {"": NO_UUID}

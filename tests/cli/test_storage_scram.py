"""Credentials that a cluster begins with: brokers log in to each other by SCRAM from the start."""

from __future__ import annotations

import base64
import hashlib
from contextlib import ExitStack
from pathlib import Path

import pytest

import ottla
from ottla.admin import Admin, NewTopic
from ottla.cli.failure import Failure
from ottla.cli.storage_scram import named
from ottla.security.sasl.scram import credential
from tests import needs
from tests.apache.zookeeper import ZooKeeper
from tests.cli.apache_tools import Answer
from tests.cli.compare import kafka_script
from tests.live import Server, free_port
from tests.security.harness import SCRAM

pytestmark = pytest.mark.xdist_group("cluster")

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
MECHANISM = "SCRAM-SHA-512"
PASSWORD = "admin,s3cret"


class Member(Server):
    """A broker whose only listener asks for SCRAM, of brokers too."""

    def __init__(
        self, folder: Path, node_id: int, shared: Path | None = None, zookeeper: str = ""
    ) -> None:
        login = f'{SCRAM} required username="admin" password="{PASSWORD}";'
        options: dict[str, object] = {
            "node.id": node_id,
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            "sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.sasl_plaintext.{MECHANISM.lower()}.sasl.jaas.config": login,
        }
        if shared is not None:
            options |= {"ottla.cluster.directory": shared, "default.replication.factor": 2}
            options |= {"min.insync.replicas": 2}
        if zookeeper:
            options["zookeeper.connect"] = zookeeper
        super().__init__(folder / f"data-{node_id}", settings=options, port=free_port())
        self.properties = folder / f"{node_id}.properties"
        given = {**options, "log.dirs": self.data}
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in given.items()))

    def formatted(self, cluster_id: str = CLUSTER_ID) -> Answer:
        answer = kafka_script(
            "kafka-storage.sh", "format", "-c", str(self.properties), "-t", cluster_id,
            "--add-scram", f'{MECHANISM}=[name=admin,password="{PASSWORD}"]',
            "--add-scram", f"{MECHANISM}=[name=alice,iterations=8192,password=a]",
        )  # fmt: skip
        assert PASSWORD not in answer.out + answer.errors
        return answer

    def format(self) -> None:
        answer = self.formatted()
        assert answer.code == 0, answer

    def client(self, name: str, password: str) -> dict[str, object]:
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": name,
            "sasl_plain_password": password,
        }


def test_one_broker_begins_with_credentials(tmp_path: Path) -> None:
    """Its first user needs nobody who is there already."""
    server = Member(tmp_path, 1, None)
    server.format()
    with server, Admin(**server.client("alice", "a")) as admin:
        assert admin.describe_cluster()["cluster_id"] == CLUSTER_ID
        users = admin.describe_user_scram_credentials()
        iterations = {
            name: each["credential_infos"][0]["iterations"] for name, each in users.items()
        }
        assert iterations == {"admin": 4096, "alice": 8192}


def test_a_cluster_with_zookeeper_begins_with_credentials(tmp_path: Path) -> None:
    """They are written to ZooKeeper, where `kafka-configs.sh --zookeeper` of Kafka 3 put them. What
    comes too late, or is of another cluster, is refused before anything is formatted."""
    needs.zookeeper_server()
    with ZooKeeper(tmp_path / "zookeeper") as zookeeper:
        connect = f"{zookeeper.connect}/kafka"
        server = Member(tmp_path, 1, zookeeper=connect)
        server.format()
        with server, Admin(**server.client("alice", "a")) as admin:
            assert admin.describe_cluster()["cluster_id"] == CLUSTER_ID
            late = Member(tmp_path, 2, zookeeper=connect)
            assert "brokers of this cluster are running" in late.formatted().errors
            assert not late.data.exists()
        other = Member(tmp_path, 3, zookeeper=connect).formatted("anotherClusterOfThisNameA")
        assert f"ZooKeeper has cluster {CLUSTER_ID}" in other.errors
        Member(tmp_path, 4, zookeeper=connect).format()
    gone = Member(tmp_path, 5, zookeeper=f"{zookeeper.connect}/kafka")
    with gone.properties.open("a") as file:
        file.write("zookeeper.connection.timeout.ms=200\n")
    assert "no server answered within 0.2 s" in gone.formatted().errors
    assert not gone.data.exists()


@pytest.mark.skipif(not needs.LONG, reason="brokers log in to each other by PLAIN in other tests")
def test_brokers_log_in_to_each_other(tmp_path: Path) -> None:
    """Both replicas of a topic acknowledge what a user of SCRAM writes."""
    shared = tmp_path / "shared"
    with ExitStack() as stack:
        members = [Member(tmp_path, node_id, shared) for node_id in (1, 2)]
        for member in members:
            member.format()
        for member in members:
            stack.enter_context(member)
        options = members[1].client("alice", "a")
        with Admin(**options) as admin:
            admin.create_topics([NewTopic("t", 2, 2)])
        with ottla.Producer(**options, acks="all") as producer:
            for partition in (0, 1):
                producer.send("t", b"x", partition=partition).get(60)


def test_a_salted_password_is_taken() -> None:
    """As Kafka's tool takes it: then nobody but the client knows the password."""
    kept = credential(MECHANISM, "secret", b"salt", 5000)
    salted = hashlib.pbkdf2_hmac("sha512", b"secret", b"salt", 5000)
    text = base64.b64encode(salted).decode()
    salt = base64.b64encode(b"salt").decode()
    made = named(f'{MECHANISM}=[name="a,b",iterations=5000,salt="{salt}",saltedpassword="{text}"]')
    assert made == ("a,b", MECHANISM, kept)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("SCRAM-SHA-512", "it is not MECHANISM="),
        ("SCRAM-SHA-1=[name=a,password=s3cret]", "mechanism SCRAM-SHA-1 is not supported"),
        ("SCRAM-SHA-512=[password=s3cret]", "You must supply 'name'"),
        ("SCRAM-SHA-512=[name=a]", "one of 'password' or 'saltedpassword'"),
        ("SCRAM-SHA-512=[name=a,password=s3cret,saltedpassword=s3cret]", "one of 'password'"),
        ("SCRAM-SHA-512=[name=a,saltedpassword=s3cret]", "You must supply 'salt'"),
        ("SCRAM-SHA-512=[name=a,salt=s3cret!,password=s3cret]", "salt is not base64"),
        ("SCRAM-SHA-512=[name=a,password=s3cret,iterations=4095]", "'iterations' value must be"),
        ("SCRAM-SHA-512=[name=a,password=s3cret,iterations=16385]", "'iterations' value must be"),
        ("SCRAM-SHA-512=[name=a,pass=s3cret]", "its fields are"),
        ("SCRAM-SHA-512=[name=a,name=b,password=s3cret]", "each once"),
    ],
)
def test_what_is_refused_is_not_shown(text: str, sentence: str) -> None:
    """The sentence says what is missing."""
    with pytest.raises(Failure) as caught:
        named(text)
    said = f"{caught.value} {caught.value.__dict__}"
    assert sentence in said
    assert "s3cret" not in said

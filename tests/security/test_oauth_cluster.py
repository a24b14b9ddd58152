"""Brokers that log in to each other by tokens (OAUTHBEARER over SASL_SSL), which they fetch as
clients with a secret; and what an operator does to such a cluster by files of options."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import Consumer, Producer, TopicPartition
from ottla.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    NewTopic,
    ResourcePattern,
    ResourceType,
)
from ottla.cli.main import run
from tests.waiting import eventually

from .clusters import ADMIN, BROKER, PASSWORDS, SHOP, SecuredCluster, client_options
from .harness import PLAIN
from .issuer import AUDIENCE, ISSUER, Issuer, Provider

pytestmark = pytest.mark.xdist_group("cluster")

OAUTH = "org.apache.kafka.common.security.oauthbearer."
LIFETIME_S = 4.0
ENDED = f"the session of User:{BROKER} has expired"
OPTIONS: dict[str, object] = {
    "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": (
        f'{OAUTH}OAuthBearerLoginModule required clientId="{BROKER}" clientSecret="of brokers";'
    ),
    "listener.name.sasl_ssl.oauthbearer.sasl.login.callback.handler.class": (
        f"{OAUTH}OAuthBearerLoginCallbackHandler"
    ),
    "listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class": (
        f"{OAUTH}OAuthBearerValidatorCallbackHandler"
    ),
    "sasl.oauthbearer.expected.audience": AUDIENCE,
    "sasl.oauthbearer.expected.issuer": ISSUER,
    "default_replication_factor": 3,
    "min_insync_replicas": 2,
    "offsets_topic_num_partitions": 1,
}


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with Provider(Issuer(), {BROKER: "of brokers"}) as running:
        running.lifetime_s = LIFETIME_S
        yield running


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, provider: Provider
) -> Iterator[SecuredCluster]:
    urls = {
        "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
        "sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/jwks",
    }
    with SecuredCluster(tmp_path_factory.mktemp("oauth-cluster"), OPTIONS | urls) as running:
        with running.admin() as admin:
            admin.create_topics([NewTopic("orders", 3, 3)], wait_for_metadata=True)
        yield running


@contextlib.contextmanager
def producer(cluster: SecuredCluster) -> Iterator[Producer]:
    options = client_options(cluster.trusted, ADMIN)
    servers = cluster.bootstrap_servers
    with Producer(bootstrap_servers=servers, **options, acks="all") as made:
        yield made


def written(made: Producer, count: int = 30) -> int:
    sent = [made.send("orders", b"x", partition=number % 3) for number in range(count)]
    assert all(each.get(60) for each in sent)
    return count


def in_sync(cluster: SecuredCluster) -> None:
    for partition in range(3):
        cluster.wait_for_isr("orders", partition)


def logs(cluster: SecuredCluster) -> str:
    return "".join(cluster.logs(each) for each in cluster.node_ids)


def count_of(cluster: SecuredCluster) -> int:
    options = client_options(cluster.trusted, ADMIN)
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, **options) as consumer:
        places = [TopicPartition("orders", partition) for partition in range(3)]
        return sum(consumer.end_offsets(places).values())


@pytest.mark.timeout(300)
def test_tokens_end_and_their_endpoint_is_away(cluster: SecuredCluster, provider: Provider) -> None:
    """Replication goes on over the end of tokens, by new logins on the same connections. While no
    token can be had that is said, and brokers are back by themselves once there are some again."""
    with producer(cluster) as made:
        count = written(made)

        def renewed() -> bool:
            """Two tokens later: whether no connection has ended meanwhile, as one may on a machine
            that is too busy to log in again in time."""
            nonlocal count
            asked, said = len(provider.asked), logs(cluster)

            def fetched() -> bool:
                nonlocal count
                count += written(made, 3)
                return provider.asked[asked:].count("/token") >= 2 * len(cluster.node_ids)

            eventually(fetched, "each broker has fetched two more tokens")
            return logs(cluster).count(ENDED) == said.count(ENDED)

        eventually(renewed, "brokers log in again on the connections that are there")
        said = logs(cluster)
        assert "failed authentication" not in said
        assert "could not be fetched" not in said
        in_sync(cluster)

        provider.away = True
        for each in cluster.node_ids:
            eventually(
                lambda each=each: "/token answered 503" in cluster.logs(each),  # type: ignore[misc]
                f"broker {each} says that it cannot fetch a token",
            )
        eventually(
            lambda: logs(cluster).count(ENDED) > said.count(ENDED),
            "a session has ended for want of a token",
        )
        provider.away = False
        count += written(made)
        in_sync(cluster)
    for each in cluster.node_ids:
        eventually(
            lambda each=each: "a token was fetched, after" in cluster.logs(each),  # type: ignore[misc]
            f"broker {each} says that it has a token again",
        )
        assert "of brokers" not in cluster.logs(each)
        assert "Traceback" not in cluster.logs(each)
    assert count_of(cluster) == count


class Operator:
    """Runs `ottla cluster …` in this process, as one user."""

    def __init__(
        self, cluster: SecuredCluster, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.cluster, self.folder, self.capsys = cluster, folder, capsys

    def file(self, user: str, password: str = "") -> str:
        login = f'{PLAIN} required username="{user}" password="{password or PASSWORDS[user]}";'
        path = self.folder / f"{user}.properties"
        path.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self.cluster.trusted}\nsasl.jaas.config={login}\n"
        )
        return str(path)

    def __call__(self, *words: str, user: str = ADMIN) -> str:
        config = ("--command-config", self.file(user)) if user else ()
        code = run(["cluster", *words, "--dir", str(self.cluster.directory), *config])
        said = self.capsys.readouterr()
        assert code == 0, said
        return said.out

    def refused(self, *words: str, config: str = "") -> str:
        more = ("--command-config", config) if config else ()
        assert run(["cluster", *words, "--dir", str(self.cluster.directory), *more]) != 0
        return self.capsys.readouterr().err


@pytest.mark.timeout(300)
def test_an_operator_restarts_and_replaces_brokers(
    cluster: SecuredCluster,
    provider: Provider,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With a file of options `status`, `why`, `restart` and `replace` do on a secured cluster what
    they do without. Nothing is stopped where there is no login, a wrong one, or one of a user who
    may not see all topics."""
    provider.lifetime_s = 600.0
    operate = Operator(cluster, tmp_path, capsys)
    with producer(cluster) as made:
        written(made)
    count = count_of(cluster)
    in_sync(cluster)
    pids = [cluster.pid(each) for each in cluster.node_ids]
    for words in (("restart", "--rolling"), ("replace", "3")):
        assert "closed the connection" in operate.refused(*words)
        wrong = operate.refused(*words, config=operate.file("guest", "guessed"))
        assert "Invalid username or password" in wrong
        assert "guessed" not in wrong
        assert "may not describe the cluster" in operate.refused(*words, config=operate.file(SHOP))
    described = ACL(
        f"User:{SHOP}", "*", ACLOperation.DESCRIBE, ACLPermissionType.ALLOW,
        ResourcePattern(ResourceType.CLUSTER, "kafka-cluster", ACLResourcePatternType.LITERAL),
    )  # fmt: skip
    with cluster.admin() as admin:
        admin.create_acls([described])
    for words in (("restart", "--rolling"), ("replace", "3")):
        half = operate.refused(*words, config=operate.file(SHOP))
        assert "the user may not describe" in half
        assert "orders" in half
    assert [cluster.pid(each) for each in cluster.node_ids] == pids

    assert "nothing is wrong with orders-0" in operate("why", "orders-0")
    assert operate("status").count("running") == 3
    assert "broker 2 is ready on" in operate("restart", "2", user="")
    assert operate("restart", "--rolling").count("is ready on") == 3
    assert "broker 3 is in every ISR" in operate("replace", "3")
    assert not {cluster.pid(each) for each in cluster.node_ids} & set(pids)
    in_sync(cluster)
    assert count_of(cluster) == count

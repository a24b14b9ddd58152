"""Real clients over every protocol and mechanism, and what each says of a way that must fail.

One broker has all listeners. What fails must fail soon, with an error that says why where the
client has one, with a sentence in the broker's log, and must leave the broker as it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import confluent_kafka as ck
import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.errors import KafkaError as AioKafkaError
from kafka.errors import KafkaError

import ottla
from ottla.client.errors import KafkaError as OurKafkaError
from tests import needs
from tests.apache import java
from tests.waiting import GIVE_UP_S, eventually

from .secured import BEARER, MECHANISMS, EveryListener, Way

WAIT_S = 60
FAILS_AFTER_MS = 1500  # of clients that try again until then
WAYS = [("SSL", ""), ("CERTIFIED", "")]
WAYS += [("SASL_SSL", each) for each in MECHANISMS]
WAYS += [("SASL_PLAINTEXT", each) for each in MECHANISMS]
WAYS += [("UNSIGNED", BEARER)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EveryListener]:
    with EveryListener(tmp_path_factory.mktemp("secured")) as running:
        yield running


def confluent(way: Way, topic: str) -> str:
    producer = ck.Producer(way.librdkafka())
    producer.produce(topic, f"of {topic}", partition=0)
    assert producer.flush(WAIT_S) == 0
    consumer = ck.Consumer({**way.librdkafka(), "group.id": topic})
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    with contextlib.closing(consumer):
        message = consumer.poll(WAIT_S)
    assert message is not None
    assert message.error() is None, message.error()
    return str(message.value().decode())


def kafka_python(way: Way, topic: str) -> str:
    producer = kafka.KafkaProducer(**way.python())
    producer.send(topic, f"of {topic}".encode(), partition=0).get(WAIT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(**way.python(), auto_offset_reset="earliest")
    consumer.assign([kafka.TopicPartition(topic, 0)])
    with contextlib.closing(consumer):
        return str(next(consumer).value.decode())


def aiokafka(way: Way, topic: str) -> str:
    async def run() -> str:
        options = way.aiokafka()
        async with AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait(topic, f"of {topic}".encode(), partition=0)
        consumer = AIOKafkaConsumer(**options, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([AioTopicPartition(topic, 0)])
            record = await asyncio.wait_for(consumer.getone(), WAIT_S)
            return str(record.value.decode())
        finally:
            await consumer.stop()

    return asyncio.run(run())


def ours(way: Way, topic: str) -> str:
    with ottla.Producer(way.properties()) as producer:
        producer.send(topic, f"of {topic}".encode(), partition=0).get(WAIT_S)
    with ottla.Consumer(topic, way.properties(), auto_offset_reset="earliest") as consumer:
        return str(next(consumer).value.decode())


def kcat(way: Way, topic: str) -> str:
    run_kcat(way, "-P", "-t", topic, "-p", "0", text=f"of {topic}\n")
    done = run_kcat(way, "-C", "-t", topic, "-p", "0", "-c", "1", "-q")
    return done.stdout.strip()


def run_kcat(way: Way, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    options = {k: v for k, v in way.librdkafka().items() if k not in ("bootstrap.servers",)}
    sets = [part for name, value in options.items() for part in ("-X", f"{name}={value}")]
    command = [needs.kcat(), "-b", way.servers, *sets, *arguments]
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


CLIENTS = [confluent, kafka_python, aiokafka, ours, kcat]


def cannot(client: object, listener: str, mechanism: str) -> bool:
    """Before 2.6.1 librdkafka, which Debian's kcat has, said its nonce of SCRAM twice; Kafka 4
    takes that for wrong credentials, as we do (librdkafka's pull request 4895). It writes unsigned
    tokens, and fetches none: Debian builds it without libcurl."""
    if client is not kcat:
        return False
    return mechanism.startswith("SCRAM") or (mechanism == BEARER and listener != "UNSIGNED")


CASES = [(client, *way) for client in CLIENTS for way in WAYS if not cannot(client, *way)]


@pytest.mark.parametrize(("client", "listener", "mechanism"), CASES)
def test_records_go_through(
    broker: EveryListener, client: Callable[[Way, str], str], listener: str, mechanism: str
) -> None:
    """A record is written and read again."""
    topic = f"{client.__name__}-{listener}-{mechanism or 'none'}"
    assert client(broker.way(listener, mechanism), topic) == f"of {topic}"


# What the broker's log says of each wrong way. A client that does not like the broker's certificate
# has one of several alerts for it, aiokafka none.
SERVER_REFUSED = (
    "does not (trust|accept) the certificate that it was shown|ended the connection during the"
)
LOGGED = {
    "foreign token": r"failed authentication: .*the signature of the token is wrong",
    "wrong password": r"failed authentication: Authentication failed: Invalid username or password",
    "expired certificate": r"its certificate is not accepted: certificate has expired",
    "foreign certificate": r"its certificate is not accepted: unable to get local issuer",
    "no certificate": r"it showed no certificate, and ssl\.client\.auth is required",
    "foreign server": SERVER_REFUSED,
    "wrong host name": SERVER_REFUSED,
    "TLS to a plaintext port": r"it speaks TLS, and this listener does not",
    "plaintext to a TLS port": r"it does not speak TLS; its security protocol may be PLAINTEXT",
    "no login": r"a request of \w+ came before the login was complete",
}
PASSWORD_WRONG = "Invalid username or password"
# What each client says. Clients of Python other than ours take every failure for a broker that is
# not there, and say more in their log.
SAID: dict[str, Mapping[str, str]] = {
    "librdkafka_fails": {
        "foreign token": "_AUTHENTICATION .*invalid_token",
        "wrong password": f"_AUTHENTICATION .*{PASSWORD_WRONG}",
        "expired certificate": "_TRANSPORT .*alert certificate expired",
        "foreign certificate": "_TRANSPORT .*alert unknown ca",
        "no certificate": "_TRANSPORT .*alert certificate required",
        "foreign server": "_SSL .*certificate verify failed",
        "wrong host name": "_SSL .*certificate verify failed",
        "TLS to a plaintext port": "_TRANSPORT .*connecting to a PLAINTEXT broker listener",
        "plaintext to a TLS port": "_ALL_BROKERS_DOWN",
        "no login": "_ALL_BROKERS_DOWN",
        "a login where there is none": "_AUTHENTICATION .*not valid in current SASL state",
    },
    "ours_fail": {
        "foreign token": "SaslAuthenticationFailedError.*invalid_token",
        "wrong password": f"SaslAuthenticationFailedError.*{PASSWORD_WRONG}",
        "expired certificate": "SslAuthenticationError.*takes the certificate .* for expired",
        "foreign certificate": "SslAuthenticationError.*does not trust the certificate",
        "no certificate": "SslAuthenticationError.*wants a certificate, and none was shown",
        "foreign server": "SslAuthenticationError.*its certificate is not accepted: self-signed",
        "wrong host name": "SslAuthenticationError.*its certificate is not accepted: IP address",
        "TLS to a plaintext port": "NoBrokersAvailable.*ended the connection during the handshake",
        "plaintext to a TLS port": "NoBrokersAvailable.*closed the connection",
        "no login": "NoBrokersAvailable.*closed the connection",
        "a login where there is none": "IllegalSaslStateError.*refused the SASL handshake",
    },
    "kafka_python_fails": dict.fromkeys([*LOGGED, "a login where there is none"], "KafkaTimeout"),
    "aiokafka_fails": dict.fromkeys(
        [*LOGGED, "a login where there is none"], "KafkaConnectionError"
    ),
}


def librdkafka_fails(way: Way) -> str:
    errors: list[str] = []
    producer = ck.Producer(
        {
            **way.librdkafka(),
            "error_cb": lambda error: errors.append(f"{error.name()} {error.str()}"),
            "reconnect.backoff.ms": 500,
        }
    )
    deadline = time.monotonic() + GIVE_UP_S
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)
    return errors[0]


def ours_fail(way: Way) -> str:
    try:
        with ottla.Admin(way.properties(), bootstrap_timeout_ms=FAILS_AFTER_MS) as admin:
            return f"reached {admin.list_topics()}"
    except OurKafkaError as error:
        return repr(error)


def kafka_python_fails(way: Way) -> str:
    try:
        admin = kafka.KafkaAdminClient(**way.python(), bootstrap_timeout_ms=FAILS_AFTER_MS)
        return f"reached {admin.list_topics()}"
    except KafkaError as error:
        return repr(error)


def aiokafka_fails(way: Way) -> str:
    async def run() -> str:
        producer = AIOKafkaProducer(**way.aiokafka())
        try:
            await asyncio.wait_for(producer.start(), WAIT_S)
            return "reached"
        except AioKafkaError as error:
            return repr(error)
        finally:
            await producer.stop()

    return asyncio.run(run())


# Who tries again and again is last: of the same sentences the log has some a second only.
@pytest.mark.parametrize(
    "client", [librdkafka_fails, aiokafka_fails, ours_fail, kafka_python_fails]
)
def test_what_is_wrong_is_said(
    broker: EveryListener, client: Callable[[Way], str], caplog: pytest.LogCaptureFixture
) -> None:
    """All wrong ways at once: each ends with its error, and the log has a sentence for each."""
    caplog.set_level(logging.CRITICAL)
    before = len(broker.errors())
    ways = broker.wrong_ways()
    with ThreadPoolExecutor(len(ways)) as threads:
        said = dict(zip(ways, threads.map(client, ways.values()), strict=True))
    expected = SAID[client.__name__]
    wrong = {
        name: text for name, text in said.items() if not re.search(expected[name], text, re.DOTALL)
    }
    assert not wrong
    for name, words in LOGGED.items():
        eventually(
            lambda words=words: re.search(words, broker.errors()[before:]),  # type: ignore[misc]
            f"the log of {name}: {broker.errors()[before:]}",
        )
    assert "guessed" not in broker.errors()
    assert "Traceback" not in broker.errors()
    topic = f"after-{client.__name__}"
    assert confluent(broker.way("SASL_SSL", "PLAIN"), topic) == f"of {topic}"


JAVA_SAYS = {
    "foreign token": 'SaslAuthenticationException: {"status":"invalid_token"}',
    "wrong password": f"SaslAuthenticationException: Authentication failed: {PASSWORD_WRONG}",
    "expired certificate": "SslAuthenticationException",
    "foreign certificate": "SslAuthenticationException",
    "no certificate": "SslAuthenticationException",
    "foreign server": "SslAuthenticationException: SSL handshake failed",
    "wrong host name": "SslAuthenticationException: SSL handshake failed",
    "TLS to a plaintext port": "TimeoutException",
    "plaintext to a TLS port": "TimeoutException",
    "no login": "TimeoutException",
    "a login where there is none": "IllegalSaslStateException",
}


@pytest.mark.apache
def test_java_s_clients(broker: EveryListener, tmp_path: Path) -> None:
    """They go all the good ways, and name what is wrong with the others."""
    needs.apache()
    before = len(broker.errors())
    good = {
        f"{listener}-{mechanism}": broker.way(listener, mechanism) for listener, mechanism in WAYS
    }
    files = []
    for kind, ways in (("good", good), ("bad", broker.wrong_ways())):
        (tmp_path / kind).mkdir()
        for name, way in ways.items():
            file = tmp_path / kind / f"{name}.properties"
            file.write_text("".join(f"{k}={v}\n" for k, v in way.properties().items()))
            files.append(str(file))
    lines = java.run_json(Path(__file__).with_name("Secured.java"), *files)
    said = {line["name"]: line["said"] for line in lines}
    assert {name: said[name] for name in good} == {name: f"of java-{name}" for name in good}
    wrong = {name: said[name] for name, words in JAVA_SAYS.items() if words not in said[name]}
    assert not wrong
    for words in LOGGED.values():
        assert re.search(words, broker.errors()[before:])

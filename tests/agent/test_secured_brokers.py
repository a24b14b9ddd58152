"""An agent whose brokers want TLS or a login: source, channel, sink and positions all give it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.agent.build import build
from ottla.agent.config.description import ConfigError
from ottla.client.admin.types import NewTopic
from tests.agent.config.descriptions import agent_of, with_sink
from tests.agent.kafka_harness import running, until
from tests.security.harness import PLAIN, SaslServer, SecuredServer

EVENTS = 50
SETTINGS = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
KAFKA = "org.apache.flume"


class Secured:
    """A server, with what our clients and a property file need to reach it."""

    def __init__(self, bootstrap: str, client: dict[str, Any], options: list[str]) -> None:
        self.bootstrap = bootstrap
        self.client = client
        self.options = options

    def arrived(self, topic: str) -> list[int]:
        with ottla.Consumer(
            topic, auto_offset_reset="earliest", isolation_level="read_committed",
            consumer_timeout_ms=500, **self.client,
        ) as consumer:  # fmt: skip
            return sorted(int(record.value) for record in consumer)

    def lines(self, prefix: str) -> str:
        return "\n".join(f"{prefix}{option}" for option in self.options)


@pytest.fixture(params=["tls", "login"])
def secured(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Secured]:
    if request.param == "tls":
        with SecuredServer(tmp_path / "broker", settings=SETTINGS) as server:
            client = {
                "bootstrap_servers": server.bootstrap,
                "security_protocol": "SSL",
                "ssl_cafile": str(server.trusted),
            }
            options = [
                "security.protocol = SSL",
                "ssl.truststore.type = PEM",
                f"ssl.truststore.location = {server.trusted}",
                "ssl.protocol = TLSv1.3",
            ]
            yield Secured(server.bootstrap, client, options)
        return
    with SaslServer(tmp_path / "broker", {"agent": "its-word"}, settings=SETTINGS) as sasl:
        options = [
            "security.protocol = SASL_PLAINTEXT",
            "sasl.mechanism = PLAIN",
            f'sasl.jaas.config = {PLAIN} required username="agent" password="its-word";',
        ]
        yield Secured(sasl.bootstrap, dict(sasl.client("agent", "its-word")), options)


def test_from_topic_to_topic(secured: Secured, tmp_path: Path) -> None:
    """Exactly once through memory, and again through a topic as the channel."""
    with ottla.Admin(**secured.client) as admin:
        admin.create_topics([NewTopic(name, 1, 1) for name in ("in", "once", "least", "between")])
    with ottla.Producer(**secured.client) as producer:
        for number in range(EVENTS):
            producer.send("in", b"%d" % number)
    text = f"""
a1.sources = r1
a1.channels = c1 c2
a1.sinks = k1 k2
a1.sources.r1.type = {KAFKA}.source.kafka.KafkaSource
a1.sources.r1.kafka.bootstrap.servers = {secured.bootstrap}
a1.sources.r1.kafka.topics = in
a1.sources.r1.kafka.consumer.auto.offset.reset = earliest
a1.sources.r1.channels = c1 c2
a1.channels.c1.type = memory
a1.channels.c2.type = {KAFKA}.channel.kafka.KafkaChannel
a1.channels.c2.kafka.bootstrap.servers = {secured.bootstrap}
a1.channels.c2.kafka.topic = between
{secured.lines("a1.sources.r1.kafka.consumer.")}
{secured.lines("a1.channels.c2.kafka.consumer.")}
{secured.lines("a1.channels.c2.kafka.producer.")}
"""
    for sink, topic, channel in (("k1", "once", "c1"), ("k2", "least", "c2")):
        text += f"""
a1.sinks.{sink}.type = {KAFKA}.sink.kafka.KafkaSink
a1.sinks.{sink}.kafka.bootstrap.servers = {secured.bootstrap}
a1.sinks.{sink}.kafka.topic = {topic}
a1.sinks.{sink}.allowTopicOverride = false
a1.sinks.{sink}.channel = {channel}
{secured.lines(f"a1.sinks.{sink}.kafka.producer.")}
"""

    async def run() -> None:
        async with running(text, tmp_path):
            for topic in ("once", "least"):
                await until(lambda topic=topic: len(secured.arrived(topic)) >= EVENTS)

    asyncio.run(run())
    assert secured.arrived("once") == list(range(EVENTS))
    assert secured.arrived("least") == list(range(EVENTS))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["security.protocol = SSL", "ssl.truststore.location = /nowhere.pem",
          "ssl.truststore.type = PEM"], "/nowhere.pem"),
        (["security.protocol = SASL_SSL"], "needs sasl_mechanism"),
        (["security.protocol = SSL", "ssl.truststore.location = {store}"], "JKS"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_a_mistake_of_the_file(
    options: list[str], said: str, tmp_path: Path
) -> None:
    """Before anything runs; a reload keeps what runs."""
    (tmp_path / "t.jks").write_bytes(b"\xfe\xed\xfe\xed")
    options = [option.replace("{store}", str(tmp_path / "t.jks")) for option in options]
    text = with_sink(
        "type = kafka", "kafka.bootstrap.servers = h:1",
        *(f"kafka.producer.{option}" for option in options),
    )  # fmt: skip
    with pytest.raises(ConfigError, match=said):
        build(agent_of(text), tmp_path, "here")

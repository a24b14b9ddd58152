"""Positions of streams: how far each sink has delivered, kept where it outlives the agent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.admin import Admin
from ottla.client.admin.types import NewTopic
from ottla.client.consumer.consumer import Consumer
from ottla.client.errors import TopicAlreadyExistsError
from ottla.client.producer.producer import Producer
from ottla.client.structs import TopicPartition

from .events import Position

TOPIC = "__ottla_agent_positions"
TOPIC_CONFIGS = {"cleanup.policy": "compact", "compression.type": "producer"}
PARTITIONS = 1


class SinkIdentity(NamedTuple):
    """Whose positions: one sink of one agent of one instance."""

    instance: str  # kept in the data directory: the same file runs on many hosts
    agent: str
    sink: str

    @property
    def transactional_id(self) -> str:
        return f"ottla-agent-{self.instance}-{self.agent}-{self.sink}"


class PositionTopic:
    """The positions of one sink in the topic."""

    def __init__(self, client_options: Mapping[str, object], identity: SinkIdentity) -> None:
        self._servers = client_options["bootstrap.servers"]
        self._identity = identity

    def ensure_exists(self) -> None:
        with Admin(bootstrap_servers=self._servers) as admin:
            try:
                admin.create_topics([NewTopic(TOPIC, PARTITIONS, -1, topic_configs=TOPIC_CONFIGS)])
            except TopicAlreadyExistsError:
                return

    def read(self) -> dict[str, Position]:
        """What is committed; an open transaction of this sink was ended by the fence before."""
        found: dict[str, Position] = {}
        mine = list(self._identity)
        with Consumer(
            bootstrap_servers=self._servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            partition = TopicPartition(TOPIC, 0)
            consumer.assign([partition])
            end = consumer.end_offsets([partition])[partition]
            while (consumer.position(partition) or 0) < end:
                for records in consumer.poll(timeout_ms=1000).values():
                    for record in records:
                        *owner, stream = json.loads(record.key)
                        if owner != mine:
                            continue
                        if record.value is None:
                            found.pop(stream, None)
                        else:
                            held = json.loads(record.value)
                            found[stream] = Position(stream, held["offset"], held["facts"])
        return found

    def send(self, producer: Producer[bytes, bytes], position: Position) -> None:
        key = json.dumps([*self._identity, position.stream])
        value = json.dumps({"offset": position.offset, "facts": dict(position.facts)})
        producer.send(TOPIC, value.encode(), key.encode(), partition=0)

"""Admin requests of a simulated client: through any broker, again until there is an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.testing.simulation.connection import Connection
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.seams.simulated.simulation import Node

ANSWER_S_MAX = 5.0
RETRY_S = 0.1


async def ask_any(node: Node, hosts: Sequence[str], request: Any, version: int) -> Any:
    """The answer of the first broker that gives one; None if none does."""
    for host in hosts:
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                connection = await Connection.open(node, host)
                try:
                    return await connection.ask(request, version)
                finally:
                    connection.close()
        except (OSError, TimeoutError):
            continue
    return None


async def create_topic(
    node: Node,
    hosts: Sequence[str],
    topic: str,
    partitions: int,
    replicas: int,
    configs: Mapping[str, str],
) -> None:
    """Ask until the topic is there."""
    wanted = CreatableTopic(
        name=topic,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=name, value=each) for name, each in configs.items()],
    )
    while True:
        answer = await ask_any(node, hosts, CreateTopicsRequest(topics=[wanted]), 7)
        if answer is not None and answer.topics[0].error_code in (
            ErrorCode.NONE,
            ErrorCode.TOPIC_ALREADY_EXISTS,
        ):
            return
        await asyncio.sleep(RETRY_S)

"""Requests to the share coordinator: each partition in them may have another coordinator.

The key of a share partition is its group, topic id and partition as text, as Kafka has it; its hash
says which partition of `__share_group_state` has the state, and so which broker.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ottla.broker.context import Context, Pending
from ottla.broker.gather import Gather
from ottla.coordinator.effects import Effects
from ottla.coordinator.share_state import SharePartitionKey
from ottla.coordinator.share_state_shard import ShareStateShard
from ottla.wire.errors import ErrorCode

# Fills `Effects` and returns the result for one partition of a request.
Decide = Callable[[ShareStateShard, SharePartitionKey, Any, Effects, int], Any]
Failure = Callable[[Any, ErrorCode], Any]


def coordinator_key(key: SharePartitionKey) -> str:
    """The text that FindCoordinator has for a share partition."""
    topic_id = urlsafe_b64encode(key.topic_id).decode().rstrip("=")
    return f"{key.group_id}:{topic_id}:{key.partition}"


def answer_each(
    group_id: str,
    topics: Sequence[Any],
    context: Context,
    decide: Decide,
    failure: Failure,
    respond: Callable[[list[tuple[bytes, list[Any]]]], Any],
) -> Any:
    """The results of all partitions in `topics`, each from its coordinator, as one response.

    `respond` gets them by topic id, in the order of the request.
    """
    asked = [(topic.topic_id, each) for topic in topics for each in topic.partitions]
    if not asked:
        return respond([(topic.topic_id, []) for topic in topics])
    pending = Pending()

    def done(results: list[Any]) -> None:
        by_topic: dict[bytes, list[Any]] = {}
        for (topic_id, _), result in zip(asked, results, strict=True):
            by_topic.setdefault(topic_id, []).append(result)
        pending.resolve(respond(list(by_topic.items())))

    gather = Gather(len(asked), done)
    service = context.broker.coordinators.shares
    for number, (topic_id, each) in enumerate(asked):
        key = SharePartitionKey(group_id, topic_id, each.partition)
        part = gather.part(number, partial(failure, each))
        coordinator = service.coordinator_for(coordinator_key(key))
        if isinstance(coordinator, ErrorCode):
            part.fail(coordinator)
            continue
        shard = coordinator.shard

        def run(
            effects: Effects,
            now_ms: int,
            shard: ShareStateShard = shard,
            key: SharePartitionKey = key,
            each: Any = each,
            part: Any = part,
        ) -> None:
            effects.reply(part, decide(shard, key, each, effects, now_ms))

        coordinator.run(run)
    return pending

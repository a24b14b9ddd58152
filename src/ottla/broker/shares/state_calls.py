"""Requests of this broker to the share coordinators.

Each share partition may have another coordinator. A call goes to all that are concerned, and again
to those that could not answer yet (they are loading, or have just lost the partition), until every
partition has a result or the time is up. Repeating is harmless: the same change merges to the same
state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.broker.share_state import coordinator_key
from ottla.coordinator.share_state import SharePartitionKey
from ottla.wire.errors import ErrorCode
from ottla.wire.schema import Struct

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

CALL_TIMEOUT_S = 20.0
FIRST_RETRY_S = 0.02
RETRY_MAX_S = 1.0
RETRIED = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}

# A partition by topic id and number, and what is asked or answered for it.
Place = tuple[bytes, int]
MakeRequest = Callable[[str, list[tuple[bytes, list[Any]]]], Struct]


class StateCall:
    """One request for some share partitions of a group; `then` gets a result for each.

    A result is the response's own, or an `ErrorCode` where there was no response in time.
    """

    def __init__(
        self,
        broker: Broker,
        group_id: str,
        asked: Mapping[Place, Any],
        make_request: MakeRequest,
        then: Callable[[dict[Place, Any]], object],
    ) -> None:
        self._broker = broker
        self._group_id = group_id
        self._left = dict(asked)
        self._make_request = make_request
        self._then = then
        self._results: dict[Place, Any] = {}
        self._under_way = 0
        self._errors: dict[Place, ErrorCode] = {}
        self._deadline_s = broker.clock.monotonic() + CALL_TIMEOUT_S
        self._retry_s = FIRST_RETRY_S

    def start(self) -> None:
        service = self._broker.coordinators.shares
        if service.topic in self._broker.image.topics:
            self._send()
        else:
            self._broker.dispatcher.run(self._make_topic())

    async def _make_topic(self) -> None:
        try:
            await self._broker.coordinators.shares.make_topic()
        finally:
            if not asyncio.current_task().cancelling():  # type: ignore[union-attr]
                self._send()

    def _send(self) -> None:
        service = self._broker.coordinators.shares
        by_node: dict[int, dict[bytes, list[Any]]] = {}
        for (topic_id, index), asked in self._left.items():
            key = SharePartitionKey(self._group_id, topic_id, index)
            node = service.leader_for(coordinator_key(key))
            if node is None:
                self._errors[topic_id, index] = ErrorCode.COORDINATOR_NOT_AVAILABLE
            else:
                by_node.setdefault(node, {}).setdefault(topic_id, []).append(asked)
        self._under_way = len(by_node) + 1
        for node, topics in by_node.items():
            places = [
                (topic_id, each.partition) for topic_id in topics for each in topics[topic_id]
            ]
            request = self._make_request(self._group_id, list(topics.items()))

            def answered(response: Any, places: list[Place] = places) -> None:
                self._answered(places, response)

            self._broker.peers.send(node, request, answered)
        self._one_less()

    def _answered(self, places: list[Place], response: Any) -> None:
        found: dict[Place, Any] = {}
        if isinstance(response, ErrorCode):
            self._errors.update(dict.fromkeys(places, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            for topic in response.results:
                for each in topic.partitions:
                    found[topic.topic_id, each.partition] = each
            for place in places:
                result = found.get(place)
                if result is None:
                    self._errors[place] = ErrorCode.UNKNOWN_SERVER_ERROR
                elif result.error_code in RETRIED:
                    self._errors[place] = ErrorCode(result.error_code)
                else:
                    self._results[place] = result
                    del self._left[place]
        self._one_less()

    def _one_less(self) -> None:
        self._under_way -= 1
        if self._under_way:
            return
        clock = self._broker.clock
        if self._left and clock.monotonic() < self._deadline_s:
            clock.call_later(self._retry_s, self._send)
            self._retry_s = min(self._retry_s * 2, RETRY_MAX_S)
            return
        for place in self._left:
            self._results[place] = self._errors.get(place, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._then(self._results)


def error_of(result: Any) -> ErrorCode:
    """The error of a result, whichever kind it is."""
    return result if isinstance(result, ErrorCode) else ErrorCode(result.error_code)

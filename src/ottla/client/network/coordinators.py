"""Which broker coordinates a group or a transactional id: found by asking, kept until it is wrong.

`find` may be called from any thread. It is asked again, with waits, while the coordinator is being
elected or loaded; a future fails after `request_timeout_ms`.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import TYPE_CHECKING

from ottla.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.errors import ErrorCode

from ..errors import KafkaError, error_for
from .cluster_metadata import Broker, Cluster
from .connection_pool import ANY

if TYPE_CHECKING:
    from .cluster_client import AnyClient

# Another broker coordinates, or none does now.
COORDINATOR_GONE = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
KINDS = {"group": 0, "transaction": 1, "share": 2}


class Coordinators:
    """Broker ids by kind and key."""

    def __init__(self, client: AnyClient) -> None:
        self.client = client
        self.known: dict[tuple[str, str], int] = {}

    def find(self, key: str, kind: str = "group") -> Future[int]:
        """The coordinator's broker id."""
        future: Future[int] = Future()
        known = self.known.get((kind, key))
        if known is not None:
            future.set_result(known)
            return future
        deadline = time.monotonic() + self.client.config["request_timeout_ms"] / 1000
        self.client.call_soon(self._ask, key, kind, future, deadline, 0)
        return future

    def forget(self, key: str, kind: str = "group") -> None:
        """It was the wrong one, or it is gone."""
        self.known.pop((kind, key), None)

    def forget_broker(self, node_id: int) -> None:
        """The broker is gone, and with it all that it coordinated."""
        self.known = {key: found for key, found in self.known.items() if found != node_id}

    def _ask(self, key: str, kind: str, future: Future[int], deadline: float, tries: int) -> None:
        message = FindCoordinatorRequest(key=key, key_type=KINDS[kind], coordinator_keys=[key])
        left_ms = max(1.0, (deadline - time.monotonic()) * 1000)
        asked = self.client.submit(
            ANY, message, timeout_ms=min(left_ms, self.client.config["request_timeout_ms"])
        )
        asked.add_done_callback(
            lambda answer: self._on_response(answer, key, kind, future, deadline, tries)
        )

    def _on_response(
        self,
        answer: Future[FindCoordinatorResponse],
        key: str,
        kind: str,
        future: Future[int],
        deadline: float,
        tries: int,
    ) -> None:
        problem = answer.exception()
        if problem is None:
            response = answer.result()
            found = response.coordinators[0] if response.coordinators else response
            if not found.error_code:
                self._learn(Broker(found.node_id, found.host, found.port))
                self.known[kind, key] = found.node_id
                future.set_result(found.node_id)
                return
            problem = error_for(found.error_code, found.error_message)
        pause_s = self.client.backoff_s(tries)
        retriable = isinstance(problem, KafkaError) and problem.retriable
        if not retriable or time.monotonic() + pause_s >= deadline or self.client.closed:
            future.set_exception(problem)
            return
        self.client.call_later(pause_s, self._ask, key, kind, future, deadline, tries + 1)

    def _learn(self, broker: Broker) -> None:
        """Remember where the coordinator listens, if it is not in the metadata yet."""
        cluster = self.client.connections.cluster
        if broker.node_id not in cluster.brokers:
            self.client.connections.cluster = Cluster(
                {**cluster.brokers, broker.node_id: broker},
                cluster.topics,
                cluster_id=cluster.cluster_id,
                controller_id=cluster.controller_id,
            )

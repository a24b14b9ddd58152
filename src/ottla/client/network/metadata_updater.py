"""Keeps the metadata of the cluster fresh: on demand, on error, and when it gets old.

In the loop's thread, except `refresh`, `track` and the reading of `cluster`. One Metadata request
is under way at a time; callers meanwhile share the next one. Failures are retried with
growing waits for as long as a caller waits for an answer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future

from ottla.client.randomness import RANDOM
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.errors import ErrorCode

from ..errors import IllegalArgumentError, KafkaError
from ..typed_config import ClientConfig
from .cluster_metadata import Cluster
from .connection import Request
from .connection_pool import ANY, Connections
from .io_thread import Loop, Timer

log = logging.getLogger("ottla.client")

ATTEMPT_TIMEOUT_S_MAX = 10.0


class Metadata:
    """Which topics matter, and who waits for news of them."""

    def __init__(self, loop: Loop, connections: Connections, config: ClientConfig) -> None:
        self.loop = loop
        self.connections = connections
        self.config = config
        self.topics: set[str] = set()
        self.all_topics = False
        self.waiting: list[Future[Cluster]] = []  # want a request that is not sent yet
        self.asking: list[Future[Cluster]] = []  # share the request under way
        self.busy = False
        self.failures = 0
        self.retry_timer: Timer | None = None
        self.age_timer: Timer | None = None
        self.listeners: list[Callable[[Cluster], object]] = []
        self.warn_after_s: float | None = None
        self.closed = False

    def track(self, topics: Iterable[str]) -> None:
        """From now on every refresh asks about these topics too.

        Raises IllegalArgumentError for a name that no request can carry: it would stop all others.
        """
        wanted = set(topics)
        for topic in wanted:
            try:
                topic.encode()
            except UnicodeEncodeError as problem:
                raise IllegalArgumentError(f"{topic!r} is no name for a topic: {problem}") from None
        self.topics = self.topics | wanted

    def refresh(self, topics: Iterable[str] = ()) -> Future[Cluster]:
        """Newer metadata than now, with these topics in it; the future never fails by itself."""
        wanted = set(topics)
        if not wanted <= self.topics:
            self.track(wanted)
        future: Future[Cluster] = Future()
        if self.loop.inside:
            self._want(future)
        else:
            self.loop.call_soon(self._want, future)
        return future

    @property
    def under_way(self) -> bool:
        """Whether newer metadata was asked for; the listeners are called when it comes."""
        return self.busy or self.retry_timer is not None

    def awaited(self, topic: str) -> bool:
        """Whether this topic is not in the metadata yet, and may be in the next one."""
        return self.under_way and topic not in self.connections.cluster.topics

    def _want(self, future: Future[Cluster]) -> None:
        if self.closed:
            future.set_exception(KafkaError("the client is closed"))
            return
        self.waiting.append(future)
        if not self.busy and self.retry_timer is None:
            self._ask()

    def _ask(self) -> None:
        self.retry_timer = None
        if self.closed or self.busy:
            return
        self.busy = True
        self.asking, self.waiting = self.asking + self.waiting, []
        asked = None if self.all_topics else sorted(self.topics)
        message = MetadataRequest(
            topics=None if asked is None else [MetadataRequestTopic(name=name) for name in asked],
            allow_auto_topic_creation=bool(self.config.get("allow_auto_create_topics")),
        )
        timeout_s = min(self.config["request_timeout_ms"] / 1000, ATTEMPT_TIMEOUT_S_MAX)
        request = Request(message, time.monotonic() + timeout_s)
        request.future.add_done_callback(lambda future: self._on_response(future, asked))
        self.connections.send(ANY, request)

    def _on_response(self, future: Future[MetadataResponse], asked: list[str] | None) -> None:
        self.busy = False
        problem = future.exception()
        answer = None if problem is not None else future.result()
        if answer is None or not answer.brokers:
            self._failed(problem)
            return
        if answer.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:  # KIP-1102
            self.connections.cluster = Cluster()
            self._failed(None)
            return
        self.failures = 0
        self.warn_after_s = None
        cluster = self.connections.cluster.updated(answer, asked)
        self.connections.cluster = cluster
        for listener in self.listeners:
            listener(cluster)
        done, self.asking = self.asking, []
        for each in done:
            if each.set_running_or_notify_cancel():
                each.set_result(cluster)
        self._watch_age()
        if self.waiting:
            self._ask()

    def _failed(self, problem: BaseException | None) -> None:
        if self.closed:
            return
        self.failures += 1
        if isinstance(problem, KafkaError) and not problem.retriable:
            failed, self.asking = self.asking, []
            for each in failed:
                each.set_exception(problem)
            if self.waiting:
                self._ask()
            return
        if self.warn_after_s is not None and len(self.connections.waits) >= len(
            self.connections.bootstrap
        ):
            self.warn_after_s = None
            log.warning("%s; trying again", self.no_broker_text())
        base, most = self.config["retry_backoff_ms"], self.config["retry_backoff_max_ms"]
        pause_ms = min(base * 2.0 ** min(self.failures, 20), max(base, most))
        self.retry_timer = self.loop.call_later(
            pause_ms * RANDOM.uniform(0.8, 1.2) / 1000, self._ask
        )

    def _watch_age(self) -> None:
        if self.age_timer is not None:
            self.age_timer.cancel()
        age_s_max = self.config["metadata_max_age_ms"] / 1000
        self.age_timer = self.loop.call_later(max(age_s_max, 0.1), self._too_old)

    def _too_old(self) -> None:
        if not self.busy and self.retry_timer is None and not self.closed:
            self._ask()

    def no_broker_text(self) -> str:
        """Why there is no metadata, and what to try."""
        names = ", ".join(f"{host}:{port}" for host, port in self.config["bootstrap_servers"])
        reasons = "; ".join(self.connections.failures()) or "no answer"
        return (
            f"no broker answers at {names} ({reasons})\n"
            f"Try: start one with `ottla server`, or check bootstrap_servers"
        )

    def close(self) -> None:
        self.closed = True
        for each in [*self.asking, *self.waiting]:
            each.set_exception(KafkaError("the client is closed"))
        self.asking, self.waiting = [], []

"""When a consumer commits: by itself from time to time, before a rebalance, or on request.

In the caller's thread. What commits by itself is what earlier polls returned: `step` runs at the
beginning of a poll, before it takes more. Callbacks wait in a queue and are called by the next
poll or commit, in the order of the commits.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from ..errors import KafkaError
from ..structs import OffsetAndMetadata, TopicPartition
from ..typed_config import CommitCallback, ConsumerConfig
from .interceptors import ConsumerInterceptors
from .offset_commits import Commits
from .subscription import Subscription

log = logging.getLogger("ottla.client")

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
BEFORE_REBALANCE_MS_MAX = 5_000


class Committer:
    """The commits of one consumer."""

    def __init__(
        self,
        commits: Commits | None,
        subscription: Subscription,
        config: ConsumerConfig,
        interceptors: ConsumerInterceptors,
        changed: Callable[[], object],
    ) -> None:
        self.commits = commits
        self.subscription = subscription
        self.interceptors = interceptors
        self.changed = changed
        self.automatic = commits is not None and bool(config["enable_auto_commit"])
        self.interval_s = config["auto_commit_interval_ms"] / 1000
        self.default_callback: CommitCallback | None = config["default_offset_commit_callback"]
        self.due_at = time.monotonic() + self.interval_s
        self.retry_s = config["retry_backoff_ms"] / 1000
        self.last: dict[TopicPartition, int] = {}
        self.finished: deque[tuple[CommitCallback | None, Offsets, BaseException | None]] = deque()
        self.commit_count = 0

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Everything that the caller has got, except of topics that are gone, or were made anew
        meanwhile: its offsets mean nothing there."""
        assert self.commits is not None
        topics = self.commits.client.cluster.topics
        states = self.subscription.states
        return {
            partition: OffsetAndMetadata(offset, "", epoch)
            for partition, (offset, epoch) in self.subscription.consumed().items()
            if not (topic_id := states[partition].topic_id)
            or partition.topic not in topics
            or topics[partition.topic].topic_id == topic_id
        }

    def step(self) -> None:
        """Callbacks that wait, and the automatic commit if it is due."""
        if self.finished:
            self.call_back()
        if self.automatic and time.monotonic() >= self.due_at:
            self.commit_now()

    def commit_now(self) -> None:
        """Begin an automatic commit, if there is something new to commit."""
        if not self.automatic:
            return
        self.due_at = time.monotonic() + self.interval_s
        offsets = self.news()
        if not offsets:
            return
        self._send(offsets, None, automatic=True)

    def news(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What was consumed since the last automatic commit."""
        return {
            partition: offset
            for partition, offset in self.consumed().items()
            if self.last.get(partition) != offset.offset
        }

    def before_rebalance(self, timeout_ms: float = BEFORE_REBALANCE_MS_MAX) -> None:
        """The automatic commit that is waited for; failures are logged."""
        if not self.automatic:
            return
        assert self.commits is not None
        try:
            offsets = self.commits.commit(self.news, min(timeout_ms, BEFORE_REBALANCE_MS_MAX))
        except KafkaError as problem:
            log.warning("automatic commit failed: %s", problem)
            return
        if offsets:
            self._done(offsets)
        self.last.update({each: offset.offset for each, offset in offsets.items()})

    def commit(self, offsets: Offsets | None, timeout_ms: float | None) -> None:
        """Commit and wait, again and again while that may help."""
        assert self.commits is not None
        wanted = None if offsets is None else dict(offsets)
        try:
            committed = self.commits.commit(
                self.consumed if wanted is None else lambda: wanted, timeout_ms
            )
            if committed:
                self._done(committed)
        finally:
            self.call_back()

    def commit_async(
        self, offsets: Offsets | None, callback: CommitCallback | None
    ) -> Future[None]:
        """Commit once, without waiting."""
        self.call_back()
        wanted = self.consumed() if offsets is None else dict(offsets)
        return self._send(wanted, callback or self.default_callback)

    def _send(
        self, offsets: Offsets, callback: CommitCallback | None, *, automatic: bool = False
    ) -> Future[None]:
        assert self.commits is not None
        future = self.commits.send(offsets)

        def on_response(answer: Future[None]) -> None:
            problem = answer.exception()
            if automatic and problem is None:
                self.last.update({each: offset.offset for each, offset in offsets.items()})
            elif automatic:
                log.warning("automatic commit failed: %s", problem)
                if isinstance(problem, KafkaError) and problem.retriable:
                    self.due_at = min(self.due_at, time.monotonic() + self.retry_s)
            self.finished.append((callback, offsets, problem))
            self.changed()

        future.add_done_callback(on_response)
        return future

    def _done(self, offsets: Offsets) -> None:
        self.commit_count += 1
        self.interceptors.on_commit(offsets)

    def call_back(self) -> None:
        """Call what waits to be called."""
        while self.finished:
            callback, offsets, problem = self.finished.popleft()
            if problem is None:
                self._done(offsets)
            if callback is not None:
                try:
                    callback(dict(offsets), problem)
                except Exception:
                    log.exception("the callback of a commit failed")

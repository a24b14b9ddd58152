"""Looks at the results while they come: the same topics and groups any other program could read.

`Watcher` is a thread: it reads the result topics (committed records only), and asks how far the
pipelines' consumer groups are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ottla import Admin, Consumer, TopicPartition

POLL_MS = 200
GROUPS_EVERY_S = 0.5


class Watcher(threading.Thread):
    """Hands every result to `take`, and knows how many events each group has `read`."""

    def __init__(
        self,
        bootstrap_servers: str,
        topics: Sequence[str],
        groups: Sequence[str],
        take: Callable[[Any], None],
    ) -> None:
        super().__init__(name="watcher", daemon=True)
        self.bootstrap_servers = bootstrap_servers
        self.topics = topics
        self.groups = groups
        self.take = take
        self.read = dict.fromkeys(groups, 0)
        self.failure: BaseException | None = None
        self._stopped = threading.Event()

    @property
    def counted(self) -> int:
        """By all of them."""
        return min(self.read.values())

    def run(self) -> None:
        servers = {"bootstrap_servers": self.bootstrap_servers}
        try:
            with (
                Consumer(**servers, isolation_level="read_committed") as consumer,
                Admin(**servers) as admin,
            ):
                consumer.assign(
                    [
                        TopicPartition(topic, partition)
                        for topic in self.topics
                        for partition in consumer.partitions_for_topic(topic)
                    ]
                )
                consumer.seek_to_beginning()
                self._watch(consumer, admin)
        except BaseException as failure:
            self.failure = failure

    def stop(self) -> None:
        self._stopped.set()
        if self.is_alive():
            self.join()

    def _watch(self, consumer: Consumer[Any, Any], admin: Admin) -> None:
        next_look = 0.0
        while not self._stopped.is_set():
            for records in consumer.poll(POLL_MS).values():
                for record in records:
                    self.take(record)
            if self.groups and time.monotonic() >= next_look:
                next_look = time.monotonic() + GROUPS_EVERY_S
                found = admin.list_group_offsets(dict.fromkeys(self.groups))
                self.read = {
                    group: sum(committed.offset for committed in found[group].values())
                    for group in self.groups
                }

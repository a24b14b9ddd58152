"""Offset commits by a client that is no member of the group: a query's progress, for lag tools."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from ottla.client.consumer import Consumer
from ottla.client.errors import KafkaError
from ottla.client.structs import OffsetAndMetadata

from ..broker_wait import common
from .offsets import PartitionOffsets

log = logging.getLogger("ottla.spark")

COMMITTERS_MAX = 16  # groups that one process keeps a client for
COMMIT_TIMEOUT_MS = 10_000


class GroupCommits:
    """Commits offsets for groups without being their member. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._consumers: dict[tuple[str, str], Consumer] = {}
        self._committed: dict[tuple[str, str], PartitionOffsets] = {}

    def commit(
        self,
        servers: str,
        group: str,
        offsets: PartitionOffsets,
        client: Mapping[str, Any] | None = None,
    ) -> None:
        """Commit, and wait for it. A failure is a warning: the query does not depend on it.

        `client` are Kafka's properties of a client: how it gets in.
        """
        key = servers, group
        with self._lock:
            if not offsets or self._committed.get(key) == offsets:
                return
            try:
                self._consumer(key, client or {}).commit(
                    {each: OffsetAndMetadata(offset, "") for each, offset in offsets.items()},
                    COMMIT_TIMEOUT_MS,
                )
            except KafkaError as problem:
                log.warning("progress is not committed to group %r: %s", group, problem)
            else:
                self._committed[key] = offsets

    def close(self) -> None:
        """End the connections; a later commit makes new ones."""
        with self._lock:
            consumers, self._consumers = list(self._consumers.values()), {}
            self._committed.clear()
        for each in consumers:
            each.close(autocommit=False)

    def _consumer(self, key: tuple[str, str], client: Mapping[str, Any]) -> Consumer:
        if key not in self._consumers:
            while len(self._consumers) >= COMMITTERS_MAX:
                oldest = next(iter(self._consumers))
                self._committed.pop(oldest, None)
                self._consumers.pop(oldest).close(autocommit=False)
            own = {"bootstrap.servers": key[0], "group.id": key[1], "enable.auto.commit": False}
            self._consumers[key] = Consumer({**common(client), **own})
        return self._consumers[key]

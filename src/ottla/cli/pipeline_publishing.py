"""What running pipelines are doing, as records for whoever watches the cluster (`ottla console`).

Every PUBLISH_S one record for each pipeline goes to the topic `__ottla_pipelines`, its key the
pipeline's name, its value JSON; the newest of a name counts. It never holds up a pipeline: a thread
of its own sends, and where the cluster does not take the records it goes without.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.spark.pipelines.progress import Reading

if TYPE_CHECKING:
    from ottla.client.producer.producer import Producer
    from ottla.spark.pipelines.declaring import Pipeline

TOPIC = "__ottla_pipelines"
CONFIGS = {
    "cleanup.policy": "compact,delete",
    "retention.ms": str(7 * 24 * 3_600_000),
    "segment.ms": str(3_600_000),  # so that what is old is compacted away
}
VERSION = 1
PUBLISH_S = 5.0
CLIENT_TIMEOUT_MS = 5_000
CLOSE_S = 3.0
ERROR_CHARACTERS_MAX = 2_000

log = logging.getLogger("ottla.spark.publishing")


class Published:
    """What is said of one pipeline: pure."""

    def __init__(self, pipeline: Pipeline, now_s: float) -> None:
        self.pipeline = pipeline
        self.state = "running"
        self.error: str | None = None
        self.started_ms = int(now_s * 1000)
        self._queries: dict[str, Reading] = {}
        self._rows = 0
        self._since_s = now_s

    def take(self, reading: Reading) -> None:
        self._queries[reading.query] = reading
        self._rows += reading.rows

    def record(self, now_s: float) -> dict[str, Any]:
        """The value of the next record; what was read since the last one is its rate."""
        elapsed_s = max(now_s - self._since_s, 0.001)
        rows, self._rows, self._since_s = self._rows, 0, now_s
        readings = self._queries.values()
        lags = [each.lag for each in readings if each.lag is not None]
        watermarks = [each.watermark_at for each in readings if each.watermark]
        return {
            "version": VERSION,
            "state": self.state,
            "at_ms": int(now_s * 1000),
            "started_ms": self.started_ms,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "rows_per_s": round(rows / elapsed_s, 3),
            "lag": sum(lags) if lags else None,
            "batch_ms": max((each.batch_ms for each in readings), default=None),
            "watermark_ms": min(
                (int(each.timestamp() * 1000) for each in watermarks if each is not None),
                default=None,
            ),
            "late_rows": sum(each.late_rows for each in readings),
            "bad_rows": sum(each.bad_rows or 0 for each in readings),
            "sources": names_of(self.pipeline.sources.values()),
            "sinks": names_of(self.pipeline.sinks.values()),
            "bad_records": next(iter(names_of([self.pipeline.bad_records])), None),
            "error": None if self.error is None else self.error[:ERROR_CHARACTERS_MAX],
        }


def names_of(places: Iterable[Any]) -> list[str]:
    """Topics by their names or pattern; files by their place."""
    found: list[str] = []
    for each in places:
        found += getattr(each, "names", ()) or [each.label] if each is not None else []
    return found


class Publisher:
    def __init__(self, servers: str, client: Mapping[str, Any] | None = None) -> None:
        """`client`: a client's options of TLS and of a login."""
        self._client = {**(client or {}), "bootstrap_servers": servers}
        self._lock = threading.Lock()
        self._known: dict[str, Published] = {}
        self._wake = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="publishing", daemon=True)

    def began(self, pipeline: Pipeline) -> None:
        with self._lock:
            self._known[pipeline.name] = Published(pipeline, time.time())
        if not self._thread.is_alive() and not self._ended:
            self._thread.start()
        self._wake.set()

    def take(self, reading: Reading) -> None:
        with self._lock:
            found = self._known.get(reading.pipeline)
            if found is not None:
                found.take(reading)

    def end(self, error: str | None = None) -> None:
        """The last records: stopped, or failed of which error."""
        with self._lock:
            for each in self._known.values():
                each.state = "stopped" if error is None else "failed"
                each.error = error
        self._ended = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        from ottla.client.errors import KafkaError
        from ottla.client.producer.producer import Producer

        try:
            make_topic(self._client)
            producer = Producer(
                **self._client,
                client_id="ottla-pipeline-state",
                max_block_ms=CLIENT_TIMEOUT_MS,
                bootstrap_timeout_ms=CLIENT_TIMEOUT_MS,
            )
        except KafkaError as error:
            log.info("the state of the pipelines is not published: %s", error)
            return
        try:
            while True:
                self._wake.wait(PUBLISH_S)
                self._wake.clear()
                ended = self._ended
                self._send(producer)
                if ended:
                    return
        finally:
            producer.close(timeout=CLOSE_S)

    def _send(self, producer: Producer[Any, Any]) -> None:
        from ottla.client.errors import KafkaError

        with self._lock:
            records = {name: each.record(time.time()) for name, each in sorted(self._known.items())}
        try:
            for name, record in records.items():
                producer.send(TOPIC, json.dumps(record).encode(), key=name.encode())
        except KafkaError as error:
            log.info("the state of the pipelines was not published: %s", error)


def make_topic(
    client: Mapping[str, Any], configs: Iterable[tuple[str, str]] = tuple(CONFIGS.items())
) -> None:
    from ottla.client.admin import Admin, NewTopic
    from ottla.client.errors import TopicAlreadyExistsError

    with Admin(**client, bootstrap_timeout_ms=CLIENT_TIMEOUT_MS) as admin:
        if TOPIC in admin.list_topics():
            return
        try:
            admin.create_topics([NewTopic(TOPIC, 1, -1, topic_configs=dict(configs))])
        except TopicAlreadyExistsError:
            pass

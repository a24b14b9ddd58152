"""A queue for people who want a queue: `put`, `get`, `done`, `retry`, `dead`.

    queue = Queue("jobs", bootstrap_servers="localhost:9092")
    queue.put(b"resize 17.png")
    message = queue.get()
    resize(message.value)
    queue.done(message)

Every message goes to one of those who ask for one. Whoever neither finishes it nor gives it back,
because the process died for instance, loses it after a while, and another one gets it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from queue import Empty
from types import TracebackType
from typing import Any, Generic, Self, cast

from ..admin import Admin, ConfigResource, NewTopic
from ..errors import KafkaError, error_class
from ..producer import Producer
from ..structs import K, V
from .share_consumer import ShareConsumer
from .structs import AcknowledgeType, ShareRecord

TOPIC_ALREADY_EXISTS = error_class(36)
POLL_MS = 1000
# Where messages go that nobody can process, and what is noted on them.
DEAD_SUFFIX = ".dead"
DEAD_TOPIC_HEADER = "queue.topic"
DEAD_REASON_HEADER = "queue.reason"
DEAD_DELIVERIES_HEADER = "queue.deliveries"
DEAD_PLACE_HEADER = "queue.place"
OUR_HEADERS = {DEAD_TOPIC_HEADER, DEAD_REASON_HEADER, DEAD_DELIVERIES_HEADER, DEAD_PLACE_HEADER}


def group_of(topic: str) -> str:
    """The share group behind the queue of a topic, if no other is given."""
    return f"queue-{topic}"


class Queue(Generic[K, V]):
    """One topic as a queue; belongs to one thread."""

    def __init__(
        self,
        topic: str,
        *,
        group_id: str | None = None,
        partitions: int = -1,
        key_serializer: object = None,
        value_serializer: object = None,
        key_deserializer: object = None,
        value_deserializer: object = None,
        **options: object,
    ) -> None:
        """`options` are those of every client, `bootstrap_servers` first. The topic is made if
        there is none, with this number of `partitions` (-1: what the broker has as its default).
        """
        self.topic = topic
        self.group_id = group_id or group_of(topic)
        self._options = options
        self._partitions = partitions
        self._serializers = {"key_serializer": key_serializer, "value_serializer": value_serializer}
        self._deserializers = {
            "key_deserializer": key_deserializer,
            "value_deserializer": value_deserializer,
        }
        self._producer: Producer[Any, Any] | None = None
        self._consumer: ShareConsumer[K, V] | None = None
        self._waiting: deque[ShareRecord[K, V]] = deque()
        self._prepare()

    def _prepare(self) -> None:
        """The topic, and a group that begins at its first message."""
        with Admin(**cast(Any, self._options)) as admin:
            try:
                admin.create_topics([NewTopic(self.topic, self._partitions, -1)])
            except TOPIC_ALREADY_EXISTS:
                pass
            configs = {"share.auto.offset.reset": "earliest"}
            admin.alter_configs([ConfigResource("group", self.group_id, configs)])

    def put(
        self,
        value: Any,
        *,
        key: Any = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Add a message; returns when it is safe."""
        self._send(self.topic, value, key, list(headers))

    def get(self, timeout_s: float | None = None) -> ShareRecord[K, V]:
        """The next message, waiting for it; raises `queue.Empty` when none comes in time."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._waiting:
            left_ms: float = POLL_MS
            if deadline is not None:
                left_ms = max(min(POLL_MS, (deadline - time.monotonic()) * 1000), 0)
            # One at a time: what waits here would use up its time.
            self._waiting.extend(self._reader().poll_more(left_ms))
            if not self._waiting and deadline is not None and time.monotonic() >= deadline:
                raise Empty(f"no message in {self.topic!r} within {timeout_s} s")
        return self._waiting.popleft()

    def done(self, message: ShareRecord[K, V]) -> None:
        """It is processed: nobody gets it again once this has returned."""
        self._say(message, AcknowledgeType.ACCEPT)

    def retry(self, message: ShareRecord[K, V]) -> None:
        """It could not be processed now: somebody gets it again, if it has attempts left."""
        self._say(message, AcknowledgeType.RELEASE)

    def keep(self, message: ShareRecord[K, V]) -> None:
        """It takes longer: hold it for another while."""
        self._say(message, AcknowledgeType.RENEW)

    def dead(self, message: ShareRecord[K, V], reason: str = "") -> None:
        """Nobody can process it: it is put into `<topic>.dead`, with the reason, and goes."""
        place = f"{message.topic}-{message.partition}@{message.offset}"
        notes: list[tuple[str, bytes | None]] = [
            (DEAD_TOPIC_HEADER, message.topic.encode()),
            (DEAD_PLACE_HEADER, place.encode()),
            (DEAD_DELIVERIES_HEADER, b"%d" % message.delivery_count),
            (DEAD_REASON_HEADER, reason.encode()),
        ]
        self._send(self.topic + DEAD_SUFFIX, message.value, message.key, [*message.headers, *notes])
        self._say(message, AcknowledgeType.REJECT)

    def __iter__(self) -> Iterator[ShareRecord[K, V]]:
        """Messages for ever; `done`, `retry` or `dead` is up to the caller."""
        while True:
            yield self.get()

    def close(self) -> None:
        """Give back what was not finished, and end."""
        if self._consumer is not None:
            self._consumer.release_held()
            self._consumer.close()
        if self._producer is not None:
            self._producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _say(self, message: ShareRecord[K, V], kind: AcknowledgeType) -> None:
        consumer = self._reader()
        consumer.acknowledge(message, kind)
        for problem in consumer.commit_sync().values():
            if problem is not None:
                raise KafkaError(
                    f"offset {message.offset} of {message.topic}-{message.partition}: {problem}\n"
                    "It will be delivered again: it was held for longer than the group's "
                    "share.record.lock.duration.ms, or the broker could not write it down"
                ) from problem

    def _send(
        self, topic: str, value: Any, key: Any, headers: list[tuple[str, bytes | None]]
    ) -> None:
        if self._producer is None:
            options = {name: value for name, value in self._serializers.items() if value}
            self._producer = Producer(**cast(Any, {**self._options, **options}))
        self._producer.send(topic, value, key=key, headers=headers).get(60)

    def _reader(self) -> ShareConsumer[K, V]:
        if self._consumer is None:
            options = {name: value for name, value in self._deserializers.items() if value}
            self._consumer = ShareConsumer(
                self.topic,
                group_id=self.group_id,
                share_acknowledgement_mode="explicit",
                share_acquire_mode="record_limit",
                max_poll_records=1,
                **cast(Any, {**self._options, **options}),
            )
        return self._consumer

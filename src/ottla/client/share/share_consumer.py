"""The share consumer: a member of a share group, which processes topics as queues (KIP-932).

The members of a group share the records of a partition, not the partitions. Each record is
delivered to one of them, and again if nobody has accepted it in time.

    with ShareConsumer("jobs", bootstrap_servers="localhost:9092", group_id="workers") as consumer:
        for record in consumer:
            print(record.value)  # accepted once more records are asked for

It belongs to one thread of the caller; the group's heartbeats go on in the background.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Generic, Self

from ..argument_checks import check_names, check_properties
from ..consumer.deserializers import Deserializers
from ..consumer.wakeup_signal import Signal
from ..errors import IllegalStateError, KafkaConfigurationError, KafkaError
from ..network.cluster_client import Client
from ..structs import K, TopicPartition, V
from .broker_session import Place
from .delivery import Deliveries
from .fetcher import ShareFetcher
from .membership import Membership
from .options import SHARE_CONSUMER, read_options
from .structs import AcknowledgeType, Batch, ShareRecord

log = logging.getLogger("ottla.client")

STEP_S_MAX = 0.5  # how long a poll waits at most without a look around
CLOSE_TIMEOUT_MS = 5_000

Outcomes = dict[TopicPartition, KafkaError | None]
CommitListener = Callable[[dict[TopicPartition, set[int]], KafkaError | None], object]


class ShareConsumer(Generic[K, V]):
    """Processes records that a group shares."""

    DEFAULT_CONFIG: Mapping[str, object] = {
        option.name: option.default for option in SHARE_CONSUMER
    }

    def __init__(
        self,
        *topics: str | Mapping[str, object],
        config: Mapping[str, object] | None = None,
        **options: object,
    ) -> None:
        """Topics to subscribe to, and options; `{"bootstrap.servers": …}` may come first."""
        check_properties(config, "ShareConsumer")
        properties = dict(config or {})
        names: list[str] = []
        for each in topics:
            if isinstance(each, Mapping):
                properties.update(each)
            else:
                names.append(each)
        self.config = read_options(options, properties)
        if not self.config["group_id"]:
            raise KafkaConfigurationError(
                "ShareConsumer: group_id is missing\nTry: group_id='workers'"
            )
        self._closed = False
        self._unseen: deque[ShareRecord[K, V]] = deque()  # polled by an iteration, not yielded
        self._explicit = self.config["share_acknowledgement_mode"] == "explicit"
        self._topics: set[str] = set()
        self._signal = Signal()
        self._deliveries = Deliveries(
            Deserializers(self.config["key_deserializer"], self.config["value_deserializer"]),
            check_crcs=self.config["check_crcs"],
        )
        self._listener: CommitListener | None = None
        self._committed: list[tuple[dict[TopicPartition, set[int]], KafkaError | None]] = []
        self._client = Client(self.config, "share-consumer")
        self._membership = Membership(self._client, self._assigned)
        self._fetcher = ShareFetcher(self._client, self._membership, self._signal.set)
        try:
            self._client.bootstrap()
        except BaseException:
            self._client.close()
            raise
        if names:
            self.subscribe(names)

    def _assigned(self) -> None:
        self._fetcher.assigned()

    # What to read

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics, and no others."""
        self._check_open()
        check_names(topics, "subscribe")
        names = sorted(set(topics))
        self._topics = set(names)
        self._client.metadata.track(names)
        self._client.refresh(names)
        self._client.call_soon(self._membership.subscribe, names)

    def unsubscribe(self) -> None:
        """Leave the group; what is held is for others."""
        self._check_open()
        self._topics = set()
        self._deliveries.release_all()
        self.commit_sync()
        self._client.call_soon(self._unsubscribe)

    def _unsubscribe(self) -> None:
        self._fetcher.close()
        self._membership.leave()

    def subscription(self) -> set[str]:
        """The topics subscribed to."""
        return set(self._topics)

    # Reading

    def poll(self, timeout_ms: float = 0) -> list[ShareRecord[K, V]]:
        """Records that are there, or that come within `timeout_ms`.

        In implicit mode what the last poll returned is accepted; in explicit mode all of it must
        have been acknowledged.
        """
        self._check_open()
        if not self._explicit:
            self._accept_seen()
        elif self._deliveries.has_unsaid:
            raise IllegalStateError(
                "not all records of the last poll were acknowledged\n"
                "Try: acknowledge(record, AcknowledgeType.RELEASE) for those not processed"
            )
        return self.poll_more(timeout_ms)

    def poll_more(self, timeout_ms: float = 0) -> list[ShareRecord[K, V]]:
        """As `poll`, and nothing is said of the records that the caller has already."""
        self.commit_async()
        deadline = time.monotonic() + timeout_ms / 1000
        if self._unseen:
            unseen, self._unseen = list(self._unseen), deque()
            return unseen
        while True:
            seen = self._signal.count
            self._raise_problem()
            self._call_listener()
            found = self._take()
            if found:
                return found
            self._client.call_soon(self._fetcher.fetch)
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return []
            self._signal.wait(seen, min(left_s, STEP_S_MAX))

    def _take(self) -> list[ShareRecord[K, V]]:
        found: list[ShareRecord[K, V]] = []
        arrived = self._fetcher.arrived
        while arrived:
            found += self._deliveries.open(arrived.popleft())
        return found

    def __iter__(self) -> Iterator[ShareRecord[K, V]]:
        """One record after the other; ends when none came within `consumer_timeout_ms`."""
        while not self._closed:
            limit_ms: float = self.config["consumer_timeout_ms"]
            records = self.poll(min(limit_ms, 1000 if limit_ms == math.inf else limit_ms))
            if not records and limit_ms != math.inf:
                return
            self._unseen.extend(records)
            while self._unseen:
                yield self._unseen.popleft()

    def _accept_seen(self) -> None:
        """Accept what the caller has had; an iteration may have left some unseen."""
        self._deliveries.accept_all({(each.topic_partition, each.offset) for each in self._unseen})

    # Acknowledging

    def acknowledge(
        self,
        record: ShareRecord[K, V],
        acknowledge_type: AcknowledgeType = AcknowledgeType.ACCEPT,
    ) -> None:
        """Say what became of a record; it is sent with the next poll or commit."""
        self._check_open()
        kind = AcknowledgeType(acknowledge_type)
        if not self._deliveries.acknowledge(record.topic_partition, record.offset, kind):
            raise IllegalStateError(
                f"offset {record.offset} of {record.topic}-{record.partition} is not held by this "
                "consumer: it was acknowledged already, or polled by another one"
            )

    def commit_sync(self, timeout_ms: float | None = None) -> Outcomes:
        """Send what was acknowledged and wait for the answers: an error or None by partition.

        In implicit mode all that was polled is accepted first.
        """
        self._check_open()
        if not self._explicit:
            self._accept_seen()
        waiting = self._commit()
        outcomes: Outcomes = {}
        for partition, future in waiting:
            problem = self._client.wait(future, timeout_ms or self.config["request_timeout_ms"])
            outcomes[partition] = outcomes.get(partition) or problem
        self._call_listener()
        return outcomes

    def commit_async(self) -> None:
        """Send what was acknowledged; the listener gets to know the answers in a later poll."""
        self._check_open()
        self._commit()

    def _commit(self) -> list[tuple[TopicPartition, Future[KafkaError | None]]]:
        waiting = []
        for held, batches in self._deliveries.take():
            future: Future[KafkaError | None] = Future()
            place = (held.topic_id, held.partition.partition)
            self._client.call_soon(self._say, held.partition, place, batches, future)
            waiting.append((held.partition, future))
        return waiting

    def _say(
        self,
        partition: TopicPartition,
        place: Place,
        batches: list[Batch],
        future: Future[KafkaError | None],
    ) -> None:
        offsets = {each for first, last, _ in batches for each in range(first, last + 1)}

        def answer(problem: KafkaError | None) -> None:
            if self._listener is not None:
                self._committed.append(({partition: offsets}, problem))
            elif problem is not None:
                log.warning("%s: an acknowledgement was refused: %s", partition, problem)
            future.set_result(problem)
            self._signal.set()

        self._fetcher.say(place, batches, answer)

    def set_acknowledgement_commit_callback(self, callback: CommitListener | None) -> None:
        """Called in `poll` and `commit_sync` with offsets by partition, and an error or None."""
        self._listener = callback

    def _call_listener(self) -> None:
        while self._committed:
            offsets, problem = self._committed.pop(0)
            if self._listener is not None:
                self._listener(offsets, problem)

    def _raise_problem(self) -> None:
        for part in (self._membership, self._fetcher):
            problem, part.problem = part.problem, None
            if problem is not None:
                raise problem

    def release_held(self) -> None:
        """Give back everything that was polled and not acknowledged, with the next commit."""
        self._unseen.clear()
        self._deliveries.release_all()

    # The end

    def close(self, timeout_ms: float = CLOSE_TIMEOUT_MS) -> None:
        """Send what was acknowledged, give back the rest, leave the group; may be called twice."""
        if self._closed:
            return
        try:
            if not self._explicit:
                self._accept_seen()
                self._deliveries.release_all()
            self._commit()
            ended: Future[object] = Future()
            self._client.call_soon(self._end, ended)
            self._client.wait(ended, timeout_ms)
        except KafkaError as problem:
            log.warning("closing: %s", problem)
        finally:
            self._closed = True
            self._client.close()

    def _end(self, ended: Future[object]) -> None:
        """End the sessions, then leave the group."""

        def left(_: Future[object]) -> None:
            ended.set_result(None)

        def sessions_ended(_: object) -> None:
            self._membership.leave().add_done_callback(left)

        self._fetcher.close().add_done_callback(sessions_ended)

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("the share consumer is closed\nTry: make a new one")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and not self._closed:
            self._deliveries.release_all()  # what the caller was at is not processed
        self.close()

"""The consumer: reads topics, alone or as a member of a group.

The class has kafka-python's methods and behaviours. It belongs to one thread of the caller (poll,
listener and callbacks run there); a background thread fetches ahead, keeps the membership alive
and finds positions. What goes wrong there is raised by the next `poll`.

    with Consumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
        for record in consumer:
            print(record.value)
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import chain
from typing import Any, Generic, TypeVar

from ..argument_checks import check_properties, check_timeout
from ..codec.columns import RecordColumns
from ..errors import IllegalStateError, KafkaError, KafkaTimeoutError
from ..network.cluster_client import Client
from ..structs import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    K,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
    V,
)
from ..typed_config import CommitCallback
from .committer import Committer
from .deserializers import Deserializers
from .fetcher import Fetcher
from .interceptors import ConsumerInterceptors
from .list_offsets import BEGINNING, END, Offsets
from .memberships import Membership, handover, membership
from .offset_commits import Commits, offsets_to_commit
from .options import CONSUMER, read_options
from .pending_errors import PendingErrors
from .positions import Positions
from .rebalance import Rebalance
from .reconciliation import Reconciliation
from .record_delivery import RecordDelivery
from .subscription import Listener, PartitionState, Subscription, check_partition
from .wakeup_signal import Signal

log = logging.getLogger("ottla.client")

T = TypeVar("T")
STEP_S_MAX = 0.5  # how long a poll waits at most without a look around
LEAVE_TIMEOUT_MS = 2_000


class Consumer(Generic[K, V]):
    """Reads records."""

    DEFAULT_CONFIG: Mapping[str, object] = {option.name: option.default for option in CONSUMER}

    def __init__(
        self,
        *topics: str | Mapping[str, object],
        config: Mapping[str, object] | None = None,
        **options: object,
    ) -> None:
        """Topics to subscribe to, and options; `{"bootstrap.servers": …}` may come first."""
        check_properties(config, "Consumer")
        properties = dict(config or {})
        names: list[str] = []
        for each in topics:
            if isinstance(each, Mapping):
                properties.update(each)
            else:
                names.append(each)
        self.config = read_options(options, properties)
        self._closed = False
        self._signal = Signal()
        self._subscription = Subscription(exclude_internal=self.config["exclude_internal_topics"])
        self._errors = PendingErrors(self._subscription)
        if names:
            self._subscription.subscribe(names, None, None)
        self._deserializers = Deserializers(
            self.config["key_deserializer"], self.config["value_deserializer"]
        )
        self._interceptors = ConsumerInterceptors(self.config["interceptors"], self.config)
        self._delivery = RecordDelivery(
            self._subscription, self._deserializers, check_crcs=self.config["check_crcs"]
        )
        self._iterator: Iterator[ConsumerRecord[K, V]] | None = None
        self._client = Client(self.config, "consumer")
        try:
            self._start()
            self._client.bootstrap()
        except BaseException:
            self._client.close()
            raise
        if names:
            self._subscription_changed()

    def _start(self) -> None:
        client, subscription = self._client, self._subscription
        isolation_level = int(self.config["isolation_level"] == "read_committed")
        self._offsets = Offsets(client, isolation_level)
        self._group: Membership | None = None
        self._commits: Commits | None = None
        if self.config["group_id"] is not None:
            self._group = membership(client, subscription, self._signal.set)
            self._commits = Commits(
                client,
                self.config["group_id"],
                self._identity,
                self._group.on_group_error,
                stable=self.config["isolation_level"] == "read_committed",
            )
        self._positions = Positions(
            client, subscription, self._offsets, self._commits, self._found, self._fail
        )
        self._fetcher = Fetcher(client, subscription, self._positions, self._signal.set, self._fail)
        client.metadata.listeners.append(lambda cluster: self._found())
        self._committer = Committer(
            self._commits, subscription, self.config, self._interceptors, self._signal.set
        )
        self._rebalance: Rebalance | Reconciliation | None = None
        if self._group is not None:
            self._rebalance = handover(
                client, self._group, subscription, self._committer.before_rebalance, self._wake
            )

    # What to read

    def subscribe(
        self,
        topics: Sequence[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: Listener | None = None,
    ) -> None:
        """Read these topics, or those that match a pattern, sharing them with the group."""
        self._check_open()
        if self.config["group_id"] is None and (topics or pattern):
            log.debug("subscribed without a group: all partitions are read")
        self._delivery.end()
        self._subscription.subscribe(topics, pattern, listener)
        self._subscription_changed()

    def _subscription_changed(self) -> None:
        metadata = self._client.metadata
        metadata.all_topics = self._subscription.pattern is not None
        metadata.topics = set(self._subscription.topics)
        if self._group is not None:
            self._group.rejoin = True
        else:
            self._client.refresh()
        self._without_group_at = 0.0

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without the group's help."""
        self._check_open()
        wanted = [check_partition(each) for each in partitions]
        if not wanted:
            self.unsubscribe()
            return
        self._delivery.end()
        self._committer.commit_now()
        self._subscription.assign_by_user(wanted)
        self._client.metadata.topics = set(self._subscription.topics)
        self._client.refresh()
        self._wake()

    def unsubscribe(self) -> None:
        """Read nothing; leave the group."""
        self._check_open()
        self._delivery.end()
        self._iterator = None
        self._committer.before_rebalance()
        if self._rebalance is not None and self._group is not None:
            if self._subscription.managed:
                self._rebalance.leave()
            self._client.wait(self._group.leave("the consumer unsubscribed"), LEAVE_TIMEOUT_MS)
        self._subscription.forget()
        self._client.metadata.all_topics = False
        self._client.metadata.topics = set()

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read now."""
        return set(self._subscription.states)

    def subscription(self) -> set[str] | None:
        """The topics subscribed to; None if there are none."""
        if not self._subscription.managed:
            return None
        return set(self._subscription.topics)

    # Reading

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None, update_offsets: bool = True
    ) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """Records by partition: what is there, or what comes within `timeout_ms`."""
        check_timeout(timeout_ms)
        most = self.config["max_poll_records"] if max_records is None else max_records
        if not isinstance(most, int) or isinstance(most, bool):
            raise TypeError(f"max_records must be a whole number (got {max_records!r})")
        if most <= 0:
            raise ValueError(f"max_records must be 1 or more (got {most})")
        self._check_open()
        self._delivery.end()
        self._iterator = None
        found = self._wait_for(
            lambda: self._delivery.take(most), time.monotonic() + timeout_ms / 1000
        )
        return self._interceptors.on_consume(found) if found else {}

    def poll_batches(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> list[RecordColumns]:
        """Whole batches by column (deserializers and interceptors are left out), one entry for
        each partition; no new batch is begun after `max_records`."""
        check_timeout(timeout_ms)
        self._check_open()
        self._delivery.end()
        self._iterator = None
        deadline = time.monotonic() + timeout_ms / 1000
        return self._wait_for(lambda: self._delivery.take_columns(max_records), deadline) or []

    def _wait_for(self, take: Callable[[], T | None], deadline: float) -> T | None:
        """What `take` finds, waiting for it until the deadline."""
        while True:
            seen = self._signal.count
            self._look_around()
            found = take()
            if found:
                self._fetcher.wake_if_low()
                return found
            now = time.monotonic()
            if now >= deadline or self._closed:
                return None
            self._fetcher.wake()
            self._signal.wait(seen, min(deadline - now, STEP_S_MAX))

    def _look_around(self) -> None:
        """What every poll does besides: the group, commits, problems of the background."""
        if not self._subscription.subscribed:
            raise IllegalStateError(
                "nothing to read: no topics and no partitions\n"
                "Try: consumer.subscribe(['orders']) or consumer.assign([TopicPartition(…)])"
            )
        if self._subscription.managed:
            if self._rebalance is not None:
                self._rebalance.step()
            else:
                self._take_all()
        self._committer.step()
        if self._positions.validation.forks:
            self._positions.validation.settle()
        self._raise_pending()

    def _raise_pending(self) -> None:
        """Raise what the background thread found, if it still holds."""
        if self._errors and (error := self._errors.take()) is not None:
            raise error

    def _take_all(self) -> None:
        """Subscribed without a group: all partitions are this consumer's."""
        cluster = self._client.cluster
        if self._subscription.pattern is not None:
            self._subscription.topics = self._subscription.matching(cluster)
        now = time.monotonic()
        wanted = [
            TopicPartition(topic, each.partition)
            for topic in sorted(self._subscription.topics)
            if topic in cluster.topics
            for each in cluster.topics[topic].partitions
        ]
        if wanted != list(self._subscription.states):
            self._subscription.replace(wanted)
            self._wake()
        if not wanted and now >= self._without_group_at:
            self._without_group_at = now + STEP_S_MAX
            self._client.refresh()

    # One by one

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        if self._iterator is None:
            self._iterator = chain.from_iterable(self._runs())
        return self._iterator

    def __next__(self) -> ConsumerRecord[K, V]:
        return next(iter(self))

    def _runs(self) -> Iterator[Iterator[ConsumerRecord[K, V]]]:
        """Records of one partition after the other; the next run is wanted when one is used up."""
        timeout_ms = self.config["consumer_timeout_ms"]
        while not self._closed:
            timeout_s = math.inf if timeout_ms < 0 else timeout_ms / 1000
            try:
                records = self._wait_for(self._begin, time.monotonic() + timeout_s)
            except BaseException:
                self._iterator = None  # this one is over; the next iteration tries again
                raise
            if records is None:
                self._iterator = None
                return
            yield records
            self._delivery.end()

    def _begin(self) -> Iterator[ConsumerRecord[K, V]] | None:
        """The next records of one partition, to iterate over."""
        records = self._delivery.begin(self.config["max_poll_records"])
        if records is not None and self._interceptors.chain:
            return self._interceptors.each(records)
        return records

    # Where to read

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Read on from this offset; one with a leader epoch (as `committed` gives it, or a record
        has it) is looked at first: the log may have been cut since."""
        epoch = -1
        if isinstance(offset, OffsetAndMetadata):
            offset, _, epoch = offset
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            raise ValueError(f"offset must be a whole number of 0 or more (got {offset!r})")
        self._check_open()
        self._move(self._subscription.state(partition), offset, None, epoch)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read on from the oldest record there is; of all assigned partitions if none is named."""
        self._seek_to("earliest", partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read on from the end; of all assigned partitions if none is named."""
        self._seek_to("latest", partitions)

    def _seek_to(self, reset: str, partitions: tuple[TopicPartition, ...]) -> None:
        self._check_open()
        states = [self._subscription.state(each) for each in partitions]
        if not partitions:
            states = list(self._subscription.states.values())
            if not states:
                raise ValueError("no partitions are assigned\nTry: poll() once before seeking")
        for state in states:
            self._move(state, None, reset)

    def _move(
        self, state: PartitionState, offset: int | None, reset: str | None, epoch: int = -1
    ) -> None:
        self._delivery.end()
        with self._subscription.lock:
            state.move(offset, reset=reset, epoch=epoch)
        self._wake()

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int | None:
        """The offset of the record that comes next."""
        self._check_open()
        self._delivery.settle()
        state = self._subscription.state(partition)
        state.held = False
        if timeout_ms is None:
            timeout_ms = self.config["request_timeout_ms"]
        deadline = time.monotonic() + timeout_ms / 1000
        while state.position is None:
            seen = self._signal.count
            self._fetcher.wake()
            self._raise_pending()
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise KafkaTimeoutError(
                    f"no position for {partition.topic}-{partition.partition} "
                    f"within {timeout_ms:.0f} ms"
                )
            if state.position is None:
                self._signal.wait(seen, min(left_s, STEP_S_MAX))
        return state.position

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these until `resume`; they stay assigned."""
        self._delivery.end()
        for each in partitions:
            self._subscription.state(each).paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with these."""
        for each in partitions:
            self._subscription.state(each).paused = False
        self._wake()

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return {each for each, state in self._subscription.states.items() if state.paused}

    # Commits

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit what was returned so far, or these offsets (each the next to read); waits."""
        self._check_group()
        self._delivery.settle()
        self._committer.commit(None if offsets is None else offsets_to_commit(offsets), timeout_ms)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        callback: CommitCallback | None = None,
    ) -> Future[None]:
        """The same without waiting or retrying; `callback(offsets, error or None)` is called by a
        later poll or commit."""
        self._check_group()
        self._delivery.settle()
        return self._committer.commit_async(
            None if offsets is None else offsets_to_commit(offsets), callback
        )

    # How far it is

    def highwater(self, partition: TopicPartition) -> int | None:
        """The end of the partition as of the last fetch; None before the first."""
        return self._subscription.state(partition).high_watermark

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets this consumer is behind, as of the last fetch; None if unknown."""
        self._delivery.settle()
        state = self._subscription.state(partition)
        committed_only = self.config["isolation_level"] == "read_committed"
        end = state.last_stable_offset if committed_only else state.high_watermark
        if end is None or state.position is None:
            return None
        return max(0, end - state.position)

    # Offsets of the log

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each."""
        return self._list_offsets(partitions, BEGINNING, timeout_ms)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset that the next record of each will have."""
        return self._list_offsets(partitions, END, timeout_ms)

    def _list_offsets(
        self, partitions: Iterable[TopicPartition], what: int, timeout_ms: float | None
    ) -> dict[TopicPartition, int]:
        self._check_open()
        wanted = {check_partition(each): what for each in partitions}
        found = self._offsets.find(wanted, timeout_ms)
        return {each: found[each].offset for each in wanted}

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time (ms) in each; None if there is none."""
        self._check_open()
        wanted = {}
        for partition, stamp in timestamps.items():
            if int(stamp) < 0:
                raise ValueError(f"a time must be 0 or more (got {stamp} for {partition})")
            wanted[check_partition(partition)] = int(stamp)
        found = self._offsets.find(wanted, timeout_ms)
        return {each: found[each] if found[each].offset >= 0 else None for each in wanted}

    # The group

    def committed(
        self, partition: TopicPartition, metadata: bool = False, timeout_ms: float | None = None
    ) -> Any:
        """The offset that the group has committed (with its metadata if wanted), or None."""
        commits = self._check_group()
        found = commits.committed([check_partition(partition)], timeout_ms).get(partition)
        return found if metadata or found is None else found.offset

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this consumer is in its group: for `send_offsets_to_transaction`."""
        self._check_group()
        return self._identity()

    def _identity(self) -> ConsumerGroupMetadata:
        assert self._group is not None
        if not self._subscription.managed:
            return ConsumerGroupMetadata(self._group.group_id)
        return self._group.identity()

    # The cluster

    def topics(self) -> set[str]:
        """The names of all topics that this client may see."""
        self._check_open()
        metadata = self._client.metadata
        before, metadata.all_topics = metadata.all_topics, True
        try:
            cluster = self._client.wait(self._client.refresh(), self.config["request_timeout_ms"])
        finally:
            metadata.all_topics = before
        return {name for name, topic in cluster.topics.items() if not topic.error_code}

    def partitions_for_topic(self, topic: str) -> set[int]:
        """The numbers of a topic's partitions; empty if there is no such topic."""
        self._check_open()
        known = self._client.cluster.topics.get(topic)
        if known is None or known.error_code:
            if topic not in self.topics():
                return set()
            known = self._client.cluster.topics.get(topic)
        return set() if known is None else {each.partition for each in known.partitions}

    def bootstrap_connected(self) -> bool:
        """Whether a broker has answered."""
        return bool(self._client.cluster.brokers)

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = False) -> None:
        """Wait for the first metadata of the cluster, or for newer metadata."""
        if refresh or not self._client.cluster.brokers:
            self._client.bootstrap(timeout_ms)

    def metrics(self, raw: bool = False) -> dict[str, dict[str, float]]:
        """Counts and times under the names of Kafka's metrics."""
        self._delivery.settle()
        prefix = self.config["metric_group_prefix"]
        lags = [self.lag(each) for each in self._subscription.states]
        return {
            f"{prefix}-fetch-manager-metrics": {
                "records-consumed-total": float(self._delivery.record_count),
                "bytes-consumed-total": float(self._fetcher.fetched_bytes),
                "fetch-total": float(self._fetcher.fetch_count),
                "records-lag-max": float(max((lag for lag in lags if lag is not None), default=0)),
            },
            f"{prefix}-coordinator-metrics": {
                "assigned-partitions": float(len(self._subscription.states)),
                "commit-total": float(self._committer.commit_count),
                "rebalance-total": float(self._group.rebalance_count if self._group else 0),
            },
        }

    # Closing

    def __enter__(self) -> Consumer[K, V]:
        return self

    def __exit__(self, kind: object, problem: object, trace: object) -> None:
        # Nobody knows whether the record at hand was dealt with when its loop raised.
        self.close(autocommit=kind is None)

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Commit (if that is automatic), leave the group, end all connections. Never hangs."""
        if self._closed:
            return
        if timeout_ms is None:
            timeout_ms = self.config["request_timeout_ms"]
        self._delivery.settle()
        try:
            if not self._client.closed:
                self._leave(autocommit, timeout_ms)
        finally:
            self._closed = True
            self._client.close()
            self._committer.call_back()
            self._interceptors.close()
            self._deserializers.close()

    def _leave(self, autocommit: bool, timeout_ms: float) -> None:
        if autocommit:
            self._committer.before_rebalance(timeout_ms)
        try:
            if self._rebalance is not None and self._subscription.managed:
                self._rebalance.leave()
        finally:
            if self._group is not None:
                try:
                    self._client.wait(self._group.leave(), min(timeout_ms, LEAVE_TIMEOUT_MS))
                except KafkaError as problem:
                    log.debug("the group did not take the leave of this member: %s", problem)

    # Preconditions

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("the consumer is closed\nTry: make a new one")
        if self._client.loop.broken is not None:
            raise IllegalStateError(self._client.loop.broken)

    def _check_group(self) -> Commits:
        self._check_open()
        if self._commits is None:
            raise IllegalStateError(
                "commits need a group\nTry: Consumer(…, group_id='my-group'), or keep offsets "
                "yourself and seek()"
            )
        return self._commits

    # For the background thread

    def _wake(self) -> None:
        self._fetcher.wake()

    def _found(self) -> None:
        """A position was found, or could not be; or the cluster has changed (background thread)."""
        self._signal.set()
        self._fetcher.wake()

    def _fail(self, error: KafkaError, states: Iterable[PartitionState] = ()) -> None:
        """Let the next poll raise this, if it still holds for one of the partitions that it is
        about (background thread)."""
        self._errors.add(error, states)
        self._signal.set()


KafkaConsumer = Consumer

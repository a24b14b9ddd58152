"""What a consumer can be asked: offsets of the log, how far it is, the cluster, numbers about it.

The half of the consumer that changes nothing; consumer.py is the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import IllegalStateError
from ..network.cluster_client import Client
from ..structs import ConsumerGroupMetadata, OffsetAndTimestamp, TopicPartition
from .committer import Committing
from .fetcher import Fetcher
from .group_membership import Group
from .list_offsets import BEGINNING, END, Offsets
from .offset_commits import Commits
from .record_delivery import Taker
from .subscription import Subscription, check_partition


class Questions:
    """The questions; the parts they are put to are made by the consumer."""

    config: dict[str, Any]
    _closed: bool
    _client: Client
    _subscription: Subscription
    _taker: Taker
    _offsets: Offsets
    _fetcher: Fetcher
    _committing: Committing
    _group: Group | None
    _commits: Commits | None

    # How far it is

    def highwater(self, partition: TopicPartition) -> int | None:
        """The end of the partition as the last fetch told; None before the first."""
        return self._subscription.state(partition).high_watermark

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets this consumer is behind, as the last fetch told; None if unknown."""
        self._taker.settle()
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
        return self._identity()

    def _identity(self) -> ConsumerGroupMetadata:
        if self._group is None:
            return ConsumerGroupMetadata(self.config["group_id"])
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
        """Wait for the first picture of the cluster, or a new one."""
        if refresh or not self._client.cluster.brokers:
            self._client.bootstrap(timeout_ms)

    def metrics(self, raw: bool = False) -> dict[str, dict[str, float]]:
        """Counts and times under the names of Kafka's metrics."""
        self._taker.settle()
        prefix = self.config["metric_group_prefix"]
        lags = [self.lag(each) for each in self._subscription.states]
        return {
            f"{prefix}-fetch-manager-metrics": {
                "records-consumed-total": float(self._taker.record_count),
                "bytes-consumed-total": float(self._fetcher.fetched_bytes),
                "fetch-total": float(self._fetcher.fetch_count),
                "records-lag-max": float(max((lag for lag in lags if lag is not None), default=0)),
            },
            f"{prefix}-coordinator-metrics": {
                "assigned-partitions": float(len(self._subscription.states)),
                "commit-total": float(self._committing.commit_count),
                "rebalance-total": float(self._group.rebalance_count if self._group else 0),
            },
        }

    # May it be asked?

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

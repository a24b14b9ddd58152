"""The driver's requests to the brokers: which partitions there are, and their offsets.

One client for each reader, made when first needed. A request that fails is repeated as
`fetchOffset.numRetries` and `fetchOffset.retryIntervalMs` say. While no broker answers at all, it
is waited for as long as `brokerTimeout` says, with a warning now and then; a first broker is waited
for only as long as the client's own `bootstrap.timeout.ms`. Each answer is about the partitions
that exist now, so new partitions and new topics of a pattern are found.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ottla.client.consumer.list_offsets import Offsets
from ottla.client.consumer.options import read_options
from ottla.client.errors import KafkaError
from ottla.client.network.cluster_client import Client, ConsumerClient
from ottla.client.network.cluster_metadata import topic_trouble
from ottla.client.structs import TopicPartition

from ..broker_wait import BrokerAway, BrokerWait
from .offsets import PartitionOffsets, names
from .option_values import EARLIEST, LATEST
from .options import Limit, OptionError, SourceOptions

log = logging.getLogger("ottla.spark")
T = TypeVar("T")


class MissingTopic(KafkaError):
    """A topic that was named is not there."""


class OffsetLookup:
    """Partitions and offsets of what a reader subscribes to. One thread at a time."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._client: ConsumerClient | None = None
        self._offsets: Offsets | None = None
        self._known: set[TopicPartition] = set()
        self._known_until = 0.0

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    # Results

    def partitions(self) -> set[TopicPartition]:
        """The partitions there are now."""
        return self._retrying(self._partitions)

    def earliest(self, partitions: Iterable[TopicPartition] | None = None) -> PartitionOffsets:
        """The first offsets: of all partitions, or of those of these that are still there."""
        return self._listed(EARLIEST, partitions)

    def latest(self, known: Mapping[TopicPartition, int] | None = None) -> PartitionOffsets:
        """The ends of all partitions. An end before a `known` offset is requested again: right
        after an election a broker may not know better yet."""
        found = self._retrying(self._latest)
        for _ in range(self.options.retries - 1):
            wrong = {each for each, end in found.items() if end < (known or {}).get(each, 0)}
            if not wrong:
                break
            log.warning(
                "%s ended earlier than was read already: repeating the request", names(wrong)
            )
            time.sleep(self.options.retry_interval_ms / 1000)
            found = self._retrying(self._latest)
        return found

    def resolved(self, limit: Limit) -> PartitionOffsets:
        """The offsets that a limit means, with EARLIEST and LATEST left as they are."""
        partitions = self.partitions()
        if limit.everywhere is not None:
            return dict.fromkeys(partitions, limit.everywhere)
        named = limit.offsets if limit.offsets is not None else limit.timestamps
        if named is not None and named.keys() != partitions:
            raise OptionError(
                f"{limit.option} must name every partition that is read, and no other (it has "
                f"{names(set(named))}; there are {names(partitions)})\n"
                "Try: -1 for latest and -2 for earliest where the offset does not matter"
            )
        if limit.offsets is not None:
            return dict(limit.offsets)
        if limit.timestamps is not None:
            return self._at(limit, limit.timestamps)
        assert limit.timestamp is not None
        return self._at(limit, dict.fromkeys(partitions, limit.timestamp))

    def final(self, offsets: Mapping[TopicPartition, int]) -> PartitionOffsets:
        """The same offsets with EARLIEST and LATEST looked up."""
        wanted = {each: offset for each, offset in offsets.items() if offset < 0}
        return {**offsets, **self.find(wanted)}

    def find(self, wanted: Mapping[TopicPartition, int]) -> PartitionOffsets:
        """The offset of each for a time, EARLIEST or LATEST; LATEST where nothing is that late."""
        if not wanted:
            return {}
        return self._retrying(lambda: self._find(wanted))

    # Requests

    def _at(self, limit: Limit, timestamps: Mapping[TopicPartition, int]) -> PartitionOffsets:
        found = self.find(timestamps)
        late = {each for each, offset in found.items() if offset == LATEST}
        if late and limit.option.startswith("starting") and not self.options.latest_if_no_match:
            raise OptionError(
                f"{limit.option} ({limit.text}): nothing is that late in {names(late)}\n"
                "Try: startingOffsetsByTimestampStrategy latest, to wait for what comes"
            )
        return found

    def _listed(self, what: int, wanted: Iterable[TopicPartition] | None) -> PartitionOffsets:
        def attempt() -> PartitionOffsets:
            partitions = self._partitions()
            if wanted is not None:
                partitions &= set(wanted)
            return self._find(dict.fromkeys(partitions, what))

        return self._retrying(attempt)

    def _latest(self) -> PartitionOffsets:
        """The ends. ListOffsets for the partitions known so far leaves together with the Metadata
        request: every micro-batch waits for this."""
        early = None
        if self._known and self._offsets is not None:
            early = self._offsets.ask(dict.fromkeys(self._known, LATEST))
        partitions = self._partitions()
        found: PartitionOffsets = {}
        if early is not None:
            timeout_ms = self._bootstrapped().config["request_timeout_ms"]
            answers, _ = self._bootstrapped().wait(early, timeout_ms)
            found = {each: answers[each].offset for each in partitions & answers.keys()}
        rest = partitions - found.keys()
        return {**found, **self._find(dict.fromkeys(rest, LATEST))}

    def _find(self, wanted: Mapping[TopicPartition, int]) -> PartitionOffsets:
        if not wanted:
            return {}
        self._bootstrapped()
        assert self._offsets is not None
        found = self._offsets.find(wanted, None)
        return {each: found[each].offset for each in wanted}

    def _partitions(self) -> set[TopicPartition]:
        if time.monotonic() < self._known_until:
            return set(self._known)
        client = self._bootstrapped()
        subscription = self.options.subscription
        cluster = BrokerWait(client, self.options.broker_timeout_ms).cluster()
        if subscription.pattern is not None:
            # As in Spark's connector the pattern may match anywhere in the name.
            wanted = [
                name
                for name, topic in sorted(cluster.topics.items())
                if re.search(subscription.pattern, name) and not topic.internal
            ]
        else:
            wanted = sorted(client.metadata.topics)
        found: set[TopicPartition] = set()
        for name in wanted:
            topic = cluster.topics.get(name)
            trouble = topic_trouble(name, topic, auto_create=False)
            if trouble is not None or topic is None:
                raise MissingTopic(trouble[1] if trouble else f"there is no topic {name!r}")
            found.update(TopicPartition(name, each.partition) for each in topic.partitions)
        if subscription.partitions:
            if missing := subscription.partitions - found:
                raise MissingTopic(
                    f"assign names partitions that are not there: {names(set(missing))}\n"
                    f"There are {names(found)}"
                )
            found &= subscription.partitions
        if self.options.metadata_ttl_ms > 0:
            self._known_until = time.monotonic() + self.options.metadata_ttl_ms / 1000
        self._known = found
        return set(found)

    def _bootstrapped(self) -> ConsumerClient:
        if self._client is None:
            config = read_options({"allow_auto_create_topics": False}, dict(self.options.client))
            client = Client(config, "spark-driver")
            subscription = self.options.subscription
            client.metadata.all_topics = subscription.pattern is not None
            client.metadata.topics = {
                *subscription.topics, *(each.topic for each in subscription.partitions),
            }  # fmt: skip
            try:
                client.bootstrap()
            except BaseException:
                client.close()
                raise
            self._client = client
            isolation_level = int(config["isolation_level"] == "read_committed")
            self._offsets = Offsets(client, isolation_level)
        return self._client

    def _retrying(self, attempt: Callable[[], T]) -> T:
        for left in range(self.options.retries - 1, -1, -1):
            try:
                return attempt()
            except BrokerAway:
                raise
            except KafkaError as problem:
                if not left:
                    raise
                log.warning("offsets were not found: %s; trying again", problem)
                self._known_until = 0.0
                time.sleep(self.options.retry_interval_ms / 1000)
        return attempt()

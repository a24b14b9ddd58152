"""The configs of share groups that the leaders of partitions need."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ottla.broker.shares.dead_letters import COPY_RECORD, TOPIC_NAME, is_on
from ottla.broker.shares.ranges import ARCHIVED, ARCHIVING, Limits
from ottla.coordinator.group_options import GroupOptions
from ottla.replica.reads import FetchIsolation
from ottla.settings.group import GROUP_CONFIGS

if TYPE_CHECKING:
    from ottla.coordinator.topics import TopicsView
    from ottla.replica.partition import Partition
    from ottla.seams.clock import Clock

DURATION = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(?:T(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+(?:[.,]\d*)?)S)?)?",
    re.IGNORECASE,
)
BY_DURATION = "by_duration:"


class ShareConfigs:
    """Reads them as they are now."""

    def __init__(self, options: GroupOptions, topics: TopicsView, clock: Clock) -> None:
        self._options = options
        self._topics = topics
        self._clock = clock

    def limits(self, group_id: str) -> Limits:
        number = self._options.of_group
        return Limits(
            number(group_id, "group.share.delivery.count.limit"),
            number(group_id, "group.share.partition.max.record.locks"),
            number(group_id, "group.share.record.lock.duration.ms"),
            ARCHIVING if self.dead_letter_topic(group_id) else ARCHIVED,
        )

    def dead_letter_topic(self, group_id: str) -> str:
        """The topic to which records go that nobody can process; empty if there is none."""
        topic = str(self._own(group_id, TOPIC_NAME)).strip()
        return topic if is_on(self._topics.image, topic) else ""

    def copies_records(self, group_id: str) -> bool:
        return self._own(group_id, COPY_RECORD) is True

    def lock_ms(self, group_id: str) -> int:
        return self._options.of_group(group_id, "group.share.record.lock.duration.ms")

    def sessions_max(self) -> int:
        return self._options.broker("group.share.max.share.sessions")

    def isolation(self, group_id: str) -> FetchIsolation:
        committed = self._own(group_id, "share.isolation.level") == "read_committed"
        return FetchIsolation.TXN_COMMITTED if committed else FetchIsolation.HIGH_WATERMARK

    def may_renew(self, group_id: str) -> bool:
        return self._own(group_id, "share.renew.acknowledge.enable") is True

    def first_offset(self, group_id: str, partition: Partition) -> int:
        """Where a group without a position begins (`share.auto.offset.reset`)."""
        reset = str(self._own(group_id, "share.auto.offset.reset"))
        if reset == "earliest":
            return partition.log_start_offset
        end_offset = partition.high_watermark
        if reset.startswith(BY_DURATION):
            timestamp = self._clock.now_ms() - duration_ms(reset.removeprefix(BY_DURATION))
            found = partition.offset_for_timestamp(timestamp, end_offset=end_offset)
            if found is not None and found.offset < end_offset:
                return found.offset
        return end_offset

    def _own(self, group_id: str, config: str) -> object:
        configs = self._topics.image.group_configs
        own = configs[group_id].get(config) if group_id in configs else None
        option = GROUP_CONFIGS[config]
        return option.default if own is None else option.parse(own)


def duration_ms(text: str) -> int:
    """Milliseconds of a duration as Java's Duration.parse reads it; the config was checked."""
    match = DURATION.fullmatch(text)
    assert match is not None, text
    sign, days, hours, minutes, seconds = match.groups()
    total_s = int(days or 0) * 86_400 + int(hours or 0) * 3_600 + int(minutes or 0) * 60
    total_ms = total_s * 1000 + int(float((seconds or "0").replace(",", ".")) * 1000)
    return -total_ms if sign == "-" else total_ms

"""The share partitions of this broker, one for each group and partition that it leads."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.partitions import missing
from ottla.broker.shares.dead_letter_writer import DeadLetterWriter
from ottla.broker.shares.group_configs import ShareConfigs
from ottla.broker.shares.persister import Persister
from ottla.broker.shares.sessions import Place, ShareSession, ShareSessions
from ottla.broker.shares.share_partition import Outcome, SharePartition
from ottla.coordinator.group_options import GroupOptions
from ottla.coordinator.share_state import SharePartitionKey
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.cluster.image import ClusterImage
    from ottla.coordinator.topics import TopicsView


class ShareManager:
    """Makes share partitions when they are first asked for, and drops them with the leadership."""

    def __init__(self, broker: Broker, options: GroupOptions, topics: TopicsView) -> None:
        self._broker = broker
        self.persister = Persister(broker)
        self.configs = ShareConfigs(options, topics, broker.clock)
        self.sessions = ShareSessions(self.configs.sessions_max, self._session_gone)
        self.dead_letters = DeadLetterWriter(broker, self.configs)
        self._partitions: dict[SharePartitionKey, SharePartition] = {}
        self._by_group: dict[str, dict[SharePartitionKey, SharePartition]] = {}

    def find(self, group_id: str, place: Place) -> SharePartition | ErrorCode:
        """The share partition, loading or loaded; an error where this broker does not lead."""
        topic_id, index = place
        key = SharePartitionKey(group_id, topic_id, index)
        known = self._partitions.get(key)
        if known is not None:
            if known.is_current:
                return known
            self._drop(known)
            if known.lost:
                return known.error  # once; who asks again has it loaded anew
        broker = self._broker
        topic = broker.image.topic_name(topic_id)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partition = broker.partitions.get(topic, index)
        if partition is None:
            return missing(broker.image, topic, index, broker.node_id)
        error = partition.error_for_client()
        if error:
            return error
        made = self._partitions[key] = SharePartition(
            key,
            partition,
            self.persister,
            self.configs,
            broker.clock,
            self.dead_letters,
            on_available=lambda found: broker.purgatory.wake_soon(found, None),
            on_idle=self._drop_unused,
        )
        self._by_group.setdefault(group_id, {})[key] = made
        made.load()
        return made

    def known(self, group_id: str, place: Place) -> SharePartition | None:
        """The share partition if there is one."""
        known = self._partitions.get(SharePartitionKey(group_id, *place))
        return known if known is not None and known.is_current else None

    def release(self, session: ShareSession) -> None:
        """What the member of a session holds is for others.

        With a group's last session here its share partitions go: all that they know is written,
        and the group's offsets may be changed before somebody reads on.
        """
        for known in list(self._by_group.get(session.group_id, {}).values()):
            known.release(session.member_id, partial(self._released, known))

    def _released(self, known: SharePartition, outcome: Outcome) -> None:
        self._drop_unused(known)

    def _drop_unused(self, known: SharePartition) -> None:
        if known.is_idle and not self.sessions.has_group(known.key.group_id):
            self._drop(known)

    def follow(self, image: ClusterImage) -> None:
        """The cluster image has changed: drop what this broker does not lead any more."""
        for each in [each for each in self._partitions.values() if not each.is_current]:
            self._drop(each)

    def close(self) -> None:
        for each in list(self._partitions.values()):
            self._drop(each)

    def _drop(self, known: SharePartition) -> None:
        group_id = known.key.group_id
        if self._partitions.get(known.key) is known:
            del self._partitions[known.key]
            of_group = self._by_group[group_id]
            del of_group[known.key]
            if not of_group:
                del self._by_group[group_id]
        known.close()

    def _session_gone(self, session: ShareSession) -> None:
        self.release(session)
